/* Hushmote for firmware in C: randomize a reading, debit the privacy budget, hand over a report.

   What ldp_client.py is for MicroPython. Only these files see a reading. They know no network and no file
   system, take no memory from a heap, keep no global state and compute without floating point: everything they
   need of the outside is in struct hushmote_config. C99. docs/wire-format.md says what the bytes mean.

   Units: epsilon in micro-nats (1000000 is epsilon = 1), squares of it in micro-nats squared, numbers in
   thousandths of a unit (milli-units).

       HUSHMOTE_POLICY(policy, 8000000, 0, 1000000, HUSHMOTE_SUM, false, "room_temp");
       hushmote_provision(&config, false, HUSHMOTE_NOT_ASKED);  once, by somebody who holds the board
       hushmote_begin(&client, &config);
       hushmote_set_consent(&client, true);                     somebody at the board says yes; until then it is silent
       hushmote_enroll(&client, payload, bytes);                an experiment, as the server published it
       n = hushmote_report(&client, "room_temp", hushmote_milli(21400), report);  bytes to publish, or 0
       hushmote_sent(&client, report, n);                       the broker acknowledged it
*/
#ifndef HUSHMOTE_H
#define HUSHMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- What is compiled in: define one as 0 to leave it out. rr, grr, olh and hh are always there. ------------- */

#ifndef HUSHMOTE_WITH_SW
#define HUSHMOTE_WITH_SW 1 /* means */
#endif
#ifndef HUSHMOTE_WITH_PGR
#define HUSHMOTE_WITH_PGR 1 /* many labels in few codes */
#endif
#ifndef HUSHMOTE_WITH_TEXT
#define HUSHMOTE_WITH_TEXT 1 /* the type text */
#endif
#ifndef HUSHMOTE_WITH_PREFIX
#define HUSHMOTE_WITH_PREFIX 1 /* texts nobody listed; needs TEXT and PGR */
#endif
#ifndef HUSHMOTE_WITH_PAIRS
#define HUSHMOTE_WITH_PAIRS 1 /* the type pair, and views */
#endif
#ifndef HUSHMOTE_WITH_SHA256
#define HUSHMOTE_WITH_SHA256 1 /* 0: config.sha256 is used, as from a chip's own engine */
#endif
#ifndef HUSHMOTE_WITH_P256
#define HUSHMOTE_WITH_P256 1 /* 0: config.verify is used; without it no fleet with an announce key */
#endif
#ifndef HUSHMOTE_ROOM_BYTES
#define HUSHMOTE_ROOM_BYTES 320 /* for an experiment's levels, labels and parts; one that needs more is refused */
#endif

/* --- Limits, the same on every client ------------------------------------------------------------------------ */

#define HUSHMOTE_EPSILON_MIN 1000u
#define HUSHMOTE_EPSILON_MAX 16000000u
#define HUSHMOTE_EXPERIMENT_BYTES 1024 /* JSON; a signed payload has 69 more */
#define HUSHMOTE_REPORT_BYTES 20       /* the longest: 1 + 4 + 4 + 3 + 8 */
#define HUSHMOTE_UNSENT_MAX 16

/* A ledger record of so many experiments and unsent reports. */
#define HUSHMOTE_RECORD_BYTES(experiments, unsent) (40 + 22 * (experiments) + (1 + HUSHMOTE_REPORT_BYTES) * (unsent))

/* --- The policy: what this firmware allows, whatever a server asks ------------------------------------------- */

/* Of consent: a yes may come over the network, too; each question wants a yes of its own, which hushmote_port.h takes. */
enum { HUSHMOTE_FROM_NETWORK = 1, HUSHMOTE_ASK_EACH = 2 };
enum { HUSHMOTE_UNLIMITED = 1, HUSHMOTE_SUM = 2, HUSHMOTE_SQUARES = 4, HUSHMOTE_COUNT = 8 }; /* budget rules */

struct hushmote_policy {
    uint64_t sum, squares;    /* reports go on while the life's sum of epsilon <= sum, or that of epsilon^2 <= squares */
    uint32_t epsilon;         /* the most one report may cost */
    uint8_t rules;            /* budget rules that may be asked for, ORed */
    uint8_t consent;          /* HUSHMOTE_FROM_NETWORK, HUSHMOTE_ASK_EACH, ORed; 0: one yes to all, at the board alone */
    uint8_t name_count;
    const char *const *names; /* experiments that may be asked for */
};

