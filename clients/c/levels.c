/* rr, grr, olh and hh: generalized randomized response over cells, to which nodes may be hashed.

   Privacy: for every code and any two indices (including no reading), the ratio of the code's probabilities is at most
   e^epsilon; draws and steps are the same for a truth and a lie, and for every index. Utility: docs/mathematics.md;
   local hashing is best with g near e^epsilon + 1. Cost: at most 5 draws, and 2 divisions per digit of the hash.
   Citation: Wang, Blocki, Li, Jha, "Locally Differentially Private Protocols for Frequency Estimation", USENIX Security
   2017, 4.1, 4.4; for hh Cormode, Kulkarni, Srivastava, "Answering Range Queries Under Local Differential Privacy",
   VLDB 2019. */
#include "core.h"

#define MAX_G 65536u
#define MAX_WEIGHT 65535u

/* Hardware division takes longer for larger numbers; this function's time does not depend on n. */
uint32_t hm_divide(uint32_t n, uint32_t d, uint32_t *remainder) {
    uint32_t quotient = 0, r = 0;
    for (int bit = 31; bit >= 0; bit--) {
        uint32_t less, keep;
        r = r << 1 | (n >> bit & 1);
        less = r - d;            /* negative if r < d */
        keep = 0u - (less >> 31); /* then all ones, otherwise 0 */
        r = less + (d & keep);
        quotient = quotient << 1 | (keep + 1);
    }
    if (remainder)
        *remainder = r;
    return quotient;
}

bool hm_is_prime(uint32_t n) {
    uint32_t i = 2;
    while (i * i <= n && n % i)
        i++;
    return i * i > n;
}

/* Add a level; its codes follow those of the earlier levels. */
int hm_push_level(struct hushmote_experiment *e, struct hm_level *level, uint32_t codes) {
    if (codes > HM_MAX_CODES - e->code_count)
        return HUSHMOTE_REFUSED;
    if (!hm_room(e, sizeof *level))
        return HUSHMOTE_REFUSED_ROOM;
    level->offset = e->code_count;
    *hm_level(e, e->level_count++) = *level;
    e->code_count += codes;
    return 0;
}

int hm_add_level(struct hushmote_experiment *e, uint32_t nodes, uint32_t g, uint32_t width, uint32_t weight) {
    struct hm_level level = {0, 0, g, width, (uint16_t)weight, 0, 0};
    uint32_t size = 1;
    if (g != nodes && (g > nodes || g > MAX_G || !hm_is_prime(g)))
        return HUSHMOTE_REFUSED;
    for (; g != nodes && size < nodes; size *= g, level.t++)
        if (size > HM_MAX_CODES / g)
            return HUSHMOTE_REFUSED; /* the level would have too many codes */
    e->weight_sum += weight;
    level.threshold = hm_threshold(e->epsilon, g, 1);
    /* At or below 1/g the truth is not more likely than any single lie, so e^epsilon would bound the wrong ratio. */
    if (level.threshold <= HM_ONE / g)
        return HUSHMOTE_REFUSED_SMALL_EPSILON;
    return size - 1 > HM_MAX_CODES / g ? HUSHMOTE_REFUSED : hm_push_level(e, &level, level.t ? (size - 1) * g : g);
}

static int take_tree(struct hushmote_experiment *e, struct hm_object *fields) {
    bool weighted = fields->at[HM_F_WEIGHTS] != 0;
    const uint8_t *cells = hm_json_list(hm_take(fields, HM_F_CELLS));
    const uint8_t *weights = hm_json_list(hm_take(fields, HM_F_WEIGHTS));
    uint32_t fanout = hm_take_number(fields, HM_F_FANOUT, 2, e->domain), width = 1, weight = 1;
    if (fanout == HM_NONE)
        return HUSHMOTE_REFUSED;
    while (width <= (e->domain - 1) / fanout)
        width *= fanout;
    for (; width; width /= fanout) {
        uint32_t g = hm_json_each(&cells, 2, HM_MAX_CODES);
        int wrong;
        if (weighted)
            weight = hm_json_each(&weights, 0, MAX_WEIGHT);
        if (g == HM_NONE || weight == HM_NONE)
            return HUSHMOTE_REFUSED;
        wrong = hm_add_level(e, (e->domain + width - 1) / width, g, width, weight);
        if (wrong)
            return wrong;
    }
    return cells || weights || weight == 0 ? HUSHMOTE_REFUSED : 0; /* the last weight must not be 0 */
}

int hm_take_levels(struct hushmote_experiment *e, struct hm_object *fields) {
    uint32_t g = e->domain;
    if (e->mechanism == HM_HH)
        return take_tree(e, fields);
    if (e->mechanism == HM_OLH) {
        g = hm_take_number(fields, HM_F_G, 2, g - 1);
        if (g == HM_NONE)
            return HUSHMOTE_REFUSED;
    }
    return e->mechanism == HM_RR && g != 2 ? HUSHMOTE_REFUSED : hm_add_level(e, e->domain, g, 1, 1);
}

/* Return a random level, drawn by weight and independently of the reading. */
const struct hm_level *hm_pick(const struct hushmote_experiment *e, struct hushmote_random *random) {
    const struct hm_level *level = hm_level(e, 0);
    if (e->level_count > 1)
        for (uint32_t draw = hm_below(random, e->weight_sum); draw >= level->weight; level++)
            draw -= level->weight;
    return level;
}

/* Return a randomized code for a node. */
uint32_t hm_respond(const struct hm_level *level, uint32_t node, struct hushmote_random *random) {
    uint32_t g = level->g, code = level->offset, cell = node, lie, other;
    if (level->t) {
        uint32_t seeds = 1, seed, sum = 0, a, b;
        for (unsigned i = 0; i < level->t; i++)
            seeds *= g;
        seed = hm_below(random, seeds - 1); /* the seed minus 1 */
        code += seed++ * g;
        for (unsigned i = 0; i < level->t; i++) { /* always t steps, for every node */
            node = hm_divide(node, g, &a);
            seed = hm_divide(seed, g, &b);
            sum += a * b;
        }
        hm_divide(sum, g, &cell);
    }
    /* Both are always drawn, and one expression covers both cases, so timing does not reveal a lie. */
    lie = 1u - hm_bernoulli(random, level->threshold);
    other = 1 + hm_below(random, g - 1); /* one of the g - 1 *other* cells; drawing from all g would increase epsilon */
    hm_divide(cell + lie * other, g, &cell);
    return code + cell;
}
