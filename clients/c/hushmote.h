/**
 * @file
 * @brief Hushmote for firmware in C: randomize a reading, debit the privacy budget, return a report.
 *
 * The counterpart of ldp_client.py for MicroPython, in C99. Only these files see a reading. They use no network, no
 * file system, no heap, no global state and no floating point: struct hushmote_config gives them access to everything
 * outside. docs/wire-format.md defines the bytes.
 *
 * Units: epsilon is in micro-nats (1000000 is epsilon = 1), its squares are in micro-nats squared, numbers are in
 * thousandths of a unit (milli-units).
 *
 * @code
 *     HUSHMOTE_POLICY(policy, 8000000, 0, 1000000, HUSHMOTE_SUM, 0, "room_temp");
 *     hushmote_provision(&config, false, HUSHMOTE_NOT_ASKED);  // once, with the board in hand
 *     hushmote_begin(&client, &config);
 *     hushmote_set_consent(&client, true);       // someone at the board opts in; until then the client is silent
 *     hushmote_enroll(&client, payload, bytes);  // an experiment, as the server published it
 *     n = hushmote_report(&client, "room_temp", hushmote_milli(21400), report);  // bytes to publish, or 0
 *     hushmote_sent(&client, report, n);         // the broker acknowledged the report
 * @endcode
 */
#ifndef HUSHMOTE_H
#define HUSHMOTE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- Compiled features: define one as 0 to leave it out. rr, grr, olh and hh are always included. ------------ */

#ifndef HUSHMOTE_WITH_SW
#define HUSHMOTE_WITH_SW 1 /**< The mechanism sw, for means. */
#endif
#ifndef HUSHMOTE_WITH_PGR
#define HUSHMOTE_WITH_PGR 1 /**< The mechanism pgr, for many labels in few codes. */
#endif
#ifndef HUSHMOTE_WITH_TEXT
#define HUSHMOTE_WITH_TEXT 1 /**< The type text. */
#endif
#ifndef HUSHMOTE_WITH_PREFIX
#define HUSHMOTE_WITH_PREFIX 1 /**< The mechanism prefix, for unlisted texts; needs TEXT and PGR. */
#endif
#ifndef HUSHMOTE_WITH_PAIRS
#define HUSHMOTE_WITH_PAIRS 1 /**< The type pair and the mechanism views. */
#endif
#ifndef HUSHMOTE_WITH_SHA256
#define HUSHMOTE_WITH_SHA256 1 /**< 0: use config.sha256 instead, for example a chip's own engine. */
#endif
#ifndef HUSHMOTE_WITH_P256
#define HUSHMOTE_WITH_P256 1 /**< 0: use config.verify instead; a fleet with an announce key needs one of them. */
#endif
#ifndef HUSHMOTE_ROOM_BYTES
#define HUSHMOTE_ROOM_BYTES 320 /**< Room for an experiment's levels, labels and parts; larger ones are refused. */
#endif

/* --- Limits, the same on every client ------------------------------------------------------------------------ */

#define HUSHMOTE_EPSILON_MIN 1000u      /**< Lowest epsilon of one report, in micro-nats. */
#define HUSHMOTE_EPSILON_MAX 16000000u  /**< Highest epsilon of one report, in micro-nats. */
#define HUSHMOTE_EXPERIMENT_BYTES 1024  /**< Longest experiment in JSON; a signed payload has 69 bytes more. */
#define HUSHMOTE_REPORT_BYTES 20        /**< Longest report: 1 + 4 + 4 + 3 + 8 bytes. */
#define HUSHMOTE_UNSENT_MAX 16          /**< Most unsent reports that a ledger holds. */

/**
 * @brief Return the bytes of a ledger record.
 * @param experiments Number of names in the policy, 1 to 64.
 * @param unsent Number of unsent reports, 1 to #HUSHMOTE_UNSENT_MAX.
 */
#define HUSHMOTE_RECORD_BYTES(experiments, unsent) (40 + 22 * (experiments) + (1 + HUSHMOTE_REPORT_BYTES) * (unsent))

/* --- The policy: the limits of this firmware, whatever a server asks ----------------------------------------- */

