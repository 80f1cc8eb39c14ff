/**
 * @file
 * @brief Hushmote for C firmware: randomize a reading, debit the privacy budget, return a report.
 *
 * The C99 counterpart of MicroPython's ldp_client.py. Only these files see a reading. They use no network, no file
 * system, no heap, no global state and no floating point; struct hushmote_config gives them access to everything else.
 * docs/wire-format.md defines the bytes.
 *
 * Units: epsilon is in micro-nats (1000000 is epsilon = 1), its squares are in micro-nats squared, readings are in
 * thousandths of a unit (milli-units).
 *
 * @code
 *     HUSHMOTE_POLICY(policy, 8000000, 0, 1000000, HUSHMOTE_SUM, 0, "room_temp");
 *     hushmote_provision(&config, false, HUSHMOTE_NOT_ASKED);  // once, with physical access to the board
 *     hushmote_begin(&client, &config);
 *     hushmote_set_consent(&client, true);       // someone at the board opts in; until then no reports are made
 *     hushmote_enroll(&client, payload, bytes);  // an experiment as published by the server
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

/* --- Version, for messages and for the preprocessor: HUSHMOTE_VERSION_NUMBER >= 0x000200 is true from 0.2.0 on. */

#define HUSHMOTE_VERSION "0.2.0"
#define HUSHMOTE_VERSION_NUMBER 0x000200 /**< A byte each for major, minor and patch. */

/* --- Compiled features: define one as 0 to leave it out, or a log as 1. rr, grr, olh and hh are always included. */

#ifndef HUSHMOTE_WITH_SW
#define HUSHMOTE_WITH_SW 1 /**< The mechanism sw, for means. */
#endif
#ifndef HUSHMOTE_WITH_SCALE
#define HUSHMOTE_WITH_SCALE 1 /**< Numbers with logarithmic bins. */
#endif
#ifndef HUSHMOTE_WITH_PGR
#define HUSHMOTE_WITH_PGR 1 /**< The mechanism pgr, which encodes many labels in few codes. */
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
#define HUSHMOTE_WITH_SHA256 1 /**< 0: use config.sha256 instead, for example a hardware engine. */
#endif
#ifndef HUSHMOTE_WITH_P256
#define HUSHMOTE_WITH_P256 1 /**< 0: use config.verify instead; a fleet with an announce key needs one of the two. */
#endif
#ifndef HUSHMOTE_WITH_LOG
#ifdef ARDUINO /* its IDE cannot define anything for a library */
#define HUSHMOTE_WITH_LOG 1
#else
#define HUSHMOTE_WITH_LOG 0 /**< 1: the policy may name a public log in which experiments must be. */
#endif
#endif
#ifndef HUSHMOTE_ROOM_BYTES
#define HUSHMOTE_ROOM_BYTES 320 /**< Space for an experiment's levels, labels and parts; larger ones are refused. */
#endif

/* --- Limits, the same on every client ------------------------------------------------------------------------ */

#define HUSHMOTE_EPSILON_MIN 1000u      /**< Lowest epsilon of one report, in micro-nats. */
#define HUSHMOTE_EPSILON_MAX 16000000u  /**< Highest epsilon of one report, in micro-nats. */
#define HUSHMOTE_EXPERIMENT_BYTES 1024  /**< Longest experiment in JSON; a signed payload has 69 bytes more. */
#define HUSHMOTE_PROOF_BYTES 1600       /**< Longest proof of a log. */
#define HUSHMOTE_REPORT_BYTES 21        /**< Longest report: 1 + 4 + 4 + 1 + 3 + 8 bytes. */
#define HUSHMOTE_UNSENT_MAX 16          /**< Maximum number of unsent reports in a ledger. */

/**
 * @brief Return the size of a ledger record in bytes.
 * @param experiments Number of names in the policy, 1 to 64.
 * @param unsent Number of unsent reports, 1 to #HUSHMOTE_UNSENT_MAX.
 */
#define HUSHMOTE_RECORD_BYTES(experiments, unsent) (40 + 22 * (experiments) + (1 + HUSHMOTE_REPORT_BYTES) * (unsent))

/* --- The policy: this firmware's limits, whatever a server asks for ------------------------------------------ */

