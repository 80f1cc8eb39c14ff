/* prefix: each report covers one prefix of a text, so that a server can discover unlisted texts.

   Privacy: the same as for pgr over one level's slots; the level is drawn independently of the reading, so a report
   covers only one prefix. Utility: a server that knows a prefix tries each possible next character, and so discovers
   common texts without a list. Cost: the codes of all levels; 2 more draws than pgr. Citation: Wang, Li, Jha, "Locally
   Differentially Private Heavy Hitter Identification", IEEE TDSC 2021; Bassily, Nissim, Stemmer, Thakurta, "Practical
   Locally Private Heavy Hitters", NIPS 2017. */
#include "core.h"

#if HUSHMOTE_WITH_PREFIX

int hm_take_prefix(struct hushmote_experiment *e, struct hm_object *fields) {
    bool weighted = fields->at[HM_F_WEIGHTS] != 0;
    const uint8_t *weights = hm_json_list(hm_take(fields, HM_F_WEIGHTS));
    const uint8_t *prefixes = e->room.bytes + hm_part(e, 0)->words;
    uint32_t q = hm_take_number(fields, HM_F_Q, 2, 4096), weight = 1;
    if (e->type != HM_TEXT || q == HM_NONE)
        return HUSHMOTE_REFUSED;
    prefixes += 1 + *prefixes;
    for (unsigned i = 0; i < *prefixes; i++) {
        int wrong;
        if (weighted)
            weight = hm_json_each(&weights, 1, 65535);
        e->weight_sum += weight;
        wrong = weight == HM_NONE ? HUSHMOTE_REFUSED : hm_add_points(e, e->slots, q, weight);
        if (wrong)
            return wrong;
    }
    return weights || *prefixes == 0 ? HUSHMOTE_REFUSED : 0;
}

uint32_t hm_randomize_prefix(const struct hushmote_experiment *e, const struct hm_index *index,
                             struct hushmote_random *random) {
    const struct hm_level *level = hm_pick(e, random);
    unsigned at = (unsigned)(level - hm_level(e, 0));
    uint32_t missing_slot = hm_below(random, e->slots); /* the slot of a missing reading; always drawn */
    uint32_t slot = index->slots[at];
    if (e->domain <= HM_MAX_CODES) { /* then the slot follows from the index, even from a drawn one */
        slot = index->at;
        for (unsigned i = 0; i < at; i++)
            slot /= e->slots; /* slots is a power of 2 */
        slot &= e->slots - 1;
    } else {
        slot += index->missing * (missing_slot - slot);
    }
    return hm_randomize_points(level, slot, random);
}

#endif