/** Ways to opt in: also over the network, and separately for each question (which needs hushmote_port.h). */
enum { HUSHMOTE_FROM_NETWORK = 1, HUSHMOTE_ASK_EACH = 2 };
/** Budget rules. */
enum { HUSHMOTE_UNLIMITED = 1, HUSHMOTE_SUM = 2, HUSHMOTE_SQUARES = 4, HUSHMOTE_COUNT = 8 };

/** What this firmware allows. A board reports while its lifetime sum of epsilon is at most `sum`, or that of epsilon^2
    is at most `squares`. */
struct hushmote_policy {
    uint64_t sum;             /**< Highest lifetime sum of epsilon, in micro-nats. */
    uint64_t squares;         /**< Highest lifetime sum of epsilon^2, in micro-nats squared. */
    uint32_t epsilon;         /**< Highest epsilon of one report, in micro-nats. */
    uint8_t rules;            /**< Budget rules that an experiment may have, ORed. */
    uint8_t consent;          /**< HUSHMOTE_FROM_NETWORK, HUSHMOTE_ASK_EACH, ORed; 0: at the board, for all questions. */
    uint8_t name_count;       /**< Number of names, at most 64. */
    const char *const *names; /**< Experiments that a server may ask for. */
};

/**
 * @brief Define a const policy; an invalid one does not compile.
 *
 * @param id Name of the variable.
 * @param sum Highest lifetime sum of epsilon, in micro-nats.
 * @param squares Highest lifetime sum of epsilon^2, in micro-nats squared; 0 if only `sum` counts.
 * @param epsilon Highest epsilon of one report, from #HUSHMOTE_EPSILON_MIN to #HUSHMOTE_EPSILON_MAX.
 * @param rules Budget rules that an experiment may have, ORed.
 * @param consent HUSHMOTE_FROM_NETWORK, HUSHMOTE_ASK_EACH, ORed, or 0.
 * @param ... Up to 64 names of experiments, each 1 to 32 of a-z, 0-9, _ and -.
 */
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

/* --- Return codes -------------------------------------------------------------------------------------------- */

/** Return codes; those from HUSHMOTE_REFUSED on say why an experiment is refused. */
enum hushmote_code {
    HUSHMOTE_OK = 0,
    HUSHMOTE_BAD_SETTINGS = -1,  /**< Policy, device id, keys, buffers or callbacks are invalid. */
    HUSHMOTE_BAD_ENTROPY = -2,   /**< There is no random source, or it is stuck; nothing was spent. */
    HUSHMOTE_STORAGE = -3,       /**< The storage failed; nothing was spent. */
    HUSHMOTE_LOCKED = -4,        /**< The ledger is damaged; nothing may be spent. */
    HUSHMOTE_EXISTS = -5,        /**< hushmote_provision() found a ledger, intact or damaged, and left it alone. */
    HUSHMOTE_BUSY = -6,          /**< Another call is under way. */
    HUSHMOTE_WRONG_TYPE = -7,    /**< The experiment does not take a reading of this type: an application error. */
    HUSHMOTE_UNKNOWN = -8,       /**< The policy has no such experiment. */
    HUSHMOTE_WORN_OUT = -9,      /**< The ledger's sequence number has reached its end. */
    HUSHMOTE_NO_LEDGER = -10,    /**< Locked: nobody has provisioned this board. */
    HUSHMOTE_ANOTHER = -11,      /**< Locked: another client wrote this ledger. */
    HUSHMOTE_REFUSED = -16,      /**< Malformed JSON, or a field that is missing, unknown or out of range. */
    HUSHMOTE_REFUSED_POLICY = -17,     /**< Outside the policy: name, epsilon or budget rule. */
    HUSHMOTE_REFUSED_PINNED = -18,     /**< Its budget rule, or its epsilon under `count`, differs from the pinned one. */
    HUSHMOTE_REFUSED_SIGNATURE = -19,  /**< The signature is missing or wrong. */
    HUSHMOTE_REFUSED_SERIAL = -20,     /**< A newer version was published. */
    HUSHMOTE_REFUSED_MISSING = -21,    /**< This firmware lacks the type or mechanism. */
    HUSHMOTE_REFUSED_ROOM = -22,       /**< It needs more than #HUSHMOTE_ROOM_BYTES. */
    HUSHMOTE_REFUSED_SMALL_EPSILON = -23, /**< Epsilon is too small for so many cells. */
    HUSHMOTE_REFUSED_UNASKED = -24     /**< The policy asks about each question, and nobody has opted in to this one. */
};

