/* A strict JSON reader for experiments. It checks the grammar once, and then finds fields by their positions.

   The bytes must be UTF-8 without backslashes, so that a string is everything between its quotes. The reader
   is not recursive: it keeps the closing bracket of each open list or object. Unlike Python's reader, it refuses NaN
   and Infinity, even in a value that is overridden by a later field with the same name. */
#include "core.h"

#include <string.h>

#define MAX_DEPTH (HUSHMOTE_EXPERIMENT_BYTES / 2) /* deeper nesting could not be closed within the limit */

static const uint8_t *skip_spaces(const uint8_t *p) {
    while (*p == ' ')
        p++;
    return p;
}

static bool is_digit(uint8_t byte) {
    return byte >= '0' && byte <= '9';
}

int hm_json_length(const uint8_t *value) {
    int length = 0;
    if (!value || *value != '"')
        return -1;
    while (value[1 + length] != '"')
        length++;
    return length;
}

/* Return the index of a text among space-separated words; -1 if it is not one of them. */
static int word(const uint8_t *text, int length, const char *words) {
    for (int i = 0; *words; i++) {
        int letters = 0;
        while (words[letters] && words[letters] != ' ')
            letters++;
        if (letters == length && memcmp(text, words, (size_t)length) == 0)
            return i;
        words += letters + (words[letters] == ' ');
    }
    return -1;
}

/* --- The grammar --------------------------------------------------------------------------------------------- */

/* Return whether a code point may occur: not a backslash, a control character, a line separator, a bidirectional
   control, a byte-order mark, U+FFFD (which replaces unreadable bytes), or half of a surrogate pair. */
static bool is_plain(uint32_t point) {
    return point >= 0x20 && point != '\\' && (point < 0x7F || point > 0x9F) && point != 0x61C && point != 0x200E &&
           point != 0x200F && (point < 0x2028 || point > 0x202E) && (point < 0x2066 || point > 0x2069) &&
           (point < 0xD800 || point > 0xDFFF) && point != 0xFEFF && point != 0xFFFD &&
           point <= 0x10FFFF;
}

/* Return the position after a character of strict UTF-8 that may occur, or NULL if there is none. */
static const uint8_t *after_character(const uint8_t *p, const uint8_t *end) {
    static const uint32_t lowest[] = {0, 0x80, 0x800, 0x10000};
    unsigned more = (unsigned)(*p > 0xBF) + (*p > 0xDF) + (*p > 0xEF);
    uint32_t point = *p & (more == 0 ? 0xFFu : more == 1 ? 0x1Fu : 0x0Fu), low = lowest[more];
    if ((*p & 0xC0) == 0x80 || more >= (size_t)(end - p))
        return NULL;
    for (p++; more > 0; more--, p++) {
        if ((*p & 0xC0) != 0x80)
            return NULL;
        point = point << 6 | (*p & 0x3Fu);
    }
    return point >= low && is_plain(point) ? p : NULL;
}

/* Return whether the bytes may occur, start and end with a brace, and contain an even number of quotes. Then every
   string is terminated and scanning stops at the last brace, so that only code that steps over that brace must check
   its position. */
static bool is_framed(const uint8_t *json, const uint8_t *end) {
    bool odd = false;
    if (end <= json || *json != '{' || end[-1] != '}')
        return false;
    while (json != NULL && json < end) {
        odd ^= *json == '"';
        json = after_character(json, end);
    }
    return json != NULL && !odd;
}

/* Return the position after a run of digits, or NULL if there is none. */
static const uint8_t *after_digits(const uint8_t *p) {
    if (!is_digit(*p))
        return NULL;
    while (is_digit(*p))
        p++;
    return p;
}

/* Return the position after a JSON value other than a list or an object, or NULL if there is none. Values of any kind
   are allowed, because a later field with the same name may override them. */
static const uint8_t *after_scalar(const uint8_t *p) {
    int length = 0;
    if (*p == '"')
        return p + hm_json_length(p) + 2;
    while (p[length] >= 'a' && p[length] <= 'z')
        length++;
    if (length > 0)
        return word(p, length, "true false null") < 0 ? NULL : p + length;
    p += *p == '-';
    p = *p == '0' ? p + 1 : after_digits(p);
    if (p && *p == '.')
        p = after_digits(p + 1);
    if (p && (*p == 'e' || *p == 'E')) {
        p++;
        p = after_digits(p + (*p == '+' || *p == '-'));
    }
    return p;
}

/* Return the position after a name, its colon and spaces; NULL if there is none. */
static const uint8_t *after_key(const uint8_t *p) {
    int length = hm_json_length(p);
    if (length < 0)
        return NULL;
    p = skip_spaces(p + length + 2);
    return *p == ':' ? skip_spaces(p + 1) : NULL;
}

