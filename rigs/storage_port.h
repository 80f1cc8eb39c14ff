/* A port's storage as power_cuts.c uses it; one file per port defines storage_port. */
#pragma once
#include <stddef.h>
#include <stdint.h>

struct hushmote_policy;

struct storage_port {
    int (*open)(void); /* called after each start; returns 0, or another value if it fails */
    long (*read)(void *context, int slot, uint8_t *data, size_t bytes);
    int (*write)(void *context, int slot, const uint8_t *data, size_t bytes);
    long (*read_kept)(void *context, const char *name, uint8_t *data, size_t bytes);
    int (*write_kept)(void *context, const char *name, const uint8_t *data, size_t bytes);
    void *context;
    void (*use_policy)(const struct hushmote_policy *policy); /* called before a firmware starts; NULL if not needed */
};

extern const struct storage_port storage_port;
