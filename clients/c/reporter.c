/* Connect a client to MQTT: decide which bytes to send in which order, and when to retry. The reporter passes readings
   to hushmote_report() without looking at them. The only bytes that it generates are status words, which do not depend
   on readings. */
#include <string.h>

#include "core.h"
#include "hushmote_port.h"

enum { DISCONNECTED, CONNECTING, CONNECTED };
enum { FREE, PUBLISHED, ACKNOWLEDGED };

#define STEADY_MS 30000u /* a connection that lasts this long resets the backoff */
#define SPREAD_MS 60000u /* longest wait after which many boards connect again */
#define RETRY_MS 60000u  /* delay before retrying a failed flash write */
#define MAX_WORDS 8
#define MAX_MS 16000000u
#define TOPIC_BYTES (96 + HUSHMOTE_PREFIX_BYTES + 1)
#define DIGEST_BYTES 8

static const struct hushmote_config *config_of(const struct hushmote_reporter *reporter) {
    return reporter->client->config;
}

static const char *name_of(const struct hushmote_reporter *reporter, unsigned at) {
    return config_of(reporter)->policy->names[at];
}

static unsigned name_count(const struct hushmote_reporter *reporter) {
    return config_of(reporter)->policy->name_count;
}

/* --- Time ----------------------------------------------------------------------------------------------------- */

static void start_timer(struct hushmote_reporter *reporter, struct hushmote_timer *timer, uint32_t ms) {
    timer->set = true;
    timer->since = reporter->now;
    timer->ms = ms;
}

static bool is_due(const struct hushmote_reporter *reporter, const struct hushmote_timer *timer) {
    return timer->set && reporter->now - timer->since >= timer->ms;
}

static uint32_t random_up_to(struct hushmote_reporter *reporter, uint32_t ms) {
    return hm_below(&reporter->waits, ms == 0 ? 1 : ms < MAX_MS ? ms : MAX_MS);
}

/* --- Texts ---------------------------------------------------------------------------------------------------- */

static size_t append(char *text, size_t at, const char *more) {
    size_t bytes = strlen(more);
    memcpy(text + at, more, bytes + 1);
    return at + bytes;
}

static bool has_prefix(const struct hushmote_port *port) {
    return port->prefix != NULL && port->prefix[0] != 0;
}

/* Write PREFIX/hushmote/v1/FLEET/KIND/NAME and return its length. */
static size_t topic_of(const struct hushmote_reporter *reporter, const char *kind, const char *name,
                       char topic[TOPIC_BYTES]) {
    size_t at = 0;
    if (has_prefix(reporter->port)) {
        at = append(topic, at, reporter->port->prefix);
        at = append(topic, at, "/");
    }
    at = append(topic, at, "hushmote/v1/");
    at = append(topic, at, config_of(reporter)->fleet);
    at = append(topic, at, kind);
    return append(topic, at, name);
}

static void compute_digest(const struct hushmote_reporter *reporter, const void *data, size_t bytes,
                           uint8_t digest[DIGEST_BYTES]) {
    struct hushmote_piece piece;
    uint8_t sha256[32];
    piece.data = data;
    piece.bytes = bytes;
    hm_sha256(config_of(reporter), &piece, 1, sha256);
    memcpy(digest, sha256, DIGEST_BYTES);
}

struct words {
    char *text;
    size_t end, last; /* end of the text, and start of the last word that fits */
    unsigned count;
};

static void add_word(struct words *words, const char *word, const char *name) {
    if (words->count == MAX_WORDS) {
        words->end = append(words->text, words->last, " more");
        return;
    }
    words->last = words->end;
    if (words->count++ > 0)
        words->end = append(words->text, words->end, " ");
    words->end = append(words->text, words->end, word);
    words->end = append(words->text, words->end, name);
}

/* Write the status message: `state`, then everything that needs attention. Return its length. */
static size_t write_status(const struct hushmote_reporter *reporter, const char *state, char text[HUSHMOTE_STATUS_BYTES]) {
    struct hushmote_status status;
    struct hushmote_line line;
    struct words words;
    memset(&words, 0, sizeof words);
    words.text = text;
    (void)hushmote_status(reporter->client, &status);
    add_word(&words, state, "");
    if (status.locked)
        add_word(&words, "locked", "");
    if (status.error || reporter->fault || reporter->kept_fault)
        add_word(&words, "fault", "");
    if (reporter->short_connections >= HUSHMOTE_SHORT)
        add_word(&words, "duplicate-id", "");
    for (unsigned i = 0; i < name_count(reporter); i++) {
        (void)hushmote_line(reporter->client, name_of(reporter, i), &line);
        if (line.refused || reporter->topics[i].refused)
            add_word(&words, "refused:", name_of(reporter, i));
        else if (line.enrolled && line.left == 0 && !status.locked)
            add_word(&words, "spent:", name_of(reporter, i));
    }
    return words.end;
}

