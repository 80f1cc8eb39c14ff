/**
 * @file
 * @brief A port of the client to ESP-IDF: storage in NVS, the chip's random number generator, and MQTT with esp-mqtt.
 *
 * psa/ can provide SHA-256 and signatures. The generator is random only while Wi-Fi or Bluetooth is on, or between
 * bootloader_random_enable() and bootloader_random_disable(), so start the client after the radio.
 */
#ifndef HUSHMOTE_IDF_H
#define HUSHMOTE_IDF_H

#include "hushmote_identity.h"
#include "hushmote_port.h"

#ifndef HUSHMOTE_IDF_TIMEOUT_MS
#define HUSHMOTE_IDF_TIMEOUT_MS 2400 /**< Timeout of one network operation; twice this must be below ESPHome's 5 s watchdog. */
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** The broker's address and credentials. */
struct hushmote_idf_broker {
    const char *hosts; /**< "host", "host:port" or "[address]:port", separated by commas; each attempt uses the next one. */
    const char *user, *password; /**< NULL or "" for none. */
    const char *ca, *certificate, *certificate_key; /**< PEM; NULL or "" for none. With a CA, the board uses TLS. */
    const char *prefix; /**< Topic levels before hushmote/v1; NULL or "" for none. */
    uint16_t port; /**< Port for hosts that do not specify one. */
    bool omit_status, omit_will; /**< For the port: whether to leave out the status topic, and the will. */
};

/** The context of config and port. Initialize it with zeros. It must never be freed, because a task uses it. */
struct hushmote_idf {
    struct hushmote_idf_broker broker;
    const char *device_id;
    struct hushmote_reporter *reporter;
    const char *partition;  /**< Name of the partition, which has type data and subtype nvs; NULL: "hushmote". */
    const char *name_space; /**< Namespace in the partition, at most 15 characters; NULL: "hushmote". */
    struct hushmote_log_entry *entries; /**< With a log in the policy, one for each of its names; set before hushmote_idf_begin(). */
    struct hushmote_port port; /**< Set by hushmote_idf_begin(). */
    uint32_t nvs;    /**< nvs_handle_t. */
    void *mqtt;      /**< esp_mqtt_client_handle_t. */
    void *closing;   /**< The previous MQTT client until a task has destroyed it, then NULL. */
    void *events;    /**< QueueHandle_t; needed because esp-mqtt calls back from its own task. */
    unsigned next;   /**< Index of the next host. */
    char host[128];
    bool open;     /**< Whether events of this connection are passed to the reporter. */
    bool overflow; /**< Whether an event of this connection was lost. */
};

/**
 * @brief Open the partition. Initialize it unless the application already has, for example with encryption.
 *
 * Factory resets do not erase the partition, because they erase the one named "nvs". It needs the line in
 * partitions.csv that packages.md shows. Never call nvs_flash_erase_partition() after an error, because that erases the
 * record of the spent budget.
 *
 * @param idf The port.
 * @return 0, or an esp_err_t.
 */
int hushmote_idf_open(struct hushmote_idf *idf);

/**
 * @brief Load the board's identity, and with it idf->broker, so that all boards have the same firmware image.
 *
 * It is the item that `hushmote provision devices --for nvs` writes, in the partition "identity" (type data, subtype
 * nvs), namespace "hushmote". Initialize the partition before, if it is encrypted. The identity stays in memory.
 *
 * @param[in,out] idf The port.
 * @param[in,out] config The settings: sets device_id, fleet, key and announce_key.
 * @param[out] identity The network.
 * @return The result of hushmote_config_from_page(), or #HUSHMOTE_STORAGE without memory. Nothing is changed unless it is
 *     #HUSHMOTE_OK.
 */
int hushmote_idf_load_identity(struct hushmote_idf *idf, struct hushmote_config *config,
                               struct hushmote_identity *identity);

/**
 * @brief Read a ledger slot, for config.read.
 * @param idf A struct hushmote_idf.
 * @param slot 0 or 1.
 * @param[out] data The slot's bytes.
 * @param bytes Size of `data`.
 * @return Number of bytes in the slot, 0 if it was never written, below 0 if it cannot be read.
 */
long hushmote_idf_read(void *idf, int slot, uint8_t *data, size_t bytes);

/**
 * @brief Replace a ledger slot, for config.write.
 * @param idf A struct hushmote_idf.
 * @param slot 0 or 1.
 * @param data The new bytes.
 * @param bytes Number of bytes.
 * @return 0 once they are stored, or another value on failure.
 */
int hushmote_idf_write(void *idf, int slot, const uint8_t *data, size_t bytes);

/**
 * @brief Fill a buffer with random bytes, for config.entropy.
 * @param idf A struct hushmote_idf.
 * @param[out] data The buffer.
 * @param bytes Number of bytes.
 * @return 0, or another value on failure.
 */
int hushmote_idf_entropy(void *idf, uint8_t *data, size_t bytes);

/**
 * @brief Read a kept experiment, for port.read_kept.
 * @param idf A struct hushmote_idf.
 * @param name Name of the experiment.
 * @param[out] data The kept bytes.
 * @param bytes Size of `data`.
 * @return Number of bytes stored, 0 if there are none, below 0 if they cannot be read.
 */
long hushmote_idf_read_kept(void *idf, const char *name, uint8_t *data, size_t bytes);

/**
 * @brief Keep an experiment, for port.write_kept.
 * @param idf A struct hushmote_idf.
 * @param name Name of the experiment.
 * @param data The bytes to keep.
 * @param bytes Number of bytes; 0 removes the experiment.
 * @return 0 once they are stored, or another value on failure.
 */
int hushmote_idf_write_kept(void *idf, const char *name, const uint8_t *data, size_t bytes);

/**
 * @brief Start the client and its reporter with esp-mqtt, default times, and experiments kept in the partition.
 *
 * Call it after hushmote_idf_open() and after the radio is on, and again after hushmote_provision().
 *
 * @param idf The port.
 * @param client The client to initialize.
 * @param config The client's settings.
 * @param reporter The reporter to initialize.
 * @param topics One for each of the policy's names.
 * @param kept Buffer of #HUSHMOTE_KEPT_BYTES.
 * @return #HUSHMOTE_OK, or the code of hushmote_begin() or hushmote_reporter_begin().
 */
int hushmote_idf_begin(struct hushmote_idf *idf, struct hushmote *client, const struct hushmote_config *config,
                       struct hushmote_reporter *reporter, struct hushmote_topic *topics, uint8_t *kept);

/** The MQTT functions, for a custom port. */
extern const struct hushmote_port hushmote_idf_mqtt;

/**
 * @brief Wait for the broker, and pass all events that have arrived to the reporter.
 *
 * Neither this function nor those of #hushmote_idf_mqtt wait for a connection to open or close. They wait for the
 * network for at most twice #HUSHMOTE_IDF_TIMEOUT_MS.
 *
 * @param idf The port.
 * @param ms Longest wait, in milliseconds.
 */
void hushmote_idf_wait(struct hushmote_idf *idf, uint32_t ms);

/**
 * @brief Return whether the last connection has ended. Call it after hushmote_reporter_close(), before a deep sleep.
 * @param idf The port.
 * @return Whether the connection has ended and its last message was sent.
 */
bool hushmote_idf_is_closed(struct hushmote_idf *idf);

#ifdef __cplusplus
}
#endif

#endif
