/* A flash in RAM whose power can fail before any operation, for the models of storage. */
#pragma once
#include <setjmp.h>
#include <stdbool.h>

extern long flash_operations; /* since the flash was new */
extern long flash_cut;        /* the operation before which the power fails; -1: never */
extern jmp_buf flash_power;   /* where it goes on without power */

/* Before each write or erase. */
static inline void flash_operation(void) {
    if (flash_operations++ == flash_cut)
        longjmp(flash_power, 1);
}

/* Of the model that is linked: a new flash, and a start from what the flash holds. */
void storage_new(void);
void storage_start(void);
