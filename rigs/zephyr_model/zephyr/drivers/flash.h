#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>
struct device;
struct flash_pages_info { off_t start_offset; size_t size; unsigned index; };
bool device_is_ready(const struct device *dev);
int flash_get_page_info_by_offs(const struct device *dev, off_t offset, struct flash_pages_info *info);