static long publish_status(struct hushmote_reporter *reporter, const char *state) {
    char text[HUSHMOTE_STATUS_BYTES], topic[TOPIC_BYTES];
    size_t bytes = write_status(reporter, state, text);
    long id;
    (void)topic_of(reporter, "/status/", config_of(reporter)->device_id, topic);
    id = reporter->port->publish(reporter->port->context, topic, (const uint8_t *)text, bytes, true);
    if (id >= 0) {
        compute_digest(reporter, text, bytes, reporter->status_digest);
        reporter->status_id = id;
    }
    if (id >= 0 || !reporter->status_answer.set) /* a port that waits for the acknowledgement fails without one */
        start_timer(reporter, &reporter->status_answer, reporter->port->timeout_ms);
    return id;
}

static bool uses_status(const struct hushmote_reporter *reporter) {
    return !reporter->port->omit_status && reporter->status_failures < HUSHMOTE_LEFT_OUT;
}

static bool uses_will(const struct hushmote_reporter *reporter) {
    return !reporter->port->omit_will && reporter->will_failures < HUSHMOTE_LEFT_OUT;
}

/* Return what has arrived for a name, or NULL if the policy has no log. */
static struct hushmote_log_entry *entry_of(const struct hushmote_reporter *reporter, unsigned at) {
    return hm_log(config_of(reporter)) == NULL ? NULL : reporter->port->entries + at;
}

/* --- The connection ------------------------------------------------------------------------------------------- */

static void set_disconnected(struct hushmote_reporter *reporter) {
    reporter->link = DISCONNECTED;
    reporter->answer.set = reporter->steady.set = reporter->settled.set = reporter->status_answer.set = false;
    reporter->status_id = -1;
    for (unsigned i = 0; i < HUSHMOTE_IN_FLIGHT; i++) {
        if (reporter->flights[i].state == PUBLISHED)
            reporter->flights[i].state = FREE; /* it will be resent unchanged */
    }
}

/* Return the longest wait when many boards connect at once. */
static uint32_t spread_ms(const struct hushmote_reporter *reporter) {
    if (reporter->port->spread_ms != HUSHMOTE_SPREAD_DEFAULT)
        return reporter->port->spread_ms;
    return reporter->interval > 0 && reporter->interval < SPREAD_MS ? reporter->interval : SPREAD_MS;
}

/* Count a connection that the broker did not accept. It may refuse the will, but not if it fails without it as well, or
   if it names another reason. */
static void suspect_will(struct hushmote_reporter *reporter) {
    if (reporter->connack != 0 && reporter->connack != 5)
        return;
    if (uses_will(reporter))
        reporter->will_failures++;
    else
        reporter->will_failures = 0;
}

/* Count what may have ended an established connection. */
static void suspect_end(struct hushmote_reporter *reporter) {
    bool in_flight = is_due(reporter, &reporter->due); /* it may be the one that could not be published */
    for (unsigned i = 0; i < HUSHMOTE_IN_FLIGHT; i++)
        in_flight |= reporter->flights[i].state == PUBLISHED;
    if (reporter->status_answer.set && reporter->status_failures < HUSHMOTE_LEFT_OUT)
        reporter->status_failures++;
    else if (!in_flight && reporter->steady.set && reporter->short_connections < UINT8_MAX)
        reporter->short_connections++;
}

/* End the connection or the attempt to connect, and schedule the next attempt. */
static void schedule_reconnect(struct hushmote_reporter *reporter) {
    const struct hushmote_port *port = reporter->port;
    uint32_t max_ms = spread_ms(reporter);
    if (reporter->link == CONNECTED && reporter->attempt == 0) { /* the broker's rules may have changed since it began */
        if (reporter->status_failures == HUSHMOTE_LEFT_OUT)
            reporter->status_failures--;
        if (reporter->will_failures == HUSHMOTE_LEFT_OUT)
            reporter->will_failures--;
    } else {
        max_ms = port->backoff_ms;
        for (uint32_t i = 0; i < reporter->attempt && max_ms < port->backoff_max_ms; i++)
            max_ms *= 2;
        if (max_ms > port->backoff_max_ms)
            max_ms = port->backoff_max_ms;
    }
    set_disconnected(reporter);
    reporter->attempt++;
    start_timer(reporter, &reporter->next, random_up_to(reporter, max_ms));
}

static void give_up(struct hushmote_reporter *reporter) {
    reporter->port->disconnect(reporter->port->context);
    schedule_reconnect(reporter);
}

