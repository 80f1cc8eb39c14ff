/**
 * @file
 * @brief The reporter: receive a client's experiments and send its reports over MQTT, and recover from outages.
 *
 * It uses no heap and no sockets. A platform gives it four MQTT functions and passes events to it; a port also
 * implements the callbacks in hushmote.h. posix/ is a port that uses libmosquitto. Call all functions from one thread,
 * and do not pass events from within the port's functions.
 *
 * @code
 *     hushmote_reporter_begin(&reporter, &client, &port, topics, kept);
 *     for (;;) {
 *         // pass events, then at least once a second:
 *         hushmote_reporter_tick(&reporter, milliseconds);
 *         // at a fixed interval:
 *         hushmote_reporter_report(&reporter, "room_temp", hushmote_milli(21400), report);
 *     }
 * @endcode
 *
 * Without consent, it does not connect; an opt-out closes the connection.
 *
 * With HUSHMOTE_ASK_EACH in the policy, each question waits in questions[].payload until someone at the board opts in
 * to it and the application calls hushmote_agree():
 *
 * @code
 *     port.asker = &hushmote_ask_each;
 *     port.questions = questions;  // one for each of the policy's names
 * @endcode
 *
 * With a log in the policy, the reporter also subscribes to the topics of the proofs:
 *
 * @code
 *     port.entries = entries;  // one for each of the policy's names
 * @endcode
 */
#ifndef HUSHMOTE_PORT_H
#define HUSHMOTE_PORT_H

#include "hushmote.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef HUSHMOTE_IN_FLIGHT
#define HUSHMOTE_IN_FLIGHT 4 /**< Maximum number of unacknowledged reports. */
#endif
#define HUSHMOTE_PAYLOAD_BYTES (HUSHMOTE_EXPERIMENT_BYTES + 69) /**< Longest signed experiment. */
#define HUSHMOTE_KEPT_BYTES (HUSHMOTE_PAYLOAD_BYTES + 20)       /**< Longest experiment kept in flash. */
#define HUSHMOTE_STATUS_BYTES 400                               /**< Longest status message. */
#define HUSHMOTE_PREFIX_BYTES 64                                /**< Longest topic prefix. */
#define HUSHMOTE_SPREAD_DEFAULT UINT32_MAX /**< 60 s, or the interval between readings if it is shorter. */
#define HUSHMOTE_LEFT_OUT 2 /**< Connections in a row that must end because of the status or the will to leave it out. */
#define HUSHMOTE_SHORT 3    /**< Connections in a row that must end early before another board is suspected. */

struct hushmote_reporter;

/** The question for one of the policy's names; only asking.c writes it. */
struct hushmote_question {
    bool has_yes;    /**< Whether someone has opted in to a question with this name. */
    uint8_t yes[12]; /**< The question of the last opt-in: 8 bytes of its SHA-256, and 4 bytes of epsilon. */
    uint16_t bytes;  /**< Size of the payload that is waiting for an opt-in; 0 if none is waiting. */
    const struct hushmote_group *group; /**< The open group that its reports would contain unprotected; NULL: none. */
    uint8_t payload[HUSHMOTE_PAYLOAD_BYTES]; /**< The payload that is waiting. */
};

/** What has arrived for one of the policy's names, with a log in the policy. An experiment and its proof come on two
    topics, in any order; the first of them waits here for the other. */
struct hushmote_log_entry {
    long subscription;  /**< The number that the port's `subscribe` returned for the proof's topic. */
    bool is_forbidden;  /**< Whether the broker forbids that subscription. */
    uint32_t leaf;      /**< Index in the log of the version in force; meaningless if there is none. */
    uint16_t bytes;     /**< Size of the payload that is waiting for a proof; 0 if none is waiting. */
    uint16_t proof_bytes; /**< Size of the newest proof; 0 if there is none, or if it has served. */
    uint8_t payload[HUSHMOTE_PAYLOAD_BYTES], proof[HUSHMOTE_PROOF_BYTES];
};

/** The functions with which the reporter asks about questions. hushmote_ask_each is the only instance; firmware that
    does not use it does not link it. */
