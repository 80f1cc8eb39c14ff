/* The question to which an opt-in applies, if the policy asks about each one: a digest of an experiment, and its epsilon.

   The digest is of the experiment's JSON without the fields that do not change the question, with sorted names and
   without spaces. Firmware that does not ask about each question does not link this file. */
#include <string.h>

#include "core.h"

#define MAX_DEPTH 8 /* no experiment's fields are nested deeper than 4 */
#define NO_QUESTION "v epsilon every budget window g q reach fanout cells weights"

struct text {
    uint8_t *at, *end;
    bool good; /* false: it has no room, or a value that no experiment has */
};

struct frame { /* of a list or an object that is being written */
    const uint8_t *whole, *at; /* its start; the element or the name that was written last, NULL before the first */
};

static void append(struct text *text, const void *data, size_t bytes) {
    text->good = text->good && (size_t)(text->end - text->at) >= bytes;
    if (text->good) {
        memcpy(text->at, data, bytes);
        text->at += bytes;
    }
}

/* Behind spaces, and a byte among them. */
static const uint8_t *skip(const uint8_t *p, uint8_t byte) {
    while (*p == ' ' || *p == byte)
        p++;
    return p;
}

static const uint8_t *value_of(const uint8_t *name) {
    return skip(name + hm_json_length(name) + 2, ':');
}

static int compare(const uint8_t *a, const uint8_t *b) {
    int length = hm_json_length(a), other = hm_json_length(b);
    int order = memcmp(a + 1, b + 1, (size_t)(length < other ? length : other));
    return order != 0 ? order : length - other;
}

/* The least name of an object behind another, NULL for the first; of equal ones the last, whose value counts. NULL: there
   is none. top: the object is the experiment. */
static const uint8_t *next_name(const uint8_t *object, const uint8_t *behind, bool top) {
    const uint8_t *least = NULL, *name = skip(object + 1, ' ');
    for (; name != NULL && *name != '}'; name = hm_json_next(value_of(name))) {
        if ((behind == NULL || compare(name, behind) > 0) && (least == NULL || compare(name, least) <= 0) &&
            !(top && hm_json_word(name, NO_QUESTION) >= 0))
            least = name;
    }
    return least;
}

/* A text or an integer. */
static void append_scalar(struct text *text, const uint8_t *value) {
    int length = hm_json_length(value);
    int64_t number;
    if (length >= 0) {
        append(text, value, (size_t)length + 2);
    } else if (!hm_json_integer(value, &number)) {
        text->good = false;
    } else if (number == 0) { /* also -0 */
        append(text, "0", 1);
    } else {
        for (length = 1; value[length] >= '0' && value[length] <= '9';)
            length++;
        append(text, value, (size_t)length);
    }
}

/* Go to the next value of a list or an object and write the text before it; NULL after the last. */
static const uint8_t *next_value(struct text *text, struct frame *frame, bool top) {
    bool first = frame->at == NULL, is_list = *frame->whole == '[';
    if (!is_list)
        frame->at = next_name(frame->whole, frame->at, top);
    else
        frame->at = first ? hm_json_list(frame->whole) : hm_json_next(frame->at);
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
            frames[depth].whole = value;
            frames[depth++].at = NULL;
        } else {
            text->good = false;
        }
        for (value = NULL; value == NULL && depth > 0;) {
            value = next_value(text, frames + depth - 1, depth == 1);
            if (value == NULL)
                append(text, *frames[--depth].whole == '[' ? "]" : "}", 1);
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