static void begin_to_connect(struct hushmote_reporter *reporter) {
    char text[HUSHMOTE_STATUS_BYTES], topic[TOPIC_BYTES];
    size_t bytes = write_status(reporter, "offline", text);
    bool will = uses_will(reporter);
    int code;
    (void)topic_of(reporter, "/status/", config_of(reporter)->device_id, topic);
    reporter->link = CONNECTING;
    reporter->connack = 0;
    start_timer(reporter, &reporter->answer, reporter->port->timeout_ms);
    code = reporter->port->connect(reporter->port->context, will ? topic : NULL, will ? (const uint8_t *)text : NULL,
                                   will ? bytes : 0);
    if (code > 0)
        suspect_will(reporter);
    if (code != 0)
        schedule_reconnect(reporter);
}

static long subscribe(struct hushmote_reporter *reporter, const char *kind, unsigned at) {
    char topic[TOPIC_BYTES];
    (void)topic_of(reporter, kind, name_of(reporter, at), topic);
    return reporter->port->subscribe(reporter->port->context, topic);
}

void hushmote_reporter_connected(struct hushmote_reporter *reporter) {
    if (reporter->link != CONNECTING)
        return;
    reporter->link = CONNECTED;
    reporter->answer.set = false;
    reporter->connects++;
    if (uses_will(reporter))
        reporter->will_failures = 0;
    start_timer(reporter, &reporter->steady, STEADY_MS);
    start_timer(reporter, &reporter->settled, reporter->port->settle_ms);
    for (unsigned i = 0; i < name_count(reporter); i++) {
        struct hushmote_log_entry *entry = entry_of(reporter, i);
        reporter->topics[i].heard = false;
        reporter->topics[i].subscription = subscribe(reporter, "/experiment/", i);
        if (entry != NULL && reporter->topics[i].subscription >= 0)
            entry->subscription = subscribe(reporter, "/proof/", i);
        if (reporter->topics[i].subscription < 0 || (entry != NULL && entry->subscription < 0)) {
            give_up(reporter);
            return;
        }
    }
    reporter->unsure = true; /* the status follows when no report is waiting */
    memset(reporter->status_digest, 0, sizeof reporter->status_digest);
}

void hushmote_reporter_refused(struct hushmote_reporter *reporter, int code) {
    reporter->connack = (uint8_t)code;
}

void hushmote_reporter_subscribed(struct hushmote_reporter *reporter, long id, int code) {
    for (unsigned i = 0; reporter->link == CONNECTED && i < name_count(reporter); i++) {
        struct hushmote_topic *topic = reporter->topics + i;
        struct hushmote_log_entry *entry = entry_of(reporter, i);
        bool is_proof = entry != NULL && entry->subscription == id;
        if (topic->subscription != id && !is_proof)
            continue;
        if (is_proof)
            entry->is_forbidden = code >= 128;
        if (code >= 128)
            topic->refused = HUSHMOTE_REFUSED_BROKER;
        else if (topic->refused == HUSHMOTE_REFUSED_BROKER && !is_proof)
            topic->refused = HUSHMOTE_OK;
        reporter->unsure = true;
    }
}

void hushmote_reporter_disconnected(struct hushmote_reporter *reporter) {
    if (reporter->link == CONNECTING)
        suspect_will(reporter);
    else if (reporter->link == CONNECTED)
        suspect_end(reporter);
    if (reporter->link != DISCONNECTED)
        schedule_reconnect(reporter);
}

void hushmote_reporter_close(struct hushmote_reporter *reporter) {
    if (reporter->link == CONNECTED && uses_status(reporter))
        (void)publish_status(reporter, "offline");
    reporter->short_connections = 0;
    if (reporter->link != DISCONNECTED)
        reporter->port->disconnect(reporter->port->context);
    set_disconnected(reporter);
    start_timer(reporter, &reporter->next, 0);
}

/* --- Experiments ---------------------------------------------------------------------------------------------- */

static uint32_t seal(const struct hushmote_reporter *reporter, unsigned at, size_t bytes) {
    return hm_seal(config_of(reporter), name_of(reporter, at), reporter->kept, bytes);
}

#define LOG_BYTES (4 + DIGEST_BYTES)

/* Compute the log's identity: the hash of its origin, keys as typed and number of witnesses, separated by spaces. */
static void identify_log(const struct hushmote_reporter *reporter, uint8_t digest[32]) {
    const struct hushmote_log *log = hm_log(config_of(reporter));
    struct hushmote_piece pieces[2 * HM_LOG_KEYS + 2];
    char end[2] = {' ', (char)('0' + log->need)};
    size_t count = 1;
    pieces[0].data = log->origin;
    for (unsigned i = 0; i < log->key_count; i++) {
        pieces[count++].data = end;
        pieces[count++].data = log->keys[i];
    }
    for (size_t i = 0; i < count; i++)
        pieces[i].bytes = i % 2 == 0 ? strlen((const char *)pieces[i].data) : 1;
    pieces[count].data = end;
    pieces[count++].bytes = sizeof end;
    hm_sha256(config_of(reporter), pieces, count, digest);
}

