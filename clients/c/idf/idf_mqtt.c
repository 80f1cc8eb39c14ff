/* A reporter's MQTT by esp-mqtt. Its events come in a task of their own; a queue brings them into the reporter's. */
#include <stdlib.h>
#include <string.h>

#include "freertos/FreeRTOS.h"
#include "freertos/queue.h"
#include "freertos/task.h"
#include "hushmote_idf.h"
#include "mqtt_client.h"

#define KEEPALIVE_S 60
#define TIMEOUT_MS 10000
#define QUEUE_LENGTH (HUSHMOTE_IN_FLIGHT + 16)
#define BUFFER_BYTES 2048 /* an experiment comes in one piece; what does not is none, and refused by its start */

struct event {
    esp_mqtt_event_id_t kind;
    long id;
    char *message; /* topic and payload, on the heap */
    size_t topic_bytes, payload_bytes;
};

static bool given(const char *text) {
    return text != NULL && text[0] != 0;
}

/* In esp-mqtt's task. A message that has no room is lost, and comes again with the next connection; an acknowledgement
   or an end that has none is made up for by the reporter's timeout. */
static void on_event(void *context, esp_event_base_t base, int32_t kind, void *data) {
    struct hushmote_idf *idf = context;
    const esp_mqtt_event_t *from = data;
    struct event event = {(esp_mqtt_event_id_t)kind, from->msg_id, NULL, 0, 0};
    (void)base;
    if (kind != MQTT_EVENT_CONNECTED && kind != MQTT_EVENT_DISCONNECTED && kind != MQTT_EVENT_PUBLISHED &&
        !(kind == MQTT_EVENT_DATA && from->current_data_offset == 0))
        return;
    if (kind == MQTT_EVENT_DATA) {
        event.topic_bytes = (size_t)from->topic_len;
        event.payload_bytes = (size_t)from->data_len;
        event.message = malloc(event.topic_bytes + event.payload_bytes + 1);
        if (event.message == NULL)
            return;
        memcpy(event.message, from->topic, event.topic_bytes);
        memcpy(event.message + event.topic_bytes, from->data, event.payload_bytes);
    }
    if (xQueueSend(idf->events, &event, 0) != pdTRUE)
        free(event.message);
}

/* Forget what the connection before has left. */
static void empty(struct hushmote_idf *idf) {
    struct event event;
    while (xQueueReceive(idf->events, &event, 0) == pdTRUE)
        free(event.message);
}

/* The next of the brokers, into idf->host; returns its port. */
static uint32_t next_broker(struct hushmote_idf *idf) {
    const char *at = idf->broker.hosts, *end, *colon;
    unsigned count = 1;
    size_t bytes;
    for (const char *c = at; *c; c++)
        count += *c == ',';
    for (unsigned skip = idf->next++ % count; skip > 0; at++)
        skip -= *at == ',';
    end = strchr(at, ',');
    bytes = end == NULL ? strlen(at) : (size_t)(end - at);
    if (bytes >= sizeof idf->host)
        bytes = sizeof idf->host - 1;
    memcpy(idf->host, at, bytes);
    idf->host[bytes] = 0;
    colon = strchr(idf->host, ':');
    if (colon == NULL || strchr(colon + 1, ':') != NULL) /* more colons than one: an IPv6 address, and no port */
        return idf->broker.port;
    idf->host[colon - idf->host] = 0;
    return (uint32_t)strtoul(colon + 1, NULL, 10);
}

/* A new object for each connection: esp-mqtt would send an old one's publications by itself. */
static void forget(struct hushmote_idf *idf) {
    idf->open = false;
    if (idf->mqtt != NULL)
        esp_mqtt_client_destroy(idf->mqtt); /* waits until its task has ended */
    idf->mqtt = NULL;
    if (idf->events != NULL)
        empty(idf);
}

