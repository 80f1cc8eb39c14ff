/* A model of esp-mqtt: its task, its lock, and its functions' waits.

   The task holds the lock while it connects (name, TCP, CONNACK), reads and writes. After it loses a connection, it checks
   twice per reconnect_timeout_ms whether to continue. stop() waits for the lock and then for the task's end,
   destroy() calls stop(), and every call waits for the lock. */
#include <stdlib.h>
#include <string.h>

#include "broker.h"
#include "mqtt_client.h"
#include "virtual_time.h"

#define DEFAULT_MS 10000 /* default of both timeouts */
#define POLL_MS 1000
#define ROUND_TRIP_MS 20
#define PENDING 200

struct broker broker;

enum state { INIT, CONNECTED, WAIT_RECONNECT, DISCONNECTED };

struct esp_mqtt_client {
    esp_event_handler_t handler;
    void *argument;
    uint32_t timeout_ms, reconnect_ms;
    enum state state;
    bool run, has_stopped;
    int depth; /* nesting depth of the lock */
    void *owner;
    int last_id;
    struct pending {
        esp_mqtt_event_id_t kind;
        int id;
        char *topic; /* of a retained message */
    } pending[PENDING];
    unsigned pending_count;
};

static void *who; /* the client's task that runs, or NULL */

/* --- The lock ------------------------------------------------------------------------------------------------- */

static bool is_free(void *client) {
    return ((struct esp_mqtt_client *)client)->depth == 0;
}

/* Wait, and restore `who` afterwards. */
static bool rest(bool (*is_ready)(void *), void *context, uint32_t ms) {
    void *self = who;
    bool result = wait_for(is_ready, context, ms);
    who = self;
    return result;
}

static void lock(struct esp_mqtt_client *client) {
    if (client->depth > 0 && client->owner != who)
        (void)rest(is_free, client, FOREVER);
    client->owner = who;
    client->depth++;
}

static void unlock(struct esp_mqtt_client *client) {
    client->depth--;
}

/* --- The task ------------------------------------------------------------------------------------------------- */

static void dispatch(struct esp_mqtt_client *client, esp_mqtt_event_id_t kind, int id, char *topic) {
    esp_mqtt_error_codes_t error = {MQTT_ERROR_TYPE_NONE, 0};
    esp_mqtt_event_t event = {.event_id = kind, .msg_id = id, .error_handle = &error};
    char granted = (char)broker.suback_code;
    if (kind == MQTT_EVENT_ERROR) {
        error.error_type = MQTT_ERROR_TYPE_CONNECTION_REFUSED;
        error.connect_return_code = broker.connack_code;
    } else if (kind == MQTT_EVENT_SUBSCRIBED) {
        event.data = &granted;
        event.data_len = event.total_data_len = 1;
    } else if (topic != NULL) {
        event.topic = topic;
        event.topic_len = (int)strlen(topic);
        event.data = broker.payload;
        event.data_len = event.total_data_len = (int)broker.bytes;
    }
    client->handler(client->argument, "", kind, &event);
}

static void abort_connection(struct esp_mqtt_client *client) {
    client->state = WAIT_RECONNECT;
    dispatch(client, MQTT_EVENT_DISCONNECTED, 0, NULL);
}

static bool connect_to_broker(struct esp_mqtt_client *client) {
    if (broker.dns_ms > 0)
        (void)rest(NULL, NULL, broker.dns_ms);
    if (broker.drops_packets)
        (void)rest(NULL, NULL, client->timeout_ms);
    if (broker.drops_packets || broker.refuses_connections || broker.closes_connections)
        return false;
    (void)rest(NULL, NULL, 2 * ROUND_TRIP_MS);
    if (broker.connack_code > 0) {
        dispatch(client, MQTT_EVENT_ERROR, 0, NULL);
        return false;
    }
    broker.connect_count++;
    return true;
}

static void receive(struct esp_mqtt_client *client) {
    struct pending next;
    if (broker.stalls_mid_packet)
        (void)rest(NULL, NULL, client->timeout_ms);
    if (broker.closes_connections || broker.stalls_mid_packet) {
        abort_connection(client);
        return;
    }
    if (client->pending_count == 0)
        return;
    next = client->pending[0];
    client->pending_count--;
    memmove(client->pending, client->pending + 1, client->pending_count * sizeof *client->pending);
    dispatch(client, next.kind, next.id, next.topic);
    free(next.topic);
}