/* With a log in the policy, an experiment is followed by its index in the log and the log's identity. Return the number
   of these bytes. */
static size_t add_log(struct hushmote_reporter *reporter, unsigned at, uint8_t data[LOG_BYTES]) {
    uint8_t identity[32];
    identify_log(reporter, identity);
    hm_put(data, 4, entry_of(reporter, at)->leaf);
    memcpy(data + 4, identity, DIGEST_BYTES);
    return LOG_BYTES;
}

/* Return the size of a kept experiment without these bytes, 0 if it was kept without this log, so that it needs a proof. */
static size_t remove_log(struct hushmote_reporter *reporter, unsigned at, const uint8_t *payload, size_t bytes) {
    struct hushmote_log_entry *entry = entry_of(reporter, at);
    uint8_t expected[LOG_BYTES];
    if (bytes <= LOG_BYTES)
        return 0;
    entry->leaf = (uint32_t)hm_get(payload + bytes - LOG_BYTES, 4);
    (void)add_log(reporter, at, expected);
    return memcmp(payload + bytes - LOG_BYTES, expected, LOG_BYTES) == 0 ? bytes - LOG_BYTES : 0;
}

/* Store the lowest accepted serial, the payload and a CRC-32, in the MicroPython client's format. Return whether the
   experiment may run: not if the serials of too many other names are stored, because then this one would be forgotten. */
static bool keep(struct hushmote_reporter *reporter, unsigned at, const uint8_t *payload, size_t bytes) {
    const struct hushmote_port *port = reporter->port;
    size_t total = bytes == 0 ? 0 : bytes + 8;
    int code;
    if (reporter->kept == NULL)
        return true;
    if (total > 0) {
        hm_put(reporter->kept, 4, config_of(reporter)->experiments[at].serial);
        memcpy(reporter->kept + 4, payload, bytes);
        if (hm_log(config_of(reporter)) != NULL && payload[0] > 0)
            total += add_log(reporter, at, reporter->kept + 4 + bytes);
        hm_put(reporter->kept + total - 4, 4, seal(reporter, at, total - 4));
    }
    code = port->write_kept(port->context, name_of(reporter, at), reporter->kept, total);
    reporter->kept_fault = code != 0 ? HUSHMOTE_STORAGE : HUSHMOTE_OK;
    return code <= 0;
}

static void load(struct hushmote_reporter *reporter, unsigned at) {
    struct hushmote_topic *topic = reporter->topics + at;
    const struct hushmote_asker *asker = reporter->port->asker;
    uint8_t *kept = reporter->kept;
    long total = reporter->port->read_kept(reporter->port->context, name_of(reporter, at), kept, HUSHMOTE_KEPT_BYTES);
    size_t bytes = (size_t)total - 8;
    if (total <= 8 || total > HUSHMOTE_KEPT_BYTES || hm_get(kept + 4 + bytes, 4) != seal(reporter, at, 4 + bytes))
        return; /* the broker will resend it */
    config_of(reporter)->experiments[at].serial = (uint32_t)hm_get(kept, 4);
    if (hm_log(config_of(reporter)) != NULL && kept[4] > 0 && (bytes = remove_log(reporter, at, kept + 4, bytes)) == 0)
        return;
    if (kept[4] > 0 && asker != NULL && asker->ask(reporter, at, kept + 4, bytes) != HUSHMOTE_OK)
        return; /* the experiment waits for an opt-in */
    if (kept[4] > 0 && hm_enroll(reporter->client, name_of(reporter, at), kept + 4, bytes, true, NULL) != HUSHMOTE_OK)
        return; /* the policy has changed */
    topic->has_accepted = true;
    compute_digest(reporter, kept + 4, bytes, topic->accepted);
}

/* Enroll in an experiment, with the newest proof if the policy has a log. */
static int enroll(struct hushmote_reporter *reporter, unsigned at, const uint8_t *payload, size_t bytes) {
    struct hushmote_log_entry *entry = entry_of(reporter, at);
    struct hushmote_proof proof;
    int code;
    if (entry == NULL)
        return hm_enroll(reporter->client, name_of(reporter, at), payload, bytes, false, NULL);
    proof.data = entry->proof;
    proof.bytes = entry->proof_bytes;
    code = hm_enroll(reporter->client, name_of(reporter, at), payload, bytes, false, &proof);
    if (code == HUSHMOTE_OK)
        entry->leaf = proof.leaf;
    return code == HUSHMOTE_REFUSED_NO_PROOF && entry->is_forbidden ? HUSHMOTE_REFUSED_BROKER : code;
}

