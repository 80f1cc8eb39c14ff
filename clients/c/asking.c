/* Ask about each question: an experiment waits until someone at the board has opted in to its question.

   An opt-in applies to a question, up to its epsilon. It is stored in flash in the MicroPython client's format, under
   the experiment's name followed by ".yes": 12 bytes from question.c, then a CRC-32. If it is damaged, the board asks
   again.

   An opt-out ends every opt-in, including those to names that this firmware's policy lacks and the next one's may have
   again. It cannot list those, so it stores the ledger's sequence number under ".no", which the CRC-32 of later opt-ins
   also covers. */
#include <string.h>

#include "core.h"
#include "hushmote_port.h"

#define FILE_BYTES (HM_QUESTION_BYTES + 4)
#define NO_BYTES 4
#define NAME_BYTES 40

static unsigned name_count(const struct hushmote_reporter *reporter) {
    return reporter->client->config->policy->name_count;
}

static const char *file_of(const struct hushmote_reporter *reporter, unsigned at, char file[NAME_BYTES]) {
    const char *name = reporter->client->config->policy->names[at];
    size_t bytes = strlen(name);
    memcpy(file, name, bytes);
    memcpy(file + bytes, ".yes", 5);
    return file;
}

/* Return the CRC-32 of an opt-in, which also covers the last opt-out. */
static uint32_t seal_yes(const struct hushmote_reporter *reporter, const char *file, const uint8_t *yes) {
    const struct hushmote_port *port = reporter->port;
    uint8_t data[HM_QUESTION_BYTES + NO_BYTES];
    long bytes = reporter->kept == NULL ? 0 : port->read_kept(port->context, ".no", data + HM_QUESTION_BYTES, NO_BYTES);
    memcpy(data, yes, HM_QUESTION_BYTES);
    if (bytes < 0 || bytes > NO_BYTES)
        bytes = NO_BYTES; /* it cannot be read, so no opt-in matches it */
    return hm_seal(reporter->client->config, file, data, HM_QUESTION_BYTES + (size_t)bytes);
}

static void write_file(struct hushmote_reporter *reporter, const char *file, const uint8_t *data, size_t bytes) {
    const struct hushmote_port *port = reporter->port;
    if (reporter->kept != NULL && port->write_kept(port->context, file, data, bytes) != 0)
        reporter->kept_fault = HUSHMOTE_STORAGE;
}

static void write_yes(struct hushmote_reporter *reporter, unsigned at, const uint8_t *data, size_t bytes) {
    char file[NAME_BYTES];
    write_file(reporter, file_of(reporter, at, file), data, bytes);
}

/* Store the last opt-out, unless the flash already holds it. */
static void write_no(struct hushmote_reporter *reporter) {
    const struct hushmote_port *port = reporter->port;
    const uint8_t *number = reporter->client->record + 2;
    uint8_t stored[NO_BYTES];
    if (reporter->kept == NULL || (port->read_kept(port->context, ".no", stored, NO_BYTES) == NO_BYTES &&
                                   memcmp(stored, number, NO_BYTES) == 0))
        return;
    write_file(reporter, ".no", number, NO_BYTES);
}

static void forget(struct hushmote_reporter *reporter, unsigned at) {
    reporter->port->questions[at].has_yes = false;
    write_yes(reporter, at, (const uint8_t *)"", 0);
}

static void forget_all(struct hushmote_reporter *reporter) {
    write_no(reporter);
    for (unsigned at = 0; at < name_count(reporter); at++) {
        forget(reporter, at);
        reporter->topics[at].why = HUSHMOTE_OK;
        reporter->topics[at].has_accepted = false; /* the client ended it, so ask when the broker repeats it */
    }
}

/* Forget all opt-ins if someone has opted out of everything. */
static void process_opt_out(struct hushmote_reporter *reporter) {
    uint32_t opt_outs = reporter->client->opt_outs;
    if (opt_outs == reporter->opt_outs)
        return;
    reporter->opt_outs = opt_outs;
    forget_all(reporter);
}

/* Load the last opt-in to each name. A board that has opted out has none. */
static void load(struct hushmote_reporter *reporter) {
    const struct hushmote_port *port = reporter->port;
    memset(port->questions, 0, name_count(reporter) * sizeof *port->questions);
    reporter->opt_outs = reporter->client->opt_outs;
    if (hushmote_consent(reporter->client) == HUSHMOTE_NO)
        forget_all(reporter);
    for (unsigned at = 0; reporter->kept != NULL && at < name_count(reporter); at++) {
        struct hushmote_question *question = port->questions + at;
        uint8_t data[FILE_BYTES];
        char file[NAME_BYTES];
        long bytes = port->read_kept(port->context, file_of(reporter, at, file), data, sizeof data);
        question->has_yes =
            bytes == FILE_BYTES && hm_get(data + HM_QUESTION_BYTES, 4) == seal_yes(reporter, file, data);
        memcpy(question->yes, data, sizeof question->yes);
    }
}

/* Compute a payload's question and its open group. Return 0, or the code with which it is refused, for example for a
   different name. */