/** Further ways to opt in: over the network, and separately for each question (which needs hushmote_port.h). */
enum { HUSHMOTE_FROM_NETWORK = 1, HUSHMOTE_ASK_EACH = 2 };
/** Budget rules. */
enum { HUSHMOTE_UNLIMITED = 1, HUSHMOTE_SUM = 2, HUSHMOTE_SQUARES = 4, HUSHMOTE_COUNT = 8 };

/** An open group that experiments may have. Reports contain the board's value unprotected, so it must not depend on a
    reading. */
struct hushmote_group {
    const char *name;  /**< Such as "firmware". */
    const char *value; /**< Such as "2.4.0"; NULL, or a value that the experiment does not list: "other". */
};

struct hushmote_config;
struct hushmote_piece;

/** A proof that an experiment is in the policy's log, as retained on the topic of its proof. */
struct hushmote_proof {
    const uint8_t *data; /**< The bytes. */
    size_t bytes;        /**< Number of bytes; 0 without a proof. */
    uint32_t leaf;       /**< Set if the proof is valid: the experiment's index in the log. */
};

/** The functions that check a log. hushmote_log_check is the only instance; firmware whose policy has no log does not
    link it. */
struct hushmote_log_check {
    bool (*fits)(const struct hushmote_config *config);
    int (*verify)(const struct hushmote_config *config, const struct hushmote_piece *entry, struct hushmote_proof *proof);
};
extern const struct hushmote_log_check hushmote_log_check;

/** A public log, in which an experiment must be before a board takes part. Witnesses watch it, and each signs only while
    its own rule holds: one version of an experiment at a time. So nobody can ask one home something that the others are
    not asked. */
struct hushmote_log {
    const char *origin;      /**< The log's name, such as "example.org/questions". */
    const char *const *keys; /**< P-256 keys, each as 128 hex digits: the log's, then those of witnesses. */
    uint8_t key_count;       /**< Number of keys, 2 to 8. */
    uint8_t need;            /**< Number of witnesses that must have signed, more than half of them. */
    const struct hushmote_log_check *check; /**< &hushmote_log_check. */
};

/**
 * @brief Define a const log, for HUSHMOTE_POLICY_WITH_LOG(); a wrong number of keys or witnesses does not compile.
 *
 * @param id Name of the variable.
 * @param origin The log's name.
 * @param need Number of witnesses that must have signed, more than half of them.
 * @param ... 2 to 8 keys, each as 128 hex digits: the log's, then those of witnesses.
 */
#define HUSHMOTE_LOG(id, origin, need, ...)                                                                            \
    static const char *const id##_keys[] = {__VA_ARGS__};                                                              \
    typedef char id##_is_wrong[sizeof id##_keys / sizeof *id##_keys <= 8 &&                                            \
                                       2 * (need) >= sizeof id##_keys / sizeof *id##_keys &&                           \
                                       (need) < sizeof id##_keys / sizeof *id##_keys                                   \
                                   ? 1                                                                                 \
                                   : -1];                                                                              \
    static const struct hushmote_log id = {(origin), id##_keys, sizeof id##_keys / sizeof *id##_keys, (need),          \
                                           &hushmote_log_check}

/** This firmware's limits. A board reports as long as its lifetime sum of epsilon is at most `sum`, or its lifetime sum
    of epsilon^2 is at most `squares`. */
