/* The port's storage over Zephyr's NVS, and its randomness. */
#include "../storage_port.h"
#include "hushmote_zephyr.h"

static struct hushmote_zephyr zephyr = {NULL, 100, NULL};

static int reopen_storage(void) {
    return 0;
}

static void use_policy(const struct hushmote_policy *policy) {
    zephyr.policy = policy;
}

int sys_csrand_get(void *dst, size_t len) {
    (void)dst, (void)len;
    return 0;
}

const struct storage_port storage_port = {
    reopen_storage,
    hushmote_zephyr_read,
    hushmote_zephyr_write,
    hushmote_zephyr_read_kept,
    hushmote_zephyr_write_kept,
    &zephyr,
    use_policy,
};
