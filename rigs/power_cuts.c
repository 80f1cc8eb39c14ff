/* A device's lifetime over a model of its storage, with a power cut before each flash operation.

   With -DASK_EACH=2, each question needs its own opt-in, which it gets immediately. With -DROLLBACKS=1, a firmware whose
   policy has only the last name runs before each start, and receives that experiment.

   power_cuts [STEP [AGAIN]] cuts the power at every STEP-th operation, and once more AGAIN operations later. It prints a
   line of JSON: operations per run, runs, and the number of runs that ended locked, lost a serial, sent a report number
   twice with different bytes, or spent budget that the ledger does not show. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "flash_model.h"
#include "hushmote_port.h"
#include "storage_port.h"

#define REPORTS 40u
#define VERSIONS 4u /* versions of each experiment */
#define NAMES 3
#define UNSENT 4
#define EPSILON 1000000u

#ifndef ASK_EACH
#define ASK_EACH 0
#endif
#ifndef ROLLBACKS
#define ROLLBACKS 0
#endif
HUSHMOTE_POLICY(policy, 40000000, 0, 1000000, HUSHMOTE_SUM, ASK_EACH, "room_temp", "door", "window");
HUSHMOTE_POLICY(other_policy, 40000000, 0, 1000000, HUSHMOTE_SUM, ASK_EACH, "window");

long flash_operations, flash_cut = -1;
jmp_buf flash_power;

static struct { /* what the outside world has seen during a run */
    unsigned step;
    uint32_t serials[NAMES];
    uint8_t reports[NAMES][REPORTS + 1][HUSHMOTE_REPORT_BYTES];
    int bytes[NAMES][REPORTS + 1];
    unsigned handed_over;
} world;
static struct { unsigned locked, forgotten, conflicting, unpaid, failed; } faults;
static struct { bool locked, forgotten, conflicting, unpaid, failed; } lifetime;

static struct hushmote_experiment experiments[NAMES];
static struct hushmote_topic topics[NAMES];
static struct hushmote_question questions[NAMES];
static uint8_t records[2 * HUSHMOTE_RECORD_BYTES(NAMES, UNSENT)], kept[HUSHMOTE_KEPT_BYTES], announce_key[64];
static struct hushmote client;
static struct hushmote_reporter reporter;
static uint64_t noise = 88172645463325252u;
static uint32_t clock_ms;
static long last_id;

static int fill(void *context, uint8_t *data, size_t bytes) {
    (void)context;
    while (bytes-- > 0) {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        *data++ = (uint8_t)(noise >> 24);
    }
    return 0;
}

static bool verify(void *context, const uint8_t key[64], const uint8_t digest[32], const uint8_t signature[64]) {
    (void)context;
    (void)key;
    (void)digest;
    return signature[0] == 0xaa;
}

static int connect_at_once(void *context, const char *topic, const uint8_t *will, size_t bytes) {
    (void)context;
    (void)topic;
    (void)will;
    (void)bytes;
    return 0;
}

static long subscribe(void *context, const char *topic) {
    (void)context;
    (void)topic;
    return 0;
}

/* Return an experiment's index by a report's digest. */
static unsigned experiment_of(const uint8_t *report) {
    unsigned at = 0;
    while (at < NAMES - 1 && memcmp(experiments[at].sha256, report + 1, 4) != 0)
        at++;
    return at;
}

/* An experiment's reports are identified by their number alone; its versions differ in their digest. */
static void see(unsigned at, const uint8_t *report, size_t bytes) {
    unsigned number = (unsigned)report[5] << 24 | (unsigned)report[6] << 16 | (unsigned)report[7] << 8 | report[8];
    if (number == 0 || number > REPORTS) {
        lifetime.failed = true;
        return;
    }
    if (world.bytes[at][number] == 0)
        world.handed_over++;
    else if (world.bytes[at][number] != (int)bytes || memcmp(world.reports[at][number], report, bytes) != 0)
        lifetime.conflicting = true;
    world.bytes[at][number] = (int)bytes;
    memcpy(world.reports[at][number], report, bytes);
}

