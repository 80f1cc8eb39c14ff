/* What a board would send, and what it has sent, in words. Spends nothing.

   The words are device/preview.py's, and tests/clients/test_previews.py compares both. To translate them, replace `words`. */
#include <string.h>

#include "core.h"
#include "hushmote_preview.h"

#define FIRST_TIME 1735689600u /* 2025; a clock that shows an earlier time is not set */

enum { CODES, BYTES, TRUE_CODES, CHANCE, TIMES, EVERY, EPSILON, LEFT, CODE, NUMBERS };
static const uint8_t decimals[NUMBERS] = {0, 0, 0, 1, 1, 0, 3, 0, 0};

enum { ABSENT, SIZE, DRAWN, ONE_CODE, MANY_CODES, RATIO, UNPROTECTED, SELECTED, COST, COST_OF_LAST,
#if HUSHMOTE_WITH_LOG
       ALIKE,
#endif
       SILENT, MADE, MADE_LAST, MADE_BEFORE, ENDED };

/* $A to $I: a number, in the order above; $n: the experiment; $r: the reading; $g and $v: the group and its value; $w: the
   log's witnesses. A line that follows others begins with \n. */
static const char *const words[] = {
    "$n: there is no such experiment yet.",
    "$n: one of $A codes, in $B bytes.",
    "\nNo reading: a uniformly drawn value takes its place.",
    "\nOne code stands for $r. It is sent in $D% of reports.",
    "\n$C codes stand for $r. One of these is sent in $D% of reports.",
    "\nNo code is more than $E times as likely at one reading as at another.",
    "\nUnprotected, everyone can see $g $v in the report.",
    "\nOne reading in $F is reported, chosen before anything looks at it.",
    "\nA report costs epsilon $G; $H more reports left.",
    "\nA report costs epsilon $G; 1 more report left.",
#if HUSHMOTE_WITH_LOG
    "\nAsked of every device alike, checked by $w.",
#endif
    "\nNothing is sent: nobody at this board has opted in.",
    "$n: code $I of $A, $B bytes, epsilon $G; $H more reports left",
    "$n: code $I of $A, $B bytes, epsilon $G; 1 more report left",
    "$n: code $I of $A, $B bytes, epsilon $G",
    "a question that is no longer asked: $B bytes",
};
static const char no_reading[] = "no reading", yes[] = "yes", no[] = "no", other[] = "other";

struct facts {
    void (*write)(void *context, const char *text, size_t bytes);
    void *context;
    const char *name;
    const struct hushmote_reading *reading;
    const struct hushmote_experiment *experiment;
#if HUSHMOTE_WITH_LOG
    const struct hushmote_log *log; /* the policy's; NULL without one */
#endif
    uint32_t numbers[NUMBERS];
    uint8_t group_index;
};

/* --- Writing --------------------------------------------------------------------------------------------------- */

struct room { /* for a text that ends with a zero */
    char *at;
    size_t left; /* including the zero */
};

static void fill(void *context, const char *text, size_t bytes) {
    struct room *room = context;
    for (; bytes > 0 && room->left > 1; bytes--, room->left--)
        *room->at++ = *text++;
    if (room->left > 0)
        *room->at = 0;
}

static void put_bytes(const struct facts *facts, const void *text, size_t bytes) {
    facts->write(facts->context, text, bytes);
}

static void put(const struct facts *facts, const char *text) {
    put_bytes(facts, text, strlen(text));
}

/* Write number / 10^places, without trailing zeros after the point. */
static void put_number(const struct facts *facts, uint64_t number, unsigned places) {
    char digits[24], *at = digits + sizeof digits;
    bool has_digit = places == 0; /* that must be shown */
    for (unsigned i = 0; i <= places || number > 0; i++, number /= 10) {
        unsigned digit = (unsigned)(number % 10);
        if (i == places) {
            if (has_digit && places > 0)
                *--at = '.';
            has_digit = true;
        }
        has_digit |= digit > 0;
        if (has_digit)
            *--at = (char)('0' + digit);
    }
    put_bytes(facts, at, (size_t)(digits + sizeof digits - at));
}

static void put_reading(const struct facts *facts, const struct hushmote_reading *reading) {
    const char *text = reading->number ? yes : no;
    uint64_t number = (uint64_t)reading->number;
    switch (reading->kind) {
    case HUSHMOTE_IS_TEXT:
        put_bytes(facts, reading->data, reading->count);
        return;
    case HUSHMOTE_IS_PARTS:
        for (size_t i = 0; i < reading->count; i++) {
            if (i > 0)
                put(facts, ", ");
            put_reading(facts, (const struct hushmote_reading *)reading->data + i); /* NOLINT: parts have no parts */
        }
        return;
    case HUSHMOTE_IS_WHOLE:
    case HUSHMOTE_IS_MILLI:
        if (reading->number < 0) {
            put(facts, "-");
            number = 0 - number;
        }
        put_number(facts, number, reading->kind == HUSHMOTE_IS_MILLI ? 3 : 0);
        return;
    case HUSHMOTE_IS_NONE:
        text = no_reading;
        break;
    default:
        break;
    }
    put(facts, text);
}

