/* Storage in NVS, which keeps an item's old bytes until the new ones are completely written, and kernel randomness. */
#include <errno.h>
#include <string.h>

#include <zephyr/fs/nvs.h>
#include <zephyr/random/random.h>

#include "hushmote_zephyr.h"

static long read_item(const struct hushmote_zephyr *zephyr, int id, uint8_t *data, size_t bytes) {
    ssize_t size = nvs_read(zephyr->fs, (uint16_t)id, data, bytes);
    return size == -ENOENT ? 0 : size < 0 ? -1 : (long)size;
}

/* nvs_write() returns 0 if the item already has these bytes. */
static int write_item(const struct hushmote_zephyr *zephyr, int id, const uint8_t *data, size_t bytes) {
    if (bytes == 0)
        return nvs_delete(zephyr->fs, (uint16_t)id) == 0 ? 0 : -1;
    return nvs_write(zephyr->fs, (uint16_t)id, data, bytes) < 0 ? -1 : 0;
}

static int ledger_id(const struct hushmote_zephyr *zephyr, int slot) {
    return zephyr->first_id + (slot == 0 ? 0 : 1);
}

long hushmote_zephyr_read(void *zephyr, int slot, uint8_t *data, size_t bytes) {
    return read_item(zephyr, ledger_id(zephyr, slot), data, bytes);
}

int hushmote_zephyr_write(void *zephyr, int slot, const uint8_t *data, size_t bytes) {
    return write_item(zephyr, ledger_id(zephyr, slot), data, bytes);
}

int hushmote_zephyr_entropy(void *zephyr, uint8_t *data, size_t bytes) {
    (void)zephyr;
    return sys_csrand_get(data, bytes) == 0 ? 0 : -1;
}

/* --- Kept experiments ----------------------------------------------------------------------------------------- */

/* Items are keyed by name, not by its position in the policy, because a firmware's policy may lack a name that the next
   firmware has again, and whose serial must not be lost or overwritten. The item at KEYS_AT + n holds the n-th name's
   hash; it is written before the name's first experiment or opt-in, and never deleted. */
#define KEYS_AT HUSHMOTE_ZEPHYR_KEPT_ID
#define EXPERIMENTS_AT (KEYS_AT + HUSHMOTE_ZEPHYR_NAMES)
#define OPT_INS_AT (EXPERIMENTS_AT + HUSHMOTE_ZEPHYR_NAMES)
#define OPT_OUT_AT (OPT_INS_AT + HUSHMOTE_ZEPHYR_NAMES)

enum { FAILED = -1, NO_ROOM = -2, ABSENT = -3 };

static uint64_t hash_of(const char *name, size_t bytes) { /* FNV-1a */
    uint64_t hash = UINT64_C(14695981039346656037);
    while (bytes-- > 0)
        hash = (hash ^ (uint8_t)*name++) * UINT64_C(1099511628211);
    return hash;
}

/* Return a name's number, or FAILED. If it has none, assign the next one, or return ABSENT, or NO_ROOM if all are used. */
static int number_of(struct nvs_fs *fs, const char *name, size_t bytes, bool assign) {
    uint64_t hash = hash_of(name, bytes), key;
    for (int at = 0; at < HUSHMOTE_ZEPHYR_NAMES; at++) {
        ssize_t size = nvs_read(fs, (uint16_t)(KEYS_AT + at), &key, sizeof key);
        if (size == (ssize_t)sizeof key && key == hash)
            return at;
        if (size == -ENOENT)
            return !assign ? ABSENT : nvs_write(fs, (uint16_t)(KEYS_AT + at), &hash, sizeof hash) < 0 ? FAILED : at;
        if (size < 0)
            return FAILED;
    }
    return NO_ROOM;
}

/* Return the id of a kept item, or a code below 0. `name` is an experiment's name, with ".yes" for the opt-in to its
   question, or ".no" for the last opt-out. */
static int id_of(struct nvs_fs *fs, const char *name, bool assign) {
    size_t bytes = strcspn(name, ".");
    int number;
    if (bytes == 0)
        return OPT_OUT_AT;
    number = number_of(fs, name, bytes, assign);
    return number < 0 ? number : (name[bytes] ? OPT_INS_AT : EXPERIMENTS_AT) + number;
}

/* Return the id under which earlier releases kept an experiment: its position in the policy. They used the same ids for
   opt-ins if the policy had other names, so nothing but an experiment with an intact seal may be used from there. */
static int old_id_of(const struct hushmote_zephyr *zephyr, const char *name) {
    const struct hushmote_policy *policy = zephyr->policy;
    for (unsigned at = 0; at < policy->name_count; at++) {
        if (strcmp(policy->names[at], name) == 0)
            return zephyr->first_id + 2 + (int)at;
    }
    return ABSENT;
}

long hushmote_zephyr_read_kept(void *context, const char *name, uint8_t *data, size_t bytes) {
    const struct hushmote_zephyr *zephyr = context;
    int id = id_of(zephyr->fs, name, false);
    long size = id >= 0 ? read_item(zephyr, id, data, bytes) : id == FAILED ? -1 : 0;
    if (size == 0) { /* the old item stays, for a rollback to the earlier release; it is unused once the new one exists */
        id = old_id_of(zephyr, name);
        size = id >= 0 ? read_item(zephyr, id, data, bytes) : 0;
    }
    return size;
}

int hushmote_zephyr_write_kept(void *context, const char *name, const uint8_t *data, size_t bytes) {
    const struct hushmote_zephyr *zephyr = context;
    int id = id_of(zephyr->fs, name, bytes > 0), old_id = old_id_of(zephyr, name);
    if (bytes > 0)
        return id >= 0 ? write_item(zephyr, id, data, bytes) : id == NO_ROOM ? 1 : -1;
    /* Only an open fleet's experiments, which have no serial, and opt-ins are removed. */
    if (old_id >= 0 && write_item(zephyr, old_id, data, 0) != 0)
        return -1;
    return id >= 0 ? write_item(zephyr, id, data, 0) : id == FAILED ? -1 : 0;
}