static bool can_read(void *client) {
    return ((struct esp_mqtt_client *)client)->pending_count > 0 || broker.closes_connections || broker.stalls_mid_packet;
}

static void run_client(void *context) {
    struct esp_mqtt_client *client = context;
    who = client;
    client->run = true;
    client->state = INIT;
    while (client->run) {
        lock(client);
        if (client->state == WAIT_RECONNECT) {
            unlock(client);
            (void)rest(NULL, NULL, client->reconnect_ms / 2);
            continue;
        }
        if (client->state == CONNECTED) {
            receive(client);
        } else if (connect_to_broker(client)) {
            client->state = CONNECTED;
            dispatch(client, MQTT_EVENT_CONNECTED, 0, NULL);
        } else {
            abort_connection(client);
        }
        unlock(client);
        if (client->state == CONNECTED)
            (void)rest(can_read, client, POLL_MS);
    }
    client->state = DISCONNECTED;
    client->has_stopped = true;
}

/* --- The application's interface ------------------------------------------------------------------------------ */

static uint32_t or_default(int ms) {
    return ms > 0 ? (uint32_t)ms : DEFAULT_MS;
}

esp_mqtt_client_handle_t esp_mqtt_client_init(const esp_mqtt_client_config_t *config) {
    struct esp_mqtt_client *client = calloc(1, sizeof *client);
    client->timeout_ms = or_default(config->network.timeout_ms);
    client->reconnect_ms = or_default(config->network.reconnect_timeout_ms);
    broker.client_count++;
    return client;
}

esp_err_t esp_mqtt_client_register_event(esp_mqtt_client_handle_t client, esp_mqtt_event_id_t event,
                                         esp_event_handler_t handler, void *arg) {
    (void)event;
    client->handler = handler;
    client->argument = arg;
    return ESP_OK;
}

esp_err_t esp_mqtt_client_start(esp_mqtt_client_handle_t client) {
    client->run = true;
    begin_task(run_client, client);
    return ESP_OK;
}

static bool has_stopped(void *client) {
    return ((struct esp_mqtt_client *)client)->has_stopped;
}

esp_err_t esp_mqtt_client_stop(esp_mqtt_client_handle_t client) {
    lock(client);
    if (!client->run) {
        unlock(client);
        return ESP_FAIL;
    }
    broker.disconnect_count += client->state == CONNECTED && !broker.closes_connections;
    client->run = false;
    client->state = DISCONNECTED;
    unlock(client);
    (void)rest(has_stopped, client, FOREVER);
    return ESP_OK;
}

esp_err_t esp_mqtt_client_destroy(esp_mqtt_client_handle_t client) {
    if (client->run)
        (void)esp_mqtt_client_stop(client);
    for (unsigned i = 0; i < client->pending_count; i++)
        free(client->pending[i].topic);
    free(client);
    broker.client_count--;
    return ESP_OK;
}

static int add_pending(struct esp_mqtt_client *client, esp_mqtt_event_id_t kind, int id, const char *topic) {
    if (client->pending_count == PENDING)
        return -1;
    client->pending[client->pending_count++] = (struct pending){kind, id, topic == NULL ? NULL : strdup(topic)};
    return id;
}

int esp_mqtt_client_subscribe_single(esp_mqtt_client_handle_t client, const char *topic, int qos) {
    int id;
    (void)qos;
    if (client->state != CONNECTED)
        return -1;
    lock(client);
    id = add_pending(client, MQTT_EVENT_SUBSCRIBED, ++client->last_id, NULL);
    if (broker.retained_count > 0 && broker.suback_code < 0x80)
        (void)add_pending(client, MQTT_EVENT_DATA, 0, topic);
    unlock(client);
    return id;
}

int esp_mqtt_client_publish(esp_mqtt_client_handle_t client, const char *topic, const char *data, int len, int qos,
                            int retain) {
    int id;
    (void)topic;
    (void)data;
    (void)len;
    (void)qos;
    (void)retain;
    lock(client);
    if (client->state != CONNECTED) { /* it is sent after reconnecting */
        id = ++client->last_id;
    } else if (broker.blocks_writes) {
        (void)rest(NULL, NULL, client->timeout_ms);
        abort_connection(client);
        id = -1;
    } else {
        id = add_pending(client, MQTT_EVENT_PUBLISHED, ++client->last_id, NULL);
    }
    unlock(client);
    return id;
}
