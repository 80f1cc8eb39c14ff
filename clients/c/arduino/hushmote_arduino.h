/**
 * @file
 * @brief A port of the client to Arduino, for the ESP32, ESP8266 and RP2040 (arduino-pico) cores.
 *
 * It stores files in LittleFS and uses the library "MQTT" by Joel Gaehwiler, whose functions wait for the broker's
 * answer. One poll() waits for at most #HUSHMOTE_ARDUINO_WAIT_MS, plus the time of the network client's connect().
 *
 * The sketch provides the network: a WiFiClient, or a TLS client with the broker's CA. On an ESP32, call begin() after
 * Wi-Fi is on, because its generator is not random before that. examples/Room is a complete sketch.
 */
#ifndef HUSHMOTE_ARDUINO_H
#define HUSHMOTE_ARDUINO_H

#include <Arduino.h>
#include <Client.h>
#include <MQTTClient.h>

#include "hushmote_identity.h"
#include "hushmote_port.h"
#include "hushmote_preview.h"

#ifndef HUSHMOTE_ARDUINO_WAIT_MS
#define HUSHMOTE_ARDUINO_WAIT_MS 1000 /**< Increase this for slow networks, such as satellite links. */
#endif

/** The context of config and port. */
struct hushmote_arduino {
    explicit hushmote_arduino(Client &network) : network(&network), mqtt(2048, 512) {}
    Client *network;
    MQTTClient mqtt;
    const char *host = "", *user = nullptr, *password = nullptr, *device_id = "";
    const char *prefix = ""; /**< Topic levels before hushmote/v1; "" for none. */
    uint16_t port = 1883;
    bool omit_status = false, omit_will = false; /**< Whether to leave out the status topic, and the will. */
    hushmote_reporter *reporter = nullptr;
    struct message *first = nullptr; /**< Messages that have arrived but are not yet passed on. */
    struct message *topics = nullptr; /**< Topics to subscribe to, one in each poll(). */
    struct message *forbidden = nullptr; /**< Topics to which the broker forbids the subscription. */
    uint32_t since = 0;               /**< Time when this poll() started. */
    long published = 0, acknowledged = 0; /**< Ids of the last publication, and of the last acknowledged one. */
    long delivered = 0;                   /**< Id of the last acknowledgement passed to the reporter. */
    long subscribed = 0;                  /**< Id of the last subscription. */
    bool open = false, connected = false;
};

/**
 * @brief Read a ledger slot, for config.read.
 * @param arduino A struct hushmote_arduino.
 * @param slot 0 or 1.
 * @param[out] data The slot's bytes.
 * @param bytes Size of `data`.
 * @return Number of bytes in the slot, 0 if it was never written, below 0 if it cannot be read.
 */
long hushmote_arduino_read(void *arduino, int slot, uint8_t *data, size_t bytes);

/**
 * @brief Replace a ledger slot, for config.write.
 * @param arduino A struct hushmote_arduino.
 * @param slot 0 or 1.
 * @param data The new bytes.
 * @param bytes Number of bytes.
 * @return 0 once they are stored, or another value on failure.
 */
int hushmote_arduino_write(void *arduino, int slot, const uint8_t *data, size_t bytes);

/**
 * @brief Fill a buffer with random bytes, for config.entropy.
 * @param arduino A struct hushmote_arduino.
 * @param[out] data The buffer.
 * @param bytes Number of bytes.
 * @return 0, or another value on failure.
 */
int hushmote_arduino_entropy(void *arduino, uint8_t *data, size_t bytes);

/**
 * @brief Mount LittleFS. Do not use LittleFS.begin(), which on some cores formats a file system that does not mount, and
 *     so erases the record of the spent budget.
 * @param format Whether to format it if it does not mount, for a new board or one with a new device id.
 * @return Whether it is mounted.
 */
bool hushmote_arduino_mount(bool format);

/** The port's functions; the times are not set. */
extern const hushmote_port hushmote_arduino_mqtt;

/**
 * @brief Pass all events that have arrived to the reporter. This call and the following hushmote_reporter_tick() share
 *     #HUSHMOTE_ARDUINO_WAIT_MS.
 * @param arduino The port.
 */
void hushmote_arduino_poll(hushmote_arduino *arduino);

/**
 * @brief A board.
 * @tparam EXPERIMENTS Number of names in the policy.
 * @tparam UNSENT Maximum number of unsent reports, 1 to 16.
 */