static long publish(void *context, const char *topic, const uint8_t *payload, size_t bytes, bool retain) {
    (void)context;
    (void)topic;
    if (!retain && world.step >= NAMES) { /* a report of an older version matches no digest and is ignored */
        unsigned at = experiment_of(payload);
        if (memcmp(experiments[at].sha256, payload + 1, 4) == 0)
            see(at, payload, bytes);
    }
    return ++last_id;
}

static void disconnect(void *context) {
    (void)context;
}

static struct hushmote_config config = {
    .entropy = fill, .verify = verify, .policy = &policy, .device_id = "board-1", .fleet = "home",
    .announce_key = announce_key, .experiments = experiments, .records = records,
    .record_bytes = sizeof records / 2, .unsent_max = UNSENT,
};
static struct hushmote_port port = {
    .connect = connect_at_once, .subscribe = subscribe, .publish = publish, .disconnect = disconnect,
    .timeout_ms = 1000000, .settle_ms = 1000000,
};

/* Deliver a version of the experiment with a name, which is the policy's at-th. */
static void deliver(unsigned at, const char *name, uint32_t serial) {
    static const char form[] = "{\"v\":1,\"name\":\"%s\",\"type\":\"bool\",\"mechanism\":\"rr\",\"epsilon\":%u,\"every\":1,"
                               "\"budget\":{\"rule\":\"sum\",\"cap\":40000000},\"window\":\"day\"}%*s";
    char topic[96];
    uint8_t payload[HUSHMOTE_PAYLOAD_BYTES];
    int bytes = snprintf((char *)payload, sizeof payload, form, name, EPSILON, (int)(300 * serial % 700), "");
    size_t topic_bytes = (size_t)snprintf(topic, sizeof topic, "hushmote/v1/home/experiment/%s", name);
    memset(payload + bytes, 0xaa, 69);
    payload[bytes] = 0;
    for (int i = 0; i < 4; i++)
        payload[bytes + 1 + i] = (uint8_t)(serial >> (24 - 8 * i));
    hushmote_reporter_message(&reporter, topic, topic_bytes, payload, (size_t)bytes + 69);
    if (reporter.topics[at].refused == HUSHMOTE_REFUSED_UNASKED)
        (void)hushmote_agree(&reporter, name, NULL, 0);
}

static void hand_in(unsigned at, uint32_t serial) {
    deliver(at, policy.names[at], serial);
    if (reporter.topics[at].refused != HUSHMOTE_OK || reporter.kept_fault != HUSHMOTE_OK)
        lifetime.failed = true;
    world.serials[at] = serial;
}

static void report(unsigned at) {
    uint8_t bytes[HUSHMOTE_REPORT_BYTES];
    int made = hushmote_reporter_report(&reporter, policy.names[at], hushmote_flag(true), bytes);
    if (made > 0)
        see(at, bytes, (size_t)made);
}

static void step(void) {
    unsigned at = world.step % NAMES, turn = world.step / NAMES;
    if (turn % 12 == 0 && turn / 12 < VERSIONS)
        hand_in(at, 1 + turn / 12);
    report(at);
    hushmote_reporter_tick(&reporter, clock_ms += 1000);
    for (unsigned i = 0; i < HUSHMOTE_IN_FLIGHT && turn % 5 != 4; i++)
        hushmote_reporter_acknowledged(&reporter, reporter.flights[i].id);
}

static void use_policy(const struct hushmote_policy *chosen) {
    config.policy = chosen;
    if (storage_port.use_policy != NULL)
        storage_port.use_policy(chosen);
}

/* Run the firmware with the other policy. */
static void start_other(void) {
    use_policy(&other_policy);
    (void)hushmote_begin(&client, &config);
    (void)hushmote_reporter_begin(&reporter, &client, &port, topics, kept);
    if (world.serials[NAMES - 1] > 0)
        deliver(0, other_policy.names[0], world.serials[NAMES - 1]); /* refused if a newer one was kept before a cut */
    use_policy(&policy);
}

