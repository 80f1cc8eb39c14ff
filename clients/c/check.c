/* Check all test vectors. This program uses no files and no heap, and runs on hosts and boards.

   `python tools/make_c_vectors.py vectors.h` writes the tables. Compile this file with the core except drbg.c, which it
   includes, and with -DHUSHMOTE_ROOM_BYTES=1024 -DHUSHMOTE_WITH_LOG=1. The program prints a line for each wrong answer and then the totals;
   its exit status is 0 if all answers are correct. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core.h"
#include "hushmote_float.h"

/* Include the generator under different names, because this program scripts the mechanisms' draws. */
bool real_bernoulli(struct hushmote_random *random, uint32_t threshold);
uint32_t real_below(struct hushmote_random *random, uint32_t n);
#define hm_bernoulli real_bernoulli
#define hm_below real_below
#include "drbg.c"
#undef hm_bernoulli
#undef hm_below

/* --- Tables -------------------------------------------------------------------------------------------------- */

struct span { /* a range of bytes in blob, or of rows */
    uint32_t at;
    uint16_t count;
};
struct place {
    uint32_t missing, at;
    struct span slots;
};
enum { KIND_none, KIND_bool, KIND_int, KIND_float, KIND_text, KIND_bytes, KIND_tuple, KIND_list };
enum { STEP_reseed, STEP_generate, STEP_below, STEP_bernoulli };

struct slots_row { uint32_t slot; };
struct unsent_row { struct span report; };
struct draws_row { uint32_t is_below, argument, outcome; };
struct levels_row { uint32_t nodes, g, t, width, offset, threshold, weight; };
struct steps_row { uint32_t step, argument, outcome; struct span data; };
struct thresholds_row { uint32_t epsilon, g, threshold; };
struct malformed_row { struct span payload; };
struct texts_row { struct span text; };
struct every_of_row { uint32_t every; };
struct policies_row { struct span payload, groups; int code; };
struct readings_row { uint32_t kind; int64_t number; double real; struct span text, parts; };
struct buckets_row { uint32_t experiment; struct readings_row given; uint32_t wrong; struct place place; };
struct codes_row { uint32_t experiment; struct place place; struct span draws; uint32_t code; };
struct generators_row { struct span seed, steps; };
struct experiments_row {
    struct span payload, sha256;
    uint64_t cap;
    uint32_t domain, epsilon, every, code_count, weight_sum, code_bytes;
    struct span levels, group, groups, every_of;
};
struct reports_row { struct span payload, device, key, group, value, older, newer, after, report, draws; };
struct signatures_row { struct span payload, fleet, key; uint32_t least; int code; };
struct withdrawals_row { struct span payload, fleet, key; uint32_t least; int code; };
struct ledgers_row {
    struct span slots[2];
    uint32_t locked, consent;
    uint64_t sum, squares;
    uint32_t reports[2];
    struct span unsent;
};
struct edges_row { int64_t milli; };
struct scales_row { struct span payload, edges; };
struct questions_row { struct span payload, question; };
struct logs_row { struct span origin, keys; uint32_t need; };
struct proofs_row { uint32_t log; struct span fleet, name, payload, proof; uint32_t leaf; int code; };
struct settings_row { struct span device, fleet, announce_key; };

#include "vectors.h"

#define ROWS(table) (sizeof(table) / sizeof *(table))

static const uint8_t *bytes_of(struct span span) {
    return span.at == 0xffffffffu ? NULL : blob + span.at;
}

static bool equals(struct span span, const void *data, size_t bytes) {
    const uint8_t *expected = bytes_of(span);
    return span.count == bytes && (expected == NULL || memcmp(expected, data, bytes) == 0);
}

/* --- Counts -------------------------------------------------------------------------------------------------- */

static unsigned cases, failures;

static void check(bool good, const char *section, size_t number) {
    cases++;
    if (!good) {
        failures++;
        printf("%s %u is wrong\n", section, (unsigned)number);
    }
}

/* --- Scripted draws ------------------------------------------------------------------------------------------ */

static const struct draws_row *script, *script_end;
static bool script_matches;