static int question_of(const struct hushmote_reporter *reporter, unsigned at, const uint8_t *payload, size_t bytes,
                       uint8_t question[HM_QUESTION_BYTES], const struct hushmote_group **group) {
    const struct hushmote_config *config = reporter->client->config;
    struct hm_object fields;
    const uint8_t *name;
    size_t end = 0;
    int length;
    while (end < bytes && payload[end] != 0)
        end++;
    if (bytes > HUSHMOTE_PAYLOAD_BYTES || hm_question(config, payload, end, question) != HUSHMOTE_OK)
        return HUSHMOTE_REFUSED;
    hm_json_object(&fields, payload);
    name = hm_take(&fields, HM_F_NAME);
    length = hm_json_length(name);
    if (length < 0 || hm_find(config->policy, name + 1, (size_t)length) != at)
        return HUSHMOTE_REFUSED;
    *group = NULL;
    if (fields.at[HM_F_GROUP] == 0)
        return HUSHMOTE_OK;
    name = hm_take(&fields, HM_F_GROUP);
    length = hm_json_length(name);
    if (length >= 0)
        *group = hm_find_group(config->policy, name + 1, (size_t)length);
    return *group == NULL ? HUSHMOTE_REFUSED_GROUP : HUSHMOTE_OK;
}

/* Return 0 if the last opt-in covers this question and its epsilon; otherwise make the payload wait. */
static int ask(struct hushmote_reporter *reporter, unsigned at, const uint8_t *payload, size_t bytes) {
    struct hushmote_question *state = reporter->port->questions + at;
    const struct hushmote_group *group;
    struct hushmote_proof proof;
    uint8_t question[HM_QUESTION_BYTES];
    int code = question_of(reporter, at, payload, bytes, question, &group);
    if (code != HUSHMOTE_OK)
        return code;
    if (state->has_yes && memcmp(question, state->yes, HM_QUESTION_BYTES - 4) == 0 &&
        hm_get(question + HM_QUESTION_BYTES - 4, 4) <= hm_get(state->yes + HM_QUESTION_BYTES - 4, 4))
        return HUSHMOTE_OK;
    if (hm_log(reporter->client->config) != NULL) { /* do not ask what not every device is asked */
        proof.data = reporter->port->entries[at].proof;
        proof.bytes = reporter->port->entries[at].proof_bytes;
        code = hm_check_proof(reporter->client, at, payload, bytes, &proof);
        if (code != HUSHMOTE_OK)
            return code;
    }
    memcpy(state->payload, payload, bytes);
    state->bytes = (uint16_t)bytes;
    state->group = group;
    return HUSHMOTE_REFUSED_UNASKED;
}

/* Store the opt-in to the waiting question, unless someone has since opted out, which ended it. */
static void keep_yes(struct hushmote_reporter *reporter, unsigned at) {
    struct hushmote_question *state = reporter->port->questions + at;
    const struct hushmote_group *group;
    uint8_t data[FILE_BYTES];
    char file[NAME_BYTES];
    if (reporter->opt_outs != reporter->client->opt_outs ||
        question_of(reporter, at, state->payload, state->bytes, data, &group) != HUSHMOTE_OK)
        return;
    state->has_yes = true;
    memcpy(state->yes, data, sizeof state->yes);
    hm_put(data + HM_QUESTION_BYTES, 4, seal_yes(reporter, file_of(reporter, at, file), data));
    write_yes(reporter, at, data, sizeof data);
}

/* Remove the waiting question because the experiment is enrolled or withdrawn; a withdrawal also ends the opt-in. */
static void settle(struct hushmote_reporter *reporter, unsigned at, bool agreed, bool withdrawn) {
    if (agreed)
        keep_yes(reporter, at);
    if (withdrawn)
        forget(reporter, at);
    reporter->port->questions[at].bytes = 0;
    reporter->topics[at].why = HUSHMOTE_OK; /* the board may now ask about an experiment that was refused */
}

const struct hushmote_asker hushmote_ask_each = {load, process_opt_out, ask, settle};

int hushmote_agree(struct hushmote_reporter *reporter, const char *name, const uint8_t *payload, size_t bytes) {
    unsigned at = hm_find(reporter->client->config->policy, name, strlen(name));
    struct hushmote_question *state;
    uint32_t opt_outs = reporter->client->opt_outs;
    int code;
    if (reporter->port->asker == NULL || at == name_count(reporter))
        return HUSHMOTE_UNKNOWN;
    state = reporter->port->questions + at;
    if (hushmote_consent(reporter->client) == HUSHMOTE_NO || state->bytes == 0 ||
        (payload != NULL && (bytes != state->bytes || memcmp(payload, state->payload, bytes) != 0)))
        return HUSHMOTE_REFUSED_UNASKED;
    code = hm_take_message(reporter, at, state->payload, state->bytes, true);
    if (code != HUSHMOTE_BUSY)
        state->bytes = 0;
    return code == HUSHMOTE_OK && opt_outs != reporter->client->opt_outs ? HUSHMOTE_REFUSED_UNASKED : code;
}
