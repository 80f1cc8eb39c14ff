/* Experiments: parse the JSON into a struct, map a reading to an index, and an index to a code.

   Anything that docs/wire-format.md does not allow is refused, because a client that guesses cannot guarantee its
   epsilon. */
#include "core.h"

#include <string.h>

#define MAX_MILLI (INT64_C(1) << 40)
#define CAP_BITS 54 /* size of the cap in a ledger entry */
#define MAX_LABEL 64
#define MAX_GROUPS 15 /* values of an open group */
#define MAX_GROUP 32

#if HUSHMOTE_WITH_PREFIX && !(HUSHMOTE_WITH_TEXT && HUSHMOTE_WITH_PGR)
#error "HUSHMOTE_WITH_PREFIX needs HUSHMOTE_WITH_TEXT and HUSHMOTE_WITH_PGR"
#endif
#if HUSHMOTE_ROOM_BYTES < 128 || HUSHMOTE_ROOM_BYTES > 65528 || HUSHMOTE_ROOM_BYTES % 8
#error "HUSHMOTE_ROOM_BYTES must be a multiple of 8 from 128 to 65528"
#endif

/* --- The room ------------------------------------------------------------------------------------------------ */

struct hm_part *hm_part(const struct hushmote_experiment *e, unsigned number) {
    return (struct hm_part *)(uintptr_t)e->room.bytes + number;
}

struct hm_level *hm_level(const struct hushmote_experiment *e, unsigned number) {
    return (struct hm_level *)(uintptr_t)hm_part(e, e->part_count) + number;
}

bool hm_room(const struct hushmote_experiment *e, size_t bytes) {
    return e->part_count * sizeof(struct hm_part) + e->level_count * sizeof(struct hm_level) + bytes <= e->room_end;
}

bool hm_keep(struct hushmote_experiment *e, const void *data, size_t bytes) {
    uint8_t *place;
    if (!hm_room(e, 1 + bytes))
        return false;
    e->room_end = (uint16_t)(e->room_end - (1 + bytes));
    place = e->room.bytes + e->room_end;
    *place = (uint8_t)bytes;
    memcpy(place + 1, data, bytes);
    return true;
}

/* --- Types --------------------------------------------------------------------------------------------------- */

/* Return a text's index among a part's labels, or count if it is not one of them. The number of steps is constant. */
static uint32_t find_label(const uint8_t *label, uint32_t count, const void *text, size_t bytes) {
    uint32_t at = count;
    for (uint32_t i = count; i-- > 0; label += 1 + *label) /* labels are stored in reverse order */
        if (*label == bytes && memcmp(label + 1, text, bytes) == 0)
            at = i;
    return at;
}

/* Keep a list of different texts of at most max_length bytes in the room, the last one first, and count them. */
static int take_texts(struct hushmote_experiment *e, const uint8_t *list, int max_length, uint32_t *count) {
    const uint8_t *text = hm_json_list(list);
    *count = 0;
    do {
        int length = hm_json_length(text);
        if (length < 1 || length > max_length ||
            find_label(e->room.bytes + e->room_end, *count, text + 1, (size_t)length) < *count) /* duplicate text */
            return HUSHMOTE_REFUSED;
        if (!hm_keep(e, text + 1, (size_t)length))
            return HUSHMOTE_REFUSED_ROOM;
        ++*count;
        text = hm_json_next(text);
    } while (text);
    return 0;
}

static int take_labels(struct hushmote_experiment *e, struct hm_object *fields, struct hm_part *part) {
    int wrong = take_texts(e, hm_take(fields, HM_F_LABELS), MAX_LABEL, &part->domain);
    part->words = e->room_end;
    part->domain++; /* the last index stands for any unlisted label */
    return wrong;
}

/* Read one end of a number's range, in milli-units. */
static bool take_end(struct hm_object *fields, enum hm_field field, int64_t *end) {
    return hm_json_integer(hm_take(fields, field), end) && *end >= -MAX_MILLI && *end <= MAX_MILLI;
}

static int take_values(struct hushmote_experiment *e, struct hm_object *fields, struct hm_part *part) {
    part->domain = 2;
    if (part->type == HM_CHOICE)
        return take_labels(e, fields, part);
    if (part->type != HM_NUMBER)
        return 0;
    part->domain = hm_take_number(fields, HM_F_BINS, 2, HM_MAX_CODES);
    if (part->domain == HM_NONE || !take_end(fields, HM_F_LOW, &part->low) ||
        !take_end(fields, HM_F_HIGH, &part->high) || part->low >= part->high)
        return HUSHMOTE_REFUSED;
    if (!fields->at[HM_F_SCALE])
        return 0;
#if HUSHMOTE_WITH_SCALE
    return hm_take_scale(e, fields, part);
#else
    return HUSHMOTE_REFUSED_MISSING;
#endif
}

