/* What a board would send, and what it has sent, in words. Spends nothing.

   The words are device/preview.py's, and tests/clients/test_previews.py compares both. To translate them, replace `words`. */
#include <string.h>

#include "core.h"
#include "hushmote_preview.h"

#define FIRST_TIME 1735689600u /* 2025; a clock that shows an earlier time is not set */

enum { CODES, BYTES, TRUE_CODES, ODDS, TIMES, EVERY, EPSILON, LEFT, CODE, NUMBERS };
static const uint8_t decimals[NUMBERS] = {0, 0, 0, 1, 1, 0, 3, 0, 0};

enum { ABSENT, SIZE, DRAWN, ONE_CODE, MANY_CODES, RATIO, UNPROTECTED, SELECTED, COST, COST_OF_LAST, SILENT, MADE, MADE_LAST,
       ENDED };

/* $A to $I: a number, in the order above; $n: the experiment; $r: the reading; $g and $v: the group and its value. */
static const char *const words[] = {
    "$n: there is no such experiment yet.",
    "$n: one of $A codes, in $B bytes.",
    "No reading: a uniformly drawn value takes its place.",
    "One code stands for $r. It is sent with odds $D to 1.",
    "$C codes stand for $r. One of these is sent with odds $D to 1.",
    "No code is more than $E times as likely at one reading as at another.",
    "Unprotected, everyone can see $g $v in the report.",
    "One reading in $F is reported, chosen before anything looks at it.",
    "A report costs epsilon $G; $H more reports left.",
    "A report costs epsilon $G; 1 more report left.",
    "Nothing is sent: nobody at this board has opted in.",
    "$n: code $I of $A, $B bytes, epsilon $G; $H more reports left",
    "$n: code $I of $A, $B bytes, epsilon $G; 1 more report left",
    "a question that is no longer asked: $B bytes",
};
static const char no_reading[] = "no reading", yes[] = "yes", no[] = "no", other[] = "other";

struct facts {
    const char *name;
    const struct hushmote_reading *reading;
    const struct hushmote_experiment *experiment;
    uint32_t numbers[NUMBERS];
    uint8_t group_index;
};

/* --- Writing --------------------------------------------------------------------------------------------------- */

struct out { /* either a buffer or a function */
    char *at;
    size_t left;
    void (*write)(void *context, const char *text, size_t bytes);
    void *context;
};

static void put_bytes(struct out *out, const void *text, size_t bytes) {
    if (out->write != NULL) {
        out->write(out->context, text, bytes);
        return;
    }
    bytes = bytes < out->left ? bytes : out->left;
    if (out->at == NULL)
        return;
    memcpy(out->at, text, bytes);
    out->at += bytes;
    out->left -= bytes;
}

static void put(struct out *out, const char *text) {
    put_bytes(out, text, strlen(text));
}

/* Write number / 10^places, without trailing zeros after the point. */
static void put_number(struct out *out, uint64_t number, unsigned places) {
    char digits[24];
    unsigned at = sizeof digits;
    bool has_digit = false; /* after the point */
    for (; places > 0; places--, number /= 10) {
        unsigned digit = (unsigned)(number % 10);
        has_digit |= digit > 0;
        if (has_digit)
            digits[--at] = (char)('0' + digit);
    }
    if (has_digit)
        digits[--at] = '.';
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number > 0);
    put_bytes(out, digits + at, sizeof digits - at);
}

static void put_reading(struct out *out, const struct hushmote_reading *reading) {
    uint64_t number = (uint64_t)reading->number;
    if (reading->kind == HUSHMOTE_IS_TEXT) {
        put_bytes(out, reading->data, reading->count);
    } else if (reading->kind == HUSHMOTE_IS_PARTS) {
        for (size_t i = 0; i < reading->count; i++) {
            put(out, i > 0 ? ", " : "");
            put_reading(out, (const struct hushmote_reading *)reading->data + i); /* NOLINT: parts have no parts */
        }
    } else if (reading->kind == HUSHMOTE_IS_WHOLE || reading->kind == HUSHMOTE_IS_MILLI) {
        put(out, reading->number < 0 ? "-" : "");
        put_number(out, reading->number < 0 ? 0 - number : number, reading->kind == HUSHMOTE_IS_MILLI ? 3 : 0);
    } else {
        put(out, reading->kind == HUSHMOTE_IS_NONE ? no_reading : reading->number ? yes : no);
    }
}

static void put_group_value(struct out *out, const struct hushmote_experiment *e, uint8_t index) {
    const uint8_t *every = e->room.bytes + e->group_at, *value = every + 1 + *every;
    if (index == e->group_count) {
        put(out, other);
        return;
    }
    for (unsigned i = e->group_count - 1u; i > index; i--) /* the last value is first */
        value += 1 + *value;
    put_bytes(out, value + 1, *value);
}