/**
 * @brief Return one line of text that describes a code, for someone at a serial port.
 * @param code A value of enum hushmote_code.
 * @return A static string.
 */
const char *hushmote_text(int code);

/* --- Readings ------------------------------------------------------------------------------------------------ */

/** Kinds of readings. */
enum { HUSHMOTE_IS_NONE, HUSHMOTE_IS_FLAG, HUSHMOTE_IS_WHOLE, HUSHMOTE_IS_MILLI, HUSHMOTE_IS_TEXT, HUSHMOTE_IS_PARTS };

/** A reading, as the functions below make it. It refers to its data, which must outlive it. */
struct hushmote_reading {
    uint8_t kind;     /**< HUSHMOTE_IS_NONE to HUSHMOTE_IS_PARTS. */
    int64_t number;   /**< Value of a flag, whole or milli. */
    const void *data; /**< Bytes of a text; array of struct hushmote_reading of parts. */
    size_t count;     /**< Number of bytes or parts. */
};

/**
 * @brief Make the reading of a sensor that failed.
 *
 * It is reported like any other reading, because leaving it out would reveal something.
 *
 * @return A reading without a value.
 */
static inline struct hushmote_reading hushmote_none(void) {
    struct hushmote_reading r = {HUSHMOTE_IS_NONE, 0, NULL, 0};
    return r;
}

/**
 * @brief Make a reading of true or false.
 * @param value The reading, for an experiment of type bool.
 * @return The reading.
 */
static inline struct hushmote_reading hushmote_flag(bool value) {
    struct hushmote_reading r = {HUSHMOTE_IS_FLAG, value, NULL, 0};
    return r;
}

/**
 * @brief Make a reading of a number in whole units.
 * @param units The number, or a pin's value for an experiment of type bool.
 * @return The reading.
 */
static inline struct hushmote_reading hushmote_whole(int64_t units) {
    struct hushmote_reading r = {HUSHMOTE_IS_WHOLE, 0, NULL, 0};
    r.number = units;
    return r;
}

/**
 * @brief Make a reading of a number in thousandths; hushmote_float.h makes one from a float.
 * @param thousandths The number, in thousandths of the experiment's unit.
 * @return The reading.
 */
static inline struct hushmote_reading hushmote_milli(int64_t thousandths) {
    struct hushmote_reading r = {HUSHMOTE_IS_MILLI, 0, NULL, 0};
    r.number = thousandths;
    return r;
}

/**
 * @brief Make a reading of a label or a text.
 * @param data The bytes, UTF-8 if they are characters; they must outlive the reading.
 * @param bytes Number of bytes.
 * @return The reading.
 */
static inline struct hushmote_reading hushmote_bytes(const void *data, size_t bytes) {
    struct hushmote_reading r = {HUSHMOTE_IS_TEXT, 0, NULL, 0};
    r.data = data;
    r.count = bytes;
    return r;
}

/**
 * @brief Make a reading of a pair.
 * @param parts Readings of the pair's parts, in their order; they must outlive the reading.
 * @param count Number of parts, 2 or 3.
 * @return The reading.
 */
static inline struct hushmote_reading hushmote_parts(const struct hushmote_reading *parts, size_t count) {
    struct hushmote_reading r = {HUSHMOTE_IS_PARTS, 0, NULL, 0};
    r.data = parts;
    r.count = count;
    return r;
}

/* --- The platform's part ------------------------------------------------------------------------------------- */

/** A piece of a message to hash. */
struct hushmote_piece {
    const void *data; /**< The bytes. */
    size_t bytes;     /**< Number of bytes. */
};

