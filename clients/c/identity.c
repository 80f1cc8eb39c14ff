/* A board's identity from a page in flash. The header is a magic text, a version, the fields' length, and the SHA-256 of
   these and of the fields; fleet/provisioning/firmware.py writes it. Bytes after the fields are 0xff. */
#include <string.h>

#include "core.h"
#include "hushmote_identity.h"

#define MAGIC "HUSHMOTE"
#define VERSION 1
#define START_BYTES 12 /* magic, version and length */
#define HEADER_BYTES (START_BYTES + 32)

enum tag {
    FLEET = 1, DEVICE_ID, KEY, ANNOUNCE_KEY, HOSTS, PORT, PREFIX, USER, PASSWORD, CA, CERTIFICATE, CERTIFICATE_KEY, FLAGS,
    WIFI_SSID, WIFI_PASSWORD, TAGS
};

static bool is_erased(const uint8_t *data, size_t bytes) {
    while (bytes > 0 && *data == 0xff) {
        data++;
        bytes--;
    }
    return bytes == 0;
}

/* Return whether a field has the form that its tag requires. Fields that a later version adds are ignored. */
static bool is_well_formed(unsigned tag, const uint8_t *value, size_t bytes) {
    switch (tag) {
    case KEY:
        return bytes == 32;
    case ANNOUNCE_KEY:
        return bytes == 64;
    case PORT:
        return bytes == 2;
    case FLAGS:
        return bytes == 1;
    case FLEET:
    case DEVICE_ID:
        return bytes > 1 && value[bytes - 1] == 0 && hm_is_name(value, bytes - 1, tag == FLEET);
    default:
        return tag >= TAGS || (bytes > 0 && memchr(value, 0, bytes) == value + bytes - 1);
    }
}

/* Find each field's value. Return whether all fields are well formed, and occur once. */
static bool find_fields(const uint8_t *at, size_t left, const uint8_t *values[TAGS]) {
    for (unsigned tag = 0; tag < TAGS; tag++)
        values[tag] = NULL;
    while (left > 0) {
        size_t bytes = left < 3 ? 0 : (size_t)hm_get(at + 1, 2);
        if (left < 3 || bytes > left - 3 || !is_well_formed(*at, at + 3, bytes))
            return false;
        if (*at < TAGS) {
            if (values[*at] != NULL)
                return false;
            values[*at] = at + 3;
        }
        at += 3 + bytes;
        left -= 3 + bytes;
    }
    return values[FLEET] != NULL && values[DEVICE_ID] != NULL && values[PORT] != NULL && values[FLAGS] != NULL &&
           (values[KEY] == NULL) == (values[ANNOUNCE_KEY] == NULL);
}

static int check_header(const struct hushmote_config *config, const uint8_t *page, size_t bytes) {
    struct hushmote_piece pieces[2];
    uint8_t digest[32];
    size_t length;
#if !HUSHMOTE_WITH_SHA256
    if (config->sha256 == NULL)
        return HUSHMOTE_BAD_SETTINGS;
#endif
    if (page == NULL || is_erased(page, bytes))
        return HUSHMOTE_NO_IDENTITY;
    if (bytes < HEADER_BYTES || bytes > HUSHMOTE_PAGE_BYTES)
        return HUSHMOTE_IDENTITY_DAMAGED;
    if (memcmp(page, MAGIC, sizeof MAGIC - 1) != 0)
        return HUSHMOTE_IDENTITY_OTHER;
    if (hm_get(page + 8, 2) != VERSION)
        return HUSHMOTE_IDENTITY_NEWER;
    length = (size_t)hm_get(page + 10, 2);
    if (length > bytes - HEADER_BYTES || !is_erased(page + HEADER_BYTES + length, bytes - HEADER_BYTES - length))
        return HUSHMOTE_IDENTITY_DAMAGED;
    pieces[0].data = page;
    pieces[0].bytes = START_BYTES;
    pieces[1].data = page + HEADER_BYTES;
    pieces[1].bytes = length;
    hm_sha256(config, pieces, 2, digest);
    return memcmp(page + START_BYTES, digest, sizeof digest) == 0 ? HUSHMOTE_OK : HUSHMOTE_IDENTITY_DAMAGED;
}

static const char *text_of(const uint8_t *value) {
    return value == NULL ? "" : (const char *)value;
}

int hushmote_config_from_page(struct hushmote_config *config, struct hushmote_identity *identity, const void *page,
                              size_t bytes) {
    const uint8_t *start = page, *values[TAGS];
    int code = check_header(config, start, bytes);
    if (code != HUSHMOTE_OK)
        return code;
    if (!find_fields(start + HEADER_BYTES, (size_t)hm_get(start + 10, 2), values))
        return HUSHMOTE_IDENTITY_DAMAGED;
    config->fleet = text_of(values[FLEET]);
    config->device_id = text_of(values[DEVICE_ID]);
    config->key = values[KEY];
    config->announce_key = values[ANNOUNCE_KEY];
    identity->hosts = text_of(values[HOSTS]);
    identity->prefix = text_of(values[PREFIX]);
    identity->user = text_of(values[USER]);
    identity->password = text_of(values[PASSWORD]);
    identity->ca = text_of(values[CA]);
    identity->certificate = text_of(values[CERTIFICATE]);
    identity->certificate_key = text_of(values[CERTIFICATE_KEY]);
    identity->wifi_ssid = text_of(values[WIFI_SSID]);
    identity->wifi_password = text_of(values[WIFI_PASSWORD]);
    identity->port = (uint16_t)hm_get(values[PORT], 2);
    identity->omit_status = *values[FLAGS] & 1;
    identity->omit_will = *values[FLAGS] & 2;
    identity->consent_given = *values[FLAGS] & 4;
    return HUSHMOTE_OK;
}