static void put_words(struct out *out, unsigned line, const struct facts *facts) {
    const char *at = words[line];
    for (; *at != 0; at++) {
        if (*at != '$')
            put_bytes(out, at, 1);
        else if (*++at == 'n')
            put(out, facts->name);
        else if (*at == 'r')
            put_reading(out, facts->reading);
        else if (*at == 'g')
            put(out, facts->experiment->group->name);
        else if (*at == 'v')
            put_group_value(out, facts->experiment, facts->group_index);
        else
            put_number(out, facts->numbers[*at - 'A'], decimals[*at - 'A']);
    }
}

static void put_line(struct out *out, unsigned line, const struct facts *facts) {
    put(out, line == ABSENT || line == SIZE ? "" : "\n");
    put_words(out, line, facts);
}

/* --- Facts ----------------------------------------------------------------------------------------------------- */

static void find_cost(struct facts *facts, const struct hushmote_line *line) {
    facts->numbers[EPSILON] = line->epsilon / 1000;
    facts->numbers[LEFT] = line->left;
    facts->numbers[CODES] = facts->experiment->code_count;
}

/* Each of a level's seeds has one code that stands for the reading. Such a code is sent with the level's probability. */
static void find_odds(struct facts *facts) {
    const struct hushmote_experiment *e = facts->experiment;
    uint64_t truth = 0, weights = 0, odds;
    uint32_t count = 0, end = e->code_count;
    for (unsigned i = e->level_count; i-- > 0;) {
        const struct hm_level *level = hm_level(e, i);
        uint32_t weight = e->level_count > 1 ? level->weight : 1;
        uint32_t codes = end - level->offset;
        end = level->offset;
        if (weight > 0)
            count += e->mechanism == HM_PREFIX || e->mechanism == HM_PGR ? codes - level->width : codes / level->g;
        truth += (uint64_t)weight * level->threshold;
        weights += weight;
    }
    odds = 10 * truth / (weights * HM_ONE - truth);
    facts->numbers[ODDS] = odds < UINT32_MAX ? (uint32_t)odds : UINT32_MAX;
    facts->numbers[TRUE_CODES] = count;
}

static int describe_reading(struct hushmote *client, struct facts *facts, const struct hushmote_reading *reading,
                            const char *group, struct out *out) {
    const struct hushmote_experiment *e = facts->experiment;
    uint32_t *numbers = facts->numbers;
    struct hushmote_reading none = hushmote_none();
    struct hm_index index;
    unsigned parts_missing = 0;
    int code = hm_bucket(client->config, e, reading, &index);
    if (code != HUSHMOTE_OK)
        return code;
    facts->group_index = hm_group_index(e, group);
    facts->reading = reading;
    for (unsigned i = 0; i < e->part_count; i++)
        parts_missing += hm_part(e, i)->missing;
    if (parts_missing == e->part_count && index.at == e->domain - 1)
        facts->reading = &none;
    numbers[BYTES] = 9u + (e->group_count > 0) + e->code_bytes + (client->config->key == NULL ? 0 : 8);
    numbers[TIMES] = hm_tenths(e->epsilon);
    numbers[EVERY] = hm_every(e, facts->group_index);
    put_line(out, SIZE, facts);
    if (index.missing) {
        put_line(out, DRAWN, facts);
    } else if (e->mechanism != HM_SW) {
        find_odds(facts);
        put_line(out, numbers[TRUE_CODES] == 1 ? ONE_CODE : MANY_CODES, facts);
    }
    put_line(out, RATIO, facts);
    if (e->group_count > 0)
        put_line(out, UNPROTECTED, facts);
    if (numbers[EVERY] > 1)
        put_line(out, SELECTED, facts);
    put_line(out, numbers[LEFT] == 1 ? COST_OF_LAST : COST, facts);
    if (hushmote_consent(client) != HUSHMOTE_YES)
        put_line(out, SILENT, facts);
    return HUSHMOTE_OK;
}

int hushmote_preview(struct hushmote *client, const char *name, struct hushmote_reading reading, const char *group,
                     char *text, size_t bytes) {
    struct out out = {text, bytes - 1, NULL, NULL};
    struct facts facts;
    struct hushmote_line line;
    int code = hushmote_line(client, name, &line);
    if (code != HUSHMOTE_OK)
        return code;
    memset(&facts, 0, sizeof facts);
    facts.name = name;
    facts.experiment = client->config->experiments + hm_find(client->config->policy, name, strlen(name));
    if (line.enrolled) {
        find_cost(&facts, &line);
        code = describe_reading(client, &facts, &reading, group, &out);
    } else {
        put_line(&out, ABSENT, &facts);
    }
    *out.at = 0;
    return code;
}

