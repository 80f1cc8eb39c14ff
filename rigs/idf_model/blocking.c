/* Measure how long the port's functions block a loop that calls them every 50 ms, in virtual time, and what the
   reporter learns of the broker's refusals.

   blocking SCENE prints a line of JSON with times in ms. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "broker.h"
#include "esp_random.h"
#include "hushmote_idf.h"
#include "virtual_time.h"

#define NAMES 48
#define SIGNATURE_MS 400
#define LOOP_MS 50

HUSHMOTE_POLICY(policy, 400000000, 0, 1000000, HUSHMOTE_SUM, false,
                "e0", "e1", "e2", "e3", "e4", "e5", "e6", "e7", "e8", "e9", "e10", "e11", "e12", "e13", "e14", "e15",
                "e16", "e17", "e18", "e19", "e20", "e21", "e22", "e23", "e24", "e25", "e26", "e27", "e28", "e29", "e30",
                "e31", "e32", "e33", "e34", "e35", "e36", "e37", "e38", "e39", "e40", "e41", "e42", "e43", "e44", "e45",
                "e46", "e47");

static struct hushmote_experiment experiments[NAMES];
static struct hushmote_topic topics[NAMES];
static uint8_t records[2 * HUSHMOTE_RECORD_BYTES(NAMES, 8)], slots[2][sizeof records / 2];
static size_t held[2];
static struct hushmote client;
static struct hushmote_reporter reporter;
static struct hushmote_idf idf = {.broker = {.hosts = "broker", .port = 1883}, .device_id = "board-1"};
static struct hushmote_port port;
static uint32_t blocked, verified;
static unsigned connack; /* the last refusal; each new attempt resets the reporter's */

void esp_fill_random(void *buf, size_t len) {
    static uint64_t noise = 88172645463325252u;
    uint8_t *data = buf;
    for (; len > 0; len--) {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        *data++ = (uint8_t)(noise >> 24);
    }
}

static int entropy(void *context, uint8_t *data, size_t bytes) {
    (void)context;
    esp_fill_random(data, bytes);
    return 0;
}

static long read_slot(void *context, int slot, uint8_t *data, size_t bytes) {
    (void)context;
    memcpy(data, slots[slot], held[slot] < bytes ? held[slot] : bytes);
    return (long)held[slot];
}

static int write_slot(void *context, int slot, const uint8_t *data, size_t bytes) {
    (void)context;
    memcpy(slots[slot], data, bytes);
    held[slot] = bytes;
    return 0;
}

static const struct hushmote_config config = {
    .read = read_slot, .write = write_slot, .entropy = entropy, .policy = &policy, .device_id = "board-1",
    .fleet = "home", .experiments = experiments, .records = records, .record_bytes = sizeof records / 2,
    .unsent_max = 8,
};

/* One turn of the application's loop. */
static void turn(void) {
    uint32_t since = virtual_now();
    hushmote_idf_wait(&idf, 0);
    hushmote_reporter_tick(&reporter, virtual_now());
    if (reporter.connack != 0)
        connack = reporter.connack;
    if (virtual_now() - since > blocked)
        blocked = virtual_now() - since;
    (void)wait_for(NULL, NULL, LOOP_MS);
}

static void run(uint32_t ms) {
    for (uint32_t since = virtual_now(); virtual_now() - since < ms;)
        turn();
}

static void report_all(void) {
    uint8_t bytes[HUSHMOTE_REPORT_BYTES];
    for (unsigned i = 0; i < 4; i++)
        (void)hushmote_reporter_report(&reporter, "e0", hushmote_flag(true), bytes);
}

/* Verifying a signature blocks the loop; events that arrive in the meantime wait. */
static long subscribe_slowly(void *context, const char *topic) {
    long code = hushmote_idf_mqtt.subscribe(context, topic);
    if (++verified == NAMES)
        (void)wait_for(NULL, NULL, NAMES * SIGNATURE_MS);
    return code;
}

int main(int count, char **arguments) {
    const char *scene = count > 1 ? arguments[1] : "";
    unsigned heard = 0, forbidden = 0;
    (void)hushmote_provision(&config, false, HUSHMOTE_YES);
    (void)hushmote_begin(&client, &config);
    port = hushmote_idf_mqtt;
    port.context = &idf;
    hushmote_port_set_times(&port);
    port.spread_ms = 2000; /* the scenes begin soon */
    port.delay_ms = 0;
    port.backoff_max_ms = 10000;
    idf.reporter = &reporter;
    if (strcmp(scene, "retained") == 0) {
        broker.retained_count = 1;
        port.subscribe = subscribe_slowly;
    }
    broker.suback_code = strcmp(scene, "forbidden") == 0 ? 0x80 : 0;
    (void)hushmote_reporter_begin(&reporter, &client, &port, topics, NULL);
    if (strcmp(scene, "refused") == 0) {
        broker.refuses_connections = true;
        run(120000);
        broker.refuses_connections = false;
    } else if (strcmp(scene, "wrong password") == 0) {
        broker.connack_code = 5;
        run(20000);
        broker.connack_code = 0;
    } else if (strcmp(scene, "silent") == 0) {
        broker.drops_packets = true;
        broker.dns_ms = 5000;
        run(120000);
        broker.drops_packets = false;
        broker.dns_ms = 0;
    } else if (strcmp(scene, "lost") == 0) {
        for (int i = 0; i < 10; i++) {
            run(40000);
            broker.closes_connections = true;
            run(20000);
            broker.closes_connections = false;
        }
    } else if (strcmp(scene, "withdrawn") == 0) {
        broker.drops_packets = true;
        broker.dns_ms = 5000;
        run(4000);
        (void)hushmote_set_consent(&client, false);
        run(60000);
        (void)hushmote_set_consent(&client, true);
        broker.drops_packets = false;
        broker.dns_ms = 0;
    } else if (strcmp(scene, "torn") == 0) {
        run(20000);
        strcpy(broker.payload, "{\"v\":1,\"name\":\"e0\",\"type\":\"bool\",\"mechanism\":\"rr\",\"epsilon\":1000000,"
                               "\"every\":1,\"budget\":{\"rule\":\"sum\",\"cap\":40000000},\"window\":\"day\"}");
        (void)hushmote_enroll(&client, (const uint8_t *)broker.payload, strlen(broker.payload));
        broker.stalls_mid_packet = true;
        (void)wait_for(NULL, NULL, LOOP_MS);
        report_all();
        run(5000);
        broker.stalls_mid_packet = false;
        run(40000);
        (void)hushmote_enroll(&client, (const uint8_t *)broker.payload, strlen(broker.payload));
        broker.blocks_writes = true;
        report_all();
        run(5000);
        broker.blocks_writes = false;
    }
    run(60000);
    for (unsigned i = 0; i < NAMES; i++)
        heard += topics[i].heard, forbidden += topics[i].refused == HUSHMOTE_REFUSED_BROKER;
    printf("{\"blocked\": %u, \"link\": %d, \"connects\": %u, \"heard\": %u, \"forbidden\": %u, ", (unsigned)blocked,
           reporter.link, broker.connect_count, heard, forbidden);
    printf("\"connack\": %u, \"connack_now\": %u, ", connack, reporter.connack);
    (void)hushmote_set_consent(&client, false);
    run(1000);
    printf("\"goodbyes\": %u, \"clients\": %u}\n", broker.disconnect_count, broker.client_count);
    return 0;
}