/* Return the position after a value, or NULL if it is malformed. end: the frame's end; NULL for checked JSON. */
static const uint8_t *after_value(const uint8_t *p, const uint8_t *end) {
    uint8_t closing[MAX_DEPTH]; /* the closing bracket of each open list or object */
    unsigned depth = 0;
    while (p) {
        bool opens = *p == '{' || *p == '[';
        if (opens && depth < MAX_DEPTH)
            closing[depth++] = (uint8_t)(*p++ + 2);
        else
            p = opens ? NULL : after_scalar(p);
        if (!p || depth == 0)
            return p;
        p = skip_spaces(p);
        if (!opens || *p == closing[depth - 1]) { /* a value has ended, and perhaps its list or object */
            for (; *p == closing[depth - 1]; p = skip_spaces(p)) {
                p++;
                if (--depth == 0)
                    return p;
                if (p == end)
                    return NULL;
            }
            if (*p++ != ',')
                return NULL;
            p = skip_spaces(p);
        }
        if (closing[depth - 1] == '}')
            p = after_key(p);
    }
    return NULL;
}

bool hm_json_check(const uint8_t *json, size_t bytes) {
    const uint8_t *end = json + bytes;
    if (bytes > HUSHMOTE_EXPERIMENT_BYTES)
        return false;
    while (json < end && *json == ' ')
        json++;
    while (json < end && end[-1] == ' ')
        end--;
    return is_framed(json, end) && after_value(json, end) == end;
}

/* --- Reading checked JSON, in which every value is terminated ------------------------------------------------ */

const uint8_t *hm_json_next(const uint8_t *element) {
    const uint8_t *end = after_value(element, NULL);
    if (!end)
        return NULL;
    end = skip_spaces(end);
    return *end == ',' ? skip_spaces(end + 1) : NULL;
}

const uint8_t *hm_json_list(const uint8_t *value) {
    if (!value || *value != '[')
        return NULL;
    value = skip_spaces(value + 1);
    return *value == ']' ? NULL : value;
}

int hm_json_word(const uint8_t *value, const char *words) {
    int length = hm_json_length(value);
    return length < 0 ? -1 : word(value + 1, length, words);
}

bool hm_json_integer(const uint8_t *value, int64_t *number) {
    bool minus;
    int64_t x = 0;
    if (!value)
        return false;
    minus = *value == '-';
    value += minus;
    if (!is_digit(*value))
        return false;
    for (int digits = 0; is_digit(*value); value++)
        if (digits++ < 18) /* 18 digits already exceed every bound */
            x = 10 * x + (*value - '0');
    *number = minus ? -x : x;
    return *value != '.' && *value != 'e' && *value != 'E';
}

uint32_t hm_json_number(const uint8_t *value, uint32_t low, uint32_t high) {
    int64_t x;
    return hm_json_integer(value, &x) && (uint64_t)x <= high && (uint32_t)x >= low ? (uint32_t)x : HM_NONE;
}

uint32_t hm_json_each(const uint8_t **element, uint32_t low, uint32_t high) {
    uint32_t number = hm_json_number(*element, low, high);
    if (number != HM_NONE)
        *element = hm_json_next(*element);
    return number;
}

/* --- Fields -------------------------------------------------------------------------------------------------- */

void hm_json_object(struct hm_object *object, const uint8_t *value) {
    const uint8_t *key, *field_value;
    memset(object, 0, sizeof *object);
    value = value ? skip_spaces(value) : NULL;
    object->json = value;
    if (!value || *value != '{')
        return;
    for (key = skip_spaces(value + 1); key && *key != '}'; key = hm_json_next(field_value)) {
        int field = 1 + hm_json_word(key, "v name type labels low high bins scale missing salt slots prefixes of mechanism g q "
                                          "reach views fanout cells weights epsilon every budget window rule cap "
                                          "group groups");
        field_value = after_key(key);
        object->at[field] = (uint16_t)(field_value - value); /* the last field with a name overrides the others */
    }
}

const uint8_t *hm_take(struct hm_object *object, enum hm_field field) {
    uint16_t at = object->at[field];
    object->at[field] = 0;
    return at ? object->json + at : NULL;
}

uint32_t hm_take_number(struct hm_object *object, enum hm_field field, uint32_t low, uint32_t high) {
    return hm_json_number(hm_take(object, field), low, high);
}

int hm_nothing_left(const struct hm_object *object) {
    for (unsigned i = 0; i < HM_FIELDS; i++)
        if (object->at[i])
            return HUSHMOTE_REFUSED;
    return 0;
}
