/* A port of the client to Arduino: LittleFS as storage, MQTT by the library "MQTT" of Joel Gaehwiler, whose functions wait
   for the broker's answer. One poll() waits at most HUSHMOTE_ARDUINO_WAIT_MS for it, and for as long as the network's own
   connect() takes. For the cores of ESP32, ESP8266 and RP2040 (arduino-pico).

   The sketch brings the network: a WiFiClient, or one with TLS that it gave the broker's CA. On an ESP32 call begin()
   after Wi-Fi is on: its generator is not random before. examples/Room is a whole sketch. */
#ifndef HUSHMOTE_ARDUINO_H
#define HUSHMOTE_ARDUINO_H

#include <Arduino.h>
#include <Client.h>
#include <MQTTClient.h>

#include "hushmote_port.h"

#ifndef HUSHMOTE_ARDUINO_WAIT_MS
#define HUSHMOTE_ARDUINO_WAIT_MS 1000 /* more where an answer takes longer, as over a satellite */
#endif

struct hushmote_arduino { /* the context of config and of port */
    explicit hushmote_arduino(Client &network) : network(&network), mqtt(2048, 512) {}
    Client *network;
    MQTTClient mqtt;
    const char *host = "", *user = nullptr, *password = nullptr, *device_id = "";
    uint16_t port = 1883;
    hushmote_reporter *reporter = nullptr;
    struct message *first = nullptr; /* that came while something was waited for */
    struct message *topics = nullptr; /* to subscribe to, one in each poll() */
    uint32_t since = 0;               /* when this poll() began */
    long published = 0, acknowledged = 0; /* numbers of publications: all up to `acknowledged` were */
    long told = 0;
    bool open = false, connected = false;
};

long hushmote_arduino_read(void *arduino, int slot, uint8_t *data, size_t bytes);
int hushmote_arduino_write(void *arduino, int slot, const uint8_t *data, size_t bytes);
int hushmote_arduino_entropy(void *arduino, uint8_t *data, size_t bytes);
/* Start LittleFS as it is, in place of LittleFS.begin(), which some cores have format what does not start: that forgets
   what was spent. `format`: do so where it does not start, for a new board, or one that has a new device id. */
bool hushmote_arduino_mount(bool format);
/* The functions of a port, but for its times. */
extern const hushmote_port hushmote_arduino_mqtt;
/* Hand in what came. With the hushmote_reporter_tick() behind it, it shares HUSHMOTE_ARDUINO_WAIT_MS. */
void hushmote_arduino_poll(hushmote_arduino *arduino);

/* A board with so many experiments, of which so many reports may wait. */
template <unsigned EXPERIMENTS, unsigned UNSENT = 8> class HushmoteBoard {
  public:
    HushmoteBoard(const hushmote_policy &policy, Client &network) : arduino(network) {
        config.policy = &policy;
        config.context = port.context = &arduino;
    }

    /* Fill config (fleet, device_id, key, announce_key) and arduino (host, port, user, password) first, and call
       hushmote_arduino_mount(). After a code below 0 poll() and report() do nothing. */
    int begin() {
        void *context = port.context;
        port = hushmote_arduino_mqtt;
        port.context = context;
        hushmote_port_set_times(&port);
        arduino.device_id = config.device_id;
        arduino.reporter = &reporter;
        reporter.client = nullptr;
        config.read = hushmote_arduino_read;
        config.write = hushmote_arduino_write;
        config.entropy = hushmote_arduino_entropy;
        config.experiments = experiments;
        config.records = records;
        config.record_bytes = HUSHMOTE_RECORD_BYTES(EXPERIMENTS, UNSENT);
        config.unsent_max = UNSENT;
        if (config.policy->name_count != EXPERIMENTS)
            return HUSHMOTE_BAD_SETTINGS;
        int code = hushmote_begin(&client, &config);
        return code != HUSHMOTE_OK ? code : hushmote_reporter_begin(&reporter, &client, &port, topics, kept);
    }

    /* Once, with the board in hand, before or after begin(). HUSHMOTE_EXISTS where there is a ledger. */
    int provision(bool replace = false) {
        int code = begin();
        if (code == HUSHMOTE_OK)
            code = hushmote_provision(&config, replace, HUSHMOTE_NOT_ASKED);
        return code == HUSHMOTE_OK ? begin() : code;
    }

    /* In loop(). */
    void poll() {
        if (reporter.client == nullptr)
            return;
        hushmote_arduino_poll(&arduino);
        hushmote_reporter_tick(&reporter, millis());
    }

    /* On a fixed rhythm. As hushmote_report(). */
    int report(const char *name, hushmote_reading reading) {
        uint8_t bytes[HUSHMOTE_REPORT_BYTES];
        return reporter.client == nullptr ? 0 : hushmote_reporter_report(&reporter, name, reading, bytes);
    }

    /* Somebody at the board says so. */
    int consent(bool yes) { return hushmote_set_consent(&client, yes); }

    hushmote_config config{};
    hushmote_port port{};
    hushmote_arduino arduino;
    ::hushmote client{};
    hushmote_reporter reporter{};

  private:
    hushmote_experiment experiments[EXPERIMENTS];
    hushmote_topic topics[EXPERIMENTS];
    uint8_t records[2 * HUSHMOTE_RECORD_BYTES(EXPERIMENTS, UNSENT)], kept[HUSHMOTE_KEPT_BYTES];
};

#endif