struct hushmote_asker {
    void (*load)(struct hushmote_reporter *reporter);
    void (*process_opt_out)(struct hushmote_reporter *reporter);
    int (*ask)(struct hushmote_reporter *reporter, unsigned at, const uint8_t *payload, size_t bytes);
    void (*settle)(struct hushmote_reporter *reporter, unsigned at, bool agreed, bool withdrawn);
};
/** Ask about each question, as HUSHMOTE_ASK_EACH requires. */
extern const struct hushmote_asker hushmote_ask_each;

/** A platform's MQTT functions, storage for experiments, and times. */
struct hushmote_port {
    void *context; /**< Passed to each function. */

    /** Start connecting, with a clean session and a retained will at QoS 1, or without a will if `will_topic` is NULL.
        Return 0, and call hushmote_reporter_connected() or hushmote_reporter_disconnected() later. Return a value below
        0 if the broker cannot be reached, and above 0 if it has already refused or closed the connection. */
    int (*connect)(void *context, const char *will_topic, const uint8_t *will, size_t bytes);
    /** Subscribe at QoS 0; return a number to pass to hushmote_reporter_subscribed() with the SUBACK, below 0 on
        failure. The broker repeats retained messages on each connection, so QoS 0 loses nothing. */
    long (*subscribe)(void *context, const char *topic);
    /** Publish at QoS 1; return a number to pass to hushmote_reporter_acknowledged() with the PUBACK, below 0 on
        failure. */
    long (*publish)(void *context, const char *topic, const uint8_t *payload, size_t bytes, bool retain);
    /** Disconnect once all publications are written. Do not pass events of this connection afterwards. */
    void (*disconnect)(void *context);

    /** Read an experiment kept in flash under a name, like config.read, so that a board can report after starting
        without a network. To keep none, set this and write_kept to NULL; any version that was ever signed is then
        accepted after each start. */
    long (*read_kept)(void *context, const char *name, uint8_t *data, size_t bytes);
    /** Keep an experiment in flash, like config.write; 0 bytes remove it. Key it by its name, and remove no others: a name
        that the policy lacks may be in the next firmware's policy, and its serial must then still be there. Return a value
        above 0 if there is no room for the serial of one more name; its experiment is then refused. */
    int (*write_kept)(void *context, const char *name, const uint8_t *data, size_t bytes);

    /* Milliseconds, each up to 16,000,000. */
    uint32_t delay_ms;       /**< Longest random delay before each report is sent, so that its time reveals nothing. */
    uint32_t spread_ms;      /**< Longest random wait before the first connection, and after one that was stable;
                                  #HUSHMOTE_SPREAD_DEFAULT suits most fleets. */
    uint32_t backoff_ms;     /**< Longest random wait before other attempts, doubled after each failure. */
    uint32_t backoff_max_ms; /**< Upper limit of that wait. */
    uint32_t timeout_ms;     /**< Longest wait for an answer from the broker. */
    uint32_t settle_ms;      /**< In an open fleet, experiments that the broker has not sent this long after connecting end. */

    const struct hushmote_asker *asker;  /**< &hushmote_ask_each with HUSHMOTE_ASK_EACH in the policy, else NULL. */
    struct hushmote_question *questions; /**< With an asker, one for each of the policy's names. */

    struct hushmote_log_entry *entries; /**< With a log in the policy, one for each of the policy's names, else NULL. */

    const char *prefix; /**< Topic levels before hushmote/v1, such as "tenants/acme", of up to #HUSHMOTE_PREFIX_BYTES; NULL or ""
                             for none. The aggregator needs the same. */
    bool omit_status; /**< Never publish the status, for brokers that do not permit it. */
    bool omit_will;   /**< Never set a will. */
};

/**
 * @brief Set a port's six times to their defaults.
 * @param[out] port The port.
 */
static inline void hushmote_port_set_times(struct hushmote_port *port) {
    port->delay_ms = 30000;
    port->spread_ms = HUSHMOTE_SPREAD_DEFAULT;
    port->backoff_ms = 2000;
    port->backoff_max_ms = 300000;
    port->timeout_ms = 30000;
    port->settle_ms = 10000;
}

