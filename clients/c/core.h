/* The internal interface between the core's files. Applications include only hushmote.h. */
#ifndef HUSHMOTE_CORE_H
#define HUSHMOTE_CORE_H

#include "hushmote.h"

#define HM_ONE (1u << 30) /* probabilities are integers, in units of 1 / HM_ONE */
#define HM_MAX_CODES (1u << 24)

/* sha256.c. Digests use config->sha256 if it is set. */
void hm_sha256(const struct hushmote_config *config, const struct hushmote_piece *pieces, size_t count, uint8_t digest[32]);
/* Compute the first 8 bytes of HMAC-SHA256 with config->key. Takes at most HM_PIECES pieces, as does a reseed. */
#define HM_PIECES 4
void hm_tag(const struct hushmote_config *config, const struct hushmote_piece *pieces, size_t count, uint8_t tag[8]);
/* Write zeros in a way that the compiler cannot optimize away. */
void hm_wipe(void *data, size_t bytes);

/* p256.c: return whether a signature of a digest is valid for the key; s must be in the lower half. Takes public
   numbers only. */
bool hm_p256_verify(const uint8_t key[64], const uint8_t digest[32], const uint8_t signature[64]);

/* drbg.c. hm_entropy reads at least 32 bytes and returns 0, or HUSHMOTE_BAD_ENTROPY if the source is missing or stuck.
   hm_reseed: a new generator has a zero key. hm_generate returns at most 8,096 bytes. */
int hm_entropy(const struct hushmote_config *config, uint8_t *data, size_t bytes);
void hm_reseed(struct hushmote_random *random, const struct hushmote_piece *entropy, size_t count);
void hm_generate(struct hushmote_random *random, uint8_t *out, size_t bytes);
/* The only two primitives that mechanisms draw from; tests replace them. */
bool hm_bernoulli(struct hushmote_random *random, uint32_t threshold);
uint32_t hm_below(struct hushmote_random *random, uint32_t n);

/* threshold.c: return exactly floor(p * 2^30) for p = inside e^eps / (inside e^eps + g - 1); 0 if out of range. */
uint32_t hm_threshold(uint32_t epsilon, uint32_t g, uint32_t inside);
uint32_t hm_tenths(uint32_t epsilon); /* 10 e^epsilon, rounded up */

#define HM_LOG_KEYS 8
#define HM_ENTRY_PIECES 7 /* of a log's entry: a zero byte, then what a signature covers and the signature */

/* Return whether a digest has a valid signature for the key. */
static inline bool hm_verify(const struct hushmote_config *config, const uint8_t key[64], const uint8_t digest[32],
                             const uint8_t signature[64]) {
    if (config->verify != NULL)
        return config->verify(config->context, key, digest, signature);
#if HUSHMOTE_WITH_P256
    return hm_p256_verify(key, digest, signature);
#else
    return false;
#endif
}

/* Return the policy's log, or NULL. The compiler removes code for logs if they are left out. */
static inline const struct hushmote_log *hm_log(const struct hushmote_config *config) {
#if HUSHMOTE_WITH_LOG
    return config->policy->log;
#else
    (void)config;
    return NULL;
#endif
}

