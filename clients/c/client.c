/* The client: consent, experiments, and reports, which are debited before anyone sees them.

   The privacy guarantee depends on the order in hushmote_report(): it checks consent, then draws for `every`, and only
   then looks at the reading. A report's debit, number and bytes are written to flash in one commit, and only then
   returned to the caller. */
#include <string.h>

#include "core.h"

#define FIRST_ENTROPY_BYTES 384 /* hashed at startup, together with a seed from the ledger and the chip's id */
#define MORE_ENTROPY_BYTES 128  /* mixed in before each report */
#define SIGNED_BYTES 69         /* a zero byte, a 4-byte serial and a 64-byte signature, which follow the JSON */
#define MAX_SUM (UINT64_C(1) << 48)
#define DUE 1 /* plus the index of the group's value: a report was drawn in advance */
#define NOT_DUE 255 /* no report was drawn in advance */

/* --- One call at a time --------------------------------------------------------------------------------------- */

static bool enter(struct hushmote *client) {
    const struct hushmote_config *config = client->config;
    if (config == NULL || (config->lock != NULL && !config->lock(config->context)))
        return false;
    if (client->busy) { /* called from one of this client's callbacks, with a recursive lock */
        if (config->unlock != NULL)
            config->unlock(config->context);
        return false;
    }
    client->busy = 1;
    return true;
}

static bool asks_each(const struct hushmote_config *config) {
    return (config->policy->consent & HUSHMOTE_ASK_EACH) != 0;
}

/* Store an opt-in that is newer than the first `opt_outs` opt-outs, or the last of these opt-outs. */
static int store_answer(struct hushmote *client, enum hushmote_consent consent, uint32_t opt_outs) {
    const struct hushmote_config *config = client->config;
    int code = hm_prepare(client, consent);
    for (unsigned i = 0; opt_outs != client->answered && asks_each(config) && i < config->policy->name_count; i++)
        config->experiments[i].enrolled = 0;
    if (consent == HUSHMOTE_NO)
        client->next_bytes_used = hm_unsent_at(client);
    code = hm_commit(client, code);
    if (code == HUSHMOTE_OK) {
        client->answered = opt_outs;
        client->error = HUSHMOTE_OK;
    }
    return code;
}

/* End a call: store an opt-out that arrived during it, then allow the next call. */
static int leave(struct hushmote *client, int code) {
    const struct hushmote_config *config = client->config;
    uint32_t opt_outs;
    do {
        opt_outs = client->opt_outs;
        if (opt_outs != client->tried_opt_outs) {
            int failure = opt_outs == client->answered ? HUSHMOTE_OK : store_answer(client, HUSHMOTE_NO, opt_outs);
            client->tried_opt_outs = opt_outs;
            if (failure != HUSHMOTE_OK)
                client->error = (int8_t)failure;
        }
        client->busy = 0;
        if (config->unlock != NULL)
            config->unlock(config->context);
        /* An opt-out that arrived between the check and the release relies on this call to store it. */
    } while (opt_outs != client->opt_outs && enter(client));
    return code;
}

/* End a call that writes: retry an opt-out that could not be stored before. */
static int leave_writing(struct hushmote *client, int code) {
    client->tried_opt_outs = client->answered;
    return leave(client, code);
}

/* --- Names ---------------------------------------------------------------------------------------------------- */

/* Return the experiment with a name, or NULL if the policy does not include it. */
static struct hushmote_experiment *find(const struct hushmote_config *config, const char *name) {
    unsigned at = hm_find(config->policy, name, strlen(name));
    return at < config->policy->name_count ? config->experiments + at : NULL;
}

/* --- The budget ----------------------------------------------------------------------------------------------- */

/* Return the experiment's ledger entry, or the one that this version's first report will write. Its key is a hash of
   the name; two names with the same key would share one entry's budget. */