/* Let an experiment wait if another proof could make it acceptable; drop the one that waited before. The code is that of
   the broker if it forbids the proof's topic. */
static void wait_for_proof(struct hushmote_reporter *reporter, unsigned at, const uint8_t *payload, size_t bytes, int code) {
    struct hushmote_log_entry *entry = entry_of(reporter, at);
    bool waits = code <= HUSHMOTE_REFUSED_BROKER && code >= HUSHMOTE_REFUSED_WITNESSES && bytes <= HUSHMOTE_PAYLOAD_BYTES;
    if (entry == NULL)
        return;
    if (waits)
        memmove(entry->payload, payload, bytes);
    entry->bytes = (uint16_t)(waits ? bytes : 0);
}

/* Apply an experiment or its withdrawal. Return 0, or the code with which it is refused. */
static int apply_message(struct hushmote_reporter *reporter, unsigned at, const uint8_t *payload, size_t bytes, bool agreed) {
    const struct hushmote_asker *asker = reporter->port->asker;
    bool withdraws = bytes == 0 || payload[0] == 0;
    int code = HUSHMOTE_OK;
    if (withdraws)
        code = hushmote_withdraw(reporter->client, name_of(reporter, at), payload, bytes);
    else if (asker != NULL && !agreed)
        code = asker->ask(reporter, at, payload, bytes);
    if (code == HUSHMOTE_OK && !withdraws)
        code = enroll(reporter, at, payload, bytes);
    if (code == HUSHMOTE_OK && asker != NULL)
        asker->settle(reporter, at, agreed, withdraws);
    return code;
}

int hm_take_message(struct hushmote_reporter *reporter, unsigned at, const uint8_t *payload, size_t bytes, bool agreed) {
    struct hushmote_topic *topic = reporter->topics + at;
    const struct hushmote_log_entry *entry = entry_of(reporter, at);
    const struct hushmote_asker *asker = reporter->port->asker;
    uint8_t digest[DIGEST_BYTES];
    int code;
    if (asker != NULL)
        asker->process_opt_out(reporter);
    compute_digest(reporter, payload, bytes, digest);
    if (topic->has_accepted && memcmp(digest, topic->accepted, sizeof digest) == 0) {
        /* Skip a repeated message. Any message refused in between changed nothing. */
        topic->refused = config_of(reporter)->experiments[at].refused = HUSHMOTE_OK;
        wait_for_proof(reporter, at, payload, bytes, HUSHMOTE_OK);
        if (asker != NULL)
            asker->settle(reporter, at, false, false);
        return HUSHMOTE_OK;
    }
    if (!agreed && topic->why != HUSHMOTE_OK && memcmp(digest, topic->rejected, sizeof digest) == 0) {
        wait_for_proof(reporter, at, payload, bytes, topic->why); /* another message may have ended its wait */
        return topic->refused = topic->why;
    }
    if (!agreed && config_of(reporter)->experiments[at].withdrawn && bytes > 0 && payload[0] != 0)
        return HUSHMOTE_OK; /* the application decides when to take part again */
    code = apply_message(reporter, at, payload, bytes, agreed);
    if (!agreed || (entry != NULL && entry->bytes == 0)) /* an opt-in to one version does not end the wait of the next */
        wait_for_proof(reporter, at, payload, bytes, code);
    topic->refused = (int8_t)code;
    if (code != HUSHMOTE_OK) {
        topic->why = (int8_t)(code == HUSHMOTE_BUSY || agreed ? HUSHMOTE_OK : code); /* the same bytes may be accepted later */
        memcpy(topic->rejected, digest, sizeof digest);
        return code;
    }
    topic->has_accepted = keep(reporter, at, payload, bytes);
    memcpy(topic->accepted, digest, sizeof digest);
    if (topic->has_accepted) {
        if (hm_log(config_of(reporter)) != NULL)
            entry_of(reporter, at)->proof_bytes = 0; /* the next version needs another one */
        return HUSHMOTE_OK;
    }
    config_of(reporter)->experiments[at].enrolled = 0;
    return topic->refused = HUSHMOTE_STORAGE;
}

