/* Mount the NVS in the partition that most Zephyr boards use for settings, and find the page of the board's identity. */
#include <errno.h>

#include <zephyr/drivers/flash.h>
#include <zephyr/fs/nvs.h>
#include <zephyr/storage/flash_map.h>

#include "hushmote_zephyr.h"

int hushmote_zephyr_mount(struct nvs_fs *fs) {
#if FIXED_PARTITION_EXISTS(storage_partition)
    struct flash_pages_info page;
    fs->flash_device = FIXED_PARTITION_DEVICE(storage_partition);
    fs->offset = FIXED_PARTITION_OFFSET(storage_partition);
    if (!device_is_ready(fs->flash_device) || flash_get_page_info_by_offs(fs->flash_device, fs->offset, &page) != 0)
        return -ENODEV;
    fs->sector_size = (uint16_t)page.size;
    fs->sector_count = (uint16_t)(FIXED_PARTITION_SIZE(storage_partition) / page.size);
    return nvs_mount(fs);
#else
    (void)fs;
    return -ENODEV;
#endif
}

const void *hushmote_zephyr_page(void) {
#if FIXED_PARTITION_EXISTS(identity_partition)
    return (const void *)((uintptr_t)CONFIG_FLASH_BASE_ADDRESS + FIXED_PARTITION_OFFSET(identity_partition));
#else
    return NULL;
#endif
}
