/* Fuzz target for libFuzzer with sanitizers: no input from the network or from flash may break a guarantee.

       core="json.c experiment.c levels.c sw.c scale.c pgr.c text.c prefix.c pairs.c ledger.c client.c settings.c log.c"
       clang -g -O2 -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -fno-sanitize-coverage=trace-cmp \
             -DHUSHMOTE_ROOM_BYTES=1024 -DHUSHMOTE_WITH_LOG=1 -DQUICK fuzz.c $core -lm -o fuzz
       ./fuzz -max_len=1700 -entropic=0 -runs=100000000 CORPUS

   An input's first byte selects how the rest is used: as an experiment, as a signed experiment, as a log's proof of one,
   or as the two slots of a ledger. QUICK replaces the most expensive arithmetic: thresholds, the generator, SHA-256, and P-256, which then
   accepts about half of all signatures. Without it, add threshold.c, sha256.c, drbg.c and p256.c. The program prints
   counters. */
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
#define MUST(good) ((good) ? (void)0 : fail(#good, __LINE__))

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void fail(const char *condition, int line) {
    fprintf(stderr, "line %d: %s does not hold\n", line, condition);
    abort();
}

/* For each kind, the number of inputs, and the number of experiments and ledgers among them that were accepted. */
static unsigned long run_count[4], accepted[4];

static void print_counts(void) {
    static const char *const kinds[4] = {"experiments", "signed experiments", "proofs", "ledgers"};
    for (unsigned i = 0; i < 4; i++)
        fprintf(stderr, "%lu %s, %lu accepted\n", run_count[i], kinds[i], accepted[i]);
}

/* --- A board ------------------------------------------------------------------------------------------------- */

static const char *const names[NAMES] = {"e", "room_temp"};
static const struct hushmote_group groups[] = {{"firmware", "2.4.0"}};
#define DIGITS "89abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
/* Proofs name witnesses by these first digits, which are those of the seeds. */
HUSHMOTE_LOG(questions, "example.org/questions", 2, "8a0d699b" DIGITS, "f16ad485" DIGITS, "08513a26" DIGITS);
static const struct hushmote_policy policy = {UINT64_C(1) << 47, 0, HUSHMOTE_EPSILON_MAX, 15, false, NAMES, names, 1, groups, NULL};
static const char rr[] = "{\"v\":1,\"name\":\"e\",\"type\":\"bool\",\"mechanism\":\"rr\",\"epsilon\":1000000,"
                         "\"budget\":{\"rule\":\"sum\",\"cap\":4000000},\"window\":\"day\"}";

static struct {
    uint8_t bytes[2048];
    long count;
} flash[2];
static unsigned writes_until_cut; /* 0: writes are never cut off */
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

/* Pseudorandom numbers, which are the same in every run on an input. */
static uint32_t counter;

static uint32_t next_number(void) {
    counter = counter * 1664525u + 1013904223u;
    return counter >> 8;
}

static int pseudorandom(void *context, uint8_t *data, size_t bytes) {
    (void)context;
    while (bytes-- > 0)
        *data++ = (uint8_t)(next_number() >> 16);
    return 0;
}

