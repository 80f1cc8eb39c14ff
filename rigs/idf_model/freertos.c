#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "freertos/FreeRTOS.h"
#include "freertos/queue.h"
#include "freertos/task.h"
#include "virtual_time.h"

#define TASKS 16
#define STACK_BYTES 65536

struct task {
    ucontext_t context;
    char *stack;
    void (*code)(void *);
    void *argument;
    bool (*is_ready)(void *);
    void *what;
    uint64_t deadline;
    bool exists;
};

static struct task tasks[TASKS] = {{.exists = true}}; /* the first is main() */
static unsigned running;
static uint64_t now;

uint32_t virtual_now(void) {
    return (uint32_t)now;
}

static bool may_run(const struct task *task) {
    return task->exists && (task->deadline <= now || (task->is_ready != NULL && task->is_ready(task->what)));
}

/* Run another task, or this one again; if all are waiting, advance time. */
static void take_turns(void) {
    unsigned next = running, before = running;
    uint64_t soonest = UINT64_MAX;
    for (unsigned i = 1; i <= TASKS; i++) {
        next = (running + i) % TASKS;
        if (may_run(&tasks[next])) {
            running = next;
            if (next != before)
                swapcontext(&tasks[before].context, &tasks[next].context);
            return;
        }
        if (tasks[next].exists && tasks[next].deadline < soonest)
            soonest = tasks[next].deadline;
    }
    if (soonest == UINT64_MAX)
        abort(); /* all wait for each other */
    now = soonest;
    take_turns();
}

bool wait_for(bool (*is_ready)(void *), void *context, uint32_t ms) {
    struct task *task = &tasks[running];
    task->is_ready = is_ready;
    task->what = context;
    task->deadline = ms == FOREVER ? UINT64_MAX : now + ms;
    take_turns();
    return is_ready != NULL && is_ready(context);
}

static void enter(void) {
    tasks[running].code(tasks[running].argument);
    vTaskDelete(NULL);
}

static struct task *free_task(void) {
    struct task *task = tasks;
    while (task->exists)
        task++;
    free(task->stack);
    memset(task, 0, sizeof *task);
    return task;
}

void begin_task(void (*code)(void *), void *context) {
    struct task *const task = free_task();
    getcontext(&task->context);
    task->code = code;
    task->argument = context;
    task->stack = malloc(STACK_BYTES);
    task->exists = true;
    task->context.uc_stack.ss_sp = task->stack;
    task->context.uc_stack.ss_size = STACK_BYTES;
    makecontext(&task->context, enter, 0);
}

BaseType_t xTaskCreate(void (*pxTaskCode)(void *), const char *pcName, uint32_t usStackDepth, void *pvParameters,
                       UBaseType_t uxPriority, TaskHandle_t *pxCreatedTask) {
    (void)pcName;
    (void)usStackDepth;
    (void)uxPriority;
    (void)pxCreatedTask;
    begin_task(pxTaskCode, pvParameters);
    return pdPASS;
}

void vTaskDelete(TaskHandle_t xTaskToDelete) {
    (void)xTaskToDelete; /* NULL means the calling task */
    tasks[running].exists = false;
    take_turns();
}

void vTaskDelay(TickType_t xTicksToDelay) {
    (void)wait_for(NULL, NULL, 10 * xTicksToDelay);
}

struct QueueDefinition {
    char *items;
    unsigned length, size, count;
};

QueueHandle_t xQueueCreate(UBaseType_t uxQueueLength, UBaseType_t uxItemSize) {
    struct QueueDefinition *queue = malloc(sizeof *queue);
    queue->items = malloc((size_t)uxQueueLength * uxItemSize);
    queue->length = uxQueueLength;
    queue->size = uxItemSize;
    queue->count = 0;
    return queue;
}

BaseType_t xQueueSend(QueueHandle_t xQueue, const void *pvItemToQueue, TickType_t xTicksToWait) {
    (void)xTicksToWait; /* the port never waits here */
    if (xQueue->count == xQueue->length)
        return 0;
    memcpy(xQueue->items + (size_t)xQueue->count++ * xQueue->size, pvItemToQueue, xQueue->size);
    return pdTRUE;
}

static bool has_items(void *queue) {
    return ((struct QueueDefinition *)queue)->count > 0;
}

BaseType_t xQueueReceive(QueueHandle_t xQueue, void *pvBuffer, TickType_t xTicksToWait) {
    if (xTicksToWait > 0 && xQueue->count == 0)
        (void)wait_for(has_items, xQueue, 10 * xTicksToWait);
    if (xQueue->count == 0)
        return 0;
    memcpy(pvBuffer, xQueue->items, xQueue->size);
    memmove(xQueue->items, xQueue->items + xQueue->size, (size_t)--xQueue->count * xQueue->size);
    return pdTRUE;
}
