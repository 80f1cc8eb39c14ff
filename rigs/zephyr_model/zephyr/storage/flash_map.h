#pragma once
#define FIXED_PARTITION_EXISTS(label) 1
#define FIXED_PARTITION_DEVICE(label) ((const struct device *)0)
#define FIXED_PARTITION_OFFSET(label) 0
#define FIXED_PARTITION_SIZE(label) 0x3000
#include <stdint.h>
extern uint8_t identity_page[4096]; /* memory-mapped flash */
#define CONFIG_FLASH_BASE_ADDRESS identity_page
