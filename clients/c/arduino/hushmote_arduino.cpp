#ifdef ARDUINO
#include "hushmote_arduino.h"

#include <LittleFS.h>
#include <stdlib.h>
#include <string.h>

#define KEEPALIVE_S 60
#define MAX_START_MS (HUSHMOTE_ARDUINO_WAIT_MS / 2) /* later in a poll(), no request that waits for an answer is sent */
#define FOLDER "/hushmote"

struct message {
    struct message *next;
    long id; /* of a subscription */
    size_t topic_bytes, payload_bytes;
    char data[1]; /* topic and payload; a topic to subscribe to is zero-terminated */
};

/* --- Storage: littlefs keeps a file's old bytes until the new file is closed ---------------------------------- */

bool hushmote_arduino_mount(bool format) {
#if defined(ESP8266) || defined(ARDUINO_ARCH_RP2040)
    LittleFS.setConfig(LittleFSConfig(false)); /* formatting is enabled by default on this core */
#endif
    return LittleFS.begin() || (format && LittleFS.format() && LittleFS.begin());
}

static long read_file(const char *path, uint8_t *data, size_t bytes) {
    if (!LittleFS.exists(path))
        return 0;
    File file = LittleFS.open(path, "r");
    if (!file)
        return -1;
    long size = (long)file.size();
    size_t wanted = (size_t)size < bytes ? (size_t)size : bytes;
    bool complete = (size_t)file.read(data, wanted) == wanted;
    file.close();
    return complete ? size : -1;
}

static int write_file(const char *path, const uint8_t *data, size_t bytes) {
    if (bytes == 0)
        return !LittleFS.exists(path) || LittleFS.remove(path) ? 0 : -1;
    LittleFS.mkdir(FOLDER);
    File file = LittleFS.open(path, "w");
    if (!file)
        return -1;
    bool complete = file.write(data, bytes) == bytes;
    file.close();
    return complete ? 0 : -1;
}

long hushmote_arduino_read(void *, int slot, uint8_t *data, size_t bytes) {
    return read_file(slot == 0 ? FOLDER "/ledger0" : FOLDER "/ledger1", data, bytes);
}

int hushmote_arduino_write(void *, int slot, const uint8_t *data, size_t bytes) {
    return write_file(slot == 0 ? FOLDER "/ledger0" : FOLDER "/ledger1", data, bytes);
}

/* Names contain no dots, so these files cannot be the ledger's. */
static void path_of(const char *name, char path[64]) {
    snprintf(path, 64, FOLDER "/%s.x", name);
}

static long read_kept(void *, const char *name, uint8_t *data, size_t bytes) {
    char path[64];
    path_of(name, path);
    return read_file(path, data, bytes);
}

static int write_kept(void *, const char *name, const uint8_t *data, size_t bytes) {
    char path[64];
    path_of(name, path);
    return write_file(path, data, bytes);
}

/* --- Randomness ----------------------------------------------------------------------------------------------- */

int hushmote_arduino_entropy(void *, uint8_t *data, size_t bytes) {
#if defined(ESP32)
    esp_fill_random(data, bytes);
    return 0;
#elif defined(ESP8266)
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(RANDOM_REG32 >> 8);
    return 0;
#elif defined(ARDUINO_ARCH_RP2040)
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)rp2040.hwrand32();
    return 0;
#else
    extern int hushmote_entropy(uint8_t * data, size_t bytes); /* the sketch defines it: fill from a hardware generator; 0, or -1 */
    return hushmote_entropy(data, bytes);
#endif
}

/* --- MQTT ----------------------------------------------------------------------------------------------------- */

static message *append(message **last, const char *topic, const void *payload, size_t bytes) {
    size_t topic_bytes = strlen(topic);
    message *added = (message *)malloc(sizeof(message) + topic_bytes + bytes);
    if (added == nullptr)
        return nullptr;
    added->next = nullptr;
    added->id = 0;
    added->topic_bytes = topic_bytes;
    added->payload_bytes = bytes;
    memcpy(added->data, topic, topic_bytes + 1);
    if (bytes > 0)
        memcpy(added->data + topic_bytes, payload, bytes);
    while (*last != nullptr)
        last = &(*last)->next;
    return *last = added;
}

static void drop_all(message **first) {
    while (*first != nullptr) {
        message *next = (*first)->next;
        free(*first);
        *first = next;
    }
}

/* Set the library's timeout to the rest of this poll(); return whether enough time is left to start. */
static bool may_wait(hushmote_arduino *arduino) {
    uint32_t waited = millis() - arduino->since;
    if (waited > MAX_START_MS)
        return false;
    arduino->mqtt.setTimeout((int)(HUSHMOTE_ARDUINO_WAIT_MS - waited));
    return true;
}