/** State of an experiment's topic. */
struct hushmote_topic {
    long subscription; /**< The number that the port's `subscribe` returned. */
    uint8_t accepted[8], rejected[8]; /**< First bytes of the SHA-256 of the last accepted and the last refused message. */
    bool has_accepted;
    int8_t why;     /**< Code of the last refused message; 0 if there is none. */
    bool heard;     /**< Whether a message has arrived on this connection. */
    bool mistyped;  /**< Whether the last reading had a wrong type, and counted as missing. */
    int8_t refused; /**< 0, or the code with which the newest message was refused. */
};

/** A report that has been published but not yet deleted. */
struct hushmote_flight {
    long id;
    uint32_t since;
    uint8_t state, bytes, report[HUSHMOTE_REPORT_BYTES];
};

/** A timer. */
struct hushmote_timer {
    bool set;
    uint32_t since, ms;
};

/** A reporter. Applications may read its members. */
struct hushmote_reporter {
    struct hushmote *client;
    const struct hushmote_port *port;
    struct hushmote_topic *topics;
    uint8_t *kept;
    struct hushmote_random waits; /**< Separate from the client's generator, because anyone can observe these waits. */
    struct hushmote_flight flights[HUSHMOTE_IN_FLIGHT];
    struct hushmote_timer next, answer, steady, settled, due, retry, status_answer;
    long status_id; /**< The status message that awaits its acknowledgement; -1 if there is none. */
    uint32_t now;
    uint32_t interval, paced_since; /**< Measured interval between readings of the first experiment that has any. */
    uint32_t attempt, connects, sent; /**< Numbers of consecutive failures, of connections, and of acknowledged reports. */
    uint32_t opt_outs;                /**< Number of the client's opt-outs that the asker has processed. */
    uint8_t link;                     /**< 0 disconnected, 1 connecting, 2 connected. */
    int8_t fault, kept_fault;         /**< Error codes for flash or randomness, and for the kept experiments. */
    uint8_t status_failures, will_failures; /**< Connections in a row that ended because of it; from #HUSHMOTE_LEFT_OUT
                                                 on, it is left out until a stable connection has ended. */
    uint8_t short_connections; /**< Connections in a row that ended within 30 s without a known cause; from
                                    #HUSHMOTE_SHORT on, another board may be using this device id. */
    uint8_t connack;           /**< The code with which the broker refused the last connection; 0 if it did not. */
    uint8_t pacer;             /**< 1 + index of the experiment whose interval is measured; 0 if there is none. */
    bool unsure;                      /**< Whether the published status may be outdated. */
    uint8_t status_digest[8];         /**< First bytes of the SHA-256 of the last published status. */
};

/**
 * @brief Start a reporter and enroll in the kept experiments.
 * @param reporter The reporter to initialize.
 * @param client A client, after hushmote_begin().
 * @param port MQTT, storage and times; must outlive the reporter.
 * @param topics One for each of the policy's names.
 * @param kept Buffer of #HUSHMOTE_KEPT_BYTES; NULL if the port keeps no experiments.
 * @return #HUSHMOTE_OK, #HUSHMOTE_BAD_SETTINGS (the fleet or a function is missing, or the asker or the entries do not
 *     match the policy) or #HUSHMOTE_BAD_ENTROPY.
 */
int hushmote_reporter_begin(struct hushmote_reporter *reporter, struct hushmote *client,
                            const struct hushmote_port *port, struct hushmote_topic *topics, uint8_t *kept);

/**
 * @brief Randomize a reading like hushmote_report(), and send the report after a random delay.
 *
 * A reading of a wrong type counts as missing, because silence must not depend on a sensor's value.
 *
 * @param reporter The reporter.
 * @param name Name of the experiment.
 * @param reading The reading.
 * @param[out] report The report.
 * @return Number of bytes in the report; 0 if no report is made; a code below 0 on error.
 */
int hushmote_reporter_report(struct hushmote_reporter *reporter, const char *name, struct hushmote_reading reading,
                             uint8_t report[HUSHMOTE_REPORT_BYTES]);

/**
 * @brief Randomize a reading like hushmote_report_as(), and send the report after a random delay.
 * @param reporter The reporter.
 * @param name Name of the experiment.
 * @param reading The reading.
 * @param group The open group's value in the period that the reading describes; NULL for the policy's value.
 * @param[out] report The report.
 * @return The result of hushmote_reporter_report().
 */
int hushmote_reporter_report_as(struct hushmote_reporter *reporter, const char *name, struct hushmote_reading reading,
                                const char *group, uint8_t report[HUSHMOTE_REPORT_BYTES]);