int hm_take_part(struct hushmote_experiment *e, struct hm_object *fields, struct hm_part *part) {
    int wrong = take_values(e, fields, part);
    if (wrong || !fields->at[HM_F_MISSING])
        return wrong;
    part->missing = 1;
    part->domain++;
    return hm_take_number(fields, HM_F_MISSING, 1, 1) == HM_NONE ? HUSHMOTE_REFUSED : 0;
}

/* Return the index of a field's text among the words. Any other text is refused with the code `otherwise`. */
static int take_word(struct hm_object *fields, enum hm_field field, const char *words, int otherwise) {
    const uint8_t *value = hm_take(fields, field);
    int at = hm_json_word(value, words);
    return at >= 0 ? at : hm_json_length(value) < 0 ? HUSHMOTE_REFUSED : otherwise;
}

static int take_type(struct hushmote_experiment *e, struct hm_object *fields) {
    struct hm_part *part = hm_part(e, 0);
    int type = take_word(fields, HM_F_TYPE, "bool choice number text pair", HUSHMOTE_REFUSED_MISSING);
    if (type < 0)
        return type;
    e->type = (uint8_t)type;
#if HUSHMOTE_WITH_PAIRS
    if (type == HM_PAIR)
        return hm_take_pair(e, fields);
#endif
    e->part_count = 1;
    memset(part, 0, sizeof *part);
    part->type = e->type;
#if HUSHMOTE_WITH_TEXT
    if (type == HM_TEXT)
        return hm_take_text(e, fields, part);
#endif
    return type > HM_NUMBER ? HUSHMOTE_REFUSED_MISSING : hm_take_part(e, fields, part);
}

/* --- Complete experiments ------------------------------------------------------------------------------------ */

static int take_mechanism(struct hushmote_experiment *e, struct hm_object *fields) {
    int mechanism = take_word(fields, HM_F_MECHANISM, "rr grr olh hh pgr sw prefix views", HUSHMOTE_REFUSED_MISSING);
    if (mechanism < 0)
        return mechanism;
    e->mechanism = (uint8_t)mechanism;
    if (e->part_count == 1)
        e->domain = hm_part(e, 0)->domain;
    if (e->domain > HM_MAX_CODES && mechanism != HM_PREFIX)
        return HUSHMOTE_REFUSED; /* it would have too many codes */
    switch (mechanism) {
#if HUSHMOTE_WITH_PGR
    case HM_PGR:
        return hm_take_pgr(e, fields);
#endif
#if HUSHMOTE_WITH_SW
    case HM_SW:
        return hm_take_sw(e, fields);
#endif
#if HUSHMOTE_WITH_PREFIX
    case HM_PREFIX:
        return hm_take_prefix(e, fields);
#endif
#if HUSHMOTE_WITH_PAIRS
    case HM_VIEWS:
        return hm_take_views(e, fields);
#endif
    default:
        return mechanism > HM_HH ? HUSHMOTE_REFUSED_MISSING : hm_take_levels(e, fields);
    }
}

static int take_budget(struct hushmote_experiment *e, const uint8_t *value) {
    struct hm_object fields;
    int64_t cap = 0;
    int rule;
    hm_json_object(&fields, value);
    rule = take_word(&fields, HM_F_RULE, "unlimited sum squares count", HUSHMOTE_REFUSED);
    if (rule < 0 || (rule > 0 && (!hm_json_integer(hm_take(&fields, HM_F_CAP), &cap) || cap < 1 || cap >> CAP_BITS)))
        return HUSHMOTE_REFUSED;
    e->rule = (uint8_t)rule;
    e->cap = (uint64_t)cap;
    return hm_nothing_left(&fields);
}

/* --- The open group ------------------------------------------------------------------------------------------- */

