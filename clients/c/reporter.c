/* Connect a client to MQTT: which bytes, in which order, and when to try again. It only passes readings on to
   hushmote_report(), and the only bytes that it makes itself are the status words, none of which depends on a reading. */
#include <string.h>

#include "core.h"
#include "hushmote_port.h"

enum { APART, CONNECTING, CONNECTED };
enum { FREE, PUBLISHED, ACKNOWLEDGED };

#define STEADY_MS 30000u /* a connection that lasted this long was a good one */
#define RETRY_MS 60000u  /* flash that failed is tried again after this */
#define MAX_WORDS 8
#define MAX_MS 16000000u
#define TOPIC_BYTES 96
#define PRINT_BYTES 8

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

static void set(struct hushmote_reporter *reporter, struct hushmote_timer *timer, uint32_t ms) {
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

/* hushmote/v1/FLEET/KIND/NAME; returns its length. */
static size_t topic_of(const struct hushmote_reporter *reporter, const char *kind, const char *name,
                       char topic[TOPIC_BYTES]) {
    size_t at = append(topic, 0, "hushmote/v1/");
    at = append(topic, at, config_of(reporter)->fleet);
    at = append(topic, at, kind);
    return append(topic, at, name);
}

static void print_of(const struct hushmote_reporter *reporter, const void *data, size_t bytes, uint8_t print[PRINT_BYTES]) {
    struct hushmote_piece piece;
    uint8_t digest[32];
    piece.data = data;
    piece.bytes = bytes;
    hm_sha256(config_of(reporter), &piece, 1, digest);
    memcpy(print, digest, PRINT_BYTES);
}

struct words {
    char *text;
    size_t end, last; /* end of the text, and start of its last word that fits */
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

/* Write the message of the status topic: `state`, then everything that needs attention. */
static size_t health(const struct hushmote_reporter *reporter, const char *state, char text[HUSHMOTE_STATUS_BYTES]) {
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
    for (unsigned i = 0; i < name_count(reporter); i++) {
        (void)hushmote_line(reporter->client, name_of(reporter, i), &line);
        if (line.refused || reporter->topics[i].refused)
            add_word(&words, "refused:", name_of(reporter, i));
        else if (line.enrolled && line.left == 0 && !status.locked)
            add_word(&words, "spent:", name_of(reporter, i));
    }
    return words.end;
}

static long publish_health(struct hushmote_reporter *reporter, const char *state) {
    char text[HUSHMOTE_STATUS_BYTES], topic[TOPIC_BYTES];
    size_t bytes = health(reporter, state, text);
    long id;
    (void)topic_of(reporter, "/status/", config_of(reporter)->device_id, topic);
    id = reporter->port->publish(reporter->port->context, topic, (const uint8_t *)text, bytes, true);
    if (id >= 0)
        print_of(reporter, text, bytes, reporter->said);
    return id;
}

/* --- The connection ------------------------------------------------------------------------------------------- */

static void apart(struct hushmote_reporter *reporter) {
    reporter->link = APART;
    reporter->answer.set = reporter->steady.set = reporter->settled.set = false;
    for (unsigned i = 0; i < HUSHMOTE_IN_FLIGHT; i++) {
        if (reporter->flights[i].state == PUBLISHED)
            reporter->flights[i].state = FREE; /* to be sent again as it is */
    }
}

/* The connection, or the attempt at one, is over; the next attempt waits. */
static void lost(struct hushmote_reporter *reporter) {
    const struct hushmote_port *port = reporter->port;
    uint32_t most = port->spread_ms;
    if (reporter->link != CONNECTED || reporter->attempt > 0) { /* it had not lasted */
        most = port->backoff_ms;
        for (uint32_t i = 0; i < reporter->attempt && most < port->backoff_max_ms; i++)
            most *= 2;
        if (most > port->backoff_max_ms)
            most = port->backoff_max_ms;
    }
    apart(reporter);
    reporter->attempt++;
    set(reporter, &reporter->next, random_up_to(reporter, most));
}

static void give_up(struct hushmote_reporter *reporter) {
    reporter->port->disconnect(reporter->port->context);
    lost(reporter);
}

static void begin_to_connect(struct hushmote_reporter *reporter) {
    char text[HUSHMOTE_STATUS_BYTES], topic[TOPIC_BYTES];
    size_t bytes = health(reporter, "offline", text);
    (void)topic_of(reporter, "/status/", config_of(reporter)->device_id, topic);
    reporter->link = CONNECTING;
    set(reporter, &reporter->answer, reporter->port->timeout_ms);
    if (reporter->port->connect(reporter->port->context, topic, (const uint8_t *)text, bytes) != 0)
        lost(reporter);
}

void hushmote_reporter_connected(struct hushmote_reporter *reporter) {
    char topic[TOPIC_BYTES];
    if (reporter->link != CONNECTING)
        return;
    reporter->link = CONNECTED;
    reporter->answer.set = false;
    reporter->connects++;
    set(reporter, &reporter->steady, STEADY_MS);
    set(reporter, &reporter->settled, reporter->port->settle_ms);
    for (unsigned i = 0; i < name_count(reporter); i++) {
        reporter->topics[i].heard = false;
        (void)topic_of(reporter, "/experiment/", name_of(reporter, i), topic);
        if (reporter->port->subscribe(reporter->port->context, topic) != 0) {
            give_up(reporter);
            return;
        }
    }
    reporter->unsure = false;
    if (publish_health(reporter, "online") < 0)
        give_up(reporter);
}

void hushmote_reporter_disconnected(struct hushmote_reporter *reporter) {
    if (reporter->link != APART)
        lost(reporter);
}

void hushmote_reporter_close(struct hushmote_reporter *reporter) {
    if (reporter->link == CONNECTED)
        (void)publish_health(reporter, "offline");
    if (reporter->link != APART)
        reporter->port->disconnect(reporter->port->context);
    apart(reporter);
    set(reporter, &reporter->next, 0);
}

/* --- Experiments ---------------------------------------------------------------------------------------------- */

static uint32_t seal(const struct hushmote_reporter *reporter, unsigned at, size_t bytes) {
    return hm_seal(config_of(reporter), name_of(reporter, at), reporter->kept, bytes);
}

/* The least serial, the payload, a CRC-32: as the MicroPython client keeps an experiment or its withdrawal. */
static void keep(struct hushmote_reporter *reporter, unsigned at, const uint8_t *payload, size_t bytes) {
    const struct hushmote_port *port = reporter->port;
    size_t total = bytes == 0 ? 0 : bytes + 8;
    if (reporter->kept == NULL)
        return;
    if (total > 0) {
        hm_put(reporter->kept, 4, config_of(reporter)->experiments[at].serial);
        memcpy(reporter->kept + 4, payload, bytes);
        hm_put(reporter->kept + 4 + bytes, 4, seal(reporter, at, 4 + bytes));
    }
    reporter->kept_fault = 0;
    if (port->write_kept(port->context, name_of(reporter, at), reporter->kept, total) != 0)
        reporter->kept_fault = HUSHMOTE_STORAGE;
}

static void load(struct hushmote_reporter *reporter, unsigned at) {
    struct hushmote_topic *topic = reporter->topics + at;
    const struct hushmote_asker *asker = reporter->port->asker;
    uint8_t *kept = reporter->kept;
    long total = reporter->port->read_kept(reporter->port->context, name_of(reporter, at), kept, HUSHMOTE_KEPT_BYTES);
    size_t bytes = (size_t)total - 8;
    if (total <= 8 || total > HUSHMOTE_KEPT_BYTES || hm_get(kept + 4 + bytes, 4) != seal(reporter, at, 4 + bytes))
        return; /* the broker will bring it again */
    config_of(reporter)->experiments[at].serial = (uint32_t)hm_get(kept, 4);
    if (kept[4] > 0 && asker != NULL && asker->ask(reporter, at, kept + 4, bytes) != HUSHMOTE_OK)
        return; /* it waits */
    if (kept[4] > 0 && hm_enroll(reporter->client, name_of(reporter, at), kept + 4, bytes, true) != HUSHMOTE_OK)
        return; /* the policy has changed */
    topic->has_accepted = true;
    print_of(reporter, kept + 4, bytes, topic->accepted);
}

/* Return 0 if an experiment, or its withdrawal, is in force now, or why it is refused. */
static int consider(struct hushmote_reporter *reporter, unsigned at, const uint8_t *payload, size_t bytes, bool agreed) {
    const struct hushmote_asker *asker = reporter->port->asker;
    bool withdraws = bytes == 0 || payload[0] == 0;
    int code = HUSHMOTE_OK;
    if (withdraws)
        code = hushmote_withdraw(reporter->client, name_of(reporter, at), payload, bytes);
    else if (asker != NULL && !agreed)
        code = asker->ask(reporter, at, payload, bytes);
    if (code == HUSHMOTE_OK && !withdraws)
        code = hm_enroll(reporter->client, name_of(reporter, at), payload, bytes, false);
    if (code == HUSHMOTE_OK && asker != NULL)
        asker->settle(reporter, at, agreed, withdraws);
    return code;
}

int hm_take_message(struct hushmote_reporter *reporter, unsigned at, const uint8_t *payload, size_t bytes, bool agreed) {
    struct hushmote_topic *topic = reporter->topics + at;
    const struct hushmote_asker *asker = reporter->port->asker;
    uint8_t print[PRINT_BYTES];
    int code;
    if (asker != NULL)
        asker->hear(reporter);
    print_of(reporter, payload, bytes, print);
    if (topic->has_accepted && memcmp(print, topic->accepted, sizeof print) == 0) {
        /* A repeated message costs nothing, and a message refused meanwhile has changed nothing. */
        topic->refused = config_of(reporter)->experiments[at].refused = HUSHMOTE_OK;
        if (asker != NULL)
            asker->settle(reporter, at, false, false);
        return HUSHMOTE_OK;
    }
    if (!agreed && topic->why != HUSHMOTE_OK && memcmp(print, topic->rejected, sizeof print) == 0)
        return topic->refused = topic->why;
    code = consider(reporter, at, payload, bytes, agreed);
    topic->refused = (int8_t)code;
    if (code != HUSHMOTE_OK) {
        topic->why = (int8_t)(code == HUSHMOTE_BUSY || agreed ? HUSHMOTE_OK : code); /* these bytes may be looked at again */
        memcpy(topic->rejected, print, sizeof print);
        return code;
    }
    topic->has_accepted = true;
    memcpy(topic->accepted, print, sizeof print);
    keep(reporter, at, payload, bytes);
    return HUSHMOTE_OK;
}

void hushmote_reporter_message(struct hushmote_reporter *reporter, const char *topic, size_t topic_bytes,
                               const uint8_t *payload, size_t bytes) {
    char known[TOPIC_BYTES];
    for (unsigned i = 0; i < name_count(reporter); i++) {
        if (topic_of(reporter, "/experiment/", name_of(reporter, i), known) == topic_bytes &&
            memcmp(known, topic, topic_bytes) == 0) {
            reporter->topics[i].heard = true;
            reporter->unsure = true;
            (void)hm_take_message(reporter, i, payload == NULL ? (const uint8_t *)"" : payload, bytes, false);
        }
    }
}

static bool is_waiting(const struct hushmote_reporter *reporter, unsigned at) {
    return reporter->port->asker != NULL && reporter->port->questions[at].bytes > 0;
}

/* In an open fleet, end experiments withdrawn while the board was away: the broker no longer repeats them. */
static void settle(struct hushmote_reporter *reporter) {
    const struct hushmote_config *config = config_of(reporter);
    reporter->settled.set = false;
    for (unsigned i = 0; config->announce_key == NULL && i < name_count(reporter); i++) {
        if (!reporter->topics[i].heard && (config->experiments[i].enrolled || is_waiting(reporter, i))) {
            (void)hm_take_message(reporter, i, (const uint8_t *)"", 0, false);
            reporter->unsure = true;
        }
    }
}

/* --- Reports -------------------------------------------------------------------------------------------------- */

int hushmote_reporter_report(struct hushmote_reporter *reporter, const char *name, struct hushmote_reading reading,
                             uint8_t report[HUSHMOTE_REPORT_BYTES]) {
    int made = hushmote_report(reporter->client, name, reading, report);
    reporter->unsure = true; /* a budget may be spent now */
    for (unsigned i = 0; i < name_count(reporter); i++) {
        if (strlen(name_of(reporter, i)) == strlen(name) && memcmp(name_of(reporter, i), name, strlen(name)) == 0)
            reporter->topics[i].mistyped = made == HUSHMOTE_WRONG_TYPE;
    }
    if (made == HUSHMOTE_WRONG_TYPE)
        made = hushmote_report(reporter->client, name, hushmote_none(), report);
    if (made < 0)
        reporter->fault = (int8_t)made;
    else if (!reporter->retry.set)
        reporter->fault = HUSHMOTE_OK;
    return made;
}

/* Remove acknowledged reports from flash; if that fails, try again much later. */
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
            set(reporter, &reporter->retry, RETRY_MS);
            return;
        }
        flight->state = FREE;
    }
    if (reporter->retry.set)
        reporter->fault = HUSHMOTE_OK;
    reporter->retry.set = false;
}

