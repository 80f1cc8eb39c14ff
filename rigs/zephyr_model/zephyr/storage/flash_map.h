#pragma once
#define FIXED_PARTITION_EXISTS(label) 1
#define FIXED_PARTITION_DEVICE(label) ((const struct device *)0)
#define FIXED_PARTITION_OFFSET(label) 0
#define FIXED_PARTITION_SIZE(label) 0x3000
