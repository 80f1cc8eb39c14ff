/* Measure calls of the client and its reporter on the emulated RP2040, by cycle marks around them and by the deepest stack,
   for measure_c.py.

   costs.h defines the experiments' NAMES (each in quotes) and PAYLOADS, and a signed experiment's SIGNED, FLEET and
   ANNOUNCE_KEY. */
#include <stdio.h>
#include <string.h>

#include "core.h"
#include "costs.h"
#include "hushmote_port.h"

#define TURNS 20
#define UNSENT 4
#define STACK_BYTES 8192
#define PAINT 0xa5a5a5a5u
#define MARK ((volatile uint32_t *)0x40060020) /* a register that the real chip does not have */
#define RANDOM_BIT (*(volatile uint32_t *)0x4006001c)

extern uint32_t STACK_TOP[];

HUSHMOTE_POLICY(policy, UINT64_C(1) << 47, 0, 1000000, HUSHMOTE_SUM, false, NAMES);
static const char *const payloads[] = {PAYLOADS};
static const uint8_t signed_payload[] = SIGNED, announce_key[64] = ANNOUNCE_KEY, key[32];
#define COUNT (sizeof policy_names / sizeof *policy_names)

static struct hushmote_experiment experiments[COUNT];
static uint8_t records[2 * HUSHMOTE_RECORD_BYTES(COUNT, UNSENT)];
static struct {
    uint8_t bytes[HUSHMOTE_RECORD_BYTES(COUNT, UNSENT)];
    size_t used;
} slots[2];

static long read_slot(void *context, int slot, uint8_t *data, size_t bytes) {
    (void)context;
    memcpy(data, slots[slot].bytes, slots[slot].used < bytes ? slots[slot].used : bytes);
    return (long)slots[slot].used;
}

static int write_slot(void *context, int slot, const uint8_t *data, size_t bytes) {
    (void)context;
    memcpy(slots[slot].bytes, data, bytes);
    slots[slot].used = bytes;
    return 0;
}

/* Read the ring oscillator as MicroPython does, but without waiting between bits. */
static int entropy(void *context, uint8_t *data, size_t bytes) {
    (void)context;
    for (size_t i = 0; i < bytes; i++) {
        unsigned byte = 0;
        for (int bit = 0; bit < 8; bit++)
            byte = byte << 1 | (RANDOM_BIT & 1);
        data[i] = (uint8_t)byte;
    }
    return 0;
}

static struct hushmote_config config = {.read = read_slot,
                                        .write = write_slot,
                                        .entropy = entropy,
                                        .policy = &policy,
                                        .device_id = "board-1",
                                        .fleet = FLEET,
                                        .experiments = experiments,
                                        .records = records,
                                        .record_bytes = sizeof records / 2,
                                        .unsent_max = UNSENT};
static struct hushmote client;
static uint8_t report[HUSHMOTE_REPORT_BYTES];
static int failed;

static uint32_t *sp(void) {
    uint32_t *here;
    __asm__ volatile("mov %0, sp" : "=r"(here));
    return here;
}

static void paint(void) {
    volatile uint32_t *end = sp();
    for (volatile uint32_t *at = STACK_TOP - STACK_BYTES / 4; at < end; at++)
        *at = PAINT;
}

/* Return the stack bytes below this function that calls have used since paint(). */
static void tell(const char *what) {
    const volatile uint32_t *at = STACK_TOP - STACK_BYTES / 4, *end = sp();
    while (at < end && *at == PAINT)
        at++;
    printf("STACK %s %u\n", what, (unsigned)((const volatile uint8_t *)end - (const volatile uint8_t *)at));
}

static void expect(bool good, const char *what) {
    if (!good) {
        failed = 1;
        printf("%s failed\n", what);
    }
}

#define TIMED(number, call) (*MARK = (number), (call), *MARK = (number))

static void fresh(const uint8_t *device_key, const uint8_t *fleet_key) {
    int code;
    slots[0].used = slots[1].used = 0;
    config.key = device_key;
    config.announce_key = fleet_key;
    expect(hushmote_provision(&config, false, HUSHMOTE_YES) == HUSHMOTE_OK, "provision");
    paint();
    TIMED(4, code = hushmote_begin(&client, &config));
    tell("begin");
    expect(code == HUSHMOTE_OK, "begin");
}

static void measure_reports(unsigned at, const uint8_t *device_key, uint32_t number) {
    struct hushmote_reading reading =
        strcmp(policy_names[at], "prefix") == 0 ? hushmote_bytes("ab", 2) : hushmote_milli(21400);
    int code, bytes = 0;
    fresh(device_key, NULL);
    paint();
    TIMED(10 + at, code = hushmote_enroll(&client, (const uint8_t *)payloads[at], strlen(payloads[at])));
    tell("enroll");
    expect(code == HUSHMOTE_OK, policy_names[at]);
    if (strcmp(policy_names[at], "rr") == 0)
        reading = hushmote_flag(true);
    else if (strcmp(policy_names[at], "views") == 0)
        reading = hushmote_none();
    for (int i = 0; i < TURNS; i++) {
        paint();
        TIMED(number, bytes = hushmote_report(&client, policy_names[at], reading, report));
        tell("report");
        expect(bytes > 0, policy_names[at]);
        paint();
        TIMED(number + 1, code = hushmote_sent(&client, report, (size_t)bytes));
        tell("sent");
        expect(code == HUSHMOTE_OK, "sent");
    }
}