static void put_group_value(const struct facts *facts) {
    const struct hushmote_experiment *e = facts->experiment;
    const uint8_t *value = e->room.bytes + e->group_at; /* its name; then the values, of which the last is first */
    if (facts->group_index == e->group_count) {
        put(facts, other);
        return;
    }
    for (unsigned i = e->group_count; i > facts->group_index; i--)
        value += 1 + *value;
    put_bytes(facts, value + 1, *value);
}

#if HUSHMOTE_WITH_LOG
/* Write the witnesses, each by the first 16 digits of its key, and how many of them are needed if not all. */
static void put_witnesses(const struct facts *facts) {
    unsigned last = facts->log->key_count - 1u;
    if (facts->log->need < last) {
        put_number(facts, facts->log->need, 0);
        put(facts, " of ");
    }
    for (unsigned i = 1; i <= last; i++) {
        if (i > 1)
            put(facts, i < last ? ", " : " and ");
        put_bytes(facts, facts->log->keys[i], 16);
    }
}
#endif

static void put_words(const struct facts *facts, unsigned line) {
    const char *at = words[line];
    for (; *at != 0; at++) {
        if (*at != '$') {
            put_bytes(facts, at, 1);
            continue;
        }
        switch (*++at) {
        case 'n':
            put(facts, facts->name);
            break;
        case 'r':
            put_reading(facts, facts->reading);
            break;
        case 'g':
            put(facts, facts->experiment->group->name);
            break;
        case 'v':
            put_group_value(facts);
            break;
#if HUSHMOTE_WITH_LOG
        case 'w':
            put_witnesses(facts);
            break;
#endif
        default:
            put_number(facts, facts->numbers[*at - 'A'], decimals[*at - 'A']);
        }
    }
}

/* --- Facts ----------------------------------------------------------------------------------------------------- */

static void find_cost(struct facts *facts, const struct hushmote_line *line) {
    facts->numbers[EPSILON] = line->epsilon / 1000;
    facts->numbers[LEFT] = line->left;
    facts->numbers[CODES] = facts->experiment->code_count;
}

/* Each of a level's seeds has one code that stands for the reading. Such a code is sent with the level's probability. */
static void find_chance(struct facts *facts) {
    const struct hushmote_experiment *e = facts->experiment;
    uint64_t truth = 0;
    uint32_t weights = 0, count = 0, end = e->code_count;
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
    facts->numbers[CHANCE] = (uint32_t)(1000 * truth / ((uint64_t)weights * HM_ONE));
    facts->numbers[TRUE_CODES] = count;
}

/* Find the lines that describe what is sent; set *lines to a bit for each. */
static int describe_reading(struct hushmote *client, struct facts *facts, const char *group, unsigned *lines) {
    static const struct hushmote_reading none = {.kind = HUSHMOTE_IS_NONE};
    const struct hushmote_experiment *e = facts->experiment;
    uint32_t *numbers = facts->numbers;
    struct hm_index index;
    bool is_missing;
    int code = hm_bucket(client->config, e, facts->reading, &index);
    if (code != HUSHMOTE_OK)
        return code;
    facts->group_index = hm_group_index(e, group);
    is_missing = index.at == e->domain - 1;
    for (unsigned i = 0; i < e->part_count; i++)
        is_missing &= hm_part(e, i)->missing != 0;
    if (is_missing)
        facts->reading = &none;
    numbers[BYTES] = 9u + (e->group_count > 0) + e->code_bytes + (client->config->key == NULL ? 0 : 8);
    numbers[TIMES] = hm_tenths(e->epsilon);
    numbers[EVERY] = hm_every(e, facts->group_index);
    find_chance(facts);
    *lines = 1u << SIZE | 1u << RATIO | 1u << (numbers[LEFT] == 1 ? COST_OF_LAST : COST);
    if (index.missing)
        *lines |= 1u << DRAWN;
    else if (e->mechanism != HM_SW)
        *lines |= 1u << (numbers[TRUE_CODES] == 1 ? ONE_CODE : MANY_CODES);
    if (e->group_count > 0)
        *lines |= 1u << UNPROTECTED;
    if (numbers[EVERY] > 1)
        *lines |= 1u << SELECTED;
#if HUSHMOTE_WITH_LOG
    facts->log = hm_log(client->config);
    if (facts->log != NULL)
        *lines |= 1u << ALIKE;
#endif
    if (hushmote_consent(client) != HUSHMOTE_YES)
        *lines |= 1u << SILENT;
    return HUSHMOTE_OK;
}

int hushmote_preview(struct hushmote *client, const char *name, struct hushmote_reading reading, const char *group,
                     char *text, size_t bytes) {
    struct room room = {text, bytes};
    struct facts facts;
    struct hushmote_line line;
    unsigned lines = 1u << ABSENT;
    int code = hushmote_line(client, name, &line);
    facts.write = fill;
    facts.context = &room;
    facts.name = name;
    facts.reading = &reading;
    if (code == HUSHMOTE_OK && line.enrolled) {
        facts.experiment = client->config->experiments + hm_find(client->config->policy, name, strlen(name));
        find_cost(&facts, &line);
        code = describe_reading(client, &facts, group, &lines);
    }
    if (code != HUSHMOTE_OK)
        return code;
    for (unsigned i = 0; lines >> i > 0; i++) {
        if (lines >> i & 1)
            put_words(&facts, i);
    }
    return HUSHMOTE_OK;
}