/* The library also calls this while it waits for an acknowledgement, so queue the message for poll(). */
static void on_message(MQTTClient *mqtt, char topic[], char payload[], int bytes) {
    hushmote_arduino *arduino = (hushmote_arduino *)mqtt->ref;
    append(&arduino->first, topic, payload, (size_t)bytes); /* if out of memory, the next connection repeats it */
}

static int begin_to_connect(void *context, const char *topic, const uint8_t *will, size_t bytes) {
    hushmote_arduino *arduino = (hushmote_arduino *)context;
    char text[HUSHMOTE_STATUS_BYTES + 1];
    arduino->mqtt.ref = arduino;
    arduino->mqtt.begin(arduino->host, arduino->port, *arduino->network);
    arduino->mqtt.onMessageAdvanced(on_message);
    arduino->mqtt.setOptions(KEEPALIVE_S, true, HUSHMOTE_ARDUINO_WAIT_MS);
    arduino->mqtt.dropOverflow(true);
    arduino->mqtt.clearWill();
    if (topic != nullptr) {
        memcpy(text, will, bytes);
        text[bytes] = 0;
        arduino->mqtt.setWill(topic, text, true, 1);
    }
    arduino->open = arduino->mqtt.connect(arduino->device_id, arduino->user, arduino->password);
    arduino->connected = false;
    if (arduino->open)
        return 0;
    bool is_denied = arduino->mqtt.lastError() == LWMQTT_CONNECTION_DENIED;
    if (is_denied)
        hushmote_reporter_refused(arduino->reporter, arduino->mqtt.returnCode());
    return is_denied || arduino->mqtt.lastError() == LWMQTT_NETWORK_FAILED_READ ? 1 : -1; /* the latter: it has closed */
}

/* Queue the topic; a later poll() subscribes to it. The library closes the connection after a forbidden subscription, so
   do not repeat one. */
static long subscribe(void *context, const char *topic) {
    hushmote_arduino *arduino = (hushmote_arduino *)context;
    arduino->subscribed++;
    for (const message *other = arduino->forbidden; other != nullptr; other = other->next) {
        if (strcmp(other->data, topic) == 0)
            return arduino->subscribed;
    }
    message *queued = append(&arduino->topics, topic, nullptr, 0);
    if (queued == nullptr)
        return -1;
    return queued->id = arduino->subscribed;
}

static long publish(void *context, const char *topic, const uint8_t *payload, size_t bytes, bool retain) {
    hushmote_arduino *arduino = (hushmote_arduino *)context;
    if (!may_wait(arduino) || !arduino->mqtt.publish(topic, (const char *)payload, (int)bytes, retain, 1))
        return -1;
    arduino->acknowledged = ++arduino->published;
    return arduino->published;
}

static void forget(hushmote_arduino *arduino) {
    drop_all(&arduino->first);
    drop_all(&arduino->topics);
    arduino->delivered = arduino->published;
    arduino->open = arduino->connected = false;
}

static void close_connection(void *context) {
    hushmote_arduino *arduino = (hushmote_arduino *)context;
    arduino->mqtt.disconnect();
    arduino->network->stop();
    forget(arduino);
}

static hushmote_port make_port() {
    hushmote_port port{};
    port.connect = begin_to_connect;
    port.subscribe = subscribe;
    port.publish = publish;
    port.disconnect = close_connection;
    port.read_kept = read_kept;
    port.write_kept = write_kept;
    return port;
}

const hushmote_port hushmote_arduino_mqtt = make_port();

void hushmote_arduino_poll(hushmote_arduino *arduino) {
    arduino->since = millis();
    if (!arduino->open)
        return;
    if (!arduino->connected) {
        arduino->connected = true;
        hushmote_reporter_connected(arduino->reporter);
    }
    bool alive = arduino->open && arduino->mqtt.loop();
    if (alive && arduino->topics != nullptr && may_wait(arduino)) {
        message *next = arduino->topics;
        arduino->topics = next->next;
        alive = arduino->mqtt.subscribe(next->data, 0);
        bool is_forbidden = !alive && arduino->mqtt.lastError() == LWMQTT_FAILED_SUBSCRIPTION;
        if (alive || is_forbidden)
            hushmote_reporter_subscribed(arduino->reporter, next->id, is_forbidden ? 128 : 0);
        if (is_forbidden)
            append(&arduino->forbidden, next->data, nullptr, 0);
        free(next);
    }
    while (arduino->open && arduino->delivered < arduino->acknowledged)
        hushmote_reporter_acknowledged(arduino->reporter, ++arduino->delivered);
    while (arduino->open && arduino->first != nullptr) {
        message *next = arduino->first;
        arduino->first = next->next;
        hushmote_reporter_message(arduino->reporter, next->data, next->topic_bytes,
                                  (const uint8_t *)next->data + next->topic_bytes, next->payload_bytes);
        free(next);
    }
    if (arduino->open && !alive) {
        forget(arduino);
        hushmote_reporter_disconnected(arduino->reporter);
    }
}
#endif