/* --- The reporter, with MQTT and flash that use almost no stack ----------------------------------------------------- */

#define TICK_MS 1000

static struct hushmote_reporter reporter;
static struct hushmote_topic topics[COUNT];
static struct hushmote_port port;
static struct {
    uint8_t bytes[HUSHMOTE_KEPT_BYTES];
    size_t used;
} flash[COUNT];
static uint8_t kept[HUSHMOTE_KEPT_BYTES];
static uint32_t now_ms;
static long last_id;

static unsigned at_of(const char *name) {
    unsigned at = 0;
    while (strcmp(policy_names[at], name) != 0)
        at++;
    return at;
}

static long read_kept(void *context, const char *name, uint8_t *data, size_t bytes) {
    unsigned at = at_of(name);
    (void)context;
    memcpy(data, flash[at].bytes, flash[at].used < bytes ? flash[at].used : bytes);
    return (long)flash[at].used;
}

static int write_kept(void *context, const char *name, const uint8_t *data, size_t bytes) {
    unsigned at = at_of(name);
    (void)context;
    memcpy(flash[at].bytes, data, bytes);
    flash[at].used = bytes;
    return 0;
}

static int connect_at_once(void *context, const char *topic, const uint8_t *will, size_t bytes) {
    (void)context, (void)topic, (void)will, (void)bytes;
    return 0;
}

static long subscribe(void *context, const char *topic) {
    (void)context, (void)topic;
    return 0;
}

static long publish(void *context, const char *topic, const uint8_t *payload, size_t bytes, bool retain) {
    (void)context, (void)topic, (void)payload, (void)bytes, (void)retain;
    return ++last_id;
}

static void disconnect(void *context) {
    (void)context;
}

static void begin_reporter(void) {
    int code;
    hushmote_port_set_times(&port);
    port.delay_ms = port.spread_ms = 0;
    paint();
    code = hushmote_reporter_begin(&reporter, &client, &port, topics, kept);
    tell("reporter-begin");
    expect(code == HUSHMOTE_OK, "reporter-begin");
}

static void tick(void) {
    paint();
    hushmote_reporter_tick(&reporter, now_ms += TICK_MS);
    tell("reporter-tick");
}

static void hand_in(const char *what, const char *name, const void *payload, size_t bytes) {
    char topic[96];
    int topic_bytes = snprintf(topic, sizeof topic, "hushmote/v1/" FLEET "/experiment/%s", name);
    paint();
    hushmote_reporter_message(&reporter, topic, (size_t)topic_bytes, payload, bytes);
    tell(what);
    expect(topics[at_of(name)].refused == HUSHMOTE_OK, name);
}

static void connect_reporter(void) {
    tick();
    paint();
    hushmote_reporter_connected(&reporter);
    tell("reporter-connected");
}

/* Receive every experiment; make, send and acknowledge a report for each; then restart from the stored state. */
static void measure_reporter(void) {
    fresh(key, NULL);
    begin_reporter();
    connect_reporter();
    for (unsigned at = 0; at < COUNT; at++) {
        hand_in("reporter-message", policy_names[at], payloads[at], strlen(payloads[at]));
        paint();
        expect(hushmote_reporter_report(&reporter, policy_names[at], hushmote_none(), report) > 0, policy_names[at]);
        tell("reporter-report");
        tick();
        paint();
        hushmote_reporter_acknowledged(&reporter, last_id);
        tell("reporter-acknowledged");
    }
    expect(reporter.sent == COUNT, "reporter-acknowledged");
    begin_reporter();
    connect_reporter();
    hand_in("reporter-message", "rr", "", 0);
    paint();
    hushmote_reporter_close(&reporter);
    tell("reporter-close");
}

static void measure_signed_message(void) {
    memset(flash, 0, sizeof flash);
    fresh(key, announce_key);
    begin_reporter();
    connect_reporter();
    hand_in("reporter-message-signed", "rr", signed_payload, sizeof signed_payload);
}

int main(void) {
    uint8_t data[128], digest[32];
    struct hushmote_piece piece = {data, 64};
    int code;
    config.policy = &policy;
    TIMED(3, entropy(NULL, data, sizeof data));
    TIMED(1, hm_sha256(&config, &piece, 1, digest));
    for (unsigned at = 0; at < COUNT; at++) {
        measure_reports(at, key, 100 + 4 * at);
        measure_reports(at, NULL, 102 + 4 * at);
    }
    fresh(key, announce_key);
    paint();
    TIMED(2, code = hushmote_enroll(&client, signed_payload, sizeof signed_payload));
    tell("enroll-signed");
    expect(code == HUSHMOTE_OK, "the signed experiment");
    port = (struct hushmote_port){.connect = connect_at_once,
                                  .subscribe = subscribe,
                                  .publish = publish,
                                  .disconnect = disconnect,
                                  .read_kept = read_kept,
                                  .write_kept = write_kept};
    measure_reporter();
    measure_signed_message();
    return failed;
}