void hushmote_reporter_acknowledged(struct hushmote_reporter *reporter, long id) {
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

/* Publish the oldest report that is not on its way; returns whether another may follow at once. */
static bool send_one(struct hushmote_reporter *reporter) {
    struct hushmote_flight *flight = flight_of(reporter, NULL, 0);
    uint8_t report[HUSHMOTE_REPORT_BYTES];
    char topic[TOPIC_BYTES];
    unsigned at = 0;
    int bytes = hushmote_unsent(reporter->client, 0, report);
    while (bytes > 0 && flight_of(reporter, report, bytes) != NULL)
        bytes = hushmote_unsent(reporter->client, ++at, report);
    if (bytes <= 0 || flight == NULL)
        return false;
    if (!reporter->due.set)
        set(reporter, &reporter->due, random_up_to(reporter, reporter->port->delay_ms));
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

/* Whether the broker owes an answer for too long: nothing else will ever say that the other end is gone. */
static bool overdue(const struct hushmote_reporter *reporter) {
    for (unsigned i = 0; i < HUSHMOTE_IN_FLIGHT; i++) {
        const struct hushmote_flight *flight = reporter->flights + i;
        if (flight->state == PUBLISHED && reporter->now - flight->since >= reporter->port->timeout_ms)
            return true;
    }
    return is_due(reporter, &reporter->answer);
}

/* Publish a changed status. */
static void tell(struct hushmote_reporter *reporter) {
    char text[HUSHMOTE_STATUS_BYTES];
    uint8_t print[PRINT_BYTES];
    print_of(reporter, text, health(reporter, "online", text), print);
    reporter->unsure = memcmp(print, reporter->said, sizeof print) != 0 && publish_health(reporter, "online") < 0;
}

void hushmote_reporter_tick(struct hushmote_reporter *reporter, uint32_t now_ms) {
    reporter->now = now_ms;
    if (reporter->port->asker != NULL)
        reporter->port->asker->hear(reporter);
    if (hushmote_consent(reporter->client) != HUSHMOTE_YES) {
        if (reporter->link != APART)
            hushmote_reporter_close(reporter);
        return;
    }
    drop_acknowledged(reporter);
    if (reporter->link == APART) {
        if (!reporter->next.set) /* after a power cut a whole street's boards start at once */
            set(reporter, &reporter->next, random_up_to(reporter, reporter->port->spread_ms));
        if (is_due(reporter, &reporter->next))
            begin_to_connect(reporter);
        return;
    }
    if (overdue(reporter)) {
        give_up(reporter);
        return;
    }
    if (reporter->link != CONNECTED)
        return;
    if (is_due(reporter, &reporter->steady)) {
        reporter->steady.set = false;
        reporter->attempt = 0;
    }
    if (is_due(reporter, &reporter->settled))
        settle(reporter);
    if (reporter->unsure)
        tell(reporter);
    while (send_one(reporter)) {
    }
}

int hushmote_reporter_begin(struct hushmote_reporter *reporter, struct hushmote *client,
                            const struct hushmote_port *port, struct hushmote_topic *topics, uint8_t *kept) {
    uint8_t entropy[64]; /* as long as it takes to tell that a source is stuck */
    struct hushmote_piece piece;
    memset(reporter, 0, sizeof *reporter);
    if (client->config == NULL || client->config->fleet == NULL || port->connect == NULL || port->subscribe == NULL ||
        port->publish == NULL || port->disconnect == NULL ||
        (kept != NULL && (port->read_kept == NULL || port->write_kept == NULL)) ||
        ((client->config->policy->consent & HUSHMOTE_ASK_EACH) != 0) != (port->asker != NULL && port->questions != NULL))
        return HUSHMOTE_BAD_SETTINGS;
    if (hm_entropy(client->config, entropy, sizeof entropy) != HUSHMOTE_OK)
        return HUSHMOTE_BAD_ENTROPY;
    reporter->client = client;
    reporter->port = port;
    reporter->topics = topics;
    reporter->kept = kept;
    memset(topics, 0, name_count(reporter) * sizeof *topics);
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

int hushmote_consent_from_network(struct hushmote *client, bool yes) {
    if (yes && (client->config == NULL || !(client->config->policy->consent & HUSHMOTE_FROM_NETWORK)))
        return HUSHMOTE_REFUSED_POLICY;
    return hushmote_set_consent(client, yes);
}
