/* A port of the client to POSIX: a folder as storage, the kernel's randomness, and MQTT by libmosquitto 2. */
#ifndef HUSHMOTE_POSIX_H
#define HUSHMOTE_POSIX_H

#include "hushmote_port.h"

struct mosquitto;

struct hushmote_broker {
    char host[256], user[256], password[256];
    char ca[512], cert[512], key[512]; /* paths of PEM files; "" for none. With a CA the board speaks TLS */
    int port;
};

struct hushmote_posix { /* the context of config and of port */
    const char *folder; /* the one that ldp_client.Client has on CPython: ledger0, ledger1 and experiments/ */
    int lock;           /* held for as long as the process lives */
    struct hushmote_broker broker;
    const char *device_id;
    struct hushmote_reporter *reporter;
    struct mosquitto *mqtt;
    bool open; /* whether events of this connection are handed in */
    const char *error; /* of the network, last; NULL where there is none */
};

/* Lock the folder; 0, or -1 where it cannot be opened or another client has it. */
int hushmote_posix_open(struct hushmote_posix *posix, const char *folder);
long hushmote_posix_read(void *posix, int slot, uint8_t *data, size_t bytes);
int hushmote_posix_write(void *posix, int slot, const uint8_t *data, size_t bytes);
int hushmote_posix_entropy(void *posix, uint8_t *data, size_t bytes);
long hushmote_posix_read_kept(void *posix, const char *name, uint8_t *data, size_t bytes);
int hushmote_posix_write_kept(void *posix, const char *name, const uint8_t *data, size_t bytes);
/* Replace a file of the folder, so that it holds after a loss of power the old bytes or the new ones; 0 or -1. */
int hushmote_posix_replace(const struct hushmote_posix *posix, const char *name, const void *data, size_t bytes);

/* The functions of a port, but for its times. */
extern const struct hushmote_port hushmote_posix_mqtt;
/* Wait up to ms for the broker, or for another file descriptor (-1: none), and hand in what came; returns whether the
   other one can be read. */
bool hushmote_posix_wait(struct hushmote_posix *posix, int other, int ms);

#endif