struct hushmote_policy {
    uint64_t sum;             /**< Highest lifetime sum of epsilon, in micro-nats. */
    uint64_t squares;         /**< Highest lifetime sum of epsilon^2, in micro-nats squared. */
    uint32_t epsilon;         /**< Highest epsilon of one report, in micro-nats. */
    uint8_t rules;            /**< Budget rules that an experiment may have, ORed. */
    uint8_t consent;          /**< HUSHMOTE_FROM_NETWORK, HUSHMOTE_ASK_EACH, ORed; 0: opt in at the board, to all questions. */
    uint8_t name_count;       /**< Number of names, at most 64. */
    const char *const *names; /**< Experiments that a server may ask for. */
    uint8_t group_count;      /**< Number of groups, 0 for none. */
    const struct hushmote_group *groups; /**< The open groups that experiments may have, with the board's values. */
    const struct hushmote_log *log; /**< The log in which experiments must be; NULL without one. Requires an announce_key. */
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
 * @param ... Up to 64 experiment names, each 1 to 32 of a-z, 0-9, _ and -.
 */
#define HUSHMOTE_POLICY(id, sum, squares, epsilon, rules, consent, ...)                                                \
    HUSHMOTE_DEFINE_POLICY(id, 0, NULL, NULL, sum, squares, epsilon, rules, consent, __VA_ARGS__)
/**
 * @brief Define a const policy whose experiments may have open groups.
 *
 * @code
 *     static struct hushmote_group groups[] = {{"firmware", "2.4.0"}};
 *     HUSHMOTE_POLICY_WITH_GROUPS(policy, groups, 8000000, 0, 1000000, HUSHMOTE_SUM, 0, "board_crash");
 * @endcode
 *
 * @param id Name of the variable.
 * @param groups An array of struct hushmote_group. The application may change the values.
 * @param ... As for HUSHMOTE_POLICY().
 */
#define HUSHMOTE_POLICY_WITH_GROUPS(id, groups, ...)                                                                   \
    HUSHMOTE_DEFINE_POLICY(id, sizeof(groups) / sizeof *(groups), groups, NULL, __VA_ARGS__)
#if HUSHMOTE_WITH_LOG
/**
 * @brief Define a const policy under which experiments must be in a public log.
 *
 * @code
 *     HUSHMOTE_LOG(questions, "example.org/questions", 2, LOG_KEY, FIRST_WITNESS, SECOND_WITNESS);
 *     HUSHMOTE_POLICY_WITH_LOG(policy, questions, 8000000, 0, 1000000, HUSHMOTE_SUM, 0, "room_temp");
 * @endcode
 *
 * @param id Name of the variable.
 * @param log A struct hushmote_log.
 * @param ... As for HUSHMOTE_POLICY().
 */
#define HUSHMOTE_POLICY_WITH_LOG(id, log, ...) HUSHMOTE_DEFINE_POLICY(id, 0, NULL, &(log), __VA_ARGS__)
/**
 * @brief Define a const policy whose experiments may have open groups, and must be in a public log.
 * @param id Name of the variable.
 * @param groups As for HUSHMOTE_POLICY_WITH_GROUPS().
 * @param log As for HUSHMOTE_POLICY_WITH_LOG().
 * @param ... As for HUSHMOTE_POLICY().
 */
#define HUSHMOTE_POLICY_WITH_GROUPS_AND_LOG(id, groups, log, ...)                                                      \
    HUSHMOTE_DEFINE_POLICY(id, sizeof(groups) / sizeof *(groups), groups, &(log), __VA_ARGS__)
#endif
#define HUSHMOTE_DEFINE_POLICY(id, group_count, groups, log, sum, squares, epsilon, rules, consent, ...)               \
    static const char *const id##_names[] = {__VA_ARGS__};                                                             \
    typedef char id##_is_wrong[(epsilon) >= HUSHMOTE_EPSILON_MIN && (epsilon) <= HUSHMOTE_EPSILON_MAX &&               \
                                       (rules) > 0 && (rules) < 16 && (consent) < 4 &&                                 \
                                       sizeof id##_names / sizeof *id##_names <= 64 &&                                 \
                                       ((sum) >= (epsilon) || (squares) >= (uint64_t)(epsilon) * (epsilon))            \
                                   ? 1                                                                                 \
                                   : -1];                                                                              \
    static const struct hushmote_policy id = {                                                                         \
        (sum), (squares), (epsilon), (rules), (consent), sizeof id##_names / sizeof *id##_names, id##_names,           \
        (group_count), (groups), (log)}

/* --- Return codes -------------------------------------------------------------------------------------------- */

