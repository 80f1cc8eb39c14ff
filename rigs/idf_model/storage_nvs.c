/* The port's storage over NVS, and its randomness. */
#include "../storage_port.h"
#include "esp_random.h"
#include "hushmote_idf.h"

static struct hushmote_idf idf;

static int reopen_storage(void) {
    return hushmote_idf_open(&idf);
}

void esp_fill_random(void *buf, size_t len) {
    (void)buf, (void)len;
}

const struct storage_port storage_port = {
    reopen_storage, hushmote_idf_read, hushmote_idf_write, hushmote_idf_read_kept, hushmote_idf_write_kept, &idf, NULL,
};
