/* Check all test vectors: a program without files and without a heap, for a host and for boards.

   `python tools/make_c_vectors.py vectors.h` writes their tables. Compile this with the core except drbg.c, which it
   includes, and with -DHUSHMOTE_ROOM_BYTES=1024. It prints a line for each wrong answer, then a verdict; its status is 0
   if all are right. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core.h"
#include "hushmote_float.h"

/* The generator under other names, because the draws of mechanisms are scripted here. */
bool real_bernoulli(struct hushmote_random *random, uint32_t threshold);
uint32_t real_below(struct hushmote_random *random, uint32_t n);
#define hm_bernoulli real_bernoulli
#define hm_below real_below
#include "drbg.c"
#undef hm_bernoulli
#undef hm_below

/* --- Tables -------------------------------------------------------------------------------------------------- */

struct span { /* of bytes in blob, or of rows */
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
struct readings_row { uint32_t kind; int64_t number; double real; struct span text, parts; };
struct buckets_row { uint32_t experiment; struct readings_row given; uint32_t wrong; struct place place; };
struct codes_row { uint32_t experiment; struct place place; struct span draws; uint32_t code; };
struct generators_row { struct span seed, steps; };
struct experiments_row {
    struct span payload, sha256;
    uint64_t cap;
    uint32_t domain, epsilon, every, code_count, weight_sum, code_bytes;
    struct span levels;
};
struct reports_row { struct span payload, device, key, older, newer, after, report, draws; };
struct signatures_row { struct span payload, fleet, key; uint32_t least; int code; };
struct withdrawals_row { struct span payload, fleet, key; uint32_t least; int code; };
struct ledgers_row {
    struct span slots[2];
    uint32_t locked, consent;
    uint64_t sum, squares;
    uint32_t reports[2];
    struct span unsent;
};
struct questions_row { struct span payload, question; };
struct settings_row { struct span device, fleet, announce_key; };

#include "vectors.h"

#define ROWS(table) (sizeof(table) / sizeof *(table))

static const uint8_t *bytes_of(struct span span) {
    return span.at == 0xffffffffu ? NULL : blob + span.at;
}

static bool same(struct span span, const void *data, size_t bytes) {
    const uint8_t *own = bytes_of(span);
    return span.count == bytes && (own == NULL || memcmp(own, data, bytes) == 0);
}

/* --- What is counted ----------------------------------------------------------------------------------------- */

static unsigned cases, failures;

static void check(bool good, const char *section, size_t number) {
    cases++;
    if (!good) {
        failures++;
        printf("%s %u is wrong\n", section, (unsigned)number);
    }
}

/* --- Draws from a script ------------------------------------------------------------------------------------- */

static const struct draws_row *script, *script_end;
static bool script_good;

static void play(struct span span) {
    script = draws + span.at;
    script_end = script + span.count;
    script_good = true;
}

static bool played(void) {
    return script_good && script == script_end;
}

static uint32_t drawn(bool is_below, uint32_t argument) {
    if (script == script_end || script->is_below != is_below || script->argument != argument) {
        script_good = false;
        return 0;
    }
    return script++->outcome;
}

bool hm_bernoulli(struct hushmote_random *random, uint32_t threshold) {
    (void)random;
    return drawn(false, threshold) != 0;
}

uint32_t hm_below(struct hushmote_random *random, uint32_t n) {
    (void)random;
    return drawn(true, n);
}

/* --- A board ------------------------------------------------------------------------------------------------- */

#define NAMES 4
#define UNSENT 16

static const char *const names[NAMES] = {"e", "f", "room_temp", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
static const struct hushmote_policy policy = {(UINT64_C(1) << 48) - 1, UINT64_MAX, HUSHMOTE_EPSILON_MAX, 15, false,
                                              NAMES, names};

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

/* Not secret here, and never the same. */
static int counted(void *context, uint8_t *data, size_t bytes) {
    static uint32_t state;
    (void)context;
    while (bytes-- > 0)
        *data++ = (uint8_t)((state = state * 1664525u + 1013904223u) >> 24);
    return 0;
}

static void hold(int slot, struct span record) {
    flash[slot].count = record.count;
    if (record.count)
        memcpy(flash[slot].bytes, bytes_of(record), record.count);
}

/* Start a client on the slots. */
static int begin(const char *device, struct span fleet, struct span announce_key, struct span key) {
    memset(&config, 0, sizeof config);
    config.read = flash_read;
    config.write = flash_write;
    config.entropy = counted;
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

static const struct span nothing = {0xffffffffu, 0};

/* --- Experiments --------------------------------------------------------------------------------------------- */

static bool parsed(struct span payload) {
    unsigned at;
    return hm_parse(&config, bytes_of(payload), payload.count, experiment, &at) == 0;
}

static void check_thresholds(void) {
    for (size_t i = 0; i < ROWS(thresholds); i++)
        check(hm_threshold(thresholds[i].epsilon, thresholds[i].g, 1) == thresholds[i].threshold, "thresholds", i);
}

static bool levels_are(struct span span) {
    const struct hushmote_experiment *e = experiment;
    bool good = e->level_count == span.count;
    for (unsigned i = 0; good && i < span.count; i++) {
        const struct levels_row *want = levels + span.at + i;
        const struct hm_level *level = hm_level(e, i);
        good = level->g == want->g && level->t == want->t && level->width == want->width &&
               level->weight == want->weight && level->offset == want->offset && level->threshold == want->threshold &&
               (level->t > 0 || level->g == want->nodes);
    }
    return good;
}

static void check_experiments(void) {
    const struct hushmote_experiment *e = experiment;
    for (size_t i = 0; i < ROWS(experiments); i++) {
        const struct experiments_row *want = experiments + i;
        bool good = parsed(want->payload) && same(want->sha256, e->sha256, 32) && e->cap == want->cap &&
                    e->domain == want->domain && e->epsilon == want->epsilon && e->every == want->every &&
                    e->code_count == want->code_count && e->weight_sum == want->weight_sum &&
                    e->code_bytes == want->code_bytes;
        /* Without levels they are of another kind, which the codes tell apart. */
        check(good && (want->levels.count == 0 || levels_are(want->levels)), "experiments", i);
    }
}

static void check_malformed(void) {
    for (size_t i = 0; i < ROWS(malformed); i++)
        check(!parsed(malformed[i].payload), "malformed", i);
}

static struct hushmote_reading one_reading(const struct readings_row *given) {
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
        return one_reading(given);
    for (unsigned i = 0; i < given->parts.count; i++)
        parts[i] = one_reading(readings + given->parts.at + i); /* its parts are no lists */
    return hushmote_parts(parts, given->parts.count);
}

static bool is_at(const struct hm_index *index, const struct place *place) {
    bool good = index->missing == place->missing;
    if (place->slots.count == 0)
        return good && (place->missing || index->at == place->at);
#if HUSHMOTE_WITH_PREFIX
    for (unsigned i = 0; i < place->slots.count; i++)
        good = good && index->slots[i] == slots[place->slots.at + i].slot;
#endif
    return good;
}

static bool falls(const struct buckets_row *want, const struct hushmote_reading *reading) {
    struct hm_index index;
    int said = hm_bucket(&config, experiment, reading, &index);
    return want->wrong ? said == HUSHMOTE_WRONG_TYPE : said == 0 && is_at(&index, &want->place);
}

static void check_buckets(void) {
    for (size_t i = 0; i < ROWS(buckets); i++) {
        const struct buckets_row *want = buckets + i;
        struct hushmote_reading parts[3], reading = reading_of(&want->given, parts);
        bool good = parsed(experiments[want->experiment].payload) && falls(want, &reading);
        if (want->given.kind == KIND_float) {
            reading = hushmote_float((float)want->given.real);
            good = good && falls(want, &reading);
        }
        check(good, "buckets", i);
    }
}

static void check_codes(void) {
    for (size_t i = 0; i < ROWS(codes); i++) {
        const struct codes_row *want = codes + i;
        struct hm_index index;
        bool good = parsed(experiments[want->experiment].payload);
        memset(&index, 0, sizeof index);
        index.missing = want->place.missing;
        index.at = want->place.at;
#if HUSHMOTE_WITH_PREFIX
        for (unsigned j = 0; j < want->place.slots.count; j++)
            index.slots[j] = slots[want->place.slots.at + j].slot;
#endif
        play(want->draws);
        check(good && hm_randomize(experiment, &index, NULL) == want->code && played(), "codes", i);
    }
}

/* --- The generator and the client ---------------------------------------------------------------------------- */

static bool steps_are(const struct generators_row *want, struct hushmote_random *random) {
    bool good = true;
    for (unsigned i = 0; i < want->steps.count; i++) {
        const struct steps_row *step = steps + want->steps.at + i;
        struct hushmote_piece more = {bytes_of(step->data), step->data.count};
        uint8_t out[128];
        if (step->step == STEP_reseed) {
            hm_reseed(random, &more, 1);
        } else if (step->step == STEP_generate) {
            hm_generate(random, out, step->argument);
            good = good && same(step->data, out, step->argument);
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
        check(steps_are(generators + i, &random), "drbg", i);
    }
}

static void check_reports(void) {
    for (size_t i = 0; i < ROWS(reports); i++) {
        const struct reports_row *want = reports + i;
        uint8_t report[HUSHMOTE_REPORT_BYTES], seed[16];
        const uint8_t *after = bytes_of(want->after);
        bool good;
        int bytes;
        hold(0, want->older);
        hold(1, want->newer);
        good = begin((const char *)bytes_of(want->device), nothing, nothing, want->key) == HUSHMOTE_OK &&
               hushmote_enroll(&client, bytes_of(want->payload), want->payload.count) == HUSHMOTE_OK;
        play(want->draws);
        bytes = hushmote_report(&client, experiment[2].enrolled ? names[2] : experiment[3].enrolled ? names[3] : "e",
                                hushmote_none(), report);
        good = good && bytes > 0 && same(want->report, report, (size_t)bytes) && played();
        /* The record has a seed in place of the vector's zeros, and so another CRC, which a client reads correctly. */
        memcpy(seed, flash[0].bytes + 6, sizeof seed);
        memset(flash[0].bytes + 6, 0, sizeof seed);
        good = good && flash[0].count == want->after.count &&
               memcmp(flash[0].bytes, after, want->after.count - 4u) == 0 &&
               same(want->newer, flash[1].bytes, (size_t)flash[1].count);
        memcpy(flash[0].bytes + 6, seed, sizeof seed);
        good = good && begin("d", nothing, nothing, nothing) == HUSHMOTE_OK &&
               hushmote_unsent(&client, 0, report) == want->report.count &&
               same(want->report, report, want->report.count);
        check(good, "reports", i);
    }
}

static void check_signatures(void) {
    flash[0].count = flash[1].count = 0;
    for (size_t i = 0; i < ROWS(signatures); i++) {
        const struct signatures_row *want = signatures + i;
        bool good = begin("d", want->fleet, want->key, nothing) == HUSHMOTE_OK;
        experiment->serial = want->least;
        check(good && hushmote_enroll(&client, bytes_of(want->payload), want->payload.count) == want->code &&
                  experiment->enrolled == (want->code == HUSHMOTE_OK),
              "signatures", i);
    }
}

static void check_withdrawals(void) {
    flash[0].count = flash[1].count = 0;
    for (size_t i = 0; i < ROWS(withdrawals); i++) {
        const struct withdrawals_row *want = withdrawals + i;
        const uint8_t *payload = bytes_of(want->payload);
        bool good = begin("d", want->fleet, want->key, nothing) == HUSHMOTE_OK;
        uint32_t serial = want->least;
        if (want->code == HUSHMOTE_OK && want->payload.count > 0)
            serial = (uint32_t)hm_get(payload + 1, 4);
        experiment->serial = want->least;
        experiment->enrolled = 1;
        good = good && hushmote_withdraw(&client, "e", payload, want->payload.count) == want->code &&
               experiment->enrolled == (want->code != HUSHMOTE_OK) && experiment->serial == serial;
        /* As an experiment it is nothing. */
        check(good && hushmote_enroll(&client, payload, want->payload.count) == HUSHMOTE_REFUSED, "withdrawals", i);
    }
}

static void check_ledgers(void) {
    static const int locked[] = {HUSHMOTE_OK, HUSHMOTE_NO_LEDGER, HUSHMOTE_LOCKED};
    for (size_t i = 0; i < ROWS(ledgers); i++) {
        const struct ledgers_row *want = ledgers + i;
        struct hushmote_status status;
        struct hushmote_line lines[2];
        uint8_t report[HUSHMOTE_REPORT_BYTES];
        bool good;
        hold(0, want->slots[0]);
        hold(1, want->slots[1]);
        good = begin("board-1", nothing, nothing, nothing) == HUSHMOTE_OK;
        hushmote_status(&client, &status);
        hushmote_line(&client, "e", &lines[0]);
        hushmote_line(&client, "f", &lines[1]);
        good = good && status.locked == locked[want->locked] && status.sum == want->sum &&
               status.squares == want->squares && status.consent == want->consent &&
               lines[0].reports == want->reports[0] && lines[1].reports == want->reports[1] &&
               status.pending == want->unsent.count;
        for (unsigned j = 0; j < want->unsent.count; j++) {
            int bytes = hushmote_unsent(&client, j, report);
            good = good && same(unsent[want->unsent.at + j].report, report, (size_t)bytes);
        }
        check(good && hushmote_unsent(&client, want->unsent.count, report) == 0, "ledgers", i);
    }
}

static void check_settings(void) {
    for (size_t i = 0; i < ROWS(settings); i++) {
        const struct settings_row *want = settings + i;
        check(begin((const char *)bytes_of(want->device), want->fleet, want->announce_key, nothing) ==
                  HUSHMOTE_BAD_SETTINGS,
              "settings", i);
    }
}

static void check_questions(void) {
    for (size_t i = 0; i < ROWS(questions); i++) {
        const struct questions_row *want = questions + i;
        uint8_t question[HM_QUESTION_BYTES];
        int code = hm_question(&config, bytes_of(want->payload), want->payload.count, question);
        check(code == HUSHMOTE_OK ? bytes_of(want->question) != NULL && same(want->question, question, sizeof question)
                                  : code == HUSHMOTE_REFUSED && bytes_of(want->question) == NULL,
              "questions", i);
    }
}

int main(void) {
    begin("d", nothing, nothing, nothing);
    check_thresholds();
    check_experiments();
    check_malformed();
    check_buckets();
    check_codes();
    check_generators();
    check_reports();
    check_signatures();
    check_withdrawals();
    check_ledgers();
    check_settings();
    check_questions();
    printf("hushmote: %u vectors, %u wrong\n", cases, failures);
    return failures > 0;
}
