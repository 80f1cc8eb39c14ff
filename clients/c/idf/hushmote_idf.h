/* A port of the client to ESP-IDF: NVS as storage, the chip's generator, MQTT by esp-mqtt. SHA-256 and signatures
   may come from psa/.

   The generator is random only while Wi-Fi or Bluetooth is on, or between bootloader_random_enable() and _disable():
   begin after the radio. */
#ifndef HUSHMOTE_IDF_H
#define HUSHMOTE_IDF_H

#include "hushmote_port.h"

#ifdef __cplusplus
extern "C" {
#endif

struct hushmote_idf_broker {
    const char *hosts; /* "host" or "host:port", several with commas between: each attempt takes the next */
    const char *user, *password;                 /* NULL or "" for none */
    const char *ca, *certificate, *certificate_key; /* PEM; NULL or "" for none. With a CA the board speaks TLS */
    uint16_t port; /* of hosts that name none */
};

struct hushmote_idf { /* the context of config and of port; begin with zeros */
    struct hushmote_idf_broker broker;
    const char *device_id;
    struct hushmote_reporter *reporter;
    uint32_t nvs;    /* the handle of the namespace "hushmote" */
    void *mqtt;      /* esp_mqtt_client_handle_t */
    void *events;    /* QueueHandle_t: esp-mqtt calls from a task of its own */
    unsigned next;   /* host */
    char host[128];
    bool open; /* whether events of this connection are handed in */
};

/* NVS must be initialized: nvs_flash_init(). Never answer its failure with nvs_flash_erase(), which forgets what was
   spent. 0, or an esp_err_t. */
int hushmote_idf_open(struct hushmote_idf *idf);
long hushmote_idf_read(void *idf, int slot, uint8_t *data, size_t bytes);
int hushmote_idf_write(void *idf, int slot, const uint8_t *data, size_t bytes);
int hushmote_idf_entropy(void *idf, uint8_t *data, size_t bytes);
long hushmote_idf_read_kept(void *idf, const char *name, uint8_t *data, size_t bytes);
int hushmote_idf_write_kept(void *idf, const char *name, const uint8_t *data, size_t bytes);

/* The functions of a port's MQTT; read_kept and write_kept are above, the times yours. */
extern const struct hushmote_port hushmote_idf_mqtt;
/* Wait up to ms for the broker, and hand in what came. */
void hushmote_idf_wait(struct hushmote_idf *idf, uint32_t ms);

#ifdef __cplusplus
}
#endif

#endif
