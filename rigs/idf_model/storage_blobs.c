/* Store blobs as ESPHome's preferences do on an ESP32: written when sync() is called, and only if they have changed. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "../storage_port.h"
#include "nvs.h"
#include "nvs_flash.h"

#define SLOT_BYTES 1200

static nvs_handle_t handle;
static struct {
    char key[16];
    uint8_t data[SLOT_BYTES];
    size_t bytes;
    bool is_set;
} pending;

static int reopen_storage(void) {
    pending.is_set = false;
    if (nvs_flash_init_partition("hushmote") != ESP_OK)
        return -1;
    return nvs_open_from_partition("hushmote", "esphome", NVS_READWRITE, &handle);
}

static long load(const char *key, uint8_t *data, size_t bytes) {
    uint8_t slot[SLOT_BYTES];
    size_t stored_bytes = 0;
    if (nvs_get_blob(handle, key, slot, &stored_bytes) != ESP_OK)
        return 0;
    memcpy(data, slot, stored_bytes < bytes ? stored_bytes : bytes);
    return (long)stored_bytes;
}

static void save(const char *key, const uint8_t *data, size_t bytes) {
    snprintf(pending.key, sizeof pending.key, "%s", key);
    memcpy(pending.data, data, bytes);
    pending.bytes = bytes;
    pending.is_set = true;
}

static int sync_changes(void) {
    uint8_t slot[SLOT_BYTES];
    size_t stored_bytes = 0;
    bool is_same = pending.is_set && nvs_get_blob(handle, pending.key, slot, &stored_bytes) == ESP_OK &&
                   stored_bytes == pending.bytes && memcmp(slot, pending.data, stored_bytes) == 0;
    bool is_written = is_same || !pending.is_set ||
                      nvs_set_blob(handle, pending.key, pending.data, pending.bytes) == ESP_OK;
    pending.is_set = false;
    return is_written && nvs_commit(handle) == ESP_OK ? 0 : -1;
}

static long read_slot(void *context, int slot, uint8_t *data, size_t bytes) {
    (void)context;
    return load(slot == 0 ? "ledger0" : "ledger1", data, bytes);
}

static int write_slot(void *context, int slot, const uint8_t *data, size_t bytes) {
    (void)context;
    save(slot == 0 ? "ledger0" : "ledger1", data, bytes);
    return sync_changes();
}

static long read_experiment(void *context, const char *name, uint8_t *data, size_t bytes) {
    (void)context;
    return load(name, data, bytes);
}

static int write_experiment(void *context, const char *name, const uint8_t *data, size_t bytes) {
    (void)context;
    save(name, data, bytes);
    return sync_changes();
}

const struct storage_port storage_port = {reopen_storage, read_slot, write_slot, read_experiment, write_experiment, NULL, NULL};
