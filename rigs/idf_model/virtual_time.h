/* FreeRTOS tasks that take turns in virtual time: only waiting takes time, so blocking times are exact. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define FOREVER UINT32_MAX

uint32_t virtual_now(void); /* in ms */
/* Let other tasks run until `is_ready` returns true or `ms` have passed; return its last result. NULL: never ready. */
bool wait_for(bool (*is_ready)(void *), void *context, uint32_t ms);
void begin_task(void (*code)(void *), void *context);
