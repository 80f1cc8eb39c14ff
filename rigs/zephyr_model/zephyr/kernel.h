#pragma once
#include <stdint.h>
int32_t k_msleep(int32_t ms);
uint32_t k_uptime_get_32(void);
