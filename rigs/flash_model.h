/* A flash in RAM that can lose power before any operation, for the storage models. */
#pragma once
#include <setjmp.h>
#include <stdbool.h>

extern long flash_operations; /* number since the flash was new */
extern long flash_cut;        /* the operation before which the power fails; -1: never */
extern jmp_buf flash_power;   /* where execution continues when the power fails */

/* Called before each write or erase. */
static inline void flash_operation(void) {
    if (flash_operations++ == flash_cut)
        longjmp(flash_power, 1);
}

/* Defined by the linked model: create a new flash, and start from the current contents of the flash. */
void storage_new(void);
void storage_start(void);