/* json.c reads JSON objects that hm_json_check() has accepted; their strings have no escapes. */
enum hm_field { /* 1-based index in the list of names in json.c; 0 stands for any other name */
    HM_F_V = 1, HM_F_NAME, HM_F_TYPE, HM_F_LABELS, HM_F_LOW, HM_F_HIGH, HM_F_BINS, HM_F_SCALE, HM_F_MISSING, HM_F_SALT,
    HM_F_SLOTS, HM_F_PREFIXES, HM_F_OF, HM_F_MECHANISM, HM_F_G, HM_F_Q, HM_F_REACH, HM_F_VIEWS, HM_F_FANOUT, HM_F_CELLS,
    HM_F_WEIGHTS, HM_F_EPSILON, HM_F_EVERY, HM_F_BUDGET, HM_F_WINDOW, HM_F_RULE, HM_F_CAP, HM_F_GROUP, HM_F_GROUPS, HM_FIELDS
};
struct hm_object {
    const uint8_t *json;
    uint16_t at[HM_FIELDS]; /* position of each field's last value; 0 if the field is missing or was taken */
};
bool hm_json_check(const uint8_t *json, size_t bytes);
void hm_json_object(struct hm_object *object, const uint8_t *value); /* has no fields if the value is not an object */
const uint8_t *hm_json_list(const uint8_t *value);         /* the first element; NULL if it is empty or not a list */
const uint8_t *hm_json_next(const uint8_t *element);       /* the next element; NULL after the last */
int hm_json_length(const uint8_t *value);                  /* length of the text at value + 1; -1 if it is not a text */
int hm_json_word(const uint8_t *value, const char *words); /* index of a text among the words; -1 if it is not one */
bool hm_json_integer(const uint8_t *value, int64_t *number); /* uses only the first 18 digits */
#define HM_NONE UINT32_MAX /* returned if the value is not an integer from low to high */
uint32_t hm_json_number(const uint8_t *value, uint32_t low, uint32_t high);
uint32_t hm_json_each(const uint8_t **element, uint32_t low, uint32_t high); /* also advances to the next */
const uint8_t *hm_take(struct hm_object *object, enum hm_field field); /* the field's value; NULL if it is missing */
uint32_t hm_take_number(struct hm_object *object, enum hm_field field, uint32_t low, uint32_t high);
int hm_nothing_left(const struct hm_object *object); /* 0 if all fields were taken; otherwise the experiment is refused */

/* An experiment's room holds its parts, then its levels, and its labels and group from the end backwards. */
enum { HM_BOOL, HM_CHOICE, HM_NUMBER, HM_TEXT, HM_PAIR };
enum { HM_RR, HM_GRR, HM_OLH, HM_HH, HM_PGR, HM_SW, HM_PREFIX, HM_VIEWS };

struct hm_part { /* a pair has 2 or 3; other types have one */
    int64_t low, high;
    uint32_t domain;
    uint16_t words; /* position of its labels (last one first), a text's salt and prefixes, or the growth of a number's
                       logarithmic bins (0 without them), each preceded by its length */
    uint8_t type;
    uint8_t missing; /* 1: the last index stands for a missing reading */
};

struct hm_level {
    uint32_t threshold, offset; /* probability of the truth; number of codes of the levels before it */
    uint32_t g;                 /* number of cells; in pgr q, in sw the domain */
    uint32_t width;             /* adjacent indices that share a node; in pgr the number of codes outside, in sw inside */
    uint16_t weight;
    uint8_t t;    /* number of digits in the hash, 0 without a hash; in pgr number of digits in a point */
    uint8_t view; /* has a bit for each part that the view uses */
};

struct hm_part *hm_part(const struct hushmote_experiment *experiment, unsigned number);
struct hm_level *hm_level(const struct hushmote_experiment *experiment, unsigned number);
bool hm_room(const struct hushmote_experiment *experiment, size_t bytes); /* whether this many more bytes fit */
/* Store a length byte and the data at the new room_end; return false if they do not fit. */
bool hm_keep(struct hushmote_experiment *experiment, const void *data, size_t bytes);

/* Each take function reads fields into the experiment and returns 0, or the code with which it is refused. */
int hm_take_part(struct hushmote_experiment *experiment, struct hm_object *fields, struct hm_part *part);
int hm_take_scale(struct hushmote_experiment *experiment, struct hm_object *fields, struct hm_part *part);
int hm_take_text(struct hushmote_experiment *experiment, struct hm_object *fields, struct hm_part *part);
int hm_take_pair(struct hushmote_experiment *experiment, struct hm_object *fields);
int hm_take_levels(struct hushmote_experiment *experiment, struct hm_object *fields);
int hm_take_views(struct hushmote_experiment *experiment, struct hm_object *fields);
int hm_take_pgr(struct hushmote_experiment *experiment, struct hm_object *fields);
int hm_take_prefix(struct hushmote_experiment *experiment, struct hm_object *fields);
int hm_take_sw(struct hushmote_experiment *experiment, struct hm_object *fields);