/** An experiment of the policy as this client holds it. An application may read it. Only these files write it, except
    for a serial that was kept in flash, which the application sets after hushmote_begin(). */
struct hushmote_experiment {
    uint8_t enrolled; /**< 0: absent or refused. */
    int8_t refused;   /**< 0, or the code with which the last version was refused. */
    uint8_t type, mechanism, rule, code_bytes, level_count, part_count;
    uint8_t due;       /**< What hushmote_gap() drew for the next call: 1 a report, 2 none. */
    uint16_t room_end; /**< End of parts and levels; labels lie behind it. */
    uint32_t serial;   /**< Lowest serial accepted of a signed experiment; keep it in flash with a kept payload. */
    uint32_t epsilon, every, domain, code_count, weight_sum, slots;
    uint64_t cap;
    uint8_t sha256[32]; /**< SHA-256 of the JSON; its first 4 bytes are the digest. */
    union {
        uint64_t align;
        uint8_t bytes[HUSHMOTE_ROOM_BYTES];
    } room;
};

/** Whether the board takes part. */
enum hushmote_consent { HUSHMOTE_NOT_ASKED = 0, HUSHMOTE_NO = 1, HUSHMOTE_YES = 2 };

/** Everything that a client needs from the application. It must outlive the client. */
struct hushmote_config {
    void *context; /**< Passed to each function below. */

    /** Read slot 0 or 1, which survive a loss of power: copy at most `bytes` to `data` and return how many bytes the
        slot holds, 0 if it was never written, or below 0 if it cannot be read. */
    long (*read)(void *context, int slot, uint8_t *data, size_t bytes);
    /** Replace all of slot 0 or 1 and return 0 once it is in flash. After a power cut a slot may hold its old bytes, its
        new ones or (on poor storage) neither: then the client locks. */
    int (*write)(void *context, int slot, const uint8_t *data, size_t bytes);

    /** Fill `data` from a hardware generator or the kernel; return 0, or another value on failure. */
    int (*entropy)(void *context, uint8_t *data, size_t bytes);

    /** Compute SHA-256 of the concatenated pieces; may be NULL. */
    void (*sha256)(void *context, const struct hushmote_piece *pieces, size_t count, uint8_t digest[32]);
    /** Return whether an ECDSA P-256 signature (r, s) of a digest is valid for the key (x, y), with s in the lower half;
        may be NULL. */
    bool (*verify)(void *context, const uint8_t key[64], const uint8_t digest[32], const uint8_t signature[64]);
    /** Take a lock without waiting, or return false if it is held; may be NULL. Without a lock, calls from interrupts and
        callbacks are refused, and calls from two threads are an application error. */
    bool (*lock)(void *context);
    /** Release the lock; may be NULL. */
    void (*unlock)(void *context);

    const struct hushmote_policy *policy; /**< What this firmware allows. */
    const char *device_id;       /**< 1 to 32 of a-z, 0-9 and -; a new one for each provisioning, never a MAC. */
    const char *fleet;           /**< Name of the fleet; required with announce_key. */
    const uint8_t *key;          /**< The device's key of 32 bytes; NULL in an open fleet. */
    const uint8_t *announce_key; /**< The fleet's public key of 64 bytes, which checks experiments; NULL: unsigned. */
    const uint8_t *unique_id;    /**< The chip's id, mixed into the seed; may be NULL. */
    size_t unique_id_bytes;      /**< Number of bytes of unique_id. */

    struct hushmote_experiment *experiments; /**< One for each of the policy's names, in their order. */
    uint8_t *records;                        /**< Two buffers of record_bytes each, for the ledger. */
    size_t record_bytes;                     /**< HUSHMOTE_RECORD_BYTES(experiments, unsent). */
    uint8_t unsent_max;                      /**< 1 to 16: no report is made while so many wait. */
};

/* --- The client ---------------------------------------------------------------------------------------------- */

/** A random generator: SHA-256 with fast key erasure. */
struct hushmote_random {
    const struct hushmote_config *config;
    uint8_t left; /**< Unused bytes of the pool. */
    uint8_t key[32], pool[32];
};