static int begin_to_connect(void *context, const char *topic, const uint8_t *will, size_t bytes) {
    struct hushmote_idf *idf = context;
    const struct hushmote_idf_broker *broker = &idf->broker;
    bool tls = given(broker->ca);
    esp_mqtt_client_config_t config;
    forget(idf);
    if (idf->events == NULL)
        idf->events = xQueueCreate(QUEUE_LENGTH, sizeof(struct event));
    memset(&config, 0, sizeof config);
    config.broker.address.port = next_broker(idf);
    config.broker.address.hostname = idf->host;
    config.broker.address.transport = tls ? MQTT_TRANSPORT_OVER_SSL : MQTT_TRANSPORT_OVER_TCP;
    config.broker.verification.certificate = tls ? broker->ca : NULL;
    config.credentials.client_id = idf->device_id;
    config.credentials.username = given(broker->user) ? broker->user : NULL;
    config.credentials.authentication.password = given(broker->password) ? broker->password : NULL;
    if (tls && given(broker->certificate)) {
        config.credentials.authentication.certificate = broker->certificate;
        config.credentials.authentication.key = broker->certificate_key;
    }
    config.session.last_will.topic = topic; /* it copies topic and will */
    config.session.last_will.msg = (const char *)will;
    config.session.last_will.msg_len = (int)bytes;
    config.session.last_will.qos = 1;
    config.session.last_will.retain = 1;
    config.session.keepalive = KEEPALIVE_S;
    config.session.message_retransmit_timeout = TIMEOUT_MS;
    config.network.timeout_ms = TIMEOUT_MS;
    config.network.disable_auto_reconnect = true; /* the reporter knows when */
    config.buffer.size = BUFFER_BYTES;
    idf->mqtt = idf->events == NULL ? NULL : esp_mqtt_client_init(&config);
    if (idf->mqtt == NULL)
        return -1;
    idf->open = esp_mqtt_client_register_event(idf->mqtt, MQTT_EVENT_ANY, on_event, idf) == ESP_OK &&
                esp_mqtt_client_start(idf->mqtt) == ESP_OK;
    return idf->open ? 0 : -1;
}

static int subscribe(void *context, const char *topic) {
    struct hushmote_idf *idf = context;
    return esp_mqtt_client_subscribe_single(idf->mqtt, topic, 0) < 0;
}

/* Written when it returns; it may wait TIMEOUT_MS for a network that does not take it. */
static long publish(void *context, const char *topic, const uint8_t *payload, size_t bytes, bool retain) {
    struct hushmote_idf *idf = context;
    return esp_mqtt_client_publish(idf->mqtt, topic, (const char *)payload, (int)bytes, 1, retain);
}

static void close_connection(void *context) {
    struct hushmote_idf *idf = context;
    if (idf->mqtt != NULL)
        esp_mqtt_client_stop(idf->mqtt); /* says goodbye where it is connected */
    forget(idf);
}

const struct hushmote_port hushmote_idf_mqtt = {
    .connect = begin_to_connect,
    .subscribe = subscribe,
    .publish = publish,
    .disconnect = close_connection,
};

static void take(struct hushmote_idf *idf, const struct event *event) {
    if (event->kind == MQTT_EVENT_CONNECTED) {
        hushmote_reporter_connected(idf->reporter);
    } else if (event->kind == MQTT_EVENT_PUBLISHED) {
        hushmote_reporter_acknowledged(idf->reporter, event->id);
    } else if (event->kind == MQTT_EVENT_DATA) {
        hushmote_reporter_message(idf->reporter, event->message, event->topic_bytes,
                                  (const uint8_t *)event->message + event->topic_bytes, event->payload_bytes);
    } else {
        idf->open = false;
        hushmote_reporter_disconnected(idf->reporter);
    }
}

void hushmote_idf_wait(struct hushmote_idf *idf, uint32_t ms) {
    struct event event;
    if (idf->events == NULL) {
        vTaskDelay(pdMS_TO_TICKS(ms));
        return;
    }
    while (xQueueReceive(idf->events, &event, pdMS_TO_TICKS(ms)) == pdTRUE) {
        if (idf->open)
            take(idf, &event);
        free(event.message);
        ms = 0;
    }
}