static void put_report(struct facts *facts, struct hushmote *client, const uint8_t *report, size_t report_bytes) {
    unsigned line = ENDED;
    facts->numbers[BYTES] = (uint32_t)report_bytes;
    for (unsigned i = 0; i < client->config->policy->name_count; i++) {
        struct hushmote_line state;
        facts->experiment = client->config->experiments + i;
        facts->name = client->config->policy->names[i];
        if (hushmote_line(client, facts->name, &state) != HUSHMOTE_OK || !state.enrolled ||
            memcmp(state.digest, report + 1, 4) != 0)
            continue;
        find_cost(facts, &state);
        facts->numbers[CODE] =
            (uint32_t)hm_get(report + report_bytes - 8 * (report[0] & 1u) - facts->experiment->code_bytes,
                             facts->experiment->code_bytes);
        if (hm_get(report + 5, 4) < state.reports) /* how many were left after an older report is not known */
            line = MADE_BEFORE;
        else
            line = state.left == 1 ? MADE_LAST : MADE;
        break;
    }
    put_words(facts, line);
}

void hushmote_describe(struct hushmote *client, const uint8_t *report, size_t report_bytes, char *text, size_t bytes) {
    struct room room = {text, bytes};
    struct facts facts;
    facts.write = fill;
    facts.context = &room;
    put_report(&facts, client, report, report_bytes);
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

static void put_two_digits(const struct facts *facts, unsigned number, const char *end) {
    char digits[2];
    digits[0] = (char)('0' + number / 10);
    digits[1] = (char)('0' + number % 10);
    put_bytes(facts, digits, 2);
    put(facts, end);
}

/* Write a time as 2026-11-29 16:05 and a space, in UTC; nothing if the clock was not set. */
static void put_time(const struct facts *facts, uint32_t at) {
    static const uint8_t lengths[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    unsigned days = at / 86400, minutes = at % 86400 / 60, year = 1970, month = 0;
    if (at < FIRST_TIME)
        return;
    for (; days >= 365u + (year % 4 == 0); year++) /* right until 2100 */
        days -= 365u + (year % 4 == 0);
    for (; days >= lengths[month] + (unsigned)(month == 1 && year % 4 == 0); month++)
        days -= lengths[month] + (unsigned)(month == 1 && year % 4 == 0);
    put_number(facts, year, 0);
    put(facts, "-");
    put_two_digits(facts, month + 1, "-");
    put_two_digits(facts, days + 1, " ");
    put_two_digits(facts, minutes / 60, ":");
    put_two_digits(facts, minutes % 60, " ");
}

static void put_field(const struct facts *facts, const char *name, uint64_t number) {
    put(facts, name);
    put_number(facts, number, 0);
}

int hushmote_export(struct hushmote *client, const struct hushmote_last *last,
                    void (*write)(void *context, const char *text, size_t bytes), void *context) {
    static const char *const answers[] = {"null", "false", "true"};
    struct facts facts;
    struct hushmote_status status;
    const struct hushmote_policy *policy;
    if (hushmote_status(client, &status) != HUSHMOTE_OK || client->config == NULL)
        return HUSHMOTE_BUSY;
    policy = client->config->policy;
    facts.write = write;
    facts.context = context;
    put(&facts, "{\"v\": 1, \"device\": \"");
    put(&facts, client->config->device_id);
    put(&facts, "\", \"consent\": ");
    put(&facts, answers[status.consent]);
    put(&facts, ", \"locked\": ");
    put(&facts, answers[1 + (status.locked != HUSHMOTE_OK)]);
    put_field(&facts, ", \"sum\": ", status.sum);
    put_field(&facts, ", \"squares\": ", status.squares);
    put(&facts, ", \"experiments\": {");
    for (unsigned i = 0; i < policy->name_count; i++) {
        struct hushmote_line line;
        (void)hushmote_line(client, policy->names[i], &line);
        put(&facts, i > 0 ? ", \"" : "\"");
        put(&facts, policy->names[i]);
        put_field(&facts, "\": {\"epsilon\": ", line.epsilon);
        put_field(&facts, ", \"reports\": ", line.reports);
        put_field(&facts, ", \"left\": ", line.left);
        put(&facts, "}");
    }
    put(&facts, "}, \"last\": [");
    for (unsigned i = 0; i < last->count; i++) {
        put(&facts, i > 0 ? ", \"" : "\"");
        put_time(&facts, last->reports[i].at);
        put_report(&facts, client, last->reports[i].report, last->reports[i].bytes);
        put(&facts, "\"");
    }
    put(&facts, "]}\n");
    return HUSHMOTE_OK;
}
