/* The reporter's MQTT functions, using esp-mqtt. Its events arrive in esp-mqtt's task; a queue passes them to the
   reporter's task.

   esp_mqtt_client_stop() and _destroy() wait for esp-mqtt's task, which may be busy with a DNS query, a connection
   attempt or a TLS handshake. So a separate small task calls them, and the next connection starts once this task has
   ended. */
#include <stdlib.h>
#include <string.h>

#include "freertos/FreeRTOS.h"
#include "freertos/queue.h"
#include "freertos/task.h"
#include "hushmote_idf.h"
#include "mqtt_client.h"

#define KEEPALIVE_S 60
#define RETRANSMIT_MS 10000
#define RECONNECT_MS 200  /* a disconnected client checks twice in this interval whether it must stop */
#define CLOSE_BYTES 4096  /* stack size, enough for disconnecting over TLS but not for a handshake */
#define CLOSE_PRIORITY 1
#define OTHER_EVENTS 12   /* connected, disconnected, and acknowledgements of status messages */
#define BUFFER_BYTES 2048 /* an experiment or a proof fits in one piece; longer messages are refused because of their first piece */

struct event {
    esp_mqtt_event_id_t kind;
    long id;
    int code; /* of a CONNACK or SUBACK */
    char *message; /* topic and payload, heap-allocated */
    size_t topic_bytes, payload_bytes;
};

static bool is_set(const char *text) {
    return text != NULL && text[0] != 0;
}

/* Runs in esp-mqtt's task. If the queue is full, drop the connection; the broker repeats the messages on the next one. */
static void on_event(void *context, esp_event_base_t base, int32_t kind, void *data) {
    struct hushmote_idf *idf = context;
    const esp_mqtt_event_t *from = data;
    struct event event = {(esp_mqtt_event_id_t)kind, from->msg_id, 0, NULL, 0, 0};
    (void)base;
    if (kind == MQTT_EVENT_SUBSCRIBED && from->data_len > 0)
        event.code = (uint8_t)from->data[0];
    if (kind == MQTT_EVENT_ERROR && from->error_handle != NULL &&
        from->error_handle->error_type == MQTT_ERROR_TYPE_CONNECTION_REFUSED)
        event.code = (int)from->error_handle->connect_return_code;
    if (kind != MQTT_EVENT_CONNECTED && kind != MQTT_EVENT_DISCONNECTED && kind != MQTT_EVENT_PUBLISHED &&
        kind != MQTT_EVENT_SUBSCRIBED && !(kind == MQTT_EVENT_ERROR && event.code > 0) &&
        !(kind == MQTT_EVENT_DATA && from->current_data_offset == 0))
        return;
    if (kind == MQTT_EVENT_DATA) {
        event.topic_bytes = (size_t)from->topic_len;
        event.payload_bytes = (size_t)from->data_len;
        event.message = malloc(event.topic_bytes + event.payload_bytes + 1);
        if (event.message == NULL) {
            __atomic_store_n(&idf->overflow, true, __ATOMIC_RELEASE);
            return;
        }
        memcpy(event.message, from->topic, event.topic_bytes);
        memcpy(event.message + event.topic_bytes, from->data, event.payload_bytes);
    }
    if (xQueueSend(idf->events, &event, 0) != pdTRUE) {
        free(event.message);
        __atomic_store_n(&idf->overflow, true, __ATOMIC_RELEASE);
    }
}

/* Discard all events of the previous connection. */
static void clear_queue(struct hushmote_idf *idf) {
    struct event event;
    while (xQueueReceive(idf->events, &event, 0) == pdTRUE)
        free(event.message);
}

/* Runs in a separate task. */
static void destroy_client(void *context) {
    struct hushmote_idf *idf = context;
    esp_mqtt_client_destroy(idf->closing); /* disconnects cleanly if connected, and waits until esp-mqtt's task has ended */
    __atomic_store_n(&idf->closing, NULL, __ATOMIC_RELEASE);
    vTaskDelete(NULL);
}

/* Start a task that destroys the MQTT client, and return whether no client is left. If there is no memory for the task,
   the next call tries again. */
static bool release_client(struct hushmote_idf *idf) {
    bool is_closed = __atomic_load_n(&idf->closing, __ATOMIC_ACQUIRE) == NULL;
    idf->open = false;
    if (idf->mqtt == NULL || !is_closed)
        return idf->mqtt == NULL && is_closed;
    idf->closing = idf->mqtt;
    if (xTaskCreate(destroy_client, "hushmote_close", CLOSE_BYTES, idf, CLOSE_PRIORITY, NULL) == pdPASS)
        idf->mqtt = NULL;
    else
        idf->closing = NULL;
    return false;
}

/* While a signature is being verified, each experiment and each proof can arrive twice, as retained and as replaced, after
   a SUBACK. */
static QueueHandle_t make_queue(const struct hushmote_idf *idf) {
    const struct hushmote_policy *policy = idf->reporter->client->config->policy;
    unsigned topics = policy->log == NULL ? policy->name_count : 2u * policy->name_count;
    return xQueueCreate(HUSHMOTE_IN_FLIGHT + OTHER_EVENTS + 3 * topics, sizeof(struct event));
}

