/**
 * @file
 * @brief A port of the client to POSIX: storage in a folder, the kernel's randomness, and MQTT with libmosquitto 2.
 */
#ifndef HUSHMOTE_POSIX_H
#define HUSHMOTE_POSIX_H

#include "hushmote_port.h"

struct mosquitto;

/** The broker's address and credentials. */
struct hushmote_broker {
    char hosts[1024]; /**< "host", "host:port" or "[address]:port", separated by commas; each attempt uses the next one. */
    char user[256], password[256];
    char prefix[HUSHMOTE_PREFIX_BYTES + 1]; /**< Topic levels before hushmote/v1; "" for none. */
    char ca[512], cert[512], key[512]; /**< Paths of PEM files; "" for none. With a CA the client uses TLS. */
    int port; /**< Port for hosts that do not specify one. */
};

/** The context of config and port. */
struct hushmote_posix {
    const char *folder; /**< Contains ledger0, ledger1 and experiments/, as written by ldp_client.Client on CPython. */
    int lock;           /**< File descriptor of the lock, which is held until the process ends. */
    struct hushmote_broker broker;
    const char *device_id;
    struct hushmote_reporter *reporter;
    struct mosquitto *mqtt;
    unsigned next; /**< Index of the next host. */
    bool open; /**< Whether events of this connection are passed to the reporter. */
    const char *error; /**< Last network error; NULL if there is none. */
};

/**
 * @brief Lock the folder.
 * @param posix The port to initialize.
 * @param folder Path of the folder, which must outlive the port.
 * @return 0, or -1 if the folder cannot be opened or another client has locked it.
 */
int hushmote_posix_open(struct hushmote_posix *posix, const char *folder);

/**
 * @brief Read a ledger slot, for config.read.
 * @param posix A struct hushmote_posix.
 * @param slot 0 or 1.
 * @param[out] data The slot's bytes.
 * @param bytes Size of `data`.
 * @return Number of bytes in the slot, 0 if it was never written, below 0 if it cannot be read.
 */
long hushmote_posix_read(void *posix, int slot, uint8_t *data, size_t bytes);

/**
 * @brief Replace a ledger slot, for config.write.
 * @param posix A struct hushmote_posix.
 * @param slot 0 or 1.
 * @param data The new bytes.
 * @param bytes Number of bytes.
 * @return 0 once they are stored, or another value on failure.
 */
int hushmote_posix_write(void *posix, int slot, const uint8_t *data, size_t bytes);

/**
 * @brief Fill a buffer with random bytes, for config.entropy.
 * @param posix A struct hushmote_posix.
 * @param[out] data The buffer.
 * @param bytes Number of bytes.
 * @return 0, or another value on failure.
 */
int hushmote_posix_entropy(void *posix, uint8_t *data, size_t bytes);

/**
 * @brief Read a kept experiment, for port.read_kept.
 * @param posix A struct hushmote_posix.
 * @param name Name of the experiment.
 * @param[out] data The kept bytes.
 * @param bytes Size of `data`.
 * @return Number of bytes stored, 0 if there are none, below 0 if they cannot be read.
 */
long hushmote_posix_read_kept(void *posix, const char *name, uint8_t *data, size_t bytes);

/**
 * @brief Keep an experiment, for port.write_kept.
 * @param posix A struct hushmote_posix.
 * @param name Name of the experiment.
 * @param data The bytes to keep.
 * @param bytes Number of bytes; 0 removes the experiment.
 * @return 0 once they are stored, or another value on failure.
 */
int hushmote_posix_write_kept(void *posix, const char *name, const uint8_t *data, size_t bytes);

/**
 * @brief Replace a file in the folder atomically: after power loss it holds either the old bytes or the new ones.
 * @param posix The port.
 * @param name Name of the file in the folder.
 * @param data The new bytes.
 * @param bytes Number of bytes.
 * @return 0, or -1 on failure.
 */
int hushmote_posix_replace(const struct hushmote_posix *posix, const char *name, const void *data, size_t bytes);

/** The port's functions; the times are not set. */
extern const struct hushmote_port hushmote_posix_mqtt;

/**
 * @brief Wait for the broker or another file descriptor, and pass all events that have arrived to the reporter.
 * @param posix The port.
 * @param other The other file descriptor, or -1 for none.
 * @param ms Longest wait, in milliseconds.
 * @return Whether the other file descriptor is readable.
 */
bool hushmote_posix_wait(struct hushmote_posix *posix, int other, int ms);

#endif
