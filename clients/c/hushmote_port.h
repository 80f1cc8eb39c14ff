/* The reporter: carries a client's experiments and reports over MQTT, through every outage.

   It has no heap and no sockets. A platform gives it MQTT in four functions and hands in what happens; hushmote.h's
   callbacks are the rest of a port. posix/ is one, on libmosquitto. Everything is called from one thread, and no event
   is handed in from within a function of the port.

       hushmote_reporter_begin(&reporter, &client, &port, topics, kept);
       forever: hand in events; hushmote_reporter_tick(&reporter, milliseconds), at least once a second;
                hushmote_reporter_report(&reporter, "room_temp", hushmote_milli(21400), report), on a fixed rhythm

   Without consent it opens no connection; a no closes the one there is.

   With HUSHMOTE_ASK_EACH in the policy each question waits for a yes of its own, in questions[].payload, until somebody at
   the board says it and hushmote_agree() is called:

       port.asker = &hushmote_ask_each;
       port.questions = questions;   one for each of the policy's names */
#ifndef HUSHMOTE_PORT_H
#define HUSHMOTE_PORT_H

#include "hushmote.h"

#ifdef __cplusplus
extern "C" {
#endif

#ifndef HUSHMOTE_IN_FLIGHT
#define HUSHMOTE_IN_FLIGHT 4 /* reports that may be unacknowledged at a time */
#endif
#define HUSHMOTE_PAYLOAD_BYTES (HUSHMOTE_EXPERIMENT_BYTES + 69)
#define HUSHMOTE_KEPT_BYTES (HUSHMOTE_PAYLOAD_BYTES + 8)
#define HUSHMOTE_STATUS_BYTES 400

struct hushmote_reporter;

struct hushmote_question { /* of one of the policy's names; written by asking.c alone */
    bool has_yes;
    uint8_t yes[12]; /* what the last yes applies to: 8 bytes of SHA-256 of what is asked, 4 of epsilon */
    uint16_t bytes;  /* of the payload that waits for a yes; 0: none does */
    uint8_t payload[HUSHMOTE_PAYLOAD_BYTES];
};

/* How the reporter asks; &hushmote_ask_each is the one there is. What does not name it does not link it. */
struct hushmote_asker {
    void (*load)(struct hushmote_reporter *reporter);
    void (*hear)(struct hushmote_reporter *reporter);
    int (*ask)(struct hushmote_reporter *reporter, unsigned at, const uint8_t *payload, size_t bytes);
    void (*settle)(struct hushmote_reporter *reporter, unsigned at, bool agreed, bool withdrawn);
};
extern const struct hushmote_asker hushmote_ask_each;

struct hushmote_port {
    void *context; /* handed to each function */

    /* Begin to connect, with a clean session and a retained will at QoS 1; 0, or anything else where that fails at once.
       Later comes hushmote_reporter_connected() or _disconnected(). */
    int (*connect)(void *context, const char *will_topic, const uint8_t *will, size_t bytes);
    int (*subscribe)(void *context, const char *topic); /* at QoS 0; 0, or anything else */
    /* At QoS 1; returns a number that hushmote_reporter_acknowledged() brings with the PUBACK, below 0 where it fails. */
    long (*publish)(void *context, const char *topic, const uint8_t *payload, size_t bytes, bool retain);
    /* Close, once what was published is written. No event of this connection follows. */
    void (*disconnect)(void *context);

    /* Experiments in flash, by name, so that a start without network can report; both NULL to keep none, but then each
       start accepts any version that was ever signed. As config's read and write; 0 bytes remove it. */
    long (*read_kept)(void *context, const char *name, uint8_t *data, size_t bytes);
    int (*write_kept)(void *context, const char *name, const uint8_t *data, size_t bytes);

    /* Milliseconds, each up to 16,000,000. */
    uint32_t delay_ms;       /* each report waits for a random time up to this, so that when it comes tells nothing */
    uint32_t spread_ms;      /* the first attempt to connect waits so long at random, and one after a lasting connection */
    uint32_t backoff_ms;     /* others up to this, doubled at each failure */
    uint32_t backoff_max_ms; /* but no more */
    uint32_t timeout_ms;     /* how long the broker may owe an answer */
    uint32_t settle_ms;      /* what it has not repeated so long after a connect was withdrawn, in an open fleet */

    const struct hushmote_asker *asker;  /* with HUSHMOTE_ASK_EACH in the policy, else NULL */
    struct hushmote_question *questions; /* with an asker: one for each of the policy's names */
};

/* Set good values of these six. */
static inline void hushmote_port_set_times(struct hushmote_port *port) {
    port->delay_ms = 30000;
    port->spread_ms = 2000;
    port->backoff_ms = 2000;
    port->backoff_max_ms = 300000;
    port->timeout_ms = 30000;
    port->settle_ms = 10000;
}

struct hushmote_topic { /* of an experiment */
    uint8_t accepted[8], rejected[8]; /* of SHA-256 of the last message that was taken, and of the last that was refused */
    bool has_accepted;
    int8_t why;     /* the last one was refused; 0 where there is none */
    bool heard;     /* whether this connection has brought one */
    bool mistyped;  /* the last reading was of a wrong type, and counted as none */
    int8_t refused; /* 0, or why the newest message was refused */
};

struct hushmote_flight { /* a report that was published */
    long id;
    uint32_t since;
    uint8_t state, bytes, report[HUSHMOTE_REPORT_BYTES];
};

struct hushmote_timer {
    bool set;
    uint32_t since, ms;
};

/* Read it, if you like. */
struct hushmote_reporter {
    struct hushmote *client;
    const struct hushmote_port *port;
    struct hushmote_topic *topics;
    uint8_t *kept;
    struct hushmote_random waits; /* not the client's: everybody sees these waits */
    struct hushmote_flight flights[HUSHMOTE_IN_FLIGHT];
    struct hushmote_timer next, answer, steady, settled, due, retry;
    uint32_t now;
    uint32_t attempt, connects, sent; /* failures in a row; counters */
    uint32_t noes;                    /* of the client, how many an asker has heard */
    uint8_t link;                     /* 0 apart, 1 connecting, 2 connected */
    int8_t fault, kept_fault;         /* codes: of flash or randomness; of the kept experiments */
    bool unsure;                      /* whether the status topic may hold something else than it should */
    uint8_t said[8];
};

/* topics: one for each of the policy's names. kept: HUSHMOTE_KEPT_BYTES; NULL where the port keeps nothing. Takes part in
   what is kept. HUSHMOTE_OK, HUSHMOTE_BAD_SETTINGS (no fleet, a function is missing, or an asker does not fit the policy)
   or HUSHMOTE_BAD_ENTROPY. */
int hushmote_reporter_begin(struct hushmote_reporter *reporter, struct hushmote *client,
                            const struct hushmote_port *port, struct hushmote_topic *topics, uint8_t *kept);

/* As hushmote_report(), and send it some time later. A reading of a wrong type counts as none: silence must not depend
   on what a sensor gave. */
int hushmote_reporter_report(struct hushmote_reporter *reporter, const char *name, struct hushmote_reading reading,
                             uint8_t report[HUSHMOTE_REPORT_BYTES]);

/* Do what is due, by a millisecond counter that may wrap. */
void hushmote_reporter_tick(struct hushmote_reporter *reporter, uint32_t now_ms);

/* What happened. A message may take as long as a signature. */
void hushmote_reporter_connected(struct hushmote_reporter *reporter);
void hushmote_reporter_disconnected(struct hushmote_reporter *reporter);
void hushmote_reporter_message(struct hushmote_reporter *reporter, const char *topic, size_t topic_bytes,
                               const uint8_t *payload, size_t bytes);
void hushmote_reporter_acknowledged(struct hushmote_reporter *reporter, long id);

/* Somebody at the board says yes to the question that waits. payload: what he saw, which must wait still; NULL for whatever
   waits. 0, or why the experiment is refused; HUSHMOTE_REFUSED_UNASKED: nothing waits, or another question, or the board's
   consent is no. A yes applies to what is asked, up to its epsilon; it is kept in flash, if the port keeps experiments, until
   the question is withdrawn or somebody says no to everything: the next hushmote_reporter_tick() takes it out of flash. */
int hushmote_agree(struct hushmote_reporter *reporter, const char *name, const uint8_t *payload, size_t bytes);

/* Say "offline" and disconnect, as before a sleep; a tick connects again. */
void hushmote_reporter_close(struct hushmote_reporter *reporter);

/* What came over the network: a no always counts, a yes where the policy says so, else HUSHMOTE_REFUSED_POLICY. */
int hushmote_consent_from_network(struct hushmote *client, bool yes);

#ifdef __cplusplus
}
#endif

#endif