/* Store a proof, and take the experiment that waits for it. A proof that does not fit is malformed, as is its beginning. */
static void take_proof(struct hushmote_reporter *reporter, unsigned at, const uint8_t *proof, size_t bytes) {
    struct hushmote_log_entry *entry = reporter->port->entries + at;
    if (bytes > sizeof entry->proof)
        bytes = sizeof entry->proof;
    if (bytes == entry->proof_bytes && memcmp(proof, entry->proof, bytes) == 0)
        return;
    memcpy(entry->proof, proof, bytes);
    entry->proof_bytes = (uint16_t)bytes;
    reporter->topics[at].why = HUSHMOTE_OK; /* even if nothing waits: the refused message may be repeated */
    if (entry->bytes == 0)
        return;
    (void)hm_take_message(reporter, at, entry->payload, entry->bytes, false);
}

static bool is_topic(const struct hushmote_reporter *reporter, const char *kind, unsigned at, const char *topic,
                     size_t bytes) {
    char known[TOPIC_BYTES];
    return topic_of(reporter, kind, name_of(reporter, at), known) == bytes && memcmp(known, topic, bytes) == 0;
}

void hushmote_reporter_message(struct hushmote_reporter *reporter, const char *topic, size_t topic_bytes,
                               const uint8_t *payload, size_t bytes) {
    if (payload == NULL)
        payload = (const uint8_t *)"";
    for (unsigned i = 0; i < name_count(reporter); i++) {
        if (is_topic(reporter, "/experiment/", i, topic, topic_bytes)) {
            reporter->topics[i].heard = true;
            reporter->unsure = true;
            (void)hm_take_message(reporter, i, payload, bytes, false);
        } else if (entry_of(reporter, i) != NULL && is_topic(reporter, "/proof/", i, topic, topic_bytes)) {
            reporter->unsure = true;
            take_proof(reporter, i, payload, bytes);
        }
    }
}

static bool is_waiting(const struct hushmote_reporter *reporter, unsigned at) {
    return reporter->port->asker != NULL && reporter->port->questions[at].bytes > 0;
}

/* In an open fleet, end experiments that were withdrawn while the board was offline: the broker no longer sends them. */
static void end_unrepeated(struct hushmote_reporter *reporter) {
    const struct hushmote_config *config = config_of(reporter);
    reporter->settled.set = false;
    for (unsigned i = 0; config->announce_key == NULL && i < name_count(reporter); i++) {
        if (!reporter->topics[i].heard && (config->experiments[i].enrolled || is_waiting(reporter, i))) {
            int8_t refused = reporter->topics[i].refused;
            (void)hm_take_message(reporter, i, (const uint8_t *)"", 0, false);
            if (refused == HUSHMOTE_REFUSED_BROKER)
                reporter->topics[i].refused = refused;
            reporter->unsure = true;
        }
    }
}

/* --- Reports -------------------------------------------------------------------------------------------------- */

/* Measure the interval between readings of the first experiment that has any. It limits the default spread. */
static void measure_interval(struct hushmote_reporter *reporter, unsigned at) {
    if (reporter->pacer == 0)
        reporter->pacer = (uint8_t)(at + 1);
    else if (reporter->pacer == at + 1 && reporter->now != reporter->paced_since)
        reporter->interval = reporter->now - reporter->paced_since;
    if (reporter->pacer == at + 1)
        reporter->paced_since = reporter->now;
}

int hushmote_reporter_report(struct hushmote_reporter *reporter, const char *name, struct hushmote_reading reading,
                             uint8_t report[HUSHMOTE_REPORT_BYTES]) {
    return hushmote_reporter_report_as(reporter, name, reading, NULL, report);
}

int hushmote_reporter_report_as(struct hushmote_reporter *reporter, const char *name, struct hushmote_reading reading,
                                const char *group, uint8_t report[HUSHMOTE_REPORT_BYTES]) {
    int result = hushmote_report_as(reporter->client, name, reading, group, report);
    reporter->unsure = true; /* a budget may have just run out */
    for (unsigned i = 0; i < name_count(reporter); i++) {
        if (strlen(name_of(reporter, i)) != strlen(name) || memcmp(name_of(reporter, i), name, strlen(name)) != 0)
            continue;
        reporter->topics[i].mistyped = result == HUSHMOTE_WRONG_TYPE;
        measure_interval(reporter, i);
    }
    if (result == HUSHMOTE_WRONG_TYPE)
        result = hushmote_report_as(reporter->client, name, hushmote_none(), group, report);
    if (result < 0)
        reporter->fault = (int8_t)result;
    else if (!reporter->retry.set)
        reporter->fault = HUSHMOTE_OK;
    return result;
}