/* Start the device with empty RAM. */
static void start(void) {
    struct hushmote_status status;
    storage_start();
    if (storage_port.open() != 0) {
        lifetime.failed = true;
        return;
    }
    use_policy(&policy); /* the power may have been cut during the other firmware */
    if (ROLLBACKS)
        start_other();
    if (hushmote_begin(&client, &config) != HUSHMOTE_OK)
        lifetime.failed = true;
    if (client.locked == HUSHMOTE_NO_LEDGER && world.handed_over == 0 && world.step == 0) {
        (void)hushmote_provision(&config, false, HUSHMOTE_YES);
        (void)hushmote_begin(&client, &config);
    }
    if (hushmote_reporter_begin(&reporter, &client, &port, topics, kept) != HUSHMOTE_OK)
        lifetime.failed = true;
    (void)hushmote_status(&client, &status);
    if (status.locked)
        lifetime.locked = true;
    else if (status.sum < (uint64_t)world.handed_over * EPSILON)
        lifetime.unpaid = true;
    for (unsigned at = 0; at < NAMES; at++) {
        if (world.serials[at] > experiments[at].serial || (world.serials[at] > 0 && !experiments[at].enrolled))
            lifetime.forgotten = true;
    }
    for (int i = 0; i < 3; i++)
        hushmote_reporter_tick(&reporter, clock_ms += 1000);
    hushmote_reporter_connected(&reporter);
}

static bool is_over(void) {
    return lifetime.locked || lifetime.failed || world.step == 48 * NAMES;
}

static void live(long cut, long second_cut) {
    memset(&world, 0, sizeof world);
    memset(&lifetime, 0, sizeof lifetime);
    flash_operations = 0;
    flash_cut = cut;
    storage_new();
    if (setjmp(flash_power) != 0) { /* only static variables keep their values after longjmp() */
        flash_cut = second_cut > 0 && flash_cut == cut ? cut + second_cut : -1;
        clock_ms += 5000;
    }
    start();
    while (!is_over()) {
        step();
        world.step++;
        if (ROLLBACKS && world.step % 16 == 0)
            start();
    }
    faults.locked += lifetime.locked;
    faults.forgotten += lifetime.forgotten;
    faults.conflicting += lifetime.conflicting;
    faults.unpaid += lifetime.unpaid;
    faults.failed += lifetime.failed || (!lifetime.locked && hushmote_begin(&client, &config) != HUSHMOTE_OK);
}

int main(int count, char **arguments) {
    static long every, second_cut, total, cut;
    static unsigned lifetimes;
    every = count > 1 ? atol(arguments[1]) : 1;
    second_cut = count > 2 ? atol(arguments[2]) : 0;
    config.read = storage_port.read;
    config.write = storage_port.write;
    config.context = port.context = storage_port.context;
    port.asker = ASK_EACH ? &hushmote_ask_each : NULL;
    port.questions = ASK_EACH ? questions : NULL;
    port.read_kept = storage_port.read_kept;
    port.write_kept = storage_port.write_kept;
    live(-1, 0);
    total = flash_operations;
    for (cut = 0; cut < total; cut += every, lifetimes++) {
        live(cut, second_cut);
        if (lifetime.locked || lifetime.failed || lifetime.forgotten || lifetime.conflicting || lifetime.unpaid)
            fprintf(stderr, "cut %ld: %s%s%s%s%s\n", cut, lifetime.locked ? "locked " : "",
                    lifetime.failed ? "failed " : "", lifetime.forgotten ? "forgotten " : "",
                    lifetime.conflicting ? "conflicting " : "", lifetime.unpaid ? "unpaid" : "");
    }
    printf("{\"operations\": %ld, \"lifetimes\": %u, \"reports\": %u, \"locked\": %u, \"forgotten\": %u, "
           "\"conflicting\": %u, \"unpaid\": %u, \"failed\": %u}\n",
           total, lifetimes, world.handed_over, faults.locked, faults.forgotten, faults.conflicting, faults.unpaid,
           faults.failed);
    return 0;
}
