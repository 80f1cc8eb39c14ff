/* sw, a mechanism for means: a square wave over integers.

   Privacy: codes index .. index + 2 reach are equally likely, and so are all others, which number domain - 1 whatever
   the index. A code's chance among the first is at most e^epsilon times its chance among the others, because the
   threshold is rounded down. Three draws, whatever the reading. Utility: docs/mathematics.md; the mean with a third
   of the reports that a tree needs, but no histogram. Cost: domain + 2 reach codes; no division. Citation: Li, Wang,
   Lopuhaa-Zwakenberg, Skoric, Li, "Estimating Numerical Distributions under Local Differential Privacy", SIGMOD
   2020, section 5.2. */
#include "core.h"

#if HUSHMOTE_WITH_SW

int hm_take_sw(struct hushmote_experiment *e, struct hm_object *fields) {
    struct hm_level *level = hm_level(e, 0);
    uint32_t reach = hm_take_number(fields, HM_F_REACH, 0, 1u << 23), inside = 2 * reach + 1;
    if (e->type != HM_NUMBER || hm_part(e, 0)->missing || reach == HM_NONE || 2 * reach > HM_MAX_CODES - e->domain)
        return HUSHMOTE_REFUSED;
    level->g = e->domain;
    level->width = inside;
    level->threshold = hm_threshold(e->epsilon, e->domain, inside);
    /* Otherwise a code inside is not likelier than one outside: e^epsilon would bound the wrong ratio. */
    if ((uint64_t)level->threshold * (e->domain - 1) <= (uint64_t)(HM_ONE - level->threshold) * inside)
        return HUSHMOTE_REFUSED_SMALL_EPSILON;
    e->level_count = 1;
    e->code_count = e->domain + 2 * reach;
    return 0;
}

uint32_t hm_randomize_sw(const struct hm_level *level, uint32_t at, struct hushmote_random *random) {
    /* All three are always drawn: timing does not tell a code inside from one outside. */
    uint32_t lie = 1u - hm_bernoulli(random, level->threshold);
    uint32_t near = at + hm_below(random, level->width), far = hm_below(random, level->g - 1);
    far += (1 - ((far - at) >> 31)) * level->width; /* values not below the index come after the wave */
    return near + lie * (far - near);
}

#endif