/** Return codes; HUSHMOTE_REFUSED and below give the reason why an experiment is refused. */
enum hushmote_code {
    HUSHMOTE_OK = 0,
    HUSHMOTE_BAD_SETTINGS = -1,  /**< Policy, device id, keys, buffers or callbacks are invalid. */
    HUSHMOTE_BAD_ENTROPY = -2,   /**< The random source is missing or stuck; nothing was spent. */
    HUSHMOTE_STORAGE = -3,       /**< The storage failed; nothing was spent. */
    HUSHMOTE_LOCKED = -4,        /**< The ledger is damaged; nothing may be spent. */
    HUSHMOTE_EXISTS = -5,        /**< hushmote_provision() found a ledger, intact or damaged, and left it alone. */
    HUSHMOTE_BUSY = -6,          /**< Another call is in progress. */
    HUSHMOTE_WRONG_TYPE = -7,    /**< Application error: the experiment does not accept readings of this type. */
    HUSHMOTE_UNKNOWN = -8,       /**< The policy does not include this experiment. */
    HUSHMOTE_WORN_OUT = -9,      /**< The ledger's sequence number has reached its maximum. */
    HUSHMOTE_NO_LEDGER = -10,    /**< Locked: nobody has provisioned this board. */
    HUSHMOTE_ANOTHER = -11,      /**< Locked: another client wrote this ledger. */
    HUSHMOTE_NO_IDENTITY = -12,  /**< The place of the board's identity is erased or missing. */
    HUSHMOTE_IDENTITY_OTHER = -13,   /**< The place of the board's identity contains something else. */
    HUSHMOTE_IDENTITY_NEWER = -14,   /**< The identity has a format that this firmware does not support. */
    HUSHMOTE_IDENTITY_DAMAGED = -15, /**< The identity is truncated or damaged. */
    HUSHMOTE_REFUSED = -16,      /**< Malformed JSON, or a field that is missing, unknown or out of range. */
    HUSHMOTE_REFUSED_POLICY = -17,     /**< The policy does not allow its name, epsilon or budget rule. */
    HUSHMOTE_REFUSED_PINNED = -18,     /**< Its budget rule, or its epsilon under `count`, differs from the pinned one. */
    HUSHMOTE_REFUSED_SIGNATURE = -19,  /**< The signature is missing or wrong. */
    HUSHMOTE_REFUSED_SERIAL = -20,     /**< A newer version was published. */
    HUSHMOTE_REFUSED_MISSING = -21,    /**< This firmware lacks the type or mechanism. */
    HUSHMOTE_REFUSED_ROOM = -22,       /**< It needs more than #HUSHMOTE_ROOM_BYTES. */
    HUSHMOTE_REFUSED_SMALL_EPSILON = -23, /**< Epsilon is too small for this number of cells. */
    HUSHMOTE_REFUSED_UNASKED = -24,    /**< The policy asks about each question, and nobody has opted in to this one. */
    HUSHMOTE_REFUSED_GROUP = -25,      /**< The policy does not name its open group. */
    HUSHMOTE_REFUSED_BROKER = -26,     /**< The broker forbids the subscription to its topic. */
    HUSHMOTE_REFUSED_NO_PROOF = -27,   /**< Its proof from the log is missing. */
    HUSHMOTE_REFUSED_PROOF = -28,      /**< Its proof is malformed. */
    HUSHMOTE_REFUSED_LOG = -29,        /**< It is not in the log, or a signature in its proof is wrong. */
    HUSHMOTE_REFUSED_WITNESSES = -30,  /**< Too few witnesses have signed its proof. */
    HUSHMOTE_REFUSED_EVERY = -31       /**< Its `every` is a list, but the policy has a log. */
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

/** A reading, created by the functions below. It points to its data, which must outlive it. */
struct hushmote_reading {
    uint8_t kind;     /**< HUSHMOTE_IS_NONE to HUSHMOTE_IS_PARTS. */
    int64_t number;   /**< Value of a flag, whole or milli. */
    const void *data; /**< Bytes of a text; array of struct hushmote_reading of parts. */
    size_t count;     /**< Number of bytes or parts. */
};

/**
 * @brief Make a reading for a sensor that failed.
 *
 * It is reported like any other reading, because omitting it would reveal something.
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

/* --- The platform's callbacks -------------------------------------------------------------------------------- */

/** A piece of a message to hash. */
struct hushmote_piece {
    const void *data; /**< The bytes. */
    size_t bytes;     /**< Number of bytes. */
};

/** The client's state for one experiment in the policy. Applications may read it. Only these files write it, except
    for a serial that was kept in flash, which the application sets after hushmote_begin(). */
struct hushmote_experiment {
    uint8_t enrolled; /**< 0: absent or refused. */
    int8_t refused;   /**< 0, or the code with which the last version was refused. */
    uint8_t type, mechanism, rule, code_bytes, level_count, part_count;
    uint8_t due;       /**< The draw of hushmote_gap() for the next call: 1 + the group's value if it makes a report, 255
                            if it makes none; 0: not drawn. */
    uint8_t withdrawn; /**< Whether the application withdrew it, and has not enrolled in it again. */
    uint8_t group_count; /**< Number of values that its open group lists; 0 without a group. */
    uint16_t room_end; /**< End of parts and levels; labels follow it. */
    uint16_t group_at; /**< Position in the room of the group's `every`, followed by its values. */
    uint32_t serial;   /**< Lowest accepted serial of a signed experiment; store it in flash with the payload. */
    uint32_t epsilon, domain, code_count, weight_sum, slots;
    uint32_t every; /**< A call makes a report with probability 1 / every; with a group, that of "other". */
    const struct hushmote_group *group; /**< The policy's group; NULL without one. */
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

