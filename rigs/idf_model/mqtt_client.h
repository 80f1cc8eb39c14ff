#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "esp_err.h"
typedef const char *esp_event_base_t;
typedef void (*esp_event_handler_t)(void *arg, esp_event_base_t base, int32_t id, void *data);
typedef struct esp_mqtt_client *esp_mqtt_client_handle_t;
typedef enum {
    MQTT_EVENT_ANY = -1, MQTT_EVENT_ERROR = 0, MQTT_EVENT_CONNECTED, MQTT_EVENT_DISCONNECTED, MQTT_EVENT_SUBSCRIBED,
    MQTT_EVENT_UNSUBSCRIBED, MQTT_EVENT_PUBLISHED, MQTT_EVENT_DATA
} esp_mqtt_event_id_t;
typedef enum { MQTT_TRANSPORT_UNKNOWN, MQTT_TRANSPORT_OVER_TCP, MQTT_TRANSPORT_OVER_SSL } esp_mqtt_transport_t;
typedef enum { MQTT_ERROR_TYPE_NONE, MQTT_ERROR_TYPE_TCP_TRANSPORT, MQTT_ERROR_TYPE_CONNECTION_REFUSED } esp_mqtt_error_type_t;
typedef struct {
    esp_mqtt_error_type_t error_type;
    int connect_return_code;
} esp_mqtt_error_codes_t;
typedef struct {
    esp_mqtt_event_id_t event_id;
    char *data;
    int data_len, total_data_len, current_data_offset;
    char *topic;
    int topic_len, msg_id;
    esp_mqtt_error_codes_t *error_handle;
} esp_mqtt_event_t;
typedef struct {
    struct {
        struct { const char *uri, *hostname; esp_mqtt_transport_t transport; const char *path; uint32_t port; } address;
        struct { const char *certificate; } verification;
    } broker;
    struct {
        const char *username, *client_id;
        struct { const char *password, *certificate, *key; } authentication;
    } credentials;
    struct {
        struct { const char *topic, *msg; int msg_len, qos, retain; } last_will;
        bool disable_clean_session;
        int keepalive, message_retransmit_timeout;
    } session;
    struct { int reconnect_timeout_ms, timeout_ms; bool disable_auto_reconnect; } network;
    struct { int size, out_size; } buffer;
} esp_mqtt_client_config_t;
esp_mqtt_client_handle_t esp_mqtt_client_init(const esp_mqtt_client_config_t *config);
esp_err_t esp_mqtt_client_register_event(esp_mqtt_client_handle_t client, esp_mqtt_event_id_t event,
                                         esp_event_handler_t handler, void *arg);
esp_err_t esp_mqtt_client_start(esp_mqtt_client_handle_t client);
esp_err_t esp_mqtt_client_stop(esp_mqtt_client_handle_t client);
esp_err_t esp_mqtt_client_destroy(esp_mqtt_client_handle_t client);
int esp_mqtt_client_subscribe_single(esp_mqtt_client_handle_t client, const char *topic, int qos);
int esp_mqtt_client_publish(esp_mqtt_client_handle_t client, const char *topic, const char *data, int len, int qos,
                            int retain);
