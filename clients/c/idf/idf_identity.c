/* A board's identity from a partition of its own, so that flashing it again keeps the ledger. This port only reads it. */
#include <stdlib.h>

#include "hushmote_idf.h"
#include "nvs.h"
#include "nvs_flash.h"

static int load(nvs_handle_t handle, struct hushmote_config *config, struct hushmote_identity *identity) {
    size_t bytes = 0;
    esp_err_t error = nvs_get_blob(handle, "identity", NULL, &bytes);
    uint8_t *record;
    int code = HUSHMOTE_IDENTITY_DAMAGED;
    if (error == ESP_ERR_NVS_NOT_FOUND)
        return HUSHMOTE_NO_IDENTITY;
    if (error != ESP_OK || bytes == 0 || bytes > HUSHMOTE_PAGE_BYTES)
        return HUSHMOTE_IDENTITY_DAMAGED;
    record = malloc(bytes);
    if (record == NULL)
        return HUSHMOTE_STORAGE;
    if (nvs_get_blob(handle, "identity", record, &bytes) == ESP_OK)
        code = hushmote_config_from_page(config, identity, record, bytes);
    if (code != HUSHMOTE_OK)
        free(record);
    return code;
}

int hushmote_idf_load_identity(struct hushmote_idf *idf, struct hushmote_config *config,
                               struct hushmote_identity *identity) {
    nvs_handle_t handle;
    esp_err_t error = nvs_flash_init_partition("identity");
    int code;
    if (error == ESP_OK)
        error = nvs_open_from_partition("identity", "hushmote", NVS_READONLY, &handle);
    if (error != ESP_OK)
        return error == ESP_ERR_NOT_FOUND || error == ESP_ERR_NVS_NOT_FOUND ? HUSHMOTE_NO_IDENTITY
                                                                             : HUSHMOTE_IDENTITY_DAMAGED;
    code = load(handle, config, identity);
    nvs_close(handle);
    if (code != HUSHMOTE_OK)
        return code;
    idf->broker.hosts = identity->hosts;
    idf->broker.port = identity->port;
    idf->broker.prefix = identity->prefix;
    idf->broker.user = identity->user;
    idf->broker.password = identity->password;
    idf->broker.ca = identity->ca;
    idf->broker.certificate = identity->certificate;
    idf->broker.certificate_key = identity->certificate_key;
    idf->broker.omit_status = identity->omit_status;
    idf->broker.omit_will = identity->omit_will;
    return HUSHMOTE_OK;
}