/**
 * @brief Connect, send reports and handle timeouts when they are due. Call it at least once a second.
 * @param reporter The reporter.
 * @param now_ms A millisecond counter, which may wrap.
 */
void hushmote_reporter_tick(struct hushmote_reporter *reporter, uint32_t now_ms);

/**
 * @brief Tell the reporter that the broker has accepted the connection.
 * @param reporter The reporter.
 */
void hushmote_reporter_connected(struct hushmote_reporter *reporter);

/**
 * @brief Tell the reporter the code with which the broker's CONNACK refused the connection, within the port's `connect`
 *     or before the call of hushmote_reporter_disconnected().
 * @param reporter The reporter.
 * @param code The code: 4 for a wrong user name or password, 5 if the client is not authorized.
 */
void hushmote_reporter_refused(struct hushmote_reporter *reporter, int code);

/**
 * @brief Tell the reporter that the broker has answered a subscription. Without this, it does not notice a refusal.
 * @param reporter The reporter.
 * @param id The number that the port's `subscribe` returned.
 * @param code The SUBACK's code: the granted QoS, or 128 and above if the broker forbids the subscription.
 */
void hushmote_reporter_subscribed(struct hushmote_reporter *reporter, long id, int code);

/**
 * @brief Tell the reporter that the connection has ended or could not be established.
 * @param reporter The reporter.
 */
void hushmote_reporter_disconnected(struct hushmote_reporter *reporter);

/**
 * @brief Pass a message to the reporter. The call may verify a signature, which is slow.
 * @param reporter The reporter.
 * @param topic The message's topic, not zero-terminated.
 * @param topic_bytes Number of bytes in the topic.
 * @param payload The message's payload.
 * @param bytes Number of bytes in the payload.
 */
void hushmote_reporter_message(struct hushmote_reporter *reporter, const char *topic, size_t topic_bytes,
                               const uint8_t *payload, size_t bytes);

/**
 * @brief Tell the reporter that the broker has acknowledged a publication.
 * @param reporter The reporter.
 * @param id The number that the port's `publish` returned.
 */
void hushmote_reporter_acknowledged(struct hushmote_reporter *reporter, long id);

/**
 * @brief Opt in to an experiment's waiting question, on behalf of someone at the board.
 *
 * The opt-in applies to the question, up to its epsilon. If the port keeps experiments, it is kept in flash until the
 * question is withdrawn or someone opts out of everything; the next hushmote_reporter_tick() then removes it from
 * flash.
 *
 * @param reporter The reporter.
 * @param name Name of the experiment.
 * @param payload The question that was shown, which must still be waiting; NULL for any waiting question.
 * @param bytes Number of bytes in `payload`.
 * @return #HUSHMOTE_OK; #HUSHMOTE_UNKNOWN; #HUSHMOTE_REFUSED_UNASKED if no question or a different one is waiting, or
 *     the board has opted out; or the code with which the experiment is refused.
 */
int hushmote_agree(struct hushmote_reporter *reporter, const char *name, const uint8_t *payload, size_t bytes);

/**
 * @brief Publish "offline" and disconnect, for example before sleeping; the next tick connects again.
 * @param reporter The reporter.
 */
void hushmote_reporter_close(struct hushmote_reporter *reporter);

/**
 * @brief Copy the host of one of a cluster's brokers.
 * @param list "host", "host:port", "address" or "[address]:port", or several separated by commas.
 * @param number Index of the broker; numbers past the end start again with the first.
 * @param port Port for brokers that do not specify one.
 * @param[out] host The host, without brackets.
 * @param capacity Size of `host`.
 * @return Its port, or 0 if the text is malformed or the host does not fit.
 */
unsigned hushmote_broker_at(const char *list, unsigned number, unsigned port, char *host, size_t capacity);

/**
 * @brief Store an opt-in or opt-out that arrived over the network.
 * @param client The client.
 * @param yes Whether the board takes part; true needs HUSHMOTE_FROM_NETWORK in the policy.
 * @return The result of hushmote_set_consent(), or #HUSHMOTE_REFUSED_POLICY.
 */
int hushmote_consent_from_network(struct hushmote *client, bool yes);

#ifdef __cplusplus
}
#endif

#endif