    /** Read slot 0 or 1, which survive power loss: copy at most `bytes` bytes to `data` and return the number of bytes
        in the slot, 0 if it was never written, or below 0 if it cannot be read. */
    long (*read)(void *context, int slot, uint8_t *data, size_t bytes);
    /** Replace the contents of slot 0 or 1 and return 0 once they are in flash. After a power cut, a slot may hold its
        old bytes, its new bytes or (on poor storage) neither; in the last case, the client locks. */
    int (*write)(void *context, int slot, const uint8_t *data, size_t bytes);

    /** Fill `data` from a hardware generator or the kernel; return 0, or another value on failure. */
    int (*entropy)(void *context, uint8_t *data, size_t bytes);

    /** Compute SHA-256 of the concatenated pieces; may be NULL. */
    void (*sha256)(void *context, const struct hushmote_piece *pieces, size_t count, uint8_t digest[32]);
    /** Return whether an ECDSA P-256 signature (r, s) of a digest is valid for the key (x, y), with s in the lower
        half; may be NULL. */
    bool (*verify)(void *context, const uint8_t key[64], const uint8_t digest[32], const uint8_t signature[64]);
    /** Take a lock without waiting, or return false if it is held; may be NULL. Without a lock, calls from interrupts
        and callbacks are refused, and calls from two threads are an application error. */
    bool (*lock)(void *context);
    /** Release the lock; may be NULL. */
    void (*unlock)(void *context);

    const struct hushmote_policy *policy; /**< This firmware's limits. */
    const char *device_id;       /**< 1 to 32 of a-z, 0-9 and -; new for each provisioning, never a MAC address. */
    const char *fleet;           /**< The fleet's name; required with announce_key. */
    const uint8_t *key;          /**< The device's 32-byte key; NULL in an open fleet. */
    const uint8_t *announce_key; /**< The fleet's 64-byte public key, which verifies experiments; NULL: unsigned. */
    const uint8_t *unique_id;    /**< The chip's id, mixed into the seed; may be NULL. */
    size_t unique_id_bytes;      /**< Number of bytes of unique_id. */

    struct hushmote_experiment *experiments; /**< One for each of the policy's names, in the same order. */
    uint8_t *records;                        /**< Two buffers of record_bytes each, for the ledger. */
    size_t record_bytes;                     /**< HUSHMOTE_RECORD_BYTES(experiments, unsent). */
    uint8_t unsent_max;                      /**< 1 to 16: no new reports are made while this many are unsent. */