/* A const policy; what can be wrong with it is an error of compilation. Names are 1 to 32 of a-z, 0-9, _ and -. */
#define HUSHMOTE_POLICY(id, sum, squares, epsilon, rules, consent, ...)                                                \
    static const char *const id##_names[] = {__VA_ARGS__};                                                             \
    typedef char id##_is_wrong[(epsilon) >= HUSHMOTE_EPSILON_MIN && (epsilon) <= HUSHMOTE_EPSILON_MAX &&               \
                                       (rules) > 0 && (rules) < 16 && (consent) < 4 &&                                 \
                                       sizeof id##_names / sizeof *id##_names <= 64 &&                                 \
                                       ((sum) >= (epsilon) || (squares) >= (uint64_t)(epsilon) * (epsilon))            \
                                   ? 1                                                                                 \
                                   : -1];                                                                              \
    static const struct hushmote_policy id = {                                                                         \
        (sum), (squares), (epsilon), (rules), (consent), sizeof id##_names / sizeof *id##_names, id##_names}

/* --- What can come back -------------------------------------------------------------------------------------- */

enum hushmote_code {
    HUSHMOTE_OK = 0,
    HUSHMOTE_BAD_SETTINGS = -1,  /* policy, device id, keys, buffers or callbacks do not fit */
    HUSHMOTE_BAD_ENTROPY = -2,   /* there is no random source, or it is stuck; nothing was spent */
    HUSHMOTE_STORAGE = -3,       /* the storage failed; nothing was spent */
    HUSHMOTE_LOCKED = -4,        /* the ledger is damaged; nothing may be spent */
    HUSHMOTE_EXISTS = -5,        /* hushmote_provision() found a ledger, whole or damaged, and left it alone */
    HUSHMOTE_BUSY = -6,          /* another call is under way */
    HUSHMOTE_WRONG_TYPE = -7,    /* a reading of a type that the experiment does not take: a mistake of the application's */
    HUSHMOTE_UNKNOWN = -8,       /* the policy has no such experiment */
    HUSHMOTE_WORN_OUT = -9,      /* the ledger's sequence number is at its end */
    HUSHMOTE_NO_LEDGER = -10,    /* locked: nobody has provisioned this board */
    HUSHMOTE_ANOTHER = -11,      /* locked: another client wrote this ledger */
    /* why an experiment is refused */
    HUSHMOTE_REFUSED = -16,      /* malformed JSON, or a field that is missing, unknown or out of range */
    HUSHMOTE_REFUSED_POLICY = -17,     /* outside the policy: name, epsilon or budget rule */
    HUSHMOTE_REFUSED_PINNED = -18,     /* its budget rule, or under count its epsilon, was pinned otherwise */
    HUSHMOTE_REFUSED_SIGNATURE = -19,  /* missing or wrong */
    HUSHMOTE_REFUSED_SERIAL = -20,     /* a newer version was published */
    HUSHMOTE_REFUSED_MISSING = -21,    /* a type or mechanism that this firmware lacks */
    HUSHMOTE_REFUSED_ROOM = -22,       /* it needs more than HUSHMOTE_ROOM_BYTES */
    HUSHMOTE_REFUSED_SMALL_EPSILON = -23, /* epsilon is too small for so many cells */
    HUSHMOTE_REFUSED_UNASKED = -24     /* the policy asks about each question, and nobody has said yes to this one */
};

/* One line of text for a code, for a person at a serial port. */
const char *hushmote_text(int code);

/* --- Readings ------------------------------------------------------------------------------------------------ */

enum { HUSHMOTE_IS_NONE, HUSHMOTE_IS_FLAG, HUSHMOTE_IS_WHOLE, HUSHMOTE_IS_MILLI, HUSHMOTE_IS_TEXT, HUSHMOTE_IS_PARTS };

struct hushmote_reading {
    uint8_t kind;
    int64_t number;   /* of flag, whole and milli */
    const void *data; /* of text: bytes; of parts: struct hushmote_reading */
    size_t count;     /* of these */
};

/* A sensor that failed. It makes a report like any reading: leaving it out would tell something. */
static inline struct hushmote_reading hushmote_none(void) {
    struct hushmote_reading r = {HUSHMOTE_IS_NONE, 0, NULL, 0};
    return r;
}

static inline struct hushmote_reading hushmote_flag(bool value) {
    struct hushmote_reading r = {HUSHMOTE_IS_FLAG, value, NULL, 0};
    return r;
}

/* A number in whole units, or a pin's value for a bool. */
static inline struct hushmote_reading hushmote_whole(int64_t units) {
    struct hushmote_reading r = {HUSHMOTE_IS_WHOLE, 0, NULL, 0};
    r.number = units;
    return r;
}

/* A number in thousandths of a unit; hushmote_float.h makes one of a float. */
static inline struct hushmote_reading hushmote_milli(int64_t thousandths) {
    struct hushmote_reading r = {HUSHMOTE_IS_MILLI, 0, NULL, 0};
    r.number = thousandths;
    return r;
}

/* A label of a choice, or a text: bytes, UTF-8 where they are characters. */
static inline struct hushmote_reading hushmote_bytes(const void *data, size_t bytes) {
    struct hushmote_reading r = {HUSHMOTE_IS_TEXT, 0, NULL, 0};
    r.data = data;
    r.count = bytes;
    return r;
}

/* The readings of a pair's parts, in their order. */
static inline struct hushmote_reading hushmote_parts(const struct hushmote_reading *parts, size_t count) {
    struct hushmote_reading r = {HUSHMOTE_IS_PARTS, 0, NULL, 0};
    r.data = parts;
    r.count = count;
    return r;
}

/* --- What the outside gives ---------------------------------------------------------------------------------- */

struct hushmote_piece { /* of a message that is hashed */
    const void *data;
    size_t bytes;
};

/* An experiment of the policy as this client holds it. Read it, if you like; only these files write it, but for a serial
   that was kept in flash, after hushmote_begin(). */
struct hushmote_experiment {
    uint8_t enrolled; /* 0: absent or refused */
    int8_t refused;   /* 0, or why the last version was refused */
    uint8_t type, mechanism, rule, code_bytes, level_count, part_count;
    uint8_t due;       /* hushmote_gap() tossed its coin for the next report: 1 yes, 2 no */
    uint16_t room_end; /* of parts and levels; labels lie behind it */
    uint32_t serial;   /* the least that is accepted of a signed experiment; keep it in flash with a kept payload */
    uint32_t epsilon, every, domain, code_count, weight_sum, slots;
    uint64_t cap;
    uint8_t sha256[32]; /* of the JSON; its first 4 bytes are the digest */
    union {
        uint64_t align;
        uint8_t bytes[HUSHMOTE_ROOM_BYTES];
    } room;
};

enum hushmote_consent { HUSHMOTE_NOT_ASKED = 0, HUSHMOTE_NO = 1, HUSHMOTE_YES = 2 };

struct hushmote_config {
    void *context; /* handed to each function below */

    /* Two slots, 0 and 1, that survive a loss of power. read: the slot's bytes, of which at most `bytes` go to data;
       returns how many the slot holds, 0 where it was never written, below 0 where it cannot be read. write: replace
       the slot whole; returns 0 once it is in flash. A cut may leave the slot's old bytes, its new ones, or (where the
       storage is poor) neither: then the client locks. */
    long (*read)(void *context, int slot, uint8_t *data, size_t bytes);
    int (*write)(void *context, int slot, const uint8_t *data, size_t bytes);

    /* Fill data from a hardware generator or the kernel; 0, or anything else where it fails. */
    int (*entropy)(void *context, uint8_t *data, size_t bytes);

    /* May be NULL: SHA-256 of the pieces in a row; whether an ECDSA P-256 signature (r, s) of a digest is the key's (x, y)
       and s is in the lower half; a lock that is taken without waiting (false: held) and given back. Without a lock
       calls from interrupts and callbacks are refused, and calls from two threads are a mistake of yours. */
    void (*sha256)(void *context, const struct hushmote_piece *pieces, size_t count, uint8_t digest[32]);
    bool (*verify)(void *context, const uint8_t key[64], const uint8_t digest[32], const uint8_t signature[64]);
    bool (*lock)(void *context);
    void (*unlock)(void *context);

    const struct hushmote_policy *policy;
    const char *device_id;       /* 1 to 32 of a-z, 0-9 and -; new whenever the board is provisioned, never a MAC */
    const char *fleet;           /* its name; needed with announce_key */
    const uint8_t *key;          /* the device's 32 bytes; NULL in an open fleet */
    const uint8_t *announce_key; /* the fleet's 64 bytes, which signed experiments are checked with; NULL: unsigned */
    const uint8_t *unique_id;    /* the chip's, mixed into the seed; may be NULL */
    size_t unique_id_bytes;

    struct hushmote_experiment *experiments; /* one for each of the policy's names, in their order */
    uint8_t *records;                        /* two of record_bytes each, for the ledger */
    size_t record_bytes;                     /* HUSHMOTE_RECORD_BYTES(experiments, unsent) */
    uint8_t unsent_max;                      /* 1 to 16: where so many reports wait, no other is made */
};

/* --- The client ---------------------------------------------------------------------------------------------- */

struct hushmote_random { /* SHA-256 with fast key erasure */
    const struct hushmote_config *config;
    uint8_t left; /* bytes of pool that were not handed out */
    uint8_t key[32], pool[32];
};

struct hushmote {
    const struct hushmote_config *config;
    uint8_t *record, *next; /* the ledger's record in force, and the one to come */
    size_t record_bytes_used, next_bytes_used;
    int8_t locked, error; /* codes; 0 where all is well */
    volatile uint8_t busy;
    volatile uint32_t noes, answered; /* noes since the start, and how many when the flash last took an answer */
    uint32_t tried_noes;              /* how many when a no was last tried */
    uint64_t seen[2], tried; /* fingerprints of what the slots held last, and of the last record written */
    struct hushmote_random random;
};

/* Make the empty ledger, once, with the board in hand. HUSHMOTE_EXISTS where there is one: replace overwrites it, whole
   or damaged, which starts the privacy bound again and so needs a new device id and a reason. */
int hushmote_provision(const struct hushmote_config *config, bool replace, enum hushmote_consent consent);

/* Start a client. One client on one ledger. HUSHMOTE_OK, HUSHMOTE_BAD_SETTINGS or HUSHMOTE_BAD_ENTROPY; a ledger that is
   missing or damaged is no error: the client is locked (hushmote_status says why) and the application goes on. */
int hushmote_begin(struct hushmote *client, const struct hushmote_config *config);

/* Take part in a retained experiment, signed or not. 0, or why it is refused; a refused version changes nothing.
   kept: this payload was kept in flash after it had been taken; its signature is not computed again. With
   HUSHMOTE_ASK_EACH in the policy both refuse: the reporter enrolls what somebody has said yes to. */
int hushmote_enroll(struct hushmote *client, const uint8_t *payload, size_t bytes);
int hushmote_enroll_kept(struct hushmote *client, const uint8_t *payload, size_t bytes);

/* Take part no longer. payload: the retained message on the experiment's topic that asks for it, empty in an open fleet,
   else signed; NULL: the application's own decision. What was spent stays spent. */
int hushmote_withdraw(struct hushmote *client, const char *name, const uint8_t *payload, size_t bytes);

/* Randomize a reading. Above 0: the bytes of a report, debited already, to publish at QoS 1. 0: none, and why never
   depends on the reading (nobody said yes, or somebody says no meanwhile, the coin of `every` said no, the budget is
   spent, the outbox is full, the experiment is not there, the client is locked or busy, the storage failed).
   HUSHMOTE_WRONG_TYPE, HUSHMOTE_BAD_ENTROPY: nothing was spent. */
int hushmote_report(struct hushmote *client, const char *name, struct hushmote_reading reading,
                    uint8_t report[HUSHMOTE_REPORT_BYTES]);

/* Toss the coins of `every` ahead, to sleep until one says yes: which of the coming calls of hushmote_report() is the first
   with a yes, at most `most`, and in *drawn a bit for each of the policy's names that reports there. Sleep for so many
   intervals, then read and report these and no others. The law is that of coins tossed at each call; a coin has no
   memory, so after a power cut draw anew. `most` where all say no or nobody said yes; 0: another call is under way. */
unsigned hushmote_gap(struct hushmote *client, unsigned most, uint64_t *drawn);

/* The unsent report number `at`, 0 the oldest: its bytes, 0 where there is none or another call is under way. Send the
   same bytes until hushmote_sent(). */
int hushmote_unsent(struct hushmote *client, unsigned at, uint8_t report[HUSHMOTE_REPORT_BYTES]);

/* Drop a report that the broker acknowledged. */
int hushmote_sent(struct hushmote *client, const uint8_t *report, size_t bytes);

/* Whether this board takes part. Only somebody at the board sets it (or the network, where the policy says so). A no
   drops what was not sent, with HUSHMOTE_ASK_EACH ends every experiment, and silences the client at once even where it cannot be written; then the next calls of
   hushmote_report() and hushmote_sent() try again. One that comes during another call, as from an interrupt, is
   HUSHMOTE_OK: that call writes it before it ends. A yes that comes so is HUSHMOTE_BUSY. */
enum hushmote_consent hushmote_consent(const struct hushmote *client);
int hushmote_set_consent(struct hushmote *client, bool yes);

struct hushmote_status {
    int locked, error; /* 0, or a code */
    enum hushmote_consent consent;
    unsigned pending;      /* unsent reports */
    uint64_t sum, squares; /* spent in the board's life */
};

struct hushmote_line { /* of one experiment */
    bool enrolled;
    int refused;      /* 0, or why the last version was refused */
    uint32_t reports; /* made */
    uint32_t left;    /* reports that the budget still holds; 0 where it is not enrolled */
    uint32_t epsilon;
    uint8_t digest[4];
};

/* HUSHMOTE_OK, HUSHMOTE_UNKNOWN, or HUSHMOTE_BUSY with nothing in it but `locked`. */
int hushmote_status(struct hushmote *client, struct hushmote_status *status);
int hushmote_line(struct hushmote *client, const char *name, struct hushmote_line *line);

#ifdef __cplusplus
}
#endif

#endif
