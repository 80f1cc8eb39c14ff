/* Replaces the C client's random generator in tests of experiments: draws every branch in turn, or a single one.

   If the core was compiled with -fsanitize-coverage=trace-pc, it calls a hook in each basic block. */
#include "core.h"

#include <string.h>

#define MAX_DRAWS 16

struct row { /* one branch */
    uint64_t denominator;    /* product of the arguments of below() */
    uint64_t path, steps;    /* a fingerprint of the basic blocks, and their number */
    uint32_t code, truthful; /* truthful: bernoulli()'s result, 1 or 0, or 2 without a call */
    uint32_t threshold, level;
};

static uint32_t choices[MAX_DRAWS], sizes[MAX_DRAWS];
static unsigned known, at;
static bool strange;
static struct row now;

void __sanitizer_cov_trace_pc(void);
void __sanitizer_cov_trace_pc(void) {
    now.path = (now.path ^ (uint64_t)(uintptr_t)__builtin_return_address(0)) * UINT64_C(0x100000001b3);
    now.steps++;
}

static bool walking;
static uint64_t state; /* the state of the generator that draws one branch */

static uint32_t choose(uint32_t n) {
    if (!walking) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (uint32_t)(state >> 33) % n;
    }
    if (at == MAX_DRAWS || (at < known && sizes[at] != n)) {
        strange = true;
        return 0;
    }
    if (at == known) {
        choices[known] = 0;
        sizes[known++] = n;
    }
    return choices[at++];
}

bool hm_bernoulli(struct hushmote_random *random, uint32_t threshold) {
    (void)random;
    strange |= threshold == 0 || threshold >= HM_ONE || now.truthful != 2;
    now.threshold = threshold;
    now.truthful = choose(2);
    return now.truthful;
}

uint32_t hm_below(struct hushmote_random *random, uint32_t n) {
    (void)random;
    strange |= n < 1 || n > HM_MAX_CODES || (walking && now.denominator > UINT64_MAX / HM_MAX_CODES);
    now.denominator *= n;
    return choose(n);
}

static bool advance(void) {
    strange |= at != known;
    while (known && choices[known - 1] == sizes[known - 1] - 1)
        known--;
    if (known)
        choices[known - 1]++;
    return known && !strange;
}

static uint32_t level_of(const struct hushmote_experiment *e, uint32_t code) {
    uint32_t level = 0;
    while (level + 1u < e->level_count && hm_level(e, level + 1)->offset <= code)
        level++;
    return level;
}

/* Writes a row for every branch of an index. Returns their number, -1 if the code is not a function of the index and
   the draws, or -2 if there are more than `most`. */
long walk(const struct hushmote_experiment *e, const struct hm_index *index, struct row *rows, long most);
long walk(const struct hushmote_experiment *e, const struct hm_index *index, struct row *rows, long most) {
    long count = 0;
    known = 0;
    strange = false;
    walking = true;
    do {
        struct hm_index copy = *index;
        uint32_t code;
        if (count == most)
            return -2;
        memset(&now, 0, sizeof now);
        now.denominator = 1;
        now.truthful = 2;
        at = 0;
        code = hm_randomize(e, &copy, NULL);
        now.code = code;
        now.level = level_of(e, code);
        rows[count++] = now;
    } while (advance());
    return strange ? -1 : count;
}

/* Returns the code of the branch that a seed draws. */
uint32_t draw(const struct hushmote_experiment *e, const struct hm_index *index, uint64_t seed);
uint32_t draw(const struct hushmote_experiment *e, const struct hm_index *index, uint64_t seed) {
    struct hm_index copy = *index;
    walking = false;
    state = seed;
    memset(&now, 0, sizeof now);
    now.denominator = 1;
    now.truthful = 2;
    return hm_randomize(e, &copy, NULL);
}

/* Returns the result of hm_parse() for a JSON object, under a policy with the tests' names. */
int parse(const uint8_t *json, size_t bytes, struct hushmote_experiment *e);
int parse(const uint8_t *json, size_t bytes, struct hushmote_experiment *e) {
    static const char *const names[] = {"e", "room_temp", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    static const struct hushmote_group groups[] = {{"firmware", NULL}};
    static const struct hushmote_policy policy = {0, 0, 0, 0, false, 3, names, 1, groups, NULL};
    static const struct hushmote_config config = {.policy = &policy};
    unsigned number;
    return hm_parse(&config, json, bytes, e, &number);
}

int bucket(const struct hushmote_experiment *e, const struct hushmote_reading *reading, struct hm_index *index);
int bucket(const struct hushmote_experiment *e, const struct hushmote_reading *reading, struct hm_index *index) {
    static const struct hushmote_config config;
    return hm_bucket(&config, e, reading, index);
}