static void find_entry(const struct hushmote *client, const struct hushmote_experiment *known,
                       const struct hushmote_experiment *version, struct hm_entry *entry) {
    struct hushmote_piece piece;
    uint8_t digest[32];
    piece.data = client->config->policy->names[known - client->config->experiments];
    piece.bytes = strlen((const char *)piece.data);
    hm_sha256(client->config, &piece, 1, digest);
    memcpy(entry->key, digest, 4);
    if (hm_entry(client, entry))
        return;
    entry->number = 0;
    entry->rule = version->rule;
    entry->cap = version->cap;
    entry->spent = version->rule == HM_COUNT ? version->epsilon : 0;
}

static uint32_t minimum(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Return the number of further reports with this epsilon that every bound allows: the largest n with
   spent + n * cost <= bound. */
static uint32_t reports_left(const struct hushmote *client, const struct hushmote_experiment *experiment,
                             const struct hm_entry *entry) {
    const struct hushmote_policy *policy = client->config->policy;
    uint32_t epsilon = experiment->epsilon, n, limit;
    uint64_t sum = hm_sum(client), squares = hm_squares(client);
    uint64_t cap = entry->cap < experiment->cap ? entry->cap : experiment->cap;
    unsigned lines = client->record[1] + (entry->number == 0 ? 1u : 0u); /* including names removed from the policy */
    /* A different rule may have been pinned since this version was checked. */
    if (client->locked != HUSHMOTE_OK || entry->rule != experiment->rule ||
        (entry->rule == HM_COUNT && entry->spent != epsilon) || (entry->number == 0 && lines > HM_MAX_ENTRIES) ||
        HUSHMOTE_RECORD_BYTES(lines, 1) > client->config->record_bytes)
        return 0;
    /* The lifetime bounds: the sum must be within its bound, or the squares within theirs. */
    n = hm_times(policy->sum, sum, epsilon, 1);
    limit = hm_times(policy->squares, squares, epsilon, epsilon);
    n = limit > n ? limit : n;
    /* The range of the ledger's fields. */
    n = minimum(n, hm_times(MAX_SUM - 1, sum, epsilon, 1));
    n = minimum(n, hm_times(UINT64_MAX, squares, epsilon, epsilon));
    /* The experiment's bound: the smaller of the pinned cap and this version's cap. */
    if (entry->rule == HM_COUNT)
        limit = hm_times(cap, entry->number, 1, 1);
    else
        limit = hm_times(cap, entry->spent, epsilon, entry->rule == HM_SUM ? 1 : epsilon);
    if (entry->rule != HM_UNLIMITED)
        n = minimum(n, limit);
    return minimum(n, UINT32_MAX - entry->number);
}

/* --- Startup -------------------------------------------------------------------------------------------------- */

/* Mix entropy into the generator. At startup, also mix in the ledger's seed (if any), the chip's id and the device id. */
static int mix_entropy(struct hushmote *client, size_t bytes, const uint8_t *seed, const char *device_id) {
    const struct hushmote_config *config = client->config;
    uint8_t entropy[FIRST_ENTROPY_BYTES];
    struct hushmote_piece pieces[4];
    int code = hm_entropy(config, entropy, bytes);
    pieces[0].data = entropy;
    pieces[0].bytes = bytes;
    pieces[1].data = seed;
    pieces[1].bytes = seed == NULL ? 0 : HM_SEED_BYTES;
    pieces[2].data = config->unique_id;
    pieces[2].bytes = config->unique_id_bytes;
    pieces[3].data = device_id;
    pieces[3].bytes = strlen(device_id);
    client->random.config = config;
    if (code == HUSHMOTE_OK)
        hm_reseed(&client->random, pieces, bytes == FIRST_ENTROPY_BYTES ? 4 : 1);
    hm_wipe(entropy, sizeof entropy);
    return code;
}

int hushmote_provision(const struct hushmote_config *config, bool replace, enum hushmote_consent consent) {
    struct hushmote client;
    int code = hm_settings(config);
    if (code != HUSHMOTE_OK)
        return code;
    memset(&client, 0, sizeof client);
    client.config = config;
    code = mix_entropy(&client, FIRST_ENTROPY_BYTES, NULL, "");
    if (code != HUSHMOTE_OK)
        return code;
    hm_open(&client);
    if (client.locked == HUSHMOTE_STORAGE)
        return HUSHMOTE_STORAGE;
    if (client.locked != HUSHMOTE_NO_LEDGER && !replace)
        return HUSHMOTE_EXISTS;
    /* Write both slots, with sequence numbers 1 and 2. The first report gets 3, so a ledger that lost it cannot pass
       for new. */
    hm_renew(&client);
    for (int slot = 0; code == HUSHMOTE_OK && slot < 2; slot++) {
        code = hm_prepare(&client, consent);
        if (slot == 0)
            hm_generate(&client.random, client.next + HM_SEED_AT, HM_SEED_BYTES);
        code = hm_commit(&client, code);
    }
    hm_wipe(&client, sizeof client);
    return code;
}

int hushmote_begin(struct hushmote *client, const struct hushmote_config *config) {
    memset(client, 0, sizeof *client);
    if (hm_settings(config) != HUSHMOTE_OK) {
        client->locked = HUSHMOTE_BAD_SETTINGS;
        return HUSHMOTE_BAD_SETTINGS;
    }
    memset(config->experiments, 0, config->policy->name_count * sizeof *config->experiments);
    client->config = config;
    hm_open(client);
    if (mix_entropy(client, FIRST_ENTROPY_BYTES, client->record + HM_SEED_AT, config->device_id) == HUSHMOTE_OK)
        return HUSHMOTE_OK;
    client->config = NULL; /* makes all other calls fail */
    client->locked = HUSHMOTE_BAD_ENTROPY;
    return HUSHMOTE_BAD_ENTROPY;
}

/* --- Experiments ---------------------------------------------------------------------------------------------- */

/* Check an experiment against the policy and the ledger, whatever a server asks for. */
static int check_allowed(const struct hushmote *client, const struct hushmote_experiment *experiment,
                         const struct hushmote_experiment *known) {
    const struct hushmote_policy *policy = client->config->policy;
    struct hm_entry entry;
    if (experiment->epsilon > policy->epsilon || (policy->rules >> experiment->rule & 1) == 0)
        return HUSHMOTE_REFUSED_POLICY;
    if (experiment->group_count > 0 && experiment->group == NULL)
        return HUSHMOTE_REFUSED_GROUP;
    find_entry(client, known, experiment, &entry);
    if (entry.rule != experiment->rule || (entry.rule == HM_COUNT && entry.spent != experiment->epsilon))
        return HUSHMOTE_REFUSED_PINNED;
    return HUSHMOTE_OK;
}

/* Check the signature, which is the last 64 bytes, and then the proof, unless there is no log. */
static int check_message(const struct hushmote_config *config, const char *name, const uint8_t *payload, size_t bytes,
                         const struct hushmote_log *log, struct hushmote_proof *proof) {
    struct hushmote_piece entry[HM_ENTRY_PIECES], *pieces = entry + 1;
    uint8_t digest[32];
    pieces[0].data = "hushmote/v1/";
    pieces[1].data = config->fleet;
    pieces[2].data = "/experiment/";
    pieces[3].data = name;
    for (unsigned i = 0; i < 4; i++)
        pieces[i].bytes = strlen((const char *)pieces[i].data);
    pieces[4].data = "";
    pieces[4].bytes = 1; /* the zero byte */
    pieces[5].data = payload;
    pieces[5].bytes = bytes - 64;
    hm_sha256(config, pieces, 6, digest);
    if (!hm_verify(config, config->announce_key, digest, payload + bytes - 64))
        return HUSHMOTE_REFUSED_SIGNATURE;
    if (log == NULL)
        return HUSHMOTE_OK;
    entry[0] = pieces[4];
    pieces[5].bytes = bytes;
    return log->check->verify(config, entry, proof);
}

static bool has_every_list(const uint8_t *json) {
    struct hm_object fields;
    const uint8_t *every;
    hm_json_object(&fields, json);
    every = hm_take(&fields, HM_F_EVERY);
    return every != NULL && *every == '[';
}

/* Check the serial and the signature, which follow the JSON at `end`, and the proof, if the policy has a log. If they are
   valid, the serial becomes the lowest accepted one. The serial is checked first because verifying replayed messages
   would be slow. A withdrawal, which has no JSON, needs no proof: it is always safe to stop. */
static int check_signature(const struct hushmote_config *config, struct hushmote_experiment *known, const uint8_t *payload,
                           size_t bytes, size_t end, bool kept, struct hushmote_proof *proof) {
    const char *name = config->policy->names[known - config->experiments];
    const struct hushmote_log *log = kept || end == 0 ? NULL : hm_log(config);
    uint32_t serial;
    int code;
    if (config->announce_key == NULL || bytes != end + SIGNED_BYTES || payload[end] != 0)
        return HUSHMOTE_REFUSED_SIGNATURE;
    serial = (uint32_t)hm_get(payload + end + 1, 4);
    if (serial < known->serial) /* NOLINT: a parsed experiment's name is in the policy */
        return HUSHMOTE_REFUSED_SERIAL;
    if (log != NULL && has_every_list(payload)) /* boards of one group could answer while all others are silent */
        return HUSHMOTE_REFUSED_EVERY;
    if (log != NULL && (proof == NULL || proof->bytes == 0))
        return HUSHMOTE_REFUSED_NO_PROOF;
    code = kept ? HUSHMOTE_OK : check_message(config, name, payload, bytes, log, proof);
    if (code == HUSHMOTE_OK)
        known->serial = serial;
    return code;
}

static size_t json_end(const uint8_t *payload, size_t bytes) {
    size_t end = 0;
    while (end < bytes && payload[end] != 0)
        end++;
    return end;
}

int hm_check_proof(const struct hushmote *client, unsigned at, const uint8_t *payload, size_t bytes,
                   struct hushmote_proof *proof) {
    struct hushmote_experiment *known = client->config->experiments + at;
    uint32_t serial = known->serial;
    int code = check_signature(client->config, known, payload, bytes, json_end(payload, bytes), false, proof);
    known->serial = serial;
    return code;
}

/* name: the name in the topic, which must match the experiment's, so that it cannot replace another experiment; NULL if
   unknown. The code of a refusal is stored under this name, or if it is NULL, under the name in the JSON. */
static int enroll(struct hushmote *client, const char *name, const uint8_t *payload, size_t bytes, bool kept,
                  struct hushmote_proof *proof) {
    const struct hushmote_config *config = client->config;
    struct hushmote_experiment parsed, *known, *refused;
    size_t end = json_end(payload, bytes);
    unsigned at = 0;
    int code = hm_parse(config, payload, end, &parsed, &at);
    known = at < config->policy->name_count ? config->experiments + at : NULL;
    refused = name == NULL ? known : find(config, name);
    if (code == HUSHMOTE_OK && known != refused)
        code = HUSHMOTE_REFUSED;
    if (code == HUSHMOTE_OK)
        code = check_allowed(client, &parsed, known);
    if (code == HUSHMOTE_OK && config->announce_key != NULL)
        code = check_signature(config, known, payload, bytes, end, kept, proof);
    if (code == HUSHMOTE_OK) {
        parsed.enrolled = 1;
        parsed.refused = HUSHMOTE_OK;
        parsed.serial = known->serial; /* NOLINT: as above */
        *known = parsed;
    } else if (refused != NULL) {
        refused->refused = (int8_t)code;
    }
    return code;
}

int hm_enroll(struct hushmote *client, const char *name, const uint8_t *payload, size_t bytes, bool kept,
              struct hushmote_proof *proof) {
    return enter(client) ? leave(client, enroll(client, name, payload, bytes, kept, proof)) : HUSHMOTE_BUSY;
}

static int enroll_unasked(struct hushmote *client, const uint8_t *payload, size_t bytes, bool kept,
                          struct hushmote_proof *proof) {
    if (client->config != NULL && asks_each(client->config))
        return HUSHMOTE_REFUSED_UNASKED;
    return hm_enroll(client, NULL, payload, bytes, kept, proof);
}

int hushmote_enroll(struct hushmote *client, const uint8_t *payload, size_t bytes) {
    return enroll_unasked(client, payload, bytes, false, NULL);
}

int hushmote_enroll_kept(struct hushmote *client, const uint8_t *payload, size_t bytes) {
    /* Nothing shows that the log was the same when the application kept it. */
    bool kept = client->config == NULL || hm_log(client->config) == NULL;
    return enroll_unasked(client, payload, bytes, kept, NULL);
}

int hushmote_enroll_logged(struct hushmote *client, const uint8_t *payload, size_t bytes, struct hushmote_proof *proof) {
    return enroll_unasked(client, payload, bytes, false, proof);
}

static int withdraw(struct hushmote *client, const char *name, const uint8_t *payload, size_t bytes) {
    const struct hushmote_config *config = client->config;
    struct hushmote_experiment *known = find(config, name);
    int code = HUSHMOTE_OK;
    if (known == NULL)
        return HUSHMOTE_UNKNOWN;
    if (payload == NULL) { /* no longer accept this or an earlier version */
        known->withdrawn = 1;
        if (known->enrolled && config->announce_key != NULL && known->serial < UINT32_MAX)
            known->serial++;
    } else if (bytes > 0 || config->announce_key != NULL) {
        code = check_signature(config, known, payload, bytes, 0, false, NULL);
        if (code != HUSHMOTE_OK)
            return code;
    }
    known->enrolled = 0;
    known->refused = HUSHMOTE_OK;
    return code;
}

int hushmote_withdraw(struct hushmote *client, const char *name, const uint8_t *payload, size_t bytes) {
    return enter(client) ? leave(client, withdraw(client, name, payload, bytes)) : HUSHMOTE_BUSY;
}

/* --- Reports -------------------------------------------------------------------------------------------------- */

/* Return an unsent report's position in the record (0 is the oldest), or the record's end if there is none. */
static size_t unsent_at(const struct hushmote *client, unsigned at) {
    size_t where = hm_unsent_at(client);
    while (at-- > 0 && where < client->record_bytes_used)
        where += 1u + client->record[where];
    return where;
}

static unsigned count_unsent(const struct hushmote *client) {
    unsigned count = 0;
    while (unsent_at(client, count) < client->record_bytes_used)
        count++;
    return count;
}

/* Write a report's bytes and return their number. */
static size_t encode(const struct hushmote_config *config, const struct hushmote_experiment *experiment, uint32_t number,
                     uint8_t group_index, uint32_t code, uint8_t report[HUSHMOTE_REPORT_BYTES]) {
    struct hushmote_piece pieces[4];
    unsigned has_group = experiment->group_count > 0, has_key = config->key != NULL;
    size_t bytes = 9 + has_group;
    report[0] = (uint8_t)(0x10 + 2 * has_group + has_key);
    memcpy(report + 1, experiment->sha256, 4);
    hm_put(report + 5, 4, number);
    report[9] = group_index; /* without a group, the code replaces it */
    hm_put(report + bytes, experiment->code_bytes, code);
    bytes += experiment->code_bytes;
    if (config->key == NULL)
        return bytes;
    pieces[0].data = config->device_id;
    pieces[0].bytes = strlen(config->device_id) + 1; /* including the zero byte */
    pieces[1].data = experiment->sha256;
    pieces[1].bytes = 32;
    pieces[2].data = report;
    pieces[2].bytes = bytes;
    hm_tag(config, pieces, 3, report + bytes);
    return bytes + 8;
}

static int make_report(struct hushmote *client, const char *name, const struct hushmote_reading *reading,
                       const char *group, uint8_t report[HUSHMOTE_REPORT_BYTES]) {
    const struct hushmote_config *config = client->config;
    struct hushmote_experiment *experiment = find(config, name);
    uint8_t seed[HM_SEED_BYTES], *unsent, group_index;
    struct hm_entry entry;
    struct hm_index index;
    uint32_t randomized, every;
    bool due, silent;
    int code;
    if (experiment == NULL || !experiment->enrolled || hushmote_consent(client) != HUSHMOTE_YES)
        return 0; /* must precede the draw and any use of the reading */
    group_index = hm_group_index(experiment, group);
    every = hm_every(experiment, group_index);
    due = experiment->due == DUE + group_index;
    code = mix_entropy(client, MORE_ENTROPY_BYTES, NULL, "");
    if (code != HUSHMOTE_OK)
        return code;
    silent = !due && every > 1 && hm_below(&client->random, every) != 0;
    code = hm_bucket(config, experiment, reading, &index);
    if (code != HUSHMOTE_OK)
        return code; /* the draw in advance remains valid for the next call */
    experiment->due = 0;
    find_entry(client, experiment, experiment, &entry);
    if (silent || reports_left(client, experiment, &entry) < 1 || !hm_fits(client, &entry) ||
        unsent_at(client, config->unsent_max - 1u) < client->record_bytes_used)
        return 0;
    entry.number++;
    if (entry.rule == HM_SUM)
        entry.spent += experiment->epsilon;
    else if (entry.rule == HM_SQUARES)
        entry.spent += (uint64_t)experiment->epsilon * experiment->epsilon;
    randomized = hm_randomize(experiment, &index, &client->random);
    hm_generate(&client->random, seed, sizeof seed);
    code = hm_prepare(client, HUSHMOTE_YES);
    memcpy(client->next + HM_SEED_AT, seed, sizeof seed);
    hm_debit(client, experiment->epsilon, &entry);
    unsent = client->next + client->next_bytes_used;
    *unsent = (uint8_t)encode(config, experiment, entry.number, group_index, randomized, unsent + 1);
    client->next_bytes_used += 1u + *unsent;
    client->error = (int8_t)hm_commit(client, code);
    if (client->error != HUSHMOTE_OK || hushmote_consent(client) != HUSHMOTE_YES)
        return 0; /* someone has opted out during this call */
    memcpy(report, unsent + 1, *unsent); /* the record that contains it is now current */
    return *unsent;
}

int hushmote_report(struct hushmote *client, const char *name, struct hushmote_reading reading,
                    uint8_t report[HUSHMOTE_REPORT_BYTES]) {
    return hushmote_report_as(client, name, reading, NULL, report);
}

int hushmote_report_as(struct hushmote *client, const char *name, struct hushmote_reading reading, const char *group,
                       uint8_t report[HUSHMOTE_REPORT_BYTES]) {
    return enter(client) ? leave_writing(client, make_report(client, name, &reading, group, report)) : 0;
}

static int copy_unsent(const struct hushmote *client, unsigned at, uint8_t report[HUSHMOTE_REPORT_BYTES]) {
    size_t where = unsent_at(client, at);
    if (client->locked != HUSHMOTE_OK || hushmote_consent(client) != HUSHMOTE_YES || where >= client->record_bytes_used)
        return 0;
    memcpy(report, client->record + where + 1, client->record[where]);
    return client->record[where];
}

int hushmote_unsent(struct hushmote *client, unsigned at, uint8_t report[HUSHMOTE_REPORT_BYTES]) {
    return enter(client) ? leave(client, copy_unsent(client, at, report)) : 0;
}

static int delete_report(struct hushmote *client, const uint8_t *report, size_t bytes) {
    size_t at;
    for (unsigned i = 0; (at = unsent_at(client, i)) < client->record_bytes_used; i++) {
        if (client->record[at] == bytes && memcmp(client->record + at + 1, report, bytes) == 0) {
            int code = hm_prepare(client, hm_consent(client));
            hm_drop(client, at, 1 + bytes);
            return hm_commit(client, code);
        }
    }
    return HUSHMOTE_OK;
}

int hushmote_sent(struct hushmote *client, const uint8_t *report, size_t bytes) {
    return enter(client) ? leave_writing(client, delete_report(client, report, bytes)) : HUSHMOTE_BUSY;
}

/* --- Consent and status --------------------------------------------------------------------------------------- */

enum hushmote_consent hushmote_consent(const struct hushmote *client) {
    if (client->config == NULL)
        return HUSHMOTE_NOT_ASKED;
    return client->opt_outs != client->answered ? HUSHMOTE_NO : hm_consent(client);
}

int hushmote_set_consent(struct hushmote *client, bool yes) {
    uint32_t opt_outs;
    int code = HUSHMOTE_OK;
    if (client->config == NULL) /* hushmote_begin() failed */
        return HUSHMOTE_BUSY;
    if (!yes)
        client->opt_outs++;
    opt_outs = client->opt_outs;
    if (!enter(client))
        return yes ? HUSHMOTE_BUSY : HUSHMOTE_OK; /* the call in progress stores the opt-out */
    if (yes && opt_outs == client->opt_outs) /* no opt-out has arrived since */
        code = store_answer(client, HUSHMOTE_YES, opt_outs);
    leave_writing(client, HUSHMOTE_OK);
    return yes || client->opt_outs == client->answered ? code : client->error;
}

int hushmote_status(struct hushmote *client, struct hushmote_status *status) {
    memset(status, 0, sizeof *status);
    status->locked = client->locked;
    if (client->config == NULL) /* hushmote_begin() failed */
        return HUSHMOTE_OK;
    if (!enter(client))
        return HUSHMOTE_BUSY;
    status->error = client->error;
    status->consent = hushmote_consent(client);
    if (client->locked == HUSHMOTE_OK && status->consent == HUSHMOTE_YES)
        status->pending = count_unsent(client);
    status->sum = hm_sum(client);
    status->squares = hm_squares(client);
    return leave(client, HUSHMOTE_OK);
}

static int read_line(const struct hushmote *client, const char *name, struct hushmote_line *line) {
    const struct hushmote_experiment *experiment = find(client->config, name);
    struct hm_entry entry;
    if (experiment == NULL)
        return HUSHMOTE_UNKNOWN;
    find_entry(client, experiment, experiment, &entry);
    line->enrolled = experiment->enrolled != 0;
    line->refused = experiment->refused;
    line->reports = entry.number;
    if (line->enrolled) {
        line->left = reports_left(client, experiment, &entry);
        line->epsilon = experiment->epsilon;
        memcpy(line->digest, experiment->sha256, 4);
        line->group = experiment->group;
    }
    return HUSHMOTE_OK;
}

int hushmote_line(struct hushmote *client, const char *name, struct hushmote_line *line) {
    memset(line, 0, sizeof *line);
    return enter(client) ? leave(client, read_line(client, name, line)) : HUSHMOTE_BUSY;
}

/* --- Sleep ----------------------------------------------------------------------------------------------------- */

unsigned hushmote_gap(struct hushmote *client, unsigned max_calls, uint64_t *drawn) {
    return hushmote_gap_as(client, max_calls, NULL, drawn);
}

unsigned hushmote_gap_as(struct hushmote *client, unsigned max_calls, const char *const *groups, uint64_t *drawn) {
    const struct hushmote_policy *policy;
    struct hushmote_line line;
    unsigned calls = 0;
    bool any_due = false;
    *drawn = 0;
    if (!enter(client))
        return 0;
    policy = client->config->policy;
    for (unsigned i = 0; i < policy->name_count; i++) {
        line.left = 0; /* an experiment without budget makes no reports and need not wake the board */
        read_line(client, policy->names[i], &line);
        client->config->experiments[i].due = line.left > 0 && hushmote_consent(client) == HUSHMOTE_YES ? NOT_DUE : 0;
        any_due |= client->config->experiments[i].due != 0;
    }
    while (any_due && calls < max_calls && *drawn == 0) {
        uint64_t bit = 1;
        calls++;
        for (unsigned i = 0; i < policy->name_count; i++, bit += bit) {
            struct hushmote_experiment *experiment = client->config->experiments + i;
            uint8_t group_index;
            uint32_t every;
            if (experiment->due == 0)
                continue;
            group_index = hm_group_index(experiment, groups == NULL ? NULL : groups[i]);
            every = hm_every(experiment, group_index);
            if (every == 1 || hm_below(&client->random, every) == 0) {
                experiment->due = (uint8_t)(DUE + group_index);
                *drawn |= bit;
            }
        }
    }
    leave(client, HUSHMOTE_OK);
    return any_due ? calls : max_calls;
}
