/* A target for libFuzzer and sanitizers: no input from the network or from flash may break a guarantee.

       core="json.c experiment.c levels.c sw.c pgr.c text.c prefix.c pairs.c ledger.c client.c settings.c"
       clang -g -O2 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -fno-sanitize-coverage=trace-cmp \
             -DHUSHMOTE_ROOM_BYTES=1024 -DQUICK fuzz.c $core -lm -o fuzz
       ./fuzz -max_len=1200 -entropic=0 -runs=100000000 CORPUS

   An input's first byte selects the kind of the rest: an experiment, a signed one, or two slots of a ledger. QUICK
   replaces the arithmetic that takes most of the time: thresholds, the generator, SHA-256, and P-256, for which every
   second signature is then valid. Without it add threshold.c, sha256.c, drbg.c and p256.c. It prints counters. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core.h"

#define NAMES 2
#define UNSENT 3
#ifdef QUICK
#define IS_QUICK true
#else
#define IS_QUICK false
#endif
#define MUST(good) ((good) ? (void)0 : broken(#good, __LINE__))

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void broken(const char *promise, int line) {
    fprintf(stderr, "line %d: %s does not hold\n", line, promise);
    abort();
}

/* Inputs of each kind: those that ran, and of these the experiments that were taken and the ledgers in force. */
static unsigned long ran[3], taken[3];

static void say(void) {
    static const char *const kinds[3] = {"experiments", "signed experiments", "ledgers"};
    for (unsigned i = 0; i < 3; i++)
        fprintf(stderr, "%lu %s, %lu whole\n", ran[i], kinds[i], taken[i]);
}

/* --- A board ------------------------------------------------------------------------------------------------- */

static const char *const names[NAMES] = {"e", "room_temp"};
static const struct hushmote_policy policy = {UINT64_C(1) << 47, 0, HUSHMOTE_EPSILON_MAX, 15, false, NAMES, names};
static const char rr[] = "{\"v\":1,\"name\":\"e\",\"type\":\"bool\",\"mechanism\":\"rr\",\"epsilon\":1000000,"
                         "\"budget\":{\"rule\":\"sum\",\"cap\":4000000},\"window\":\"day\"}";

static struct {
    uint8_t bytes[2048];
    long count;
} flash[2];
static unsigned writes_until_cut; /* 0: none is cut */
static struct hushmote_experiment experiments[NAMES];
static uint8_t records[2 * HUSHMOTE_RECORD_BYTES(NAMES, UNSENT)];

static long flash_read(void *context, int slot, uint8_t *data, size_t bytes) {
    size_t count = (size_t)flash[slot].count;
    (void)context;
    memcpy(data, flash[slot].bytes, count < bytes ? count : bytes);
    return flash[slot].count;
}

static int flash_write(void *context, int slot, const uint8_t *data, size_t bytes) {
    (void)context;
    if (writes_until_cut > 0 && --writes_until_cut == 0)
        return -1;
    memcpy(flash[slot].bytes, data, bytes);
    flash[slot].count = (long)bytes;
    return 0;
}

/* Never the same, and the same in every run of an input. */
static uint32_t counter;

static uint32_t next_number(void) {
    counter = counter * 1664525u + 1013904223u;
    return counter >> 8;
}

static int counted(void *context, uint8_t *data, size_t bytes) {
    (void)context;
    while (bytes-- > 0)
        *data++ = (uint8_t)(next_number() >> 16);
    return 0;
}

#ifdef QUICK /* in place of threshold.c, drbg.c, sha256.c and p256.c */
uint32_t hm_threshold(uint32_t epsilon, uint32_t g, uint32_t inside) {
    double all = inside * exp(epsilon / 1e6);
    MUST(epsilon >= HUSHMOTE_EPSILON_MIN && epsilon <= HUSHMOTE_EPSILON_MAX && g >= 2 && g <= HM_MAX_CODES);
    return (uint32_t)(HM_ONE * (all / (all + g - 1)));
}

void hm_wipe(void *data, size_t bytes) {
    memset(data, 0, bytes);
}

void hm_sha256(const struct hushmote_config *config, const struct hushmote_piece *pieces, size_t count,
               uint8_t digest[32]) {
    uint64_t hash = 1;
    (void)config;
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < pieces[i].bytes; j++)
            hash = (hash ^ ((const uint8_t *)pieces[i].data)[j]) * UINT64_C(1099511628211);
    for (unsigned i = 0; i < 32; i++)
        digest[i] = (uint8_t)(hash >> i);
}

void hm_tag(const struct hushmote_config *config, const struct hushmote_piece *pieces, size_t count, uint8_t tag[8]) {
    uint8_t digest[32];
    hm_sha256(config, pieces, count, digest);
    memcpy(tag, digest, 8);
}