/* Take the open group's name and values, and `every` for each of them or for all. The policy need not have the group. */
static int take_group(const struct hushmote_policy *policy, struct hushmote_experiment *e, struct hm_object *fields) {
    static const uint8_t other[] = {"other"};
    const uint8_t *name = hm_take(fields, HM_F_GROUP), *every = hm_take(fields, HM_F_EVERY), *element = every;
    int length = hm_json_length(name), wrong;
    uint32_t numbers[MAX_GROUPS + 1], count;
    if (length < 1 || !hm_is_name(name + 1, (size_t)length, true))
        return HUSHMOTE_REFUSED;
    wrong = take_texts(e, hm_take(fields, HM_F_GROUPS), MAX_GROUP, &count);
    if (wrong)
        return wrong;
    if (count > MAX_GROUPS || find_label(e->room.bytes + e->room_end, count, other, sizeof other - 1) < count)
        return HUSHMOTE_REFUSED;
    if (every && *every == '[')
        element = hm_json_list(every);
    for (uint32_t i = 0; i <= count; i++) {
        numbers[i] = every ? hm_json_number(element, 1, HM_MAX_CODES) : 1;
        if (numbers[i] == HM_NONE)
            return HUSHMOTE_REFUSED;
        if (element != every)
            element = hm_json_next(element);
    }
    if (element != every && element) /* too many numbers */
        return HUSHMOTE_REFUSED;
    if (!hm_keep(e, numbers, (count + 1) * sizeof *numbers))
        return HUSHMOTE_REFUSED_ROOM;
    e->group = hm_find_group(policy, name + 1, (size_t)length);
    e->group_count = (uint8_t)count;
    e->group_at = e->room_end;
    e->every = numbers[count];
    return 0;
}

uint8_t hm_group_index(const struct hushmote_experiment *e, const char *value) {
    const uint8_t *every = e->room.bytes + e->group_at;
    if (e->group_count == 0)
        return 0;
    if (value == NULL)
        value = e->group->value;
    if (value == NULL)
        return e->group_count;
    return (uint8_t)find_label(every + 1 + *every, e->group_count, value, strlen(value));
}

uint32_t hm_every(const struct hushmote_experiment *e, uint8_t group_index) {
    uint32_t every;
    if (e->group_count == 0)
        return e->every;
    memcpy(&every, e->room.bytes + e->group_at + 1 + group_index * sizeof every, sizeof every);
    return every;
}

/* --- All fields ------------------------------------------------------------------------------------------------ */

static int take_fields(const struct hushmote_policy *policy, struct hushmote_experiment *e, struct hm_object *fields) {
    int wrong;
    if (hm_take_number(fields, HM_F_V, 1, 1) == HM_NONE)
        return HUSHMOTE_REFUSED;
    wrong = take_type(e, fields);
    if (wrong)
        return wrong;
    e->epsilon = hm_take_number(fields, HM_F_EPSILON, HUSHMOTE_EPSILON_MIN, HUSHMOTE_EPSILON_MAX);
    if (e->epsilon == HM_NONE)
        return HUSHMOTE_REFUSED;
    wrong = take_mechanism(e, fields);
    if (wrong)
        return wrong;
    e->code_bytes = (uint8_t)(1 + (e->code_count > 1u << 8) + (e->code_count > 1u << 16));
    e->every = 1;
    if (fields->at[HM_F_GROUP])
        wrong = take_group(policy, e, fields);
    else if (fields->at[HM_F_EVERY])
        e->every = hm_take_number(fields, HM_F_EVERY, 1, HM_MAX_CODES);
    if (wrong)
        return wrong;
    if (e->every == HM_NONE || take_word(fields, HM_F_WINDOW, "hour day all", HUSHMOTE_REFUSED) < 0 ||
        take_budget(e, hm_take(fields, HM_F_BUDGET)))
        return HUSHMOTE_REFUSED;
    return hm_nothing_left(fields);
}

int hm_parse(const struct hushmote_config *config, const uint8_t *json, size_t bytes, struct hushmote_experiment *e,
             unsigned *at) {
    const struct hushmote_policy *policy = config->policy;
    struct hushmote_piece piece = {json, bytes};
    struct hm_object fields;
    const uint8_t *name;
    int length;
    memset(e, 0, sizeof *e);
    e->room_end = HUSHMOTE_ROOM_BYTES;
    *at = policy->name_count;
    if (!hm_json_check(json, bytes))
        return HUSHMOTE_REFUSED;
    hm_json_object(&fields, json);
    name = hm_take(&fields, HM_F_NAME);
    length = hm_json_length(name);
    if (length < 0)
        return HUSHMOTE_REFUSED;
    *at = hm_find(policy, name + 1, (size_t)length);
    if (*at == policy->name_count)
        return HUSHMOTE_REFUSED_POLICY;
    hm_sha256(config, &piece, 1, e->sha256);
    return take_fields(policy, e, &fields);
}

