#pragma once
#define pdPASS 1
typedef struct task *TaskHandle_t;
BaseType_t xTaskCreate(void (*pxTaskCode)(void *), const char *pcName, uint32_t usStackDepth, void *pvParameters,
                       UBaseType_t uxPriority, TaskHandle_t *pxCreatedTask);
void vTaskDelete(TaskHandle_t xTaskToDelete);
void vTaskDelay(TickType_t xTicksToDelay);
