/* Storage in NVS, which keeps an item's old bytes until the new ones are completely written, and kernel randomness. */
#include <errno.h>
#include <string.h>

#include <zephyr/fs/nvs.h>
#include <zephyr/random/random.h>

#include "hushmote_zephyr.h"

static long read_item(const struct hushmote_zephyr *zephyr, unsigned at, uint8_t *data, size_t bytes) {
    ssize_t size = nvs_read(zephyr->fs, (uint16_t)(zephyr->first_id + at), data, bytes);
    return size == -ENOENT ? 0 : size < 0 ? -1 : (long)size;
}

/* nvs_write() returns 0 if the item already has these bytes. */
static int write_item(const struct hushmote_zephyr *zephyr, unsigned at, const uint8_t *data, size_t bytes) {
    uint16_t id = (uint16_t)(zephyr->first_id + at);
    if (bytes == 0)
        return nvs_delete(zephyr->fs, id) == 0 ? 0 : -1;
    return nvs_write(zephyr->fs, id, data, bytes) < 0 ? -1 : 0;
}

long hushmote_zephyr_read(void *zephyr, int slot, uint8_t *data, size_t bytes) {
    return read_item(zephyr, slot == 0 ? 0 : 1, data, bytes);
}

int hushmote_zephyr_write(void *zephyr, int slot, const uint8_t *data, size_t bytes) {
    return write_item(zephyr, slot == 0 ? 0 : 1, data, bytes);
}

int hushmote_zephyr_entropy(void *zephyr, uint8_t *data, size_t bytes) {
    (void)zephyr;
    return sys_csrand_get(data, bytes) == 0 ? 0 : -1;
}

static unsigned item_of(const struct hushmote_zephyr *zephyr, const char *name) {
    const struct hushmote_policy *policy = zephyr->policy;
    unsigned at = 0;
    size_t bytes = strcspn(name, ".");
    while (at < policy->name_count && (strlen(policy->names[at]) != bytes || memcmp(policy->names[at], name, bytes) != 0))
        at++;
    return 2 + at + (name[bytes] ? policy->name_count : 0); /* names ending in ".yes" store opt-ins to questions */
}

long hushmote_zephyr_read_kept(void *context, const char *name, uint8_t *data, size_t bytes) {
    const struct hushmote_zephyr *zephyr = context;
    return read_item(zephyr, item_of(zephyr, name), data, bytes);
}

int hushmote_zephyr_write_kept(void *context, const char *name, const uint8_t *data, size_t bytes) {
    const struct hushmote_zephyr *zephyr = context;
    return write_item(zephyr, item_of(zephyr, name), data, bytes);
}