/* --- From a reading to an index ------------------------------------------------------------------------------ */

/* Return floor(above * domain / range) for above < range <= 2^41. The product has up to 65 bits, so the bits of domain
   are processed one by one, and any excess over the range is carried into the quotient immediately. */
static uint32_t bin(uint64_t above, uint32_t domain, uint64_t range) {
    uint64_t remainder = 0;
    uint32_t quotient = 0;
    for (unsigned step = 50; step-- > 0;) {
        uint64_t less, below;
        if (step & 1) {
            remainder += remainder;
            quotient += quotient;
        } else if (domain >> step / 2 & 1) {
            remainder += above;
        }
        less = remainder - range;
        below = less >> 63;
        remainder = less + (range & (0u - below));
        quotient += 1u - (uint32_t)below;
    }
    return quotient;
}

static uint32_t bucket_milli(const struct hushmote_experiment *e, const struct hm_part *part, int64_t milli) {
    uint32_t bins = part->domain - part->missing;
    if (milli >= part->high)
        return bins - 1;
#if HUSHMOTE_WITH_SCALE
    if (part->words)
        return milli < part->low ? 0 : hm_bucket_scale(e, part, (uint64_t)milli);
#else
    (void)e;
#endif
    return milli < part->low ? 0 : bin((uint64_t)(milli - part->low), bins, (uint64_t)(part->high - part->low));
}

int hm_bucket_part(const struct hushmote_experiment *e, const struct hm_part *part,
                   const struct hushmote_reading *reading, uint32_t *at) {
    int64_t number = reading->number;
    uint8_t kind = reading->kind;
    if (part->type == HM_CHOICE) {
        if (kind != HUSHMOTE_IS_TEXT)
            return HUSHMOTE_WRONG_TYPE;
        *at = find_label(e->room.bytes + part->words, part->domain - part->missing - 1, reading->data, reading->count);
        return 0;
    }
    if (kind != HUSHMOTE_IS_WHOLE && kind != (part->type == HM_BOOL ? HUSHMOTE_IS_FLAG : HUSHMOTE_IS_MILLI))
        return HUSHMOTE_WRONG_TYPE;
    if (((uint64_t)number + 2 * MAX_MILLI) >> 42) /* outside every range, in whole units or thousandths */
        number = number < 0 ? -2 * MAX_MILLI : 2 * MAX_MILLI;
    if (kind == HUSHMOTE_IS_WHOLE)
        number *= 1000;
    *at = part->type == HM_BOOL ? number != 0 : bucket_milli(e, part, number);
    return 0;
}

int hm_bucket(const struct hushmote_config *config, const struct hushmote_experiment *e,
              const struct hushmote_reading *reading, struct hm_index *index) {
    (void)config; /* used only to hash texts */
    memset(index, 0, sizeof *index);
    if (reading->kind == HUSHMOTE_IS_NONE) {
        index->at = e->domain - 1; /* the last index of every part */
        for (unsigned i = 0; i < e->part_count; i++)
            index->missing |= !hm_part(e, i)->missing;
        return 0;
    }
#if HUSHMOTE_WITH_TEXT
    if (e->type == HM_TEXT)
        return hm_bucket_text(config, e, reading, index);
#endif
#if HUSHMOTE_WITH_PAIRS
    if (e->type == HM_PAIR)
        return hm_bucket_pair(e, reading, index);
#endif
    return hm_bucket_part(e, hm_part(e, 0), reading, &index->at);
}

/* --- From an index to a code --------------------------------------------------------------------------------- */

uint32_t hm_randomize(const struct hushmote_experiment *e, struct hm_index *index, struct hushmote_random *random) {
    const struct hm_level *level;
    if (index->missing && e->domain <= HM_MAX_CODES)
        index->at = hm_below(random, e->domain);
    switch (e->mechanism) {
#if HUSHMOTE_WITH_PGR
    case HM_PGR:
        return hm_randomize_points(hm_level(e, 0), index->at, random);
#endif
#if HUSHMOTE_WITH_SW
    case HM_SW:
        return hm_randomize_sw(hm_level(e, 0), index->at, random);
#endif
#if HUSHMOTE_WITH_PREFIX
    case HM_PREFIX:
        return hm_randomize_prefix(e, index, random);
#endif
#if HUSHMOTE_WITH_PAIRS
    case HM_VIEWS:
        return hm_randomize_views(e, index->at, random);
#endif
    default:
        level = hm_pick(e, random);
        return hm_respond(level, hm_divide(index->at, level->width, NULL), random);
    }
}
