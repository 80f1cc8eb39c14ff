/* Readings of several parts, and views, their mechanism.

   The type pair has 2 or 3 parts, each a bool, a choice or a number; the index of their readings is (a * D_B + b) *
   D_C + c. grr, olh and pgr report that joint table as it is; views also reports tables of some of the parts. A part
   may have one more value for a missing reading; if a part without it has no reading, the whole reading is missing.

   Privacy: each view is randomized response at e^epsilon over its cells, and which one is drawn does not depend on
   the index. Utility: docs/estimates.md. Cost: at most 5 draws, a step for each part and one for each digit of the
   hash, whatever the index. Citation: Yang, Wang, Li, Cheng, Su, "Answering Multi-Dimensional Range Queries under
   Local Differential Privacy", VLDB 2021. */
#include "core.h"

#include <string.h>

#if HUSHMOTE_WITH_PAIRS

static int take_one(struct hushmote_experiment *e, const uint8_t *value, const uint8_t **name,
                    struct hm_part *part) {
    struct hm_object fields;
    int length, type, wrong;
    hm_json_object(&fields, value);
    *name = hm_take(&fields, HM_F_NAME);
    length = hm_json_length(*name);
    type = hm_json_word(hm_take(&fields, HM_F_TYPE), "bool choice number");
    if (length < 1 || !hm_is_name(*name + 1, (size_t)length, true) || type < 0)
        return HUSHMOTE_REFUSED;
    part->type = (uint8_t)type;
    wrong = hm_take_part(e, &fields, part);
    return wrong ? wrong : hm_nothing_left(&fields);
}

int hm_take_pair(struct hushmote_experiment *e, struct hm_object *fields) {
    const uint8_t *own = hm_json_list(hm_take(fields, HM_F_OF)), *names[3];
    unsigned count = 0;
    for (const uint8_t *one = own; one; one = hm_json_next(one))
        count++;
    if (count < 2 || count > 3)
        return HUSHMOTE_REFUSED;
    memset(hm_part(e, 0), 0, count * sizeof(struct hm_part));
    e->part_count = (uint8_t)count;
    e->domain = 1;
    for (unsigned i = 0; i < count; i++, own = hm_json_next(own)) {
        struct hm_part *part = hm_part(e, i);
        int wrong = take_one(e, own, &names[i], part);
        if (wrong)
            return wrong;
        for (unsigned j = 0; j < i; j++) { /* their names differ */
            int length = hm_json_length(names[i]);
            if (length == hm_json_length(names[j]) && memcmp(names[i], names[j], (size_t)length + 1) == 0)
                return HUSHMOTE_REFUSED;
        }
        if (part->domain > HM_MAX_CODES / e->domain)
            return HUSHMOTE_REFUSED;
        e->domain *= part->domain;
    }
    return 0;
}

int hm_bucket_pair(const struct hushmote_experiment *e, const struct hushmote_reading *reading,
                   struct hm_index *index) {
    const struct hushmote_reading *own = (const struct hushmote_reading *)reading->data;
    if (reading->kind != HUSHMOTE_IS_PARTS || reading->count != e->part_count || !own)
        return HUSHMOTE_WRONG_TYPE;
    for (unsigned i = 0; i < e->part_count; i++, own++) {
        const struct hm_part *part = hm_part(e, i);
        uint32_t at = part->domain - 1;
        if (own->kind == HUSHMOTE_IS_NONE)
            index->missing |= !part->missing;
        else if (hm_bucket_part(e, part, own, &at))
            return HUSHMOTE_WRONG_TYPE;
        index->at = index->at * part->domain + at;
    }
    return 0;
}

/* Read a view's parts, a bit for each, and the product of their domains; false if their numbers do not rise. */
static bool take_view(const struct hushmote_experiment *e, const uint8_t *part, uint32_t *view, uint32_t *nodes) {
    uint32_t least = 0, number;
    *view = 0;
    *nodes = 1;
    for (; part; least = number + 1) {
        number = hm_json_each(&part, least, e->part_count - 1u);
        if (number == HM_NONE)
            return false;
        *view |= 1u << number;
        *nodes *= hm_part(e, number)->domain;
    }
    return *view != 0;
}

int hm_take_views(struct hushmote_experiment *e, struct hm_object *fields) {
    bool weighted = fields->at[HM_F_WEIGHTS] != 0;
    const uint8_t *cell = hm_json_list(hm_take(fields, HM_F_CELLS)), *own = hm_json_list(hm_take(fields, HM_F_WEIGHTS));
    uint32_t seen = 0;
    if (e->type != HM_PAIR)
        return HUSHMOTE_REFUSED;
    for (const uint8_t *one = hm_json_list(hm_take(fields, HM_F_VIEWS)); one; one = hm_json_next(one)) {
        uint32_t view, nodes, g = hm_json_each(&cell, 2, HM_MAX_CODES);
        uint32_t weight = weighted ? hm_json_each(&own, 0, 65535) : 1;
        int wrong;
        if (!take_view(e, hm_json_list(one), &view, &nodes) || seen >> view & 1 || g == HM_NONE || weight == HM_NONE)
            return HUSHMOTE_REFUSED;
        seen |= 1u << view;
        wrong = hm_add_level(e, nodes, g, 1, weight);
        if (wrong)
            return wrong;
        hm_level(e, e->level_count - 1u)->view = (uint8_t)view;
    }
    return cell || own || e->weight_sum == 0 ? HUSHMOTE_REFUSED : 0;
}

uint32_t hm_randomize_views(const struct hushmote_experiment *e, uint32_t at, struct hushmote_random *random) {
    const struct hm_level *level = hm_pick(e, random);
    uint32_t node = 0, stride = 1;
    for (unsigned i = e->part_count; i-- > 0;) { /* the last part is the index's lowest digit, and the node's */
        uint32_t own, size = hm_part(e, i)->domain, looks = level->view >> i & 1;
        at = hm_divide(at, size, &own);
        node += looks * stride * own;
        stride *= 1 + looks * (size - 1);
    }
    return hm_respond(level, node, random);
}

#endif