    /** With a log in the policy, called before each signature of a proof, which takes some chips half a second, for
        example to feed a watchdog; may be NULL. */
    void (*feed)(void *context);
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
    uint8_t *record, *next; /**< The current ledger record, and the next one. */
    size_t record_bytes_used, next_bytes_used;
    int8_t locked, error; /**< Codes; 0 if all is well. */
    volatile uint8_t busy;
    volatile uint32_t opt_outs, answered; /**< Number of opt-outs since startup, and that number when an answer was last stored. */
    uint32_t tried_opt_outs;              /**< Number of opt-outs when storing one was last attempted. */
    uint64_t seen[2], tried; /**< Fingerprints of the slots' last known contents, and of the last record written. */
    struct hushmote_random random;
};

/**
 * @brief Create the empty ledger. Call it once, with physical access to the board.
 *
 * @param config Storage, device id and keys.
 * @param replace Whether to overwrite an existing ledger, intact or damaged. This restarts the privacy bound, so it
 *     needs a new device id and a good reason.
 * @param consent The answer of the person whose data is measured, if already given.
 * @return #HUSHMOTE_OK, #HUSHMOTE_EXISTS if there is a ledger and `replace` is false, or another code.
 */
int hushmote_provision(const struct hushmote_config *config, bool replace, enum hushmote_consent consent);

/**
 * @brief Start a client. No other client may use its ledger.
 *
 * A missing or damaged ledger is not an error: the client is then locked, hushmote_status() gives the reason, and the
 * application can continue.
 *
 * @param client The client to initialize.
 * @param config Settings, which must outlive the client.
 * @return #HUSHMOTE_OK, #HUSHMOTE_BAD_SETTINGS or #HUSHMOTE_BAD_ENTROPY.
 */
int hushmote_begin(struct hushmote *client, const struct hushmote_config *config);

/**
 * @brief Take part in a retained experiment, signed or not.
 *
 * A refused version changes nothing. With HUSHMOTE_ASK_EACH in the policy, this function refuses every experiment,
 * because the reporter enrolls those that someone has opted in to.
 *
 * @param client The client.
 * @param payload The retained message.
 * @param bytes Number of bytes in `payload`.
 * @return #HUSHMOTE_OK, #HUSHMOTE_BUSY, or the code with which the experiment is refused.
 */
int hushmote_enroll(struct hushmote *client, const uint8_t *payload, size_t bytes);

/**
 * @brief Take part in an experiment whose payload was stored in flash.
 *
 * Same as hushmote_enroll(), but does not verify the signature again. With a log in the policy, this function refuses
 * every experiment: keep the proof as well, and call hushmote_enroll_logged().
 *
 * @param client The client.
 * @param payload The payload, stored after hushmote_enroll() accepted it.
 * @param bytes Number of bytes in `payload`.
 * @return #HUSHMOTE_OK, #HUSHMOTE_BUSY, or the code with which the experiment is refused.
 */
int hushmote_enroll_kept(struct hushmote *client, const uint8_t *payload, size_t bytes);

/**
 * @brief Take part in a retained experiment that is in the policy's log.
 *
 * Same as hushmote_enroll(), which refuses every experiment if the policy has a log.
 *
 * @param client The client.
 * @param payload The retained message.
 * @param bytes Number of bytes in `payload`.
 * @param[in,out] proof The retained message on the topic of its proof; its leaf is set if the experiment is accepted.
 * @return #HUSHMOTE_OK, #HUSHMOTE_BUSY, or the code with which the experiment is refused.
 */
int hushmote_enroll_logged(struct hushmote *client, const uint8_t *payload, size_t bytes, struct hushmote_proof *proof);

/**
 * @brief Stop taking part in an experiment. The budget that it has spent remains spent.
 *
 * @param client The client.
 * @param name Name of the experiment.
 * @param payload The retained message on the experiment's topic that withdraws it (empty in an open fleet, signed in a
 *     keyed one), or NULL if the application makes the decision: no reporter then enrolls in any version of it until the
 *     application calls hushmote_enroll() itself, or until the next start.
 * @param bytes Number of bytes in `payload`.
 * @return #HUSHMOTE_OK, #HUSHMOTE_UNKNOWN, #HUSHMOTE_BUSY, or the code with which the withdrawal is refused.
 */
int hushmote_withdraw(struct hushmote *client, const char *name, const uint8_t *payload, size_t bytes);

/**
 * @brief Randomize a reading and debit the budget.
 *
 * If no report is made, the reason never depends on the reading: nobody has opted in, someone opts out during the call,
 * the draw for `every` skips this call, the budget is spent, the outbox is full, the experiment is absent, the client
 * is locked or busy, or the storage failed.
 *
 * @param client The client.
 * @param name Name of the experiment.
 * @param reading The reading.
 * @param[out] report The report, already debited, to publish at QoS 1.
 * @return Number of bytes in the report, 1 to #HUSHMOTE_REPORT_BYTES; 0 if no report is made; #HUSHMOTE_WRONG_TYPE or
 *     #HUSHMOTE_BAD_ENTROPY, in which case nothing was spent.
 */
int hushmote_report(struct hushmote *client, const char *name, struct hushmote_reading reading,
                    uint8_t report[HUSHMOTE_REPORT_BYTES]);

/**
 * @brief Randomize a reading of a period in which the open group had another value, such as the time before an update.
 *
 * Same as hushmote_report(), but the report contains this value. Keep the value in flash, beside the reading's counter.
 *
 * @param client The client.
 * @param name Name of the experiment.
 * @param reading The reading.
 * @param group The group's value in that period, which must not depend on the reading; NULL for the policy's value.
 * @param[out] report The report, as in hushmote_report().
 * @return The result of hushmote_report().
 */
int hushmote_report_as(struct hushmote *client, const char *name, struct hushmote_reading reading, const char *group,
                       uint8_t report[HUSHMOTE_REPORT_BYTES]);

/**
 * @brief Draw for `every` in advance, so that a board can sleep until a report is due.
 *
 * Sleep for the returned number of intervals, then read and report only the experiments in `drawn`. The distribution is
 * the same as with one draw per call. Draws are independent, so draw again after a power cut.
 *
 * @param client The client.
 * @param max_calls Largest result.
 * @param[out] drawn A bit for each of the policy's names that will then make a report.
 * @return Number of calls of hushmote_report() until the first one that makes a report, 1 to `max_calls`; `max_calls`
 *     if no call will make one or nobody has opted in; 0 if another call is in progress.
 */
unsigned hushmote_gap(struct hushmote *client, unsigned max_calls, uint64_t *drawn);

/**
 * @brief Draw for `every` in advance, for readings that hushmote_report_as() will report.
 *
 * Same as hushmote_gap(), but for these values of the groups. A report with another value is drawn again.
 *
 * @param client The client.
 * @param max_calls Largest result.
 * @param groups The value for each of the policy's names, NULL for the policy's value.
 * @param[out] drawn A bit for each of the policy's names that will then make a report.
 * @return The result of hushmote_gap().
 */
unsigned hushmote_gap_as(struct hushmote *client, unsigned max_calls, const char *const *groups, uint64_t *drawn);

/**
 * @brief Copy an unsent report. Send the same bytes until you call hushmote_sent().
 * @param client The client.
 * @param at The report's index; 0 is the oldest.
 * @param[out] report The report.
 * @return Number of bytes in the report; 0 if there is none or another call is in progress.
 */
int hushmote_unsent(struct hushmote *client, unsigned at, uint8_t report[HUSHMOTE_REPORT_BYTES]);

/**
 * @brief Delete a report that the broker has acknowledged.
 * @param client The client.
 * @param report The report.
 * @param bytes Number of bytes in `report`.
 * @return #HUSHMOTE_OK, or another code, in which case the report is kept.
 */
int hushmote_sent(struct hushmote *client, const uint8_t *report, size_t bytes);

/**
 * @brief Return whether this board takes part.
 * @param client The client.
 * @return #HUSHMOTE_YES, #HUSHMOTE_NO or #HUSHMOTE_NOT_ASKED.
 */
enum hushmote_consent hushmote_consent(const struct hushmote *client);

/**
 * @brief Store an opt-in or opt-out, which only someone at the board may give (or the network, if the policy allows
 * it).
 *
 * An opt-out deletes all unsent reports and takes effect immediately, even if it cannot be stored; the next calls of
 * hushmote_report() and hushmote_sent() then try again to store it. With HUSHMOTE_ASK_EACH, an opt-out ends every
 * experiment. An opt-out during another call, for example from an interrupt, returns #HUSHMOTE_OK, and the other call
 * stores it before returning; an opt-in during another call returns #HUSHMOTE_BUSY.
 *
 * @param client The client.
 * @param yes Whether the board takes part.
 * @return #HUSHMOTE_OK, #HUSHMOTE_BUSY or another code.
 */
int hushmote_set_consent(struct hushmote *client, bool yes);

/** A client's state. */
struct hushmote_status {
    int locked, error; /**< 0, or a code. */
    enum hushmote_consent consent;
    unsigned pending; /**< Number of unsent reports. */
    uint64_t sum;     /**< Epsilon spent in the board's lifetime, in micro-nats. */
    uint64_t squares; /**< Sum of epsilon^2 in the board's lifetime, in micro-nats squared. */
};

/** An experiment's state. */
struct hushmote_line {
    bool enrolled;
    int refused;      /**< 0, or the code with which the last version was refused. */
    uint32_t reports; /**< Number of reports made. */
    uint32_t left;    /**< Number of reports that the budget still allows; 0 if it is not enrolled. */
    uint32_t epsilon; /**< Epsilon of one report, in micro-nats. */
    uint8_t digest[4]; /**< First bytes of SHA-256 of the JSON. */
    const struct hushmote_group *group; /**< The open group that reports contain unprotected; NULL if there is none. */
};

/**
 * @brief Read a client's state.
 * @param client The client.
 * @param[out] status Its state; only `locked` is set if another call is in progress.
 * @return #HUSHMOTE_OK or #HUSHMOTE_BUSY.
 */
int hushmote_status(struct hushmote *client, struct hushmote_status *status);

/**
 * @brief Read an experiment's state.
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
