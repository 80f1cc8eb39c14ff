/* Readings with several parts, and the views mechanism.

   The type pair has 2 or 3 parts, each of which is a bool, a choice or a number; the index of their readings is
   (a * D_B + b) * D_C + c. grr, olh and pgr report the joint index; views can also report the index of a subset of the
   parts. A part may have one extra value for a missing reading; if the reading of a part without this value is missing,
   the whole reading is missing.

   Privacy: each view is randomized response at e^epsilon over its cells, and the view is drawn independently of the
   index. Utility: docs/estimates.md. Cost: at most 5 draws, one step per part and one per digit of the hash, for every
   index. Citation: Yang, Wang, Li, Cheng, Su, "Answering Multi-Dimensional Range Queries under
   Local Differential Privacy", VLDB 2021. */
#include "core.h"

#include <string.h>

#if HUSHMOTE_WITH_PAIRS

static int take_member(struct hushmote_experiment *e, const uint8_t *value, const uint8_t **name,
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
    const uint8_t *member = hm_json_list(hm_take(fields, HM_F_OF)), *names[3];
    unsigned count = 0;
    for (const uint8_t *element = member; element; element = hm_json_next(element))
        count++;
    if (count < 2 || count > 3)
        return HUSHMOTE_REFUSED;
    memset(hm_part(e, 0), 0, count * sizeof(struct hm_part));
    e->part_count = (uint8_t)count;
    e->domain = 1;
    for (unsigned i = 0; i < count; i++, member = hm_json_next(member)) {
        struct hm_part *part = hm_part(e, i);
        int wrong = take_member(e, member, &names[i], part);
        if (wrong)
            return wrong;
        for (unsigned j = 0; j < i; j++) { /* names must differ */
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
    const struct hushmote_reading *part_reading = (const struct hushmote_reading *)reading->data;
    if (reading->kind != HUSHMOTE_IS_PARTS || reading->count != e->part_count || !part_reading)
        return HUSHMOTE_WRONG_TYPE;
    for (unsigned i = 0; i < e->part_count; i++, part_reading++) {
        const struct hm_part *part = hm_part(e, i);
        uint32_t at = part->domain - 1;
        if (part_reading->kind == HUSHMOTE_IS_NONE)
            index->missing |= !part->missing;
        else if (hm_bucket_part(e, part, part_reading, &at))
            return HUSHMOTE_WRONG_TYPE;
        index->at = index->at * part->domain + at;
    }
    return 0;
}

/* Read a view's parts as bits, and the product of their domains. Return false if the indices do not ascend. */
static bool take_view(const struct hushmote_experiment *e, const uint8_t *part, uint32_t *view, uint32_t *nodes) {
    uint32_t min_index = 0, number;
    *view = 0;
    *nodes = 1;
    for (; part; min_index = number + 1) {
        number = hm_json_each(&part, min_index, e->part_count - 1u);
        if (number == HM_NONE)
            return false;
        *view |= 1u << number;
        *nodes *= hm_part(e, number)->domain;
    }
    return *view != 0;
}

int hm_take_views(struct hushmote_experiment *e, struct hm_object *fields) {
    bool weighted = fields->at[HM_F_WEIGHTS] != 0;
    const uint8_t *cells = hm_json_list(hm_take(fields, HM_F_CELLS));
    const uint8_t *weights = hm_json_list(hm_take(fields, HM_F_WEIGHTS));
    uint32_t seen = 0;
    if (e->type != HM_PAIR)
        return HUSHMOTE_REFUSED;
    for (const uint8_t *element = hm_json_list(hm_take(fields, HM_F_VIEWS)); element; element = hm_json_next(element)) {
        uint32_t view, nodes, g = hm_json_each(&cells, 2, HM_MAX_CODES);
        uint32_t weight = weighted ? hm_json_each(&weights, 0, 65535) : 1;
        int wrong;
        if (!take_view(e, hm_json_list(element), &view, &nodes) || seen >> view & 1 || g == HM_NONE || weight == HM_NONE)
            return HUSHMOTE_REFUSED;
        seen |= 1u << view;
        wrong = hm_add_level(e, nodes, g, 1, weight);
        if (wrong)
            return wrong;
        hm_level(e, e->level_count - 1u)->view = (uint8_t)view;
    }
    return cells || weights || e->weight_sum == 0 ? HUSHMOTE_REFUSED : 0;
}

uint32_t hm_randomize_views(const struct hushmote_experiment *e, uint32_t at, struct hushmote_random *random) {
    const struct hm_level *level = hm_pick(e, random);
    uint32_t node = 0, stride = 1;
    for (unsigned i = e->part_count; i-- > 0;) { /* the last part is the lowest digit of the index and the node */
        uint32_t digit, size = hm_part(e, i)->domain, used = level->view >> i & 1;
        at = hm_divide(at, size, &digit);
        node += used * stride * digit;
        stride *= 1 + used * (size - 1);
    }
    return hm_respond(level, node, random);
}

#endif
