/* prefix: levels of a text's beginnings, one of which a report is about, to discover unlisted texts.

   Privacy: that of pgr over one level's slots; the level is drawn without looking at the reading, so that a report is
   about one prefix alone. Utility: a server that knows a prefix tries each character after it, so that it discovers
   common texts without a list. Cost: the codes of all levels; 2 draws more than pgr. Citation: Wang, Li, Jha,
   "Locally Differentially Private Heavy Hitter Identification", IEEE TDSC 2021; Bassily, Nissim, Stemmer, Thakurta,
   "Practical Locally Private Heavy Hitters", NIPS 2017. */
#include "core.h"

#if HUSHMOTE_WITH_PREFIX

int hm_take_prefix(struct hushmote_experiment *e, struct hm_object *fields) {
    bool weighted = fields->at[HM_F_WEIGHTS] != 0;
    const uint8_t *own = hm_json_list(hm_take(fields, HM_F_WEIGHTS)), *prefixes = e->room.bytes + hm_part(e, 0)->words;
    uint32_t q = hm_take_number(fields, HM_F_Q, 2, 4096), weight = 1;
    if (e->type != HM_TEXT || q == HM_NONE)
        return HUSHMOTE_REFUSED;
    prefixes += 1 + *prefixes;
    for (unsigned i = 0; i < *prefixes; i++) {
        int wrong;
        if (weighted)
            weight = hm_json_each(&own, 1, 65535);
        e->weight_sum += weight;
        wrong = weight == HM_NONE ? HUSHMOTE_REFUSED : hm_add_points(e, e->slots, q, weight);
        if (wrong)
            return wrong;
    }
    return own || *prefixes == 0 ? HUSHMOTE_REFUSED : 0;
}

uint32_t hm_randomize_prefix(const struct hushmote_experiment *e, const struct hm_index *index,
                             struct hushmote_random *random) {
    const struct hm_level *level = hm_pick(e, random);
    unsigned number = (unsigned)(level - hm_level(e, 0));
    uint32_t nothing = hm_below(random, e->slots); /* the slot of no reading; drawn in any case */
    uint32_t slot = index->slots[number];
    if (e->domain <= HM_MAX_CODES) { /* then the index says it all, also one that was drawn */
        slot = index->at;
        for (unsigned i = 0; i < number; i++)
            slot /= e->slots; /* a power of 2 */
        slot &= e->slots - 1;
    } else {
        slot += index->missing * (nothing - slot);
    }
    return hm_randomize_points(level, slot, random);
}

#endif
