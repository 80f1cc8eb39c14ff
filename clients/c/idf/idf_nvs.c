/* Storage in NVS: strings of hex digits, two for the ledger and one for each kept experiment.

   NVS replaces a string atomically, so after a power cut it holds either the old or the new string. A blob consists of
   data and an index: after a power cut between writing the two, NVS drops both the old and the new blob at the next
   start. So this port does not use blobs. */
#include <stdio.h>
#include <stdlib.h>

#include "esp_random.h"
#include "hushmote_idf.h"
#include "nvs.h"
#include "nvs_flash.h"

#define KEY_BYTES 16          /* NVS_KEY_NAME_MAX_SIZE */
#define LONGEST_STRING 4000   /* including the zero byte; limited by the capacity of one NVS page */
#define LONGEST_RECORD HUSHMOTE_RECORD_BYTES(64, HUSHMOTE_UNSENT_MAX)

_Static_assert(2 * HUSHMOTE_KEPT_BYTES + 1 <= LONGEST_STRING, "a kept experiment does not fit into an NVS string");
_Static_assert(2 * LONGEST_RECORD + 1 <= LONGEST_STRING, "a ledger record does not fit into an NVS string");

int hushmote_idf_open(struct hushmote_idf *idf) {
    const char *partition = idf->partition == NULL ? "hushmote" : idf->partition;
    const char *name_space = idf->name_space == NULL ? "hushmote" : idf->name_space;
    nvs_handle_t handle = 0;
    esp_err_t code = nvs_flash_init_partition(partition);
    if (code == ESP_OK)
        code = nvs_open_from_partition(partition, name_space, NVS_READWRITE, &handle);
    idf->nvs = handle;
    return (int)code;
}

static int value_of(char digit) {
    return digit >= '0' && digit <= '9' ? digit - '0' : digit >= 'a' && digit <= 'f' ? digit - 'a' + 10 : -1;
}

/* Decode hex digits into at most `bytes` bytes of data. Return the number of bytes that the digits encode, or -1. */
static long decode(const char *digits, size_t count, uint8_t *data, size_t bytes) {
    for (size_t i = 0; i < count / 2; i++) {
        int high = value_of(digits[2 * i]), low = value_of(digits[2 * i + 1]);
        if (high < 0 || low < 0)
            return -1;
        if (i < bytes)
            data[i] = (uint8_t)(high << 4 | low);
    }
    return count % 2 == 0 ? (long)(count / 2) : -1;
}

static long read_string(const struct hushmote_idf *idf, const char *key, uint8_t *data, size_t bytes) {
    size_t length = 0; /* including the zero byte */
    esp_err_t code = nvs_get_str(idf->nvs, key, NULL, &length);
    long result = -1;
    char *digits;
    if (code == ESP_ERR_NVS_NOT_FOUND)
        return 0;
    digits = code == ESP_OK ? malloc(length) : NULL;
    if (digits != NULL && nvs_get_str(idf->nvs, key, digits, &length) == ESP_OK)
        result = decode(digits, length - 1, data, bytes);
    free(digits);
    return result;
}

static esp_err_t set_string(const struct hushmote_idf *idf, const char *key, const uint8_t *data, size_t bytes) {
    static const char values[] = "0123456789abcdef";
    char *digits = malloc(2 * bytes + 1);
    esp_err_t code;
    if (digits == NULL)
        return ESP_ERR_NO_MEM;
    for (size_t i = 0; i < bytes; i++) {
        digits[2 * i] = values[data[i] >> 4];
        digits[2 * i + 1] = values[data[i] & 15];
    }
    digits[2 * bytes] = 0;
    code = nvs_set_str(idf->nvs, key, digits);
    free(digits);
    return code;
}

static int write_string(const struct hushmote_idf *idf, const char *key, const uint8_t *data, size_t bytes) {
    esp_err_t code = bytes == 0 ? nvs_erase_key(idf->nvs, key) : set_string(idf, key, data, bytes);
    if (code == ESP_ERR_NVS_NOT_FOUND) /* an earlier call may have erased it, but failed to commit */
        code = ESP_OK;
    return code == ESP_OK && nvs_commit(idf->nvs) == ESP_OK ? 0 : -1;
}

long hushmote_idf_read(void *idf, int slot, uint8_t *data, size_t bytes) {
    return read_string(idf, slot == 0 ? "ledger0" : "ledger1", data, bytes);
}

int hushmote_idf_write(void *idf, int slot, const uint8_t *data, size_t bytes) {
    return write_string(idf, slot == 0 ? "ledger0" : "ledger1", data, bytes);
}

/* A name can have 32 characters but a key only 15, so the key is FNV-1a of the name. If two names have the same key,
   each name's seal rejects the other's bytes, and the experiments wait for the broker. */
static void key_of(const char *name, char key[KEY_BYTES]) {
    uint32_t hash = 2166136261u;
    for (; *name; name++)
        hash = (hash ^ (uint8_t)*name) * 16777619u;
    snprintf(key, KEY_BYTES, "kept%08lx", (unsigned long)hash);
}

long hushmote_idf_read_kept(void *idf, const char *name, uint8_t *data, size_t bytes) {
    char key[KEY_BYTES];
    key_of(name, key);
    return read_string(idf, key, data, bytes);
}

int hushmote_idf_write_kept(void *idf, const char *name, const uint8_t *data, size_t bytes) {
    char key[KEY_BYTES];
    key_of(name, key);
    return write_string(idf, key, data, bytes);
}

int hushmote_idf_entropy(void *idf, uint8_t *data, size_t bytes) {
    (void)idf;
    esp_fill_random(data, bytes);
    return 0;
}