/** A client. Its members are private. */
struct hushmote {
    const struct hushmote_config *config;
    uint8_t *record, *next; /**< The ledger record in force, and the next one. */
    size_t record_bytes_used, next_bytes_used;
    int8_t locked, error; /**< Codes; 0 if all is well. */
    volatile uint8_t busy;
    volatile uint32_t opt_outs, answered; /**< Opt-outs since the start, and their number when flash last took an answer. */
    uint32_t tried_opt_outs;              /**< Their number when an opt-out was last tried. */
    uint64_t seen[2], tried; /**< Fingerprints of the last contents of the slots, and of the last record written. */
    struct hushmote_random random;
};

/**
 * @brief Make the empty ledger, once, with the board in hand.
 *
 * @param config Storage, device id and keys.
 * @param replace Whether to overwrite a ledger, intact or damaged. This restarts the privacy bound, and so needs a new
 *     device id and a reason.
 * @param consent The answer of the person who is measured, if already given.
 * @return #HUSHMOTE_OK, #HUSHMOTE_EXISTS if there is a ledger and `replace` is false, or another code.
 */
int hushmote_provision(const struct hushmote_config *config, bool replace, enum hushmote_consent consent);

/**
 * @brief Start a client, the only one on its ledger.
 *
 * A missing or damaged ledger is not an error: the client is then locked, hushmote_status() gives the reason, and the
 * application continues.
 *
 * @param client The client to initialize.
 * @param config Settings, which must outlive the client.
 * @return #HUSHMOTE_OK, #HUSHMOTE_BAD_SETTINGS or #HUSHMOTE_BAD_ENTROPY.
 */
int hushmote_begin(struct hushmote *client, const struct hushmote_config *config);

/**
 * @brief Take part in a retained experiment, signed or not.
 *
 * A refused version changes nothing. With HUSHMOTE_ASK_EACH in the policy every experiment is refused here, because the
 * reporter enrolls those that someone has opted in to.
 *
 * @param client The client.
 * @param payload The retained message.
 * @param bytes Number of its bytes.
 * @return #HUSHMOTE_OK, #HUSHMOTE_BUSY, or the code with which the experiment is refused.
 */
int hushmote_enroll(struct hushmote *client, const uint8_t *payload, size_t bytes);

/**
 * @brief Take part in an experiment whose payload was kept in flash.
 *
 * Like hushmote_enroll(), but without verifying the signature again.
 *
 * @param client The client.
 * @param payload The payload, kept after hushmote_enroll() had accepted it.
 * @param bytes Number of its bytes.
 * @return #HUSHMOTE_OK, #HUSHMOTE_BUSY, or the code with which the experiment is refused.
 */
int hushmote_enroll_kept(struct hushmote *client, const uint8_t *payload, size_t bytes);

/**
 * @brief Stop taking part in an experiment; its spent budget stays spent.
 *
 * @param client The client.
 * @param name Name of the experiment.
 * @param payload The retained message on the experiment's topic that withdraws it, empty in an open fleet, else signed;
 *     NULL if the application itself decides.
 * @param bytes Number of its bytes.
 * @return #HUSHMOTE_OK, #HUSHMOTE_UNKNOWN, #HUSHMOTE_BUSY, or the code with which the withdrawal is refused.
 */
int hushmote_withdraw(struct hushmote *client, const char *name, const uint8_t *payload, size_t bytes);

/**
 * @brief Randomize a reading and debit the budget.
 *
 * Without a report the reason never depends on the reading: nobody has opted in, or someone opts out meanwhile, the draw
 * of `every` skips it, the budget is spent, the outbox is full, the experiment is absent, the client is locked or busy,
 * or the storage failed.
 *
 * @param client The client.
 * @param name Name of the experiment.
 * @param reading The reading.
 * @param[out] report The report, already debited, to publish at QoS 1.
 * @return Number of bytes of the report, 1 to #HUSHMOTE_REPORT_BYTES; 0 if there is none; #HUSHMOTE_WRONG_TYPE or
 *     #HUSHMOTE_BAD_ENTROPY, in which case nothing was spent.
 */