template <unsigned EXPERIMENTS, unsigned UNSENT = 8> class HushmoteBoard {
  public:
    /**
     * @brief Create a board.
     * @param policy This firmware's limits.
     * @param network Network client for the connection to the broker.
     */
    HushmoteBoard(const hushmote_policy &policy, Client &network) : arduino(network) {
        config.policy = &policy;
        config.context = port.context = &arduino;
    }

    /**
     * @brief Set config and arduino from the board's page, so that all boards have the same sketch.
     *
     * Call it before begin(). The page must stay readable: memory-mapped flash, or a buffer that is never freed.
     *
     * @param page The page that `hushmote provision devices --for page` wrote.
     * @param bytes Number of bytes that can be read there.
     * @return The result of hushmote_config_from_page(). Nothing is changed unless it is #HUSHMOTE_OK.
     */
    int load(const void *page, size_t bytes = HUSHMOTE_PAGE_BYTES) {
        int code = hushmote_config_from_page(&config, &identity, page, bytes);
        if (code != HUSHMOTE_OK)
            return code;
        arduino.host = identity.hosts;
        arduino.port = identity.port;
        arduino.user = *identity.user ? identity.user : nullptr;
        arduino.password = *identity.user ? identity.password : nullptr;
        arduino.prefix = identity.prefix;
        arduino.omit_status = identity.omit_status;
        arduino.omit_will = identity.omit_will;
        return code;
    }

    /**
     * @brief Start the client and its reporter.
     *
     * First call load(), or set config (fleet, device_id, key, announce_key) and arduino (host, port, user, password,
     * prefix, omit_status, omit_will), and call hushmote_arduino_mount(). If it returns a code below 0, poll() and report() do nothing.
     *
     * @return #HUSHMOTE_OK, or a code below 0.
     */
    int begin() {
        void *context = port.context;
        port = hushmote_arduino_mqtt;
        port.context = context;
        hushmote_port_set_times(&port);
        port.entries = entries;
        port.prefix = arduino.prefix;
        port.omit_status = arduino.omit_status;
        port.omit_will = arduino.omit_will;
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

    /**
     * @brief Create the empty ledger. Call it once, with physical access to the board, before or after begin().
     * @param replace Whether to overwrite an existing ledger, as in hushmote_provision().
     * @return #HUSHMOTE_OK, #HUSHMOTE_EXISTS if there is a ledger, or another code.
     */
    int provision(bool replace = false) {
        int code = begin();
        if (code == HUSHMOTE_OK)
            code = hushmote_provision(&config, replace, identity.consent_given ? HUSHMOTE_YES : HUSHMOTE_NOT_ASKED);
        return code == HUSHMOTE_OK ? begin() : code;
    }

    /** @brief Receive messages, send reports and handle timeouts when due. Call it in loop(). */
    void poll() {
        if (reporter.client == nullptr)
            return;
        hushmote_arduino_poll(&arduino);
        hushmote_reporter_tick(&reporter, millis());
    }

    /**
     * @brief Randomize a reading and send the report. Call it at a fixed interval.
     * @param name Name of the experiment.
     * @param reading The reading.
     * @param group The open group's value in the period that the reading describes; nullptr for the policy's value.
     * @param last The last reports, to which this one is added, or nullptr.
     * @param at Seconds since 1970, for `last`; 0 if there is no clock.
     * @return Number of bytes in the report, 0 if no report is made, or a code below 0.
     */
    int report(const char *name, hushmote_reading reading, const char *group = nullptr, hushmote_last *last = nullptr,
               uint32_t at = 0) {
        uint8_t data[HUSHMOTE_REPORT_BYTES];
        int bytes =
            reporter.client == nullptr ? 0 : hushmote_reporter_report_as(&reporter, name, reading, group, data);
        if (last != nullptr)
            hushmote_remember(last, data, bytes, at);
        return bytes;
    }

    /**
     * @brief Print what report() would send, in words. Nothing is sent or spent.
     * @param to For example Serial.
     * @param name Name of the experiment.
     * @param reading The reading.
     * @param group As for report().
     * @return #HUSHMOTE_OK, or a code below 0.
     */
    int preview(Print &to, const char *name, hushmote_reading reading, const char *group = nullptr) {
        char text[HUSHMOTE_PREVIEW_BYTES];
        int code = hushmote_preview(&client, name, reading, group, text, sizeof text);
        to.println(code == HUSHMOTE_OK ? text : hushmote_text(code));
        return code;
    }

    /**
     * @brief Print the last reports, the consent and the budget as JSON, for the board's owner.
     * @param to For example Serial, or an HTTP response.
     * @param last The last reports.
     * @return #HUSHMOTE_OK, or #HUSHMOTE_BUSY if nothing was printed.
     */
    int export_json(Print &to, const hushmote_last &last) {
        return hushmote_export(
            &client, &last,
            [](void *context, const char *text, size_t bytes) {
                static_cast<Print *>(context)->write(reinterpret_cast<const uint8_t *>(text), bytes);
            },
            &to);
    }

    /**
     * @brief Store the opt-in or opt-out of someone at the board.
     * @param yes Whether the board takes part.
     * @return The result of hushmote_set_consent().
     */
    int consent(bool yes) { return hushmote_set_consent(&client, yes); }

    hushmote_config config{};
    hushmote_port port{};
    hushmote_arduino arduino;
    hushmote_log_entry *entries = nullptr; /**< With a log in the policy, EXPERIMENTS of them; set before begin(). */
    hushmote_identity identity{}; /**< Set by load(); also has the Wi-Fi and the certificates. */
    ::hushmote client{};
    hushmote_reporter reporter{};

  private:
    hushmote_experiment experiments[EXPERIMENTS];
    hushmote_topic topics[EXPERIMENTS];
    uint8_t records[2 * HUSHMOTE_RECORD_BYTES(EXPERIMENTS, UNSENT)], kept[HUSHMOTE_KEPT_BYTES];
};

#endif
