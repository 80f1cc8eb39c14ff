/* A port of the client to ESP-IDF: NVS as storage, the chip's generator, MQTT by esp-mqtt. SHA-256 and signatures
   may come from psa/.

   The generator is random only while Wi-Fi or Bluetooth is on, or between bootloader_random_enable() and _disable():
   begin after the radio. */
#ifndef HUSHMOTE_IDF_H
#define HUSHMOTE_IDF_H

#include "hushmote_port.h"

#ifndef HUSHMOTE_IDF_TIMEOUT_MS
#define HUSHMOTE_IDF_TIMEOUT_MS 2400 /* for one step on the network; twice this is below ESPHome's watchdog of 5 s */
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct hushmote_idf_broker {
    const char *hosts; /* "host" or "host:port", several with commas between: each attempt takes the next */
    const char *user, *password;                 /* NULL or "" for none */
    const char *ca, *certificate, *certificate_key; /* PEM; NULL or "" for none. With a CA the board speaks TLS */
    uint16_t port; /* of hosts that name none */
};

struct hushmote_idf { /* the context of config and of port; begin with zeros. It must stay: a task of its own uses it */
    struct hushmote_idf_broker broker;
    const char *device_id;
    struct hushmote_reporter *reporter;
    const char *partition;  /* of type data, nvs; NULL: "hushmote" */
    const char *name_space; /* in it, at most 15 characters; NULL: "hushmote" */
    struct hushmote_port port; /* of hushmote_idf_begin() */
    uint32_t nvs;    /* nvs_handle_t */
    void *mqtt;      /* esp_mqtt_client_handle_t */
    void *closing;   /* the one before, which a task destroys; NULL once it has */
    void *events;    /* QueueHandle_t: esp-mqtt calls from a task of its own */
    unsigned next;   /* host */
    char host[128];
    bool open;     /* whether events of this connection are handed in */
    bool overflow; /* an event of this connection was lost */
};

/* Open the partition, which factory resets leave alone: they erase the one named "nvs". It needs a line in partitions.csv,
   packages.md has it. Initializes the partition, unless you have, as for encryption. 0, or an esp_err_t: never answer
   that with nvs_flash_erase_partition(), which forgets what was spent. */
int hushmote_idf_open(struct hushmote_idf *idf);
long hushmote_idf_read(void *idf, int slot, uint8_t *data, size_t bytes);
int hushmote_idf_write(void *idf, int slot, const uint8_t *data, size_t bytes);
int hushmote_idf_entropy(void *idf, uint8_t *data, size_t bytes);
long hushmote_idf_read_kept(void *idf, const char *name, uint8_t *data, size_t bytes);
int hushmote_idf_write_kept(void *idf, const char *name, const uint8_t *data, size_t bytes);

/* Begin the client and its reporter over esp-mqtt, with the times of hushmote_port_set_times() and with experiments kept in
   the partition: after hushmote_idf_open() and the radio, and again after hushmote_provision(). topics, kept: as
   hushmote_reporter_begin() takes them. HUSHMOTE_OK, or the code of hushmote_begin() or hushmote_reporter_begin(). */
int hushmote_idf_begin(struct hushmote_idf *idf, struct hushmote *client, const struct hushmote_config *config,
                       struct hushmote_reporter *reporter, struct hushmote_topic *topics, uint8_t *kept);
/* For a port of your own: the functions of its MQTT. */
extern const struct hushmote_port hushmote_idf_mqtt;
/* Wait up to ms for the broker, and hand in what came. The functions of hushmote_idf_mqtt and this one never wait for a
   connection to end or to begin; for the network they wait at most twice HUSHMOTE_IDF_TIMEOUT_MS. */
void hushmote_idf_wait(struct hushmote_idf *idf, uint32_t ms);
/* Whether the last connection has ended, with its goodbye: after hushmote_reporter_close(), before a deep sleep. */
bool hushmote_idf_is_closed(struct hushmote_idf *idf);

#ifdef __cplusplus
}
#endif

#endif
