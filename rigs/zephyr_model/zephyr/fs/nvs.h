/* Models of the parts of Zephyr that clients/c/zephyr uses, implemented in zephyr_model/nvs.c, and declarations for its sample. */
#pragma once
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
struct device;
struct nvs_fs {
    off_t offset;
    uint16_t sector_size, sector_count;
    const struct device *flash_device;
};
int nvs_mount(struct nvs_fs *fs);
ssize_t nvs_read(struct nvs_fs *fs, uint16_t id, void *data, size_t len);
ssize_t nvs_write(struct nvs_fs *fs, uint16_t id, const void *data, size_t len);
int nvs_delete(struct nvs_fs *fs, uint16_t id);