static void start_script(struct span span) {
    script = draws + span.at;
    script_end = script + span.count;
    script_matches = true;
}

static bool script_ended(void) {
    return script_matches && script == script_end;
}

static uint32_t next_draw(bool is_below, uint32_t argument) {
    if (script == script_end || script->is_below != is_below || script->argument != argument) {
        script_matches = false;
        return 0;
    }
    return script++->outcome;
}

bool hm_bernoulli(struct hushmote_random *random, uint32_t threshold) {
    (void)random;
    return next_draw(false, threshold) != 0;
}

uint32_t hm_below(struct hushmote_random *random, uint32_t n) {
    (void)random;
    return next_draw(true, n);
}

/* --- A board ------------------------------------------------------------------------------------------------- */

#define NAMES 4
#define UNSENT 16

static const char *const names[NAMES] = {"e", "f", "room_temp", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
static struct hushmote_group groups[2] = {{"firmware", NULL}, {"firmware", NULL}};
static struct hushmote_policy policy = {(UINT64_C(1) << 48) - 1, UINT64_MAX, HUSHMOTE_EPSILON_MAX, 15, false,
                                        NAMES, names, 1, groups, NULL};

static struct {
    uint8_t bytes[HUSHMOTE_RECORD_BYTES(NAMES, UNSENT)];
    long count;
} flash[2];
static struct hushmote_experiment experiment[NAMES];
static uint8_t records[2][sizeof flash->bytes];
static struct hushmote_config config;
static struct hushmote client;

static long flash_read(void *context, int slot, uint8_t *data, size_t bytes) {
    size_t count = (size_t)flash[slot].count;
    (void)context;
    memcpy(data, flash[slot].bytes, count < bytes ? count : bytes);
    return flash[slot].count;
}

static int flash_write(void *context, int slot, const uint8_t *data, size_t bytes) {
    (void)context;
    memcpy(flash[slot].bytes, data, bytes);
    flash[slot].count = (long)bytes;
    return 0;
}

/* Fill data with pseudorandom bytes, which differ in each call but are not secret. */
static int pseudorandom(void *context, uint8_t *data, size_t bytes) {
    static uint32_t state;
    (void)context;
    while (bytes-- > 0)
        *data++ = (uint8_t)((state = state * 1664525u + 1013904223u) >> 24);
    return 0;
}

static void set_slot(int slot, struct span record) {
    flash[slot].count = record.count;
    if (record.count)
        memcpy(flash[slot].bytes, bytes_of(record), record.count);
}

/* Start a client on the simulated flash. */
static int begin(const char *device, struct span fleet, struct span announce_key, struct span key) {
    memset(&config, 0, sizeof config);
    config.read = flash_read;
    config.write = flash_write;
    config.entropy = pseudorandom;
    config.policy = &policy;
    config.device_id = device;
    config.fleet = (const char *)bytes_of(fleet);
    config.key = bytes_of(key);
    config.announce_key = bytes_of(announce_key);
    config.experiments = experiment;
    config.records = records[0];
    config.record_bytes = sizeof records[0];
    config.unsent_max = UNSENT;
    return hushmote_begin(&client, &config);
}

static const struct span no_bytes = {0xffffffffu, 0};

/* --- Experiments --------------------------------------------------------------------------------------------- */

static bool parse(struct span payload) {
    unsigned at;
    return hm_parse(&config, bytes_of(payload), payload.count, experiment, &at) == 0;
}

static void check_thresholds(void) {
    for (size_t i = 0; i < ROWS(thresholds); i++)
        check(hm_threshold(thresholds[i].epsilon, thresholds[i].g, 1) == thresholds[i].threshold, "thresholds", i);
}

static bool levels_match(struct span span) {
    const struct hushmote_experiment *e = experiment;
    bool good = e->level_count == span.count;
    for (unsigned i = 0; good && i < span.count; i++) {
        const struct levels_row *expected = levels + span.at + i;
        const struct hm_level *level = hm_level(e, i);
        good = level->g == expected->g && level->t == expected->t && level->width == expected->width &&
               level->weight == expected->weight && level->offset == expected->offset && level->threshold == expected->threshold &&
               (level->t > 0 || level->g == expected->nodes);
    }
    return good;
}

/* Set the name of the policy's group, if an experiment has one. */
static void set_group(struct span name) {
    if (bytes_of(name) != NULL)
        groups[0].name = (const char *)bytes_of(name);
}

static bool group_matches(const struct experiments_row *expected) {
    const struct hushmote_experiment *e = experiment;
    const struct texts_row *values = texts + expected->groups.at;
    const struct every_of_row *every = every_of + expected->every_of.at;
    unsigned count = expected->groups.count;
    bool good = e->group_count == count && e->group == (count > 0 ? groups : NULL);
    for (unsigned i = 0; good && i < count; i++)
        good = hm_group_index(e, (const char *)bytes_of(values[i].text)) == i && hm_every(e, (uint8_t)i) == every[i].every;
    return good && hm_group_index(e, "not listed") == count && hm_every(e, (uint8_t)count) == every[count].every;
}

static void check_experiments(void) {
    const struct hushmote_experiment *e = experiment;
    for (size_t i = 0; i < ROWS(experiments); i++) {
        const struct experiments_row *expected = experiments + i;
        bool good;
        set_group(expected->group);
        good = parse(expected->payload) && equals(expected->sha256, e->sha256, 32) && e->cap == expected->cap &&
                    e->domain == expected->domain && e->epsilon == expected->epsilon && e->every == expected->every &&
                    e->code_count == expected->code_count && e->weight_sum == expected->weight_sum &&
                    e->code_bytes == expected->code_bytes && group_matches(expected);
        /* Experiments without listed levels are checked through their codes. */
        check(good && (expected->levels.count == 0 || levels_match(expected->levels)), "experiments", i);
    }
}

static void check_malformed(void) {
    for (size_t i = 0; i < ROWS(malformed); i++)
        check(!parse(malformed[i].payload), "malformed", i);
}

static struct hushmote_reading part_of(const struct readings_row *given) {
    switch (given->kind) {
    case KIND_bool:
        return hushmote_flag(given->number != 0);
    case KIND_int:
        return hushmote_whole(given->number);
    case KIND_float:
        return hushmote_double(given->real);
    case KIND_text:
    case KIND_bytes:
        return hushmote_bytes(bytes_of(given->text), given->text.count);
    default:
        return hushmote_none();
    }
}

static struct hushmote_reading reading_of(const struct readings_row *given, struct hushmote_reading parts[3]) {
    if (given->kind != KIND_tuple && given->kind != KIND_list)
        return part_of(given);
    for (unsigned i = 0; i < given->parts.count; i++)
        parts[i] = part_of(readings + given->parts.at + i); /* parts are never lists themselves */
    return hushmote_parts(parts, given->parts.count);
}

static bool matches_place(const struct hm_index *index, const struct place *place) {
    bool good = index->missing == place->missing;
    if (place->slots.count == 0)
        return good && (place->missing || index->at == place->at);
#if HUSHMOTE_WITH_PREFIX
    for (unsigned i = 0; i < place->slots.count; i++)
        good = good && index->slots[i] == slots[place->slots.at + i].slot;
#endif
    return good;
}

static bool bucket_matches(const struct buckets_row *expected, const struct hushmote_reading *reading) {
    struct hm_index index;
    int code = hm_bucket(&config, experiment, reading, &index);
    return expected->wrong ? code == HUSHMOTE_WRONG_TYPE : code == 0 && matches_place(&index, &expected->place);
}

static void check_buckets(void) {
    for (size_t i = 0; i < ROWS(buckets); i++) {
        const struct buckets_row *expected = buckets + i;
        struct hushmote_reading parts[3], reading = reading_of(&expected->given, parts);
        bool good = parse(experiments[expected->experiment].payload) && bucket_matches(expected, &reading);
        if (expected->given.kind == KIND_float) {
            reading = hushmote_float((float)expected->given.real);
            good = good && bucket_matches(expected, &reading);
        }
        check(good, "buckets", i);
    }
}

/* Return whether a reading of this many thousandths falls into the bin that the edges require. */
static bool edge_matches(const struct edges_row *bin_edges, unsigned count, int64_t milli) {
    struct hushmote_reading reading = hushmote_milli(milli);
    struct hm_index index;
    uint32_t at = 0;
    for (unsigned i = 1; i + 1 < count; i++)
        at += milli >= bin_edges[i].milli;
    return hm_bucket(&config, experiment, &reading, &index) == 0 && !index.missing && index.at == at;
}

static void check_scales(void) {
    for (size_t i = 0; i < ROWS(scales); i++) {
        const struct edges_row *bin_edges = edges + scales[i].edges.at;
        unsigned count = scales[i].edges.count;
        bool good = parse(scales[i].payload) && edge_matches(bin_edges, count, 0) && edge_matches(bin_edges, count, -5) &&
                    edge_matches(bin_edges, count, HUSHMOTE_FAR) && edge_matches(bin_edges, count, -HUSHMOTE_FAR);
        for (unsigned j = 0; good && j < count; j++)
            for (int off = -1; off <= 1; off++)
                good = good && edge_matches(bin_edges, count, bin_edges[j].milli + off);
        check(good, "scales", i);
    }
}

static void check_codes(void) {
    for (size_t i = 0; i < ROWS(codes); i++) {
        const struct codes_row *expected = codes + i;
        struct hm_index index;
        bool good = parse(experiments[expected->experiment].payload);
        memset(&index, 0, sizeof index);
        index.missing = expected->place.missing;
        index.at = expected->place.at;
#if HUSHMOTE_WITH_PREFIX
        for (unsigned j = 0; j < expected->place.slots.count; j++)
            index.slots[j] = slots[expected->place.slots.at + j].slot;
#endif
        start_script(expected->draws);
        check(good && hm_randomize(experiment, &index, NULL) == expected->code && script_ended(), "codes", i);
    }
}

/* --- The generator and the client ---------------------------------------------------------------------------- */

static bool steps_match(const struct generators_row *expected, struct hushmote_random *random) {
    bool good = true;
    for (unsigned i = 0; i < expected->steps.count; i++) {
        const struct steps_row *step = steps + expected->steps.at + i;
        struct hushmote_piece more = {bytes_of(step->data), step->data.count};
        uint8_t out[128];
        if (step->step == STEP_reseed) {
            hm_reseed(random, &more, 1);
        } else if (step->step == STEP_generate) {
            hm_generate(random, out, step->argument);
            good = good && equals(step->data, out, step->argument);
        } else if (step->step == STEP_below) {
            good = good && real_below(random, step->argument) == step->outcome;
        } else {
            good = good && real_bernoulli(random, step->argument) == step->outcome;
        }
    }
    return good;
}

static void check_generators(void) {
    for (size_t i = 0; i < ROWS(generators); i++) {
        struct hushmote_piece seed = {bytes_of(generators[i].seed), generators[i].seed.count};
        struct hushmote_random random;
        memset(&random, 0, sizeof random);
        random.config = &config;
        hm_reseed(&random, &seed, 1);
        check(steps_match(generators + i, &random), "drbg", i);
    }
}

static void check_reports(void) {
    for (size_t i = 0; i < ROWS(reports); i++) {
        const struct reports_row *expected = reports + i;
        uint8_t report[HUSHMOTE_REPORT_BYTES], seed[16];
        const uint8_t *after = bytes_of(expected->after);
        bool good;
        int bytes;
        set_slot(0, expected->older);
        set_slot(1, expected->newer);
        set_group(expected->group);
        good = begin((const char *)bytes_of(expected->device), no_bytes, no_bytes, expected->key) == HUSHMOTE_OK &&
               hushmote_enroll(&client, bytes_of(expected->payload), expected->payload.count) == HUSHMOTE_OK;
        start_script(expected->draws);
        bytes = hushmote_report_as(&client, experiment[2].enrolled ? names[2] : experiment[3].enrolled ? names[3] : "e",
                                   hushmote_none(), (const char *)bytes_of(expected->value), report);
        good = good && bytes == expected->report.count && equals(expected->report, report, (size_t)bytes) && script_ended();
        /* The record has a seed where the vector has zeros, and therefore a different CRC, which the client accepts
           below. */
        memcpy(seed, flash[0].bytes + 6, sizeof seed);
        memset(flash[0].bytes + 6, 0, sizeof seed);
        good = good && flash[0].count == expected->after.count &&
               memcmp(flash[0].bytes, after, expected->after.count - 4u) == 0 &&
               equals(expected->newer, flash[1].bytes, (size_t)flash[1].count);
        memcpy(flash[0].bytes + 6, seed, sizeof seed);
        good = good && begin("d", no_bytes, no_bytes, no_bytes) == HUSHMOTE_OK &&
               hushmote_unsent(&client, 0, report) == expected->report.count &&
               equals(expected->report, report, expected->report.count);
        check(good, "reports", i);
    }
}

/* A policy that names a group with an invalid name does not start. */
static void check_policies(void) {
    flash[0].count = flash[1].count = 0;
    for (size_t i = 0; i < ROWS(policies); i++) {
        const struct policies_row *expected = policies + i;
        int code;
        policy.group_count = (uint8_t)expected->groups.count;
        for (unsigned j = 0; j < expected->groups.count; j++)
            groups[j].name = (const char *)bytes_of(texts[expected->groups.at + j].text);
        code = begin("d", no_bytes, no_bytes, no_bytes);
        if (code == HUSHMOTE_OK)
            code = hushmote_enroll(&client, bytes_of(expected->payload), expected->payload.count);
        check(code == expected->code, "policies", i);
    }
    policy.group_count = 1;
    groups[0].name = "firmware";
}

static void check_signatures(void) {
    flash[0].count = flash[1].count = 0;
    for (size_t i = 0; i < ROWS(signatures); i++) {
        const struct signatures_row *expected = signatures + i;
        bool good = begin("d", expected->fleet, expected->key, no_bytes) == HUSHMOTE_OK;
        experiment->serial = expected->least;
        check(good && hushmote_enroll(&client, bytes_of(expected->payload), expected->payload.count) == expected->code &&
                  experiment->enrolled == (expected->code == HUSHMOTE_OK),
              "signatures", i);
    }
}

static void check_withdrawals(void) {
    flash[0].count = flash[1].count = 0;
    for (size_t i = 0; i < ROWS(withdrawals); i++) {
        const struct withdrawals_row *expected = withdrawals + i;
        const uint8_t *payload = bytes_of(expected->payload);
        bool good = begin("d", expected->fleet, expected->key, no_bytes) == HUSHMOTE_OK;
        uint32_t serial = expected->least;
        if (expected->code == HUSHMOTE_OK && expected->payload.count > 0)
            serial = (uint32_t)hm_get(payload + 1, 4);
        experiment->serial = expected->least;
        experiment->enrolled = 1;
        good = good && hushmote_withdraw(&client, "e", payload, expected->payload.count) == expected->code &&
               experiment->enrolled == (expected->code != HUSHMOTE_OK) && experiment->serial == serial;
        /* A withdrawal must not be accepted as an experiment. */
        check(good && hushmote_enroll(&client, payload, expected->payload.count) == HUSHMOTE_REFUSED, "withdrawals", i);
    }
}

static void check_ledgers(void) {
    static const int locked[] = {HUSHMOTE_OK, HUSHMOTE_NO_LEDGER, HUSHMOTE_LOCKED};
    for (size_t i = 0; i < ROWS(ledgers); i++) {
        const struct ledgers_row *expected = ledgers + i;
        struct hushmote_status status;
        struct hushmote_line lines[2];
        uint8_t report[HUSHMOTE_REPORT_BYTES];
        bool good;
        set_slot(0, expected->slots[0]);
        set_slot(1, expected->slots[1]);
        good = begin("board-1", no_bytes, no_bytes, no_bytes) == HUSHMOTE_OK;
        hushmote_status(&client, &status);
        hushmote_line(&client, "e", &lines[0]);
        hushmote_line(&client, "f", &lines[1]);
        good = good && status.locked == locked[expected->locked] && status.sum == expected->sum &&
               status.squares == expected->squares && status.consent == expected->consent &&
               lines[0].reports == expected->reports[0] && lines[1].reports == expected->reports[1] &&
               status.pending == expected->unsent.count;
        for (unsigned j = 0; j < expected->unsent.count; j++) {
            int bytes = hushmote_unsent(&client, j, report);
            good = good && equals(unsent[expected->unsent.at + j].report, report, (size_t)bytes);
        }
        check(good && hushmote_unsent(&client, expected->unsent.count, report) == 0, "ledgers", i);
    }
}

static void check_settings(void) {
    for (size_t i = 0; i < ROWS(settings); i++) {
        const struct settings_row *expected = settings + i;
        check(begin((const char *)bytes_of(expected->device), expected->fleet, expected->announce_key, no_bytes) ==
                  HUSHMOTE_BAD_SETTINGS,
              "settings", i);
    }
}

static void check_questions(void) {
    for (size_t i = 0; i < ROWS(questions); i++) {
        const struct questions_row *expected = questions + i;
        uint8_t question[HM_QUESTION_BYTES];
        int code = hm_question(&config, bytes_of(expected->payload), expected->payload.count, question);
        check(code == HUSHMOTE_OK ? bytes_of(expected->question) != NULL && equals(expected->question, question, sizeof question)
                                  : code == HUSHMOTE_REFUSED && bytes_of(expected->question) == NULL,
              "questions", i);
    }
}

/* An emulated RP2040 takes many seconds for the signatures of one proof, so it checks only some. */
#ifdef EMULATED_RP2040
#define PROOF_STEP 23
#else
#define PROOF_STEP 1
#endif

/* Check a proof alone, for entries that would be refused for another reason, and with the client that requires it. */
static void check_proofs(void) {
    for (size_t i = 0; i < ROWS(proofs); i += PROOF_STEP) {
        const struct proofs_row *expected = proofs + i;
        const struct logs_row *from = logs + expected->log;
        const char *keys[HM_LOG_KEYS];
        struct hushmote_log log = {(const char *)bytes_of(from->origin), keys, (uint8_t)from->keys.count,
                                   (uint8_t)from->need, &hushmote_log_check};
        const uint8_t *payload = bytes_of(expected->payload);
        struct hushmote_proof proof = {bytes_of(expected->proof), expected->proof.count, 0};
        struct hushmote_piece entry[HM_ENTRY_PIECES] = {
            {"", 1}, {"hushmote/v1/", 12}, {bytes_of(expected->fleet), expected->fleet.count}, {"/experiment/", 12},
            {bytes_of(expected->name), expected->name.count}, {"", 1}, {payload, expected->payload.count}};
        bool good;
        int code;
        for (unsigned j = 0; j < from->keys.count; j++)
            keys[j] = (const char *)bytes_of(texts[from->keys.at + j].text);
        policy.log = &log;
        flash[0].count = flash[1].count = 0;
        good = begin("d", expected->fleet, signatures[0].key, no_bytes) == HUSHMOTE_OK;
        code = hm_enroll(&client, (const char *)bytes_of(expected->name), payload, expected->payload.count, false, &proof);
        good = good && experiment->enrolled == (code == HUSHMOTE_OK) && (code != HUSHMOTE_OK) == (expected->code != HUSHMOTE_OK) &&
               (code != HUSHMOTE_OK || proof.leaf == expected->leaf) && (proof.bytes > 0 || code == expected->code) &&
               hushmote_enroll(&client, payload, expected->payload.count) < 0 &&
               hushmote_enroll_kept(&client, payload, expected->payload.count) < 0;
        check(good && (proof.bytes == 0 || log.check->verify(&config, entry, &proof) == expected->code), "proofs", i);
    }
    policy.log = NULL;
}

int main(void) {
    begin("d", no_bytes, no_bytes, no_bytes);
    check_thresholds();
    check_experiments();
    check_malformed();
    check_buckets();
    check_scales();
    check_codes();
    check_generators();
    check_reports();
    check_policies();
    check_signatures();
    check_withdrawals();
    check_ledgers();
    check_settings();
    check_questions();
    check_proofs();
    printf("hushmote: %u vectors, %u wrong\n", cases, failures);
    return failures > 0;
}