bool hm_p256_verify(const uint8_t key[64], const uint8_t digest[32], const uint8_t signature[64]) {
    return (key[63] ^ digest[0] ^ signature[0] ^ signature[63]) & 1;
}

int hm_entropy(const struct hushmote_config *config, uint8_t *data, size_t bytes) {
    (void)config;
    memset(data, 1, bytes);
    return HUSHMOTE_OK;
}

void hm_reseed(struct hushmote_random *random, const struct hushmote_piece *entropy, size_t count) {
    memset(random->key, entropy != NULL, sizeof random->key);
    (void)count;
}

void hm_generate(struct hushmote_random *random, uint8_t *out, size_t bytes) {
    memset(out, random->key[0], bytes);
}

bool hm_bernoulli(struct hushmote_random *random, uint32_t threshold) {
    (void)random;
    return next_number() << 6 < threshold;
}

uint32_t hm_below(struct hushmote_random *random, uint32_t n) {
    (void)random;
    MUST(n >= 1 && n <= HM_MAX_CODES);
    return next_number() % n;
}
#endif

static void configure(struct hushmote_config *config, bool keyed) {
    static const uint8_t key[64] = {1, 2, 3};
    memset(config, 0, sizeof *config);
    config->read = flash_read;
    config->write = flash_write;
    config->entropy = counted;
    config->policy = &policy;
    config->device_id = "board-1";
    config->fleet = "home";
    config->key = keyed ? key : NULL;
    config->announce_key = keyed ? key : NULL;
    config->experiments = experiments;
    config->records = records;
    config->record_bytes = sizeof records / 2;
    config->unsent_max = UNSENT;
}

static void begin(struct hushmote *client, struct hushmote_config *config, bool keyed) {
    configure(config, keyed);
    MUST(hushmote_begin(client, config) == HUSHMOTE_OK);
}

/* --- Experiments --------------------------------------------------------------------------------------------- */

static void check_levels(const struct hushmote_experiment *e) {
    MUST(e->code_count >= 2 && e->code_count <= HM_MAX_CODES && e->domain >= 2 && e->level_count >= 1);
    MUST(sizeof(struct hm_part) * e->part_count + sizeof(struct hm_level) * e->level_count <= e->room_end);
    for (unsigned i = 0; i < e->level_count; i++) {
        const struct hm_level *level = hm_level(e, i);
        MUST(level->threshold > 0 && level->threshold < HM_ONE && level->g >= 2 && level->offset < e->code_count);
    }
}

static void check_experiment(const struct hushmote_config *config, const struct hushmote_experiment *e,
                             const uint8_t *data, size_t bytes) {
    struct hushmote_reading reading, parts[3] = {hushmote_flag(true), hushmote_none(), hushmote_milli(1500)};
    struct hushmote_random random;
    memset(&random, 0, sizeof random);
    random.config = config;
    check_levels(e);
    for (int kind = HUSHMOTE_IS_NONE; kind <= HUSHMOTE_IS_PARTS; kind++) {
        struct hm_index index;
        reading = hushmote_bytes(data, bytes);
        if (kind == HUSHMOTE_IS_PARTS)
            reading = hushmote_parts(parts, 3);
        reading.kind = (uint8_t)kind;
        memcpy(&reading.number, e->sha256 + 3 * kind, sizeof reading.number);
        if (hm_bucket(config, e, &reading, &index) == 0) {
            MUST(index.missing || e->domain > HM_MAX_CODES || index.at < e->domain);
            MUST(hm_randomize(e, &index, &random) < e->code_count);
        }
    }
}

static void fuzz_experiment(const uint8_t *data, size_t bytes) {
    static struct hushmote_experiment one, other;
    static uint8_t spaced[HUSHMOTE_EXPERIMENT_BYTES];
    struct hushmote_config config;
    unsigned at, again;
    int said;
    configure(&config, false);
    said = hm_parse(&config, data, bytes, &one, &at);
    MUST(said <= 0 && at <= NAMES);
    MUST(bytes > HUSHMOTE_EXPERIMENT_BYTES ? said < 0 : true);
    if (said == 0)
        taken[0]++, check_experiment(&config, &one, data, bytes);
    if (bytes > HUSHMOTE_EXPERIMENT_BYTES - 2)
        return;
    /* Spaces around it change only the digest. */
    spaced[0] = spaced[bytes + 1] = ' ';
    memcpy(spaced + 1, data, bytes);
    MUST(hm_parse(&config, spaced, bytes + 2, &other, &again) == said && again == at);
    memcpy(other.sha256, one.sha256, sizeof one.sha256);
    MUST(said < 0 || memcmp(&one, &other, sizeof one) == 0);
}

/* No client accepts another board's message; with QUICK it accepts about every second intact one, and never again once
   the application has withdrawn it. */