/* Remove acknowledged reports from flash. If that fails, retry after RETRY_MS. */
static void drop_acknowledged(struct hushmote_reporter *reporter) {
    if (reporter->retry.set && !is_due(reporter, &reporter->retry))
        return;
    for (unsigned i = 0; i < HUSHMOTE_IN_FLIGHT; i++) {
        struct hushmote_flight *flight = reporter->flights + i;
        int code;
        if (flight->state != ACKNOWLEDGED)
            continue;
        code = hushmote_sent(reporter->client, flight->report, flight->bytes);
        if (code != HUSHMOTE_OK) {
            reporter->fault = (int8_t)code;
            reporter->unsure = true;
            start_timer(reporter, &reporter->retry, RETRY_MS);
            return;
        }
        flight->state = FREE;
    }
    if (reporter->retry.set) {
        reporter->fault = HUSHMOTE_OK;
        reporter->unsure = true;
    }
    reporter->retry.set = false;
}

void hushmote_reporter_acknowledged(struct hushmote_reporter *reporter, long id) {
    if (id == reporter->status_id) {
        reporter->status_id = -1;
        reporter->status_answer.set = false;
        reporter->status_failures = 0;
    }
    for (unsigned i = 0; i < HUSHMOTE_IN_FLIGHT; i++) {
        if (reporter->flights[i].state == PUBLISHED && reporter->flights[i].id == id) {
            reporter->flights[i].state = ACKNOWLEDGED;
            reporter->sent++;
        }
    }
    drop_acknowledged(reporter);
}

static struct hushmote_flight *flight_of(struct hushmote_reporter *reporter, const uint8_t *report, int bytes) {
    for (unsigned i = 0; i < HUSHMOTE_IN_FLIGHT; i++) {
        struct hushmote_flight *flight = reporter->flights + i;
        if (report == NULL ? flight->state == FREE
                           : flight->state != FREE && flight->bytes == bytes &&
                                 memcmp(flight->report, report, (size_t)bytes) == 0)
            return flight;
    }
    return NULL;
}

/* Publish the oldest report that is not in flight. Return whether another one may follow immediately. */
static bool send_one(struct hushmote_reporter *reporter) {
    struct hushmote_flight *flight = flight_of(reporter, NULL, 0);
    uint8_t report[HUSHMOTE_REPORT_BYTES];
    char topic[TOPIC_BYTES];
    unsigned at = 0;
    int bytes = hushmote_unsent(reporter->client, 0, report);
    while (bytes > 0 && flight_of(reporter, report, bytes) != NULL)
        bytes = hushmote_unsent(reporter->client, ++at, report);
    if (bytes <= 0)
        reporter->due.set = false;
    if (bytes <= 0 || flight == NULL)
        return false;
    if (!reporter->due.set)
        start_timer(reporter, &reporter->due, random_up_to(reporter, reporter->port->delay_ms));
    if (!is_due(reporter, &reporter->due))
        return false;
    (void)topic_of(reporter, "/report/", config_of(reporter)->device_id, topic);
    flight->id = reporter->port->publish(reporter->port->context, topic, report, (size_t)bytes, false);
    if (flight->id < 0)
        return false;
    flight->state = PUBLISHED;
    flight->since = reporter->now;
    flight->bytes = (uint8_t)bytes;
    memcpy(flight->report, report, (size_t)bytes);
    reporter->due.set = false;
    return true;
}

/* --- The step ------------------------------------------------------------------------------------------------- */

/* Return whether an answer from the broker is overdue, which is the only way to detect a half-open connection. */
static bool is_overdue(const struct hushmote_reporter *reporter) {
    for (unsigned i = 0; i < HUSHMOTE_IN_FLIGHT; i++) {
        const struct hushmote_flight *flight = reporter->flights + i;
        if (flight->state == PUBLISHED && reporter->now - flight->since >= reporter->port->timeout_ms)
            return true;
    }
    return is_due(reporter, &reporter->answer);
}

/* Publish the status if it has changed, and if no report has to be sent or acknowledged first. */
static void update_status(struct hushmote_reporter *reporter) {
    char text[HUSHMOTE_STATUS_BYTES];
    uint8_t digest[DIGEST_BYTES];
    if (!uses_status(reporter) || is_due(reporter, &reporter->due))
        return;
    for (unsigned i = 0; i < HUSHMOTE_IN_FLIGHT; i++) {
        if (reporter->flights[i].state == PUBLISHED)
            return;
    }
    compute_digest(reporter, text, write_status(reporter, "online", text), digest);
    reporter->unsure =
        memcmp(digest, reporter->status_digest, sizeof digest) != 0 && publish_status(reporter, "online") < 0;
}