static void put_report(struct out *out, struct hushmote *client, const uint8_t *report, size_t report_bytes) {
    struct facts facts;
    unsigned line = ENDED;
    memset(&facts, 0, sizeof facts);
    facts.numbers[BYTES] = (uint32_t)report_bytes;
    for (unsigned i = 0; i < client->config->policy->name_count; i++) {
        const struct hushmote_experiment *e = client->config->experiments + i;
        struct hushmote_line state;
        facts.name = client->config->policy->names[i];
        if (hushmote_line(client, facts.name, &state) != HUSHMOTE_OK || !state.enrolled ||
            memcmp(state.digest, report + 1, 4) != 0)
            continue;
        facts.experiment = e;
        find_cost(&facts, &state);
        facts.numbers[CODE] =
            (uint32_t)hm_get(report + report_bytes - 8 * (report[0] & 1u) - e->code_bytes, e->code_bytes);
        line = state.left == 1 ? MADE_LAST : MADE;
        break;
    }
    put_words(out, line, &facts);
}

void hushmote_describe(struct hushmote *client, const uint8_t *report, size_t report_bytes, char *text, size_t bytes) {
    struct out out = {text, bytes - 1, NULL, NULL};
    put_report(&out, client, report, report_bytes);
    *out.at = 0;
}

/* --- Last reports and export ----------------------------------------------------------------------------------- */

void hushmote_remember(struct hushmote_last *last, const uint8_t *report, int bytes, uint32_t at) {
    if (bytes <= 0)
        return;
    if (last->count == HUSHMOTE_LAST)
        memmove(last->reports, last->reports + 1, sizeof last->reports - sizeof *last->reports);
    else
        last->count++;
    last->reports[last->count - 1].at = at;
    last->reports[last->count - 1].bytes = (uint8_t)bytes;
    memcpy(last->reports[last->count - 1].report, report, (size_t)bytes);
}

static void put_two_digits(struct out *out, unsigned number, const char *end) {
    char digits[2];
    digits[0] = (char)('0' + number / 10);
    digits[1] = (char)('0' + number % 10);
    put_bytes(out, digits, 2);
    put(out, end);
}

/* Write a time as 2026-11-29 16:05 and a space, in UTC; nothing if the clock was not set. */
static void put_time(struct out *out, uint32_t at) {
    static const uint8_t lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    unsigned days = at / 86400, minutes = at % 86400 / 60, year = 1970, month = 0;
    if (at < FIRST_TIME)
        return;
    for (; days >= 365u + (year % 4 == 0); year++) /* right until 2100 */
        days -= 365u + (year % 4 == 0);
    for (; days >= lengths[month] + (unsigned)(month == 1 && year % 4 == 0); month++)
        days -= lengths[month] + (unsigned)(month == 1 && year % 4 == 0);
    put_number(out, year, 0);
    put(out, "-");
    put_two_digits(out, month + 1, "-");
    put_two_digits(out, days + 1, " ");
    put_two_digits(out, minutes / 60, ":");
    put_two_digits(out, minutes % 60, " ");
}

static void put_field(struct out *out, const char *name, uint64_t number) {
    put(out, name);
    put_number(out, number, 0);
}

int hushmote_export(struct hushmote *client, const struct hushmote_last *last,
                    void (*write)(void *context, const char *text, size_t bytes), void *context) {
    static const char *const answers[] = {"null", "false", "true"};
    struct out out = {NULL, 0, write, context};
    struct hushmote_status status;
    const struct hushmote_policy *policy;
    if (hushmote_status(client, &status) != HUSHMOTE_OK || client->config == NULL)
        return HUSHMOTE_BUSY;
    policy = client->config->policy;
    put(&out, "{\"v\": 1, \"device\": \"");
    put(&out, client->config->device_id);
    put(&out, "\", \"consent\": ");
    put(&out, answers[status.consent]);
    put(&out, ", \"locked\": ");
    put(&out, answers[1 + (status.locked != HUSHMOTE_OK)]);
    put_field(&out, ", \"sum\": ", status.sum);
    put_field(&out, ", \"squares\": ", status.squares);
    put(&out, ", \"experiments\": {");
    for (unsigned i = 0; i < policy->name_count; i++) {
        struct hushmote_line line;
        (void)hushmote_line(client, policy->names[i], &line);
        put(&out, i > 0 ? ", \"" : "\"");
        put(&out, policy->names[i]);
        put_field(&out, "\": {\"epsilon\": ", line.epsilon);
        put_field(&out, ", \"reports\": ", line.reports);
        put_field(&out, ", \"left\": ", line.left);
        put(&out, "}");
    }
    put(&out, "}, \"last\": [");
    for (unsigned i = 0; i < last->count; i++) {
        put(&out, i > 0 ? ", \"" : "\"");
        put_time(&out, last->reports[i].at);
        put_report(&out, client, last->reports[i].report, last->reports[i].bytes);
        put(&out, "\"");
    }
    put(&out, "]}\n");
    return HUSHMOTE_OK;
}
