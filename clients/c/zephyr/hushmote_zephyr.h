/* A port of the client's storage and randomness to Zephyr: NVS, and sys_csrand_get(). */
#ifndef HUSHMOTE_ZEPHYR_H
#define HUSHMOTE_ZEPHYR_H

#include "hushmote.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nvs_fs;

/* Mount an NVS on the whole storage_partition of the devicetree; 0, or an errno below 0: never answer that with an erase or
   nvs_clear(), which forget what was spent. Needs CONFIG_FLASH_MAP and CONFIG_FLASH_PAGE_LAYOUT. */
int hushmote_zephyr_mount(struct nvs_fs *fs);

struct hushmote_zephyr { /* the context of config, and of port's kept experiments */
    struct nvs_fs *fs;   /* mounted */
    uint16_t first_id;   /* this id, the next, and two more for each name of the policy are the client's */
    const struct hushmote_policy *policy;
};

long hushmote_zephyr_read(void *zephyr, int slot, uint8_t *data, size_t bytes);
int hushmote_zephyr_write(void *zephyr, int slot, const uint8_t *data, size_t bytes);
int hushmote_zephyr_entropy(void *zephyr, uint8_t *data, size_t bytes);
long hushmote_zephyr_read_kept(void *zephyr, const char *name, uint8_t *data, size_t bytes);
int hushmote_zephyr_write_kept(void *zephyr, const char *name, const uint8_t *data, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