int hushmote_report(struct hushmote *client, const char *name, struct hushmote_reading reading,
                    uint8_t report[HUSHMOTE_REPORT_BYTES]);

/**
 * @brief Draw for `every` in advance, so that a board can sleep until a report is due.
 *
 * Sleep for the returned number of intervals, then read and report only the experiments in `drawn`. The distribution is
 * that of a draw at each call. Draws are independent, so draw again after a power cut.
 *
 * @param client The client.
 * @param most Largest result.
 * @param[out] drawn A bit for each of the policy's names that reports then.
 * @return Number of the first coming call of hushmote_report() that makes a report, 1 to `most`; `most` if none does or
 *     nobody has opted in; 0 if another call is under way.
 */
unsigned hushmote_gap(struct hushmote *client, unsigned most, uint64_t *drawn);

/**
 * @brief Copy an unsent report. Send the same bytes until hushmote_sent().
 * @param client The client.
 * @param at Its number; 0 is the oldest.
 * @param[out] report The report.
 * @return Number of its bytes; 0 if there is none or another call is under way.
 */
int hushmote_unsent(struct hushmote *client, unsigned at, uint8_t report[HUSHMOTE_REPORT_BYTES]);

/**
 * @brief Drop a report that the broker acknowledged.
 * @param client The client.
 * @param report The report.
 * @param bytes Number of its bytes.
 * @return #HUSHMOTE_OK, or another code, in which case the report stays.
 */
int hushmote_sent(struct hushmote *client, const uint8_t *report, size_t bytes);

/**
 * @brief Return whether this board takes part.
 * @param client The client.
 * @return #HUSHMOTE_YES, #HUSHMOTE_NO or #HUSHMOTE_NOT_ASKED.
 */
enum hushmote_consent hushmote_consent(const struct hushmote *client);

/**
 * @brief Store an opt-in or opt-out, which only someone at the board may give (or the network, if the policy allows it).
 *
 * An opt-out drops all unsent reports and silences the client at once, even if it cannot be written; the next calls of
 * hushmote_report() and hushmote_sent() then try again. With HUSHMOTE_ASK_EACH it ends every experiment. An opt-out
 * during another call, as from an interrupt, returns #HUSHMOTE_OK, and that call writes it before it ends; an opt-in
 * returns #HUSHMOTE_BUSY then.
 *
 * @param client The client.
 * @param yes Whether the board takes part.
 * @return #HUSHMOTE_OK, #HUSHMOTE_BUSY or another code.
 */
int hushmote_set_consent(struct hushmote *client, bool yes);

/** State of a client. */
struct hushmote_status {
    int locked, error; /**< 0, or a code. */
    enum hushmote_consent consent;
    unsigned pending; /**< Number of unsent reports. */
    uint64_t sum;     /**< Epsilon spent in the board's lifetime, in micro-nats. */
    uint64_t squares; /**< Sum of epsilon^2 in the board's lifetime, in micro-nats squared. */
};

/** State of one experiment. */
struct hushmote_line {
    bool enrolled;
    int refused;      /**< 0, or the code with which the last version was refused. */
    uint32_t reports; /**< Number of reports made. */
    uint32_t left;    /**< Number of reports that the budget still allows; 0 if it is not enrolled. */
    uint32_t epsilon; /**< Epsilon of one report, in micro-nats. */
    uint8_t digest[4]; /**< First bytes of SHA-256 of the JSON. */
};

/**
 * @brief Read the state of a client.
 * @param client The client.
 * @param[out] status Its state; only `locked` is set if another call is under way.
 * @return #HUSHMOTE_OK or #HUSHMOTE_BUSY.
 */
int hushmote_status(struct hushmote *client, struct hushmote_status *status);

/**
 * @brief Read the state of one experiment.
 * @param client The client.
 * @param name Name of the experiment.
 * @param[out] line Its state.
 * @return #HUSHMOTE_OK, #HUSHMOTE_UNKNOWN or #HUSHMOTE_BUSY.
 */
int hushmote_line(struct hushmote *client, const char *name, struct hushmote_line *line);

#ifdef __cplusplus
}
#endif

#endif