/* levels.c. hm_divide returns n / d and sets *remainder = n % d, in the same number of steps for all n; d is at most 2^30. */
uint32_t hm_divide(uint32_t n, uint32_t d, uint32_t *remainder);
bool hm_is_prime(uint32_t n); /* n must be 2 to 2^16 */
int hm_add_level(struct hushmote_experiment *experiment, uint32_t nodes, uint32_t g, uint32_t width, uint32_t weight);
int hm_push_level(struct hushmote_experiment *experiment, struct hm_level *level, uint32_t codes);
int hm_add_points(struct hushmote_experiment *experiment, uint32_t domain, uint32_t q, uint32_t weight);
const struct hm_level *hm_pick(const struct hushmote_experiment *experiment, struct hushmote_random *random);
uint32_t hm_respond(const struct hm_level *level, uint32_t node, struct hushmote_random *random);

/* experiment.c: parse an experiment, and set *at to its name's index in the policy (the number of names if the name is
   not in the policy or could not be read). Return 0, or the code with which it is refused. HUSHMOTE_REFUSED_POLICY
   refers only to the name, because the client checks epsilon and the rule. If refused, *experiment is undefined. */
int hm_parse(const struct hushmote_config *config, const uint8_t *json, size_t bytes,
             struct hushmote_experiment *experiment, unsigned *at);

/* Return the index of a value of the open group: of the policy's value if `value` is NULL. A value that is not listed
   has the last index, "other". Without a group, return 0. */
uint8_t hm_group_index(const struct hushmote_experiment *experiment, const char *value);
/* Return n, where 1 in n calls makes a report, for the index of a value. */
uint32_t hm_every(const struct hushmote_experiment *experiment, uint8_t group_index);

struct hm_index { /* a reading's index */
    uint32_t missing; /* 1: the reading is missing, and has no index */
    uint32_t at;      /* 0 to domain - 1, if that is at most 2^24 */
#if HUSHMOTE_WITH_PREFIX
    uint32_t slots[16]; /* one per prefix of a text */
#endif
};

/* Compute a reading's index without random draws. Return 0, or HUSHMOTE_WRONG_TYPE. */
int hm_bucket(const struct hushmote_config *config, const struct hushmote_experiment *experiment,
              const struct hushmote_reading *reading, struct hm_index *index);

int hm_bucket_part(const struct hushmote_experiment *experiment, const struct hm_part *part,
                   const struct hushmote_reading *reading, uint32_t *at);
/* Return the index of a reading in thousandths, from low to high - 1, in a part with logarithmic bins. */
uint32_t hm_bucket_scale(const struct hushmote_experiment *experiment, const struct hm_part *part, uint64_t milli);
int hm_bucket_text(const struct hushmote_config *config, const struct hushmote_experiment *experiment,
                   const struct hushmote_reading *reading, struct hm_index *index);
int hm_bucket_pair(const struct hushmote_experiment *experiment, const struct hushmote_reading *reading,
                   struct hm_index *index);

/* Return an index's randomized code, 0 to code_count - 1. For a missing reading, an index is drawn first. */
uint32_t hm_randomize_views(const struct hushmote_experiment *experiment, uint32_t at, struct hushmote_random *random);
uint32_t hm_randomize_points(const struct hm_level *level, uint32_t node, struct hushmote_random *random);
uint32_t hm_randomize_prefix(const struct hushmote_experiment *experiment, const struct hm_index *index,
                             struct hushmote_random *random);
uint32_t hm_randomize_sw(const struct hm_level *level, uint32_t at, struct hushmote_random *random);
uint32_t hm_randomize(const struct hushmote_experiment *experiment, struct hm_index *index, struct hushmote_random *random);

/* ledger.c: the current record, and the next one, which starts as its copy. */
#define HM_ENTRY_BYTES 22
#define HM_MAX_ENTRIES 64 /* per record; byte 1 of a record is the number of entries */
#define HM_SEED_AT 6 /* position in a record */
#define HM_SEED_BYTES 16

enum { HM_UNLIMITED, HM_SUM, HM_SQUARES, HM_COUNT }; /* budget rules */