void hushmote_reporter_tick(struct hushmote_reporter *reporter, uint32_t now_ms) {
    reporter->now = now_ms;
    if (reporter->port->asker != NULL)
        reporter->port->asker->process_opt_out(reporter);
    if (hushmote_consent(reporter->client) != HUSHMOTE_YES) {
        if (reporter->link != DISCONNECTED)
            hushmote_reporter_close(reporter);
        return;
    }
    drop_acknowledged(reporter);
    if (reporter->link == DISCONNECTED) {
        if (!reporter->next.set) /* after a power cut, many boards start at the same time */
            start_timer(reporter, &reporter->next, random_up_to(reporter, spread_ms(reporter)));
        if (is_due(reporter, &reporter->next))
            begin_to_connect(reporter);
        return;
    }
    if (is_overdue(reporter)) {
        give_up(reporter);
        return;
    }
    if (reporter->link != CONNECTED)
        return;
    if (is_due(reporter, &reporter->steady)) {
        reporter->steady.set = false;
        reporter->attempt = 0;
        reporter->unsure |= reporter->short_connections >= HUSHMOTE_SHORT;
        reporter->short_connections = 0;
    }
    if (is_due(reporter, &reporter->status_answer)) { /* the broker may have dropped the message */
        reporter->status_answer.set = false;
        reporter->status_failures++;
    }
    if (is_due(reporter, &reporter->settled))
        end_unrepeated(reporter);
    while (send_one(reporter)) {
    }
    if (reporter->unsure)
        update_status(reporter);
}

int hushmote_reporter_begin(struct hushmote_reporter *reporter, struct hushmote *client,
                            const struct hushmote_port *port, struct hushmote_topic *topics, uint8_t *kept) {
    uint8_t entropy[64]; /* long enough to detect a stuck source */
    struct hushmote_piece piece;
    memset(reporter, 0, sizeof *reporter);
    if (client->config == NULL || client->config->fleet == NULL || port->connect == NULL || port->subscribe == NULL ||
        port->publish == NULL || port->disconnect == NULL ||
        (has_prefix(port) && strlen(port->prefix) > HUSHMOTE_PREFIX_BYTES) ||
        (kept != NULL && (port->read_kept == NULL || port->write_kept == NULL)) ||
        ((client->config->policy->consent & HUSHMOTE_ASK_EACH) != 0) != (port->asker != NULL && port->questions != NULL) ||
        (hm_log(client->config) != NULL) != (port->entries != NULL))
        return HUSHMOTE_BAD_SETTINGS;
    if (hm_entropy(client->config, entropy, sizeof entropy) != HUSHMOTE_OK)
        return HUSHMOTE_BAD_ENTROPY;
    reporter->client = client;
    reporter->port = port;
    reporter->topics = topics;
    reporter->kept = kept;
    reporter->status_id = -1;
    memset(topics, 0, name_count(reporter) * sizeof *topics);
    if (hm_log(client->config) != NULL)
        memset(port->entries, 0, name_count(reporter) * sizeof *port->entries);
    piece.data = entropy;
    piece.bytes = sizeof entropy;
    reporter->waits.config = client->config;
    hm_reseed(&reporter->waits, &piece, 1);
    if (port->asker != NULL)
        port->asker->load(reporter);
    for (unsigned i = 0; kept != NULL && i < name_count(reporter); i++)
        load(reporter, i);
    return HUSHMOTE_OK;
}

unsigned hushmote_broker_at(const char *list, unsigned number, unsigned port, char *host, size_t capacity) {
    const char *at = list, *end, *host_end;
    unsigned count = 1;
    for (const char *c = list; *c; c++)
        count += *c == ',';
    for (unsigned skip = number % count; skip > 0; at++)
        skip -= *at == ',';
    end = at + strcspn(at, ",");
    if (*at == '[') {
        at++;
        host_end = memchr(at, ']', (size_t)(end - at));
        if (host_end == NULL)
            return 0;
    } else {
        host_end = memchr(at, ':', (size_t)(end - at));
        if (host_end == NULL || memchr(host_end + 1, ':', (size_t)(end - host_end - 1)) != NULL)
            host_end = end; /* more than one colon: an IPv6 address without a port */
    }
    if (host_end == at || (size_t)(host_end - at) >= capacity)
        return 0;
    memcpy(host, at, (size_t)(host_end - at));
    host[host_end - at] = 0;
    at = host_end + (*host_end == ']');
    if (at < end && *at == ':') {
        for (port = 0, at++; *at >= '0' && *at <= '9' && port <= 65535; at++)
            port = port * 10 + (unsigned)(*at - '0');
    }
    return at == end && port <= 65535 ? port : 0;
}

int hushmote_consent_from_network(struct hushmote *client, bool yes) {
    if (yes && (client->config == NULL || !(client->config->policy->consent & HUSHMOTE_FROM_NETWORK)))
        return HUSHMOTE_REFUSED_POLICY;
    return hushmote_set_consent(client, yes);
}
