/* The question that an opt-in covers if the policy asks about each one: a digest of the experiment, and its epsilon.

   The digest covers the experiment's JSON, with sorted names, without spaces, and without fields that do not affect the
   question. Firmware that does not ask about each question does not link this file. */
#include <string.h>

#include "core.h"

#define MAX_DEPTH 8 /* no experiment's fields are nested deeper than 4 */
#define NO_QUESTION "v epsilon every budget window g q reach fanout cells weights groups"

struct text {
    uint8_t *at, *end;
    bool good; /* false if the text does not fit, or a value is not allowed in an experiment */
};

struct frame { /* a list or an object that is being written */
    const uint8_t *start, *at; /* at: the last element or name that was written, NULL before the first */
};

static void append(struct text *text, const void *data, size_t bytes) {
    text->good = text->good && (size_t)(text->end - text->at) >= bytes;
    if (text->good) {
        memcpy(text->at, data, bytes);
        text->at += bytes;
    }
}

/* Return the position after any spaces and occurrences of a byte. */
static const uint8_t *skip(const uint8_t *p, uint8_t byte) {
    while (*p == ' ' || *p == byte)
        p++;
    return p;
}

static const uint8_t *value_of(const uint8_t *name) {
    return skip(name + hm_json_length(name) + 2, ':');
}

static int compare(const uint8_t *a, const uint8_t *b) {
    int length = hm_json_length(a), other_length = hm_json_length(b);
    int order = memcmp(a + 1, b + 1, (size_t)(length < other_length ? length : other_length));
    return order != 0 ? order : length - other_length;
}

/* Return the object's next name after `previous` (NULL for the first) in sorted order, or NULL if there is none. Of
   equal names, return the last one, whose value takes effect. top: the object is the experiment. */
static const uint8_t *next_name(const uint8_t *object, const uint8_t *previous, bool top) {
    const uint8_t *best = NULL, *name = skip(object + 1, ' ');
    for (; name != NULL && *name != '}'; name = hm_json_next(value_of(name))) {
        if ((previous == NULL || compare(name, previous) > 0) && (best == NULL || compare(name, best) <= 0) &&
            !(top && hm_json_word(name, NO_QUESTION) >= 0))
            best = name;
    }
    return best;
}

/* Append a text or an integer. */
static void append_scalar(struct text *text, const uint8_t *value) {
    int length = hm_json_length(value);
    int64_t number;
    if (length >= 0) {
        append(text, value, (size_t)length + 2);
    } else if (!hm_json_integer(value, &number)) {
        text->good = false;
    } else if (number == 0) { /* including -0 */
        append(text, "0", 1);
    } else {
        for (length = 1; value[length] >= '0' && value[length] <= '9';)
            length++;
        append(text, value, (size_t)length);
    }
}

/* Advance to the next value of a list or an object and append the text that precedes it. Return NULL after the last. */
static const uint8_t *next_value(struct text *text, struct frame *frame, bool top) {
    bool first = frame->at == NULL, is_list = *frame->start == '[';
    if (!is_list)
        frame->at = next_name(frame->start, frame->at, top);
    else
        frame->at = first ? hm_json_list(frame->start) : hm_json_next(frame->at);
    if (frame->at == NULL)
        return NULL;
    if (!first)
        append(text, ",", 1);
    if (is_list)
        return frame->at;
    append_scalar(text, frame->at);
    append(text, ":", 1);
    return value_of(frame->at);
}

static void write_canonical(struct text *text, const uint8_t *object) {
    struct frame frames[MAX_DEPTH];
    unsigned depth = 0;
    const uint8_t *value = object;
    while (value != NULL && text->good) {
        bool opens = *value == '{' || *value == '[';
        if (!opens) {
            append_scalar(text, value);
        } else if (depth < MAX_DEPTH) {
            append(text, value, 1);
            frames[depth].start = value;
            frames[depth++].at = NULL;
        } else {
            text->good = false;
        }
        for (value = NULL; value == NULL && depth > 0;) {
            value = next_value(text, frames + depth - 1, depth == 1);
            if (value == NULL)
                append(text, *frames[--depth].start == '[' ? "]" : "}", 1);
        }
    }
}

int hm_question(const struct hushmote_config *config, const uint8_t *json, size_t bytes, uint8_t question[HM_QUESTION_BYTES]) {
    uint8_t canonical[HUSHMOTE_EXPERIMENT_BYTES], digest[32];
    struct text text = {canonical, canonical + sizeof canonical, true};
    struct hushmote_piece piece;
    struct hm_object fields;
    uint32_t epsilon;
    if (!hm_json_check(json, bytes))
        return HUSHMOTE_REFUSED;
    hm_json_object(&fields, json);
    epsilon = hm_take_number(&fields, HM_F_EPSILON, 0, UINT32_MAX - 1);
    if (epsilon == HM_NONE)
        return HUSHMOTE_REFUSED;
    write_canonical(&text, fields.json);
    if (!text.good)
        return HUSHMOTE_REFUSED;
    piece.data = canonical;
    piece.bytes = (size_t)(text.at - canonical);
    hm_sha256(config, &piece, 1, digest);
    memcpy(question, digest, HM_QUESTION_BYTES - 4);
    hm_put(question + HM_QUESTION_BYTES - 4, 4, epsilon);
    return HUSHMOTE_OK;
}