struct hm_entry { /* an experiment's entry */
    size_t at; /* position in the record, or that of the unsent reports if there is no entry */
    uint8_t key[4], rule;
    uint32_t number; /* number of the last report */
    uint64_t cap, spent;
};

uint32_t hm_crc32(uint32_t crc, const void *data, size_t bytes);
/* Return the CRC-32 of the fleet, its key, a name and the bytes stored under that name. Requires config->fleet. */
uint32_t hm_seal(const struct hushmote_config *config, const char *name, const void *data, size_t bytes);
void hm_open(struct hushmote *client);
void hm_renew(struct hushmote *client);
enum hushmote_consent hm_consent(const struct hushmote *client);
uint64_t hm_sum(const struct hushmote *client);
uint64_t hm_squares(const struct hushmote *client);
uint32_t hm_times(uint64_t bound, uint64_t spent, uint32_t cost, uint32_t factor);
bool hm_entry(const struct hushmote *client, struct hm_entry *entry); /* looks up entry->key; false if there is no such entry */
size_t hm_unsent_at(const struct hushmote *client);
bool hm_fits(const struct hushmote *client, const struct hm_entry *entry); /* whether one more report fits */
/* To change the record, call hm_prepare(), which returns 0 or the code of an error; then make each kind of change at
   most once; then call hm_commit() with that code, which makes the next record current or keeps the old one. A new
   unsent report goes at next_bytes_used, preceded by its length. */
int hm_prepare(struct hushmote *client, enum hushmote_consent consent);
void hm_debit(struct hushmote *client, uint32_t epsilon, const struct hm_entry *entry);
void hm_drop(struct hushmote *client, size_t at, size_t bytes); /* removes unsent reports */
int hm_commit(struct hushmote *client, int code);

/* client.c: hushmote_enroll() for a message on the topic of `name`, which must match the experiment's name; NULL if the
   topic is unknown. kept: it needs no signature and no proof. */
int hm_enroll(struct hushmote *client, const char *name, const uint8_t *payload, size_t bytes, bool kept,
              struct hushmote_proof *proof);
/* Check an experiment's serial, signature and proof, without enrolling in it. Return 0, or the code with which it is
   refused. */
int hm_check_proof(const struct hushmote *client, unsigned at, const uint8_t *payload, size_t bytes,
                   struct hushmote_proof *proof);

/* reporter.c: process a message on an experiment's topic, which is an experiment or (without JSON) a withdrawal.
   agreed: someone has opted in to exactly this payload. Return 0, or the code with which it is refused. */
struct hushmote_reporter;
int hm_take_message(struct hushmote_reporter *reporter, unsigned at, const uint8_t *payload, size_t bytes, bool agreed);

/* question.c: compute an experiment's question, to which an opt-in applies: 8 bytes of its digest and 4 bytes of
   epsilon. Checks the JSON itself. Return 0, or HUSHMOTE_REFUSED. */
#define HM_QUESTION_BYTES 12
int hm_question(const struct hushmote_config *config, const uint8_t *json, size_t bytes, uint8_t question[HM_QUESTION_BYTES]);

/* settings.c. hm_settings returns 0, or HUSHMOTE_BAD_SETTINGS. hm_is_name returns whether a text is 1 to 32 of a-z,
   0-9, - and, except in device ids, _. hm_find returns a text's index among the policy's names, or the number of names
   if it is not one of them; hm_find_group returns the policy's group with a name, or NULL. */
int hm_settings(const struct hushmote_config *config);
bool hm_is_name(const void *text, size_t length, bool underscore);
unsigned hm_find(const struct hushmote_policy *policy, const void *name, size_t length);
const struct hushmote_group *hm_find_group(const struct hushmote_policy *policy, const void *name, size_t length);
/* Read and write a big-endian number. */
uint64_t hm_get(const uint8_t *at, unsigned bytes);
void hm_put(uint8_t *at, unsigned bytes, uint64_t value);
/* Return the FNV-1a hash of a slot's length and its first max_bytes bytes. A CRC-32 would not work, because the CRC-32
   of a record that ends with its own CRC-32 is constant. */
uint64_t hm_fingerprint(const uint8_t *data, size_t length, size_t max_bytes);

#endif