#ifdef QUICK /* replaces threshold.c, drbg.c, sha256.c and p256.c */
uint32_t hm_threshold(uint32_t epsilon, uint32_t g, uint32_t inside) {
    double weight = inside * exp(epsilon / 1e6);
    MUST(epsilon >= HUSHMOTE_EPSILON_MIN && epsilon <= HUSHMOTE_EPSILON_MAX && g >= 2 && g <= HM_MAX_CODES);
    return (uint32_t)(HM_ONE * (weight / (weight + g - 1)));
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
    config->entropy = pseudorandom;
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

static void check_group(const struct hushmote_experiment *e) {
    MUST(e->group_count <= 15 && (e->group == NULL || e->group == groups) && (e->group == NULL || e->group_count > 0));
    for (uint8_t i = 0; i <= e->group_count; i++)
        MUST(hm_every(e, i) >= 1 && hm_every(e, i) <= HM_MAX_CODES);
    MUST(hm_every(e, e->group_count) == e->every && hm_group_index(e, "other") == e->group_count);
    MUST(e->group == NULL || hm_group_index(e, NULL) <= e->group_count);
}

static void check_experiment(const struct hushmote_config *config, const struct hushmote_experiment *e,
                             const uint8_t *data, size_t bytes) {
    struct hushmote_reading reading, parts[3] = {hushmote_flag(true), hushmote_none(), hushmote_milli(1500)};
    struct hushmote_random random;
    memset(&random, 0, sizeof random);
    random.config = config;
    check_levels(e);
    check_group(e);
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
    static struct hushmote_experiment parsed, other;
    static uint8_t spaced[HUSHMOTE_EXPERIMENT_BYTES];
    struct hushmote_config config;
    unsigned at, other_at;
    int code;
    configure(&config, false);
    code = hm_parse(&config, data, bytes, &parsed, &at);
    MUST(code <= 0 && at <= NAMES);
    MUST(bytes > HUSHMOTE_EXPERIMENT_BYTES ? code < 0 : true);
    if (code == 0)
        accepted[0]++, check_experiment(&config, &parsed, data, bytes);
    if (bytes > HUSHMOTE_EXPERIMENT_BYTES - 2)
        return;
    /* Spaces around the JSON change only the digest. */
    spaced[0] = spaced[bytes + 1] = ' ';
    memcpy(spaced + 1, data, bytes);
    MUST(hm_parse(&config, spaced, bytes + 2, &other, &other_at) == code && other_at == at);
    memcpy(other.sha256, parsed.sha256, sizeof parsed.sha256);
    MUST(code < 0 || memcmp(&parsed, &other, sizeof parsed) == 0);
}

/* Check that a client accepts no forged message. With QUICK, it accepts about half of all intact messages, but not
   again after the application has withdrawn the experiment. */
static void fuzz_signed(const uint8_t *data, size_t bytes) {
    const struct hushmote_experiment *e;
    struct hushmote client;
    struct hushmote_config config;
    uint32_t serial;
    int code;
    begin(&client, &config, true);
    code = hushmote_enroll(&client, data, bytes);
    MUST(code <= 0);
    e = experiments + !experiments[0].enrolled;
    MUST(e->enrolled == (code == 0));
    if (code == 0) {
        accepted[1]++;
        serial = e->serial;
        MUST(IS_QUICK && bytes > 69 && serial == hm_get(data + bytes - 68, 4));
        MUST(hushmote_withdraw(&client, names[e - experiments], NULL, 0) == 0);
        MUST(hushmote_enroll(&client, data, bytes) == (serial == UINT32_MAX ? 0 : HUSHMOTE_REFUSED_SERIAL));
    }
    code = hushmote_withdraw(&client, "e", data, bytes);
    MUST(code == HUSHMOTE_REFUSED_SIGNATURE || (code == 0 && IS_QUICK && bytes == 69 && !experiments[0].enrolled));
}

/* Check that no forged proof, of any length, makes a client accept an experiment, and what a valid one must have. */
static void fuzz_proof(const uint8_t *data, size_t bytes) {
    static struct hushmote_policy logged;
    uint8_t payload[sizeof rr - 1 + 69];
    struct hushmote_proof proof = {data, bytes, 0};
    struct hushmote_config config;
    struct hushmote client;
    int code;
    memcpy(payload, rr, sizeof rr - 1);
    memset(payload + sizeof rr - 1, 0, 69);
    configure(&config, true);
    logged = policy;
    logged.log = &questions;
    config.policy = &logged;
    MUST(hushmote_begin(&client, &config) == HUSHMOTE_OK);
    code = hushmote_enroll_logged(&client, payload, sizeof payload, &proof);
    payload[sizeof payload - 1] = 1; /* with QUICK, one of both signatures is good */
    if (code == HUSHMOTE_REFUSED_SIGNATURE)
        code = hushmote_enroll_logged(&client, payload, sizeof payload, &proof);
    MUST(code <= 0 && experiments[0].enrolled == (code == 0) && (bytes > 0 || code != 0));
    MUST(hushmote_enroll(&client, payload, sizeof payload) != 0);
    if (code != 0)
        return;
    accepted[2]++;
    MUST(IS_QUICK && bytes >= 9 + 64 + 2 * 68 && bytes <= HUSHMOTE_PROOF_BYTES && proof.leaf == hm_get(data, 4));
    MUST(proof.leaf < hm_get(data + 4, 4) && data[8] <= 32 && (bytes - 9 - 32 * data[8] - 64) % 68 == 0);
}

/* --- Ledgers ------------------------------------------------------------------------------------------------- */

/* Set a slot's contents. sealed: with a correct CRC, so that the client checks the rest. */
static void set_slot(int slot, const uint8_t *data, size_t bytes, bool sealed) {
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

/* Make one report and check that it is debited completely or not at all, even if the write fails, and that the client's
   state survives a restart. */
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
    set_slot(0, data, first, flags & 1);
    set_slot(1, data + first, bytes - first, flags & 2);
    begin(&client, &config, false);
    accepted[3] += client.locked == 0;
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
    return atexit(print_counts);
}

/* The fuzzer's copy of the data has no spare bytes, so that sanitizers detect reads past its end. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    unsigned kind;
    if (bytes < 1)
        return 0;
    counter = 0;
    writes_until_cut = 0;
    flash[0].count = flash[1].count = 0;
    kind = data[0] < 112 ? 0 : data[0] < 128 ? 2 : data[0] < 144 ? 1 : 3;
    run_count[kind]++;
    if (kind == 0)
        fuzz_experiment(data + 1, bytes - 1);
    else if (kind == 1)
        fuzz_signed(data + 1, bytes - 1);
    else if (kind == 2)
        fuzz_proof(data + 1, bytes - 1);
    else
        fuzz_ledger(data + 1, bytes - 1, data[0]);
    return 0;
}
