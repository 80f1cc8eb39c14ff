/* Tasks of FreeRTOS that take turns in virtual time: only waiting takes any, so what a call blocks is exact. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#define FOREVER UINT32_MAX

uint32_t virtual_now(void); /* in ms */
/* Let other tasks run until `is_ready` says so, or for so many ms; returns whether it does. NULL: never ready. */
bool wait_for(bool (*is_ready)(void *), void *context, uint32_t ms);
void begin_task(void (*code)(void *), void *context);
