/* Storage in NVS: two blobs for the ledger, one for each kept experiment. NVS writes a blob anew beside the old one. */
#include <stdio.h>

#include "esp_random.h"
#include "hushmote_idf.h"
#include "nvs.h"

#define KEY_BYTES 16 /* NVS_KEY_NAME_MAX_SIZE */

int hushmote_idf_open(struct hushmote_idf *idf) {
    nvs_handle_t handle = 0;
    esp_err_t code = nvs_open("hushmote", NVS_READWRITE, &handle);
    idf->nvs = handle;
    return (int)code;
}

static long read_blob(const struct hushmote_idf *idf, const char *key, uint8_t *data, size_t bytes) {
    size_t held = 0;
    esp_err_t code = nvs_get_blob(idf->nvs, key, NULL, &held);
    if (code == ESP_ERR_NVS_NOT_FOUND)
        return 0;
    if (code == ESP_OK && held <= bytes)
        code = nvs_get_blob(idf->nvs, key, data, &held);
    return code == ESP_OK ? (long)held : -1;
}

static int write_blob(const struct hushmote_idf *idf, const char *key, const uint8_t *data, size_t bytes) {
    esp_err_t code = bytes == 0 ? nvs_erase_key(idf->nvs, key) : nvs_set_blob(idf->nvs, key, data, bytes);
    if (code == ESP_ERR_NVS_NOT_FOUND)
        return 0;
    return code == ESP_OK && nvs_commit(idf->nvs) == ESP_OK ? 0 : -1;
}

long hushmote_idf_read(void *idf, int slot, uint8_t *data, size_t bytes) {
    return read_blob(idf, slot == 0 ? "ledger0" : "ledger1", data, bytes);
}

int hushmote_idf_write(void *idf, int slot, const uint8_t *data, size_t bytes) {
    return write_blob(idf, slot == 0 ? "ledger0" : "ledger1", data, bytes);
}

/* A name has up to 32 characters, a key 15: so it is FNV-1a of the name. Should two have one, each has the other's bytes
   refused by their seal, and waits for the broker. */
static void key_of(const char *name, char key[KEY_BYTES]) {
    uint32_t hash = 2166136261u;
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    snprintf(key, KEY_BYTES, "kept%08lx", (unsigned long)hash);
}

long hushmote_idf_read_kept(void *idf, const char *name, uint8_t *data, size_t bytes) {
    char key[KEY_BYTES];
    key_of(name, key);
    return read_blob(idf, key, data, bytes);
}

int hushmote_idf_write_kept(void *idf, const char *name, const uint8_t *data, size_t bytes) {
    char key[KEY_BYTES];
    key_of(name, key);
    return write_blob(idf, key, data, bytes);
}

int hushmote_idf_entropy(void *idf, uint8_t *data, size_t bytes) {
    (void)idf;
    esp_fill_random(data, bytes);
    return 0;
}
