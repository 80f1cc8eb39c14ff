/* The reporter's MQTT functions, using libmosquitto in one thread. Callbacks run within hushmote_posix_wait(). */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <mosquitto.h>
#include <poll.h>
#include <string.h>

#include "posix.h"

#define KEEPALIVE_S 60
#define GOODBYE_MS 1000 /* longest wait to send the remaining messages when disconnecting */

static void on_connect(struct mosquitto *mqtt, void *context, int code) {
    struct hushmote_posix *posix = context;
    (void)mqtt;
    if (code == 0) {
        posix->error = NULL;
        hushmote_reporter_connected(posix->reporter);
    } else {
        posix->error = mosquitto_connack_string(code);
        hushmote_reporter_refused(posix->reporter, code);
    }
}

static void on_subscribe(struct mosquitto *mqtt, void *context, int id, int count, const int *granted) {
    struct hushmote_posix *posix = context;
    (void)mqtt;
    hushmote_reporter_subscribed(posix->reporter, id, count > 0 ? granted[0] : 0);
}

static void on_message(struct mosquitto *mqtt, void *context, const struct mosquitto_message *message) {
    struct hushmote_posix *posix = context;
    (void)mqtt;
    hushmote_reporter_message(posix->reporter, message->topic, strlen(message->topic), message->payload,
                              (size_t)message->payloadlen);
}

static void on_publish(struct mosquitto *mqtt, void *context, int id) {
    struct hushmote_posix *posix = context;
    (void)mqtt;
    hushmote_reporter_acknowledged(posix->reporter, id);
}

static int set_credentials(const struct hushmote_posix *posix) {
    const struct hushmote_broker *broker = &posix->broker;
    if (broker->user[0] && mosquitto_username_pw_set(posix->mqtt, broker->user, broker->password) != 0)
        return -1;
    if (!broker->ca[0])
        return 0;
    return mosquitto_tls_set(posix->mqtt, broker->ca, NULL, broker->cert[0] ? broker->cert : NULL,
                             broker->key[0] ? broker->key : NULL, NULL);
}

/* Create a new client for each connection, because libmosquitto would resend an old client's publications. */
static int begin_to_connect(void *context, const char *topic, const uint8_t *will, size_t bytes) {
    struct hushmote_posix *posix = context;
    const struct hushmote_broker *broker = &posix->broker;
    char host[256];
    unsigned port = hushmote_broker_at(broker->hosts, posix->next++, (unsigned)broker->port, host, sizeof host);
    int code;
    mosquitto_destroy(posix->mqtt);
    posix->mqtt = mosquitto_new(posix->device_id, true, posix);
    if (posix->mqtt == NULL)
        return -1;
    mosquitto_connect_callback_set(posix->mqtt, on_connect);
    mosquitto_message_callback_set(posix->mqtt, on_message);
    mosquitto_subscribe_callback_set(posix->mqtt, on_subscribe);
    mosquitto_publish_callback_set(posix->mqtt, on_publish);
    code = topic == NULL ? 0 : mosquitto_will_set(posix->mqtt, topic, (int)bytes, will, 1, true);
    if (code == 0)
        code = set_credentials(posix);
    if (code == 0)
        code = mosquitto_connect(posix->mqtt, host, (int)port, KEEPALIVE_S);
    posix->open = code == 0;
    if (code != 0)
        posix->error = code == MOSQ_ERR_ERRNO ? strerror(errno) : mosquitto_strerror(code);
    return code == 0 ? 0 : -1;
}

static long subscribe(void *context, const char *topic) {
    struct hushmote_posix *posix = context;
    int id;
    return mosquitto_subscribe(posix->mqtt, &id, topic, 0) == 0 ? id : -1;
}

static long publish(void *context, const char *topic, const uint8_t *payload, size_t bytes, bool retain) {
    struct hushmote_posix *posix = context;
    int id, code = mosquitto_publish(posix->mqtt, &id, topic, (int)bytes, payload, 1, retain);
    return code == 0 ? id : -1;
}

static void close_connection(void *context) {
    struct hushmote_posix *posix = context;
    struct pollfd waited = {mosquitto_socket(posix->mqtt), POLLOUT, 0};
    posix->open = false;
    while (waited.fd >= 0 && mosquitto_want_write(posix->mqtt) && poll(&waited, 1, GOODBYE_MS) > 0 &&
           mosquitto_loop_write(posix->mqtt, 1) == 0) {
    }
    mosquitto_disconnect(posix->mqtt);
}

const struct hushmote_port hushmote_posix_mqtt = {
    .connect = begin_to_connect,
    .subscribe = subscribe,
    .publish = publish,
    .disconnect = close_connection,
    .read_kept = hushmote_posix_read_kept,
    .write_kept = hushmote_posix_write_kept,
};

static int step(struct hushmote_posix *posix, short events) {
    int code = 0;
    if (events & (POLLIN | POLLHUP | POLLERR))
        code = mosquitto_loop_read(posix->mqtt, 1);
    if (code == 0 && posix->open && (events & POLLOUT))
        code = mosquitto_loop_write(posix->mqtt, 1);
    return code == 0 && posix->open ? mosquitto_loop_misc(posix->mqtt) : code;
}

bool hushmote_posix_wait(struct hushmote_posix *posix, int other, int ms) {
    struct pollfd waited[2] = {{other, POLLIN, 0}, {-1, POLLIN, 0}};
    int code;
    if (posix->open) {
        waited[1].fd = mosquitto_socket(posix->mqtt);
        if (mosquitto_want_write(posix->mqtt))
            waited[1].events |= POLLOUT;
    }
    if (poll(waited, 2, ms) < 0)
        return false;
    if (posix->open) {
        code = step(posix, waited[1].revents);
        if (posix->open && (code != 0 || mosquitto_socket(posix->mqtt) < 0)) {
            posix->open = false;
            if (posix->error == NULL)
                posix->error = mosquitto_strerror(code);
            hushmote_reporter_disconnected(posix->reporter);
        }
    }
    return (waited[0].revents & (POLLIN | POLLHUP)) != 0;
}