static void fuzz_signed(const uint8_t *data, size_t bytes) {
    const struct hushmote_experiment *e;
    struct hushmote client;
    struct hushmote_config config;
    uint32_t serial;
    int said;
    begin(&client, &config, true);
    said = hushmote_enroll(&client, data, bytes);
    MUST(said <= 0);
    e = experiments + !experiments[0].enrolled;
    MUST(e->enrolled == (said == 0));
    if (said == 0) {
        taken[1]++;
        serial = e->serial;
        MUST(IS_QUICK && bytes > 69 && serial == hm_get(data + bytes - 68, 4));
        MUST(hushmote_withdraw(&client, names[e - experiments], NULL, 0) == 0);
        MUST(hushmote_enroll(&client, data, bytes) == (serial == UINT32_MAX ? 0 : HUSHMOTE_REFUSED_SERIAL));
    }
    said = hushmote_withdraw(&client, "e", data, bytes);
    MUST(said == HUSHMOTE_REFUSED_SIGNATURE || (said == 0 && IS_QUICK && bytes == 69 && !experiments[0].enrolled));
}

/* --- Ledgers ------------------------------------------------------------------------------------------------- */

/* Put bytes into a slot; sealed: with the CRC that they should have, so that the rest is looked at. */
static void hold(int slot, const uint8_t *data, size_t bytes, bool sealed) {
    if (bytes > sizeof flash->bytes)
        bytes = sizeof flash->bytes;
    memcpy(flash[slot].bytes, data, bytes);
    flash[slot].count = (long)bytes;
    if (sealed && bytes >= 4)
        hm_put(flash[slot].bytes + bytes - 4, 4, hm_crc32(0, flash[slot].bytes, bytes - 4));
}

static struct hushmote_status status_of(struct hushmote *client) {
    struct hushmote_status status;
    hushmote_status(client, &status);
    return status;
}

/* Make one report, debited completely or not at all, even if the write fails; then cut the power and start again. */
static void check_report(struct hushmote *client, struct hushmote_config *config) {
    struct hushmote_status before = status_of(client), after, reread;
    uint8_t report[HUSHMOTE_REPORT_BYTES];
    int bytes = hushmote_report(client, "e", hushmote_flag(true), report);
    uint64_t cost = bytes > 0 ? 1000000 : 0;
    after = status_of(client);
    MUST(bytes == 0 || bytes == 10);
    MUST(bytes == 0 || (before.locked == 0 && before.consent == HUSHMOTE_YES && before.pending < UNSENT));
    MUST(after.sum == before.sum + cost && after.squares == before.squares + cost * cost && after.sum >= before.sum);
    MUST(after.pending == before.pending + (bytes > 0) && after.sum <= policy.sum + (bytes > 0 ? 0 : UINT64_MAX / 2));
    begin(client, config, false);
    reread = status_of(client);
    MUST(reread.locked == before.locked && reread.sum == after.sum && reread.squares == after.squares);
    MUST(reread.consent == after.consent && reread.pending == after.pending);
}

static void fuzz_ledger(const uint8_t *data, size_t bytes, unsigned flags) {
    struct hushmote client;
    struct hushmote_config config;
    uint8_t report[HUSHMOTE_REPORT_BYTES];
    size_t first = bytes ? data[0] : 0;
    int length;
    if (bytes > 0)
        data++, bytes--;
    if (first > bytes)
        first = bytes;
    hold(0, data, first, flags & 1);
    hold(1, data + first, bytes - first, flags & 2);
    begin(&client, &config, false);
    taken[2] += client.locked == 0;
    if (flags & 4)
        hushmote_set_consent(&client, true);
    writes_until_cut = flags >> 4 & 3;
    for (int i = 0; i < (client.locked ? 1 : 4); i++) {
        hushmote_enroll(&client, (const uint8_t *)rr, sizeof rr - 1);
        check_report(&client, &config);
        length = hushmote_unsent(&client, 0, report);
        if (flags & 8 && length > 0)
            hushmote_sent(&client, report, (size_t)length);
    }
    hushmote_set_consent(&client, false);
    MUST(hushmote_report(&client, "e", hushmote_flag(true), report) == 0 && hushmote_unsent(&client, 0, report) == 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    return atexit(say);
}

/* The fuzzer's copy is of exactly its length, so that reading behind it is noticed. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    unsigned kind;
    if (bytes < 1)
        return 0;
    counter = 0;
    writes_until_cut = 0;
    flash[0].count = flash[1].count = 0;
    kind = data[0] < 128 ? 0 : data[0] < 144 ? 1 : 2;
    ran[kind]++;
    if (kind == 0)
        fuzz_experiment(data + 1, bytes - 1);
    else if (kind == 1)
        fuzz_signed(data + 1, bytes - 1);
    else
        fuzz_ledger(data + 1, bytes - 1, data[0]);
    return 0;
}
