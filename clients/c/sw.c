/* sw, a mechanism for means: a square wave over integers.

   Privacy: the codes from index to index + 2 reach (inside) are equally likely, and so are all other codes, of which
   there are domain - 1 for every index. A code inside is at most e^epsilon times as likely as a code outside, because
   the threshold is rounded down. There are three draws for every reading. Utility: docs/mathematics.md; for the mean it
   needs a third of the reports that a tree needs, but it does not give a histogram. Cost: domain + 2 reach codes; no
   division. Citation: Li, Wang, Lopuhaa-Zwakenberg, Skoric, Li, "Estimating Numerical Distributions under Local
   Differential Privacy", SIGMOD 2020, section 5.2. */
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
    /* Otherwise a code inside is not more likely than one outside, so e^epsilon would bound the wrong ratio. */
    if ((uint64_t)level->threshold * (e->domain - 1) <= (uint64_t)(HM_ONE - level->threshold) * inside)
        return HUSHMOTE_REFUSED_SMALL_EPSILON;
    e->level_count = 1;
    e->code_count = e->domain + 2 * reach;
    return 0;
}

uint32_t hm_randomize_sw(const struct hm_level *level, uint32_t at, struct hushmote_random *random) {
    /* All three are always drawn, so timing does not reveal whether the code is inside. */
    uint32_t lie = 1u - hm_bernoulli(random, level->threshold);
    uint32_t near = at + hm_below(random, level->width), far = hm_below(random, level->g - 1);
    far += (1 - ((far - at) >> 31)) * level->width; /* values at or above the index come after the codes inside */
    return near + lie * (far - near);
}

#endif