/* Create a new client for each connection, because esp-mqtt would resend an old client's publications. While the old
   client is being destroyed, this fails immediately, and the reporter tries again. */
static int begin_to_connect(void *context, const char *topic, const uint8_t *will, size_t bytes) {
    struct hushmote_idf *idf = context;
    const struct hushmote_idf_broker *broker = &idf->broker;
    bool tls = is_set(broker->ca);
    esp_mqtt_client_config_t config;
    unsigned port;
    if (!release_client(idf))
        return -1;
    port = hushmote_broker_at(broker->hosts, idf->next++, broker->port, idf->host, sizeof idf->host);
    if (port == 0)
        return -1;
    if (idf->events == NULL)
        idf->events = make_queue(idf);
    else
        clear_queue(idf);
    idf->overflow = false;
    memset(&config, 0, sizeof config);
    config.broker.address.port = port;
    config.broker.address.hostname = idf->host;
    config.broker.address.transport = tls ? MQTT_TRANSPORT_OVER_SSL : MQTT_TRANSPORT_OVER_TCP;
    config.broker.verification.certificate = tls ? broker->ca : NULL;
    config.credentials.client_id = idf->device_id;
    config.credentials.username = is_set(broker->user) ? broker->user : NULL;
    config.credentials.authentication.password = is_set(broker->password) ? broker->password : NULL;
    if (tls && is_set(broker->certificate)) {
        config.credentials.authentication.certificate = broker->certificate;
        config.credentials.authentication.key = broker->certificate_key;
    }
    config.session.last_will.topic = topic; /* NULL for no will; esp-mqtt copies topic and will */
    config.session.last_will.msg = (const char *)will;
    config.session.last_will.msg_len = (int)bytes;
    config.session.last_will.qos = 1;
    config.session.last_will.retain = 1;
    config.session.keepalive = KEEPALIVE_S;
    config.session.message_retransmit_timeout = RETRANSMIT_MS;
    config.network.timeout_ms = HUSHMOTE_IDF_TIMEOUT_MS;
    config.network.reconnect_timeout_ms = RECONNECT_MS;
    config.network.disable_auto_reconnect = true; /* the reporter decides when to reconnect */
    config.buffer.size = BUFFER_BYTES;
    idf->mqtt = idf->events == NULL ? NULL : esp_mqtt_client_init(&config);
    if (idf->mqtt == NULL)
        return -1;
    idf->open = esp_mqtt_client_register_event(idf->mqtt, MQTT_EVENT_ANY, on_event, idf) == ESP_OK &&
                esp_mqtt_client_start(idf->mqtt) == ESP_OK;
    return idf->open ? 0 : -1;
}

static long subscribe(void *context, const char *topic) {
    struct hushmote_idf *idf = context;
    return esp_mqtt_client_subscribe_single(idf->mqtt, topic, 0);
}

/* The message has been written when this returns; this waits if the network is congested. */
static long publish(void *context, const char *topic, const uint8_t *payload, size_t bytes, bool retain) {
    struct hushmote_idf *idf = context;
    return esp_mqtt_client_publish(idf->mqtt, topic, (const char *)payload, (int)bytes, 1, retain);
}

static void close_connection(void *context) {
    (void)release_client(context);
}

const struct hushmote_port hushmote_idf_mqtt = {
    .connect = begin_to_connect,
    .subscribe = subscribe,
    .publish = publish,
    .disconnect = close_connection,
};

static void handle_event(struct hushmote_idf *idf, const struct event *event) {
    if (event->kind == MQTT_EVENT_CONNECTED) {
        hushmote_reporter_connected(idf->reporter);
    } else if (event->kind == MQTT_EVENT_PUBLISHED) {
        hushmote_reporter_acknowledged(idf->reporter, event->id);
    } else if (event->kind == MQTT_EVENT_SUBSCRIBED) {
        hushmote_reporter_subscribed(idf->reporter, event->id, event->code);
    } else if (event->kind == MQTT_EVENT_ERROR) {
        hushmote_reporter_refused(idf->reporter, event->code);
    } else if (event->kind == MQTT_EVENT_DATA) {
        hushmote_reporter_message(idf->reporter, event->message, event->topic_bytes,
                                  (const uint8_t *)event->message + event->topic_bytes, event->payload_bytes);
    } else {
        (void)release_client(idf);
        hushmote_reporter_disconnected(idf->reporter);
    }
}

bool hushmote_idf_is_closed(struct hushmote_idf *idf) {
    return !idf->open && release_client(idf);
}

void hushmote_idf_wait(struct hushmote_idf *idf, uint32_t ms) {
    struct event event;
    if (!idf->open)
        (void)release_client(idf);
    if (idf->events == NULL) {
        vTaskDelay(pdMS_TO_TICKS(ms));
        return;
    }
    while (xQueueReceive(idf->events, &event, pdMS_TO_TICKS(ms)) == pdTRUE) {
        if (idf->open)
            handle_event(idf, &event);
        free(event.message);
        ms = 0;
    }
    if (idf->open && __atomic_load_n(&idf->overflow, __ATOMIC_ACQUIRE)) {
        (void)release_client(idf);
        hushmote_reporter_disconnected(idf->reporter);
    }
}
