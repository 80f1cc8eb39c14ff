/* The client: consent, experiments, and reports, which are debited before anyone sees them.

   The order in hushmote_report() is the guarantee: consent, the draw of `every`, and only then the reading; the debit, the
   number and the bytes of a report go to flash in one commit, and only then to the caller. */
#include <string.h>

#include "core.h"

#define FIRST_ENTROPY_BYTES 384 /* condensed at the start, with a seed from the ledger and the chip's id */
#define MORE_ENTROPY_BYTES 128  /* mixed in before each report */
#define SIGNED_BYTES 69         /* behind the JSON: a zero byte, 4 of serial number, 64 of signature */
#define MAX_SUM (UINT64_C(1) << 48)
#define DUE 1 /* a report that was drawn in advance */
#define NOT_DUE 2

/* --- One call at a time --------------------------------------------------------------------------------------- */

static bool enter(struct hushmote *client) {
    const struct hushmote_config *config = client->config;
    if (config == NULL || (config->lock != NULL && !config->lock(config->context)))
        return false;
    if (client->busy) { /* called from a callback of this client, under a lock that its thread may take again */
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

/* Write an answer that is newer than `opt_outs` opt-outs, or is the last of them. */
static int answer(struct hushmote *client, enum hushmote_consent consent, uint32_t opt_outs) {
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

/* End a call: write an opt-out that came during it, then allow the next call. */
static int leave(struct hushmote *client, int code) {
    const struct hushmote_config *config = client->config;
    uint32_t opt_outs;
    do {
        opt_outs = client->opt_outs;
        if (opt_outs != client->tried_opt_outs) {
            int failure = opt_outs == client->answered ? HUSHMOTE_OK : answer(client, HUSHMOTE_NO, opt_outs);
            client->tried_opt_outs = opt_outs;
            if (failure != HUSHMOTE_OK)
                client->error = (int8_t)failure;
        }
        client->busy = 0;
        if (config->unlock != NULL)
            config->unlock(config->context);
        /* An opt-out between the check and the release has left its writing to this call. */
    } while (opt_outs != client->opt_outs && enter(client));
    return code;
}

/* End a call that writes: try again to write an opt-out that could not be written before. */
static int leave_writing(struct hushmote *client, int code) {
    client->tried_opt_outs = client->answered;
    return leave(client, code);
}

/* --- Names ---------------------------------------------------------------------------------------------------- */

/* Return the experiment of a name, or NULL if the policy has none. */
static struct hushmote_experiment *find(const struct hushmote_config *config, const char *name) {
    unsigned at = hm_find(config->policy, name, strlen(name));
    return at < config->policy->name_count ? config->experiments + at : NULL;
}

/* --- The budget ----------------------------------------------------------------------------------------------- */

/* The known experiment's line in the ledger, or the one that this version's first report will write. Its key is of the
   name: two names with one key would share a line, not split it. */
static void entry_of(const struct hushmote *client, const struct hushmote_experiment *known,
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

static uint32_t least(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* Return how many more reports of this epsilon keep every bound: the largest n with spent + n * cost <= bound. */
static uint32_t left(const struct hushmote *client, const struct hushmote_experiment *experiment,
                     const struct hm_entry *entry) {
    const struct hushmote_policy *policy = client->config->policy;
    uint32_t epsilon = experiment->epsilon, n, own;
    uint64_t sum = hm_sum(client), squares = hm_squares(client);
    uint64_t cap = entry->cap < experiment->cap ? entry->cap : experiment->cap;
    unsigned lines = client->record[1] + (entry->number == 0 ? 1u : 0u); /* of names that were dropped as well */
    /* Another rule may have been pinned since this version was checked. */
    if (client->locked != HUSHMOTE_OK || entry->rule != experiment->rule ||
        (entry->rule == HM_COUNT && entry->spent != epsilon) || (entry->number == 0 && lines > HM_MAX_ENTRIES) ||
        HUSHMOTE_RECORD_BYTES(lines, 1) > client->config->record_bytes)
        return 0;
    /* For the board's lifetime: while the sum is within its bound, or the squares are within theirs. */
    n = hm_times(policy->sum, sum, epsilon, 1);
    own = hm_times(policy->squares, squares, epsilon, epsilon);
    n = own > n ? own : n;
    /* And no more than the ledger's fields can hold. */
    n = least(n, hm_times(MAX_SUM - 1, sum, epsilon, 1));
    n = least(n, hm_times(UINT64_MAX, squares, epsilon, epsilon));
    /* For this experiment: within the smaller of the pinned cap and the version's. */
    if (entry->rule == HM_COUNT)
        own = hm_times(cap, entry->number, 1, 1);
    else
        own = hm_times(cap, entry->spent, epsilon, entry->rule == HM_SUM ? 1 : epsilon);
    if (entry->rule != HM_UNLIMITED)
        n = least(n, own);
    return least(n, UINT32_MAX - entry->number);
}

/* --- The start ------------------------------------------------------------------------------------------------ */

/* Mix the source's bytes into the generator, and at the start the ledger's seed, where there is one, and the board's names. */
static int stir(struct hushmote *client, size_t bytes, const uint8_t *kept, const char *device_id) {
    const struct hushmote_config *config = client->config;
    uint8_t entropy[FIRST_ENTROPY_BYTES];
    struct hushmote_piece pieces[4];
    int code = hm_entropy(config, entropy, bytes);
    pieces[0].data = entropy;
    pieces[0].bytes = bytes;
    pieces[1].data = kept;
    pieces[1].bytes = kept == NULL ? 0 : HM_SEED_BYTES;
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
    code = stir(&client, FIRST_ENTROPY_BYTES, NULL, "");
    if (code != HUSHMOTE_OK)
        return code;
    hm_open(&client);
    if (client.locked == HUSHMOTE_STORAGE)
        return HUSHMOTE_STORAGE;
    if (client.locked != HUSHMOTE_NO_LEDGER && !replace)
        return HUSHMOTE_EXISTS;
    /* Both slots, numbers 1 and 2: the first report has 3, so a ledger that lost it is no fresh one. */
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
    if (stir(client, FIRST_ENTROPY_BYTES, client->record + HM_SEED_AT, config->device_id) == HUSHMOTE_OK)
        return HUSHMOTE_OK;
    client->config = NULL; /* every other call is then refused */
    client->locked = HUSHMOTE_BAD_ENTROPY;
    return HUSHMOTE_BAD_ENTROPY;
}

/* --- Experiments ---------------------------------------------------------------------------------------------- */

/* Check an experiment against the policy and the ledger, whatever a server asks. */
static int allowed(const struct hushmote *client, const struct hushmote_experiment *experiment,
                   const struct hushmote_experiment *known) {
    const struct hushmote_policy *policy = client->config->policy;
    struct hm_entry entry;
    if (experiment->epsilon > policy->epsilon || (policy->rules >> experiment->rule & 1) == 0)
        return HUSHMOTE_REFUSED_POLICY;
    entry_of(client, known, experiment, &entry);
    if (entry.rule != experiment->rule || (entry.rule == HM_COUNT && entry.spent != experiment->epsilon))
        return HUSHMOTE_REFUSED_PINNED;
    return HUSHMOTE_OK;
}

static bool is_signed(const struct hushmote_config *config, const char *name, const uint8_t *payload, size_t bytes) {
    struct hushmote_piece pieces[6];
    uint8_t digest[32];
    const uint8_t *signature = payload + bytes - 64;
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
    if (config->verify != NULL)
        return config->verify(config->context, config->announce_key, digest, signature);
#if HUSHMOTE_WITH_P256
    return hm_p256_verify(config->announce_key, digest, signature);
#else
    return false;
#endif
}

/* Check what follows the JSON, which ends at `end`; if it is valid, its serial becomes the lowest one. The serial is
   compared first, so that a replayed message costs no signature. */
static int authentic(const struct hushmote_config *config, struct hushmote_experiment *known, const uint8_t *payload,
                     size_t bytes, size_t end, bool kept) {
    uint32_t serial;
    if (config->announce_key == NULL || bytes != end + SIGNED_BYTES || payload[end] != 0)
        return HUSHMOTE_REFUSED_SIGNATURE;
    serial = (uint32_t)hm_get(payload + end + 1, 4);
    if (serial < known->serial) /* NOLINT: a parsed experiment has a name of the policy */
        return HUSHMOTE_REFUSED_SERIAL;
    if (!kept && !is_signed(config, config->policy->names[known - config->experiments], payload, bytes))
        return HUSHMOTE_REFUSED_SIGNATURE;
    known->serial = serial;
    return HUSHMOTE_OK;
}

/* name: the topic's, which must be that of the experiment, so that it cannot replace another one; NULL if unknown. The
   reason for a refusal is kept under the topic's name, or under the one in the JSON. */
static int enroll(struct hushmote *client, const char *name, const uint8_t *payload, size_t bytes, bool kept) {
    const struct hushmote_config *config = client->config;
    struct hushmote_experiment parsed, *known, *refused;
    size_t end = 0;
    unsigned at = 0;
    int code;
    while (end < bytes && payload[end] != 0)
        end++;
    code = hm_parse(config, payload, end, &parsed, &at);
    known = at < config->policy->name_count ? config->experiments + at : NULL;
    refused = name == NULL ? known : find(config, name);
    if (code == HUSHMOTE_OK && known != refused)
        code = HUSHMOTE_REFUSED;
    if (code == HUSHMOTE_OK)
        code = allowed(client, &parsed, known);
    if (code == HUSHMOTE_OK && config->announce_key != NULL)
        code = authentic(config, known, payload, bytes, end, kept);
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

int hm_enroll(struct hushmote *client, const char *name, const uint8_t *payload, size_t bytes, bool kept) {
    return enter(client) ? leave(client, enroll(client, name, payload, bytes, kept)) : HUSHMOTE_BUSY;
}

static int enroll_unasked(struct hushmote *client, const uint8_t *payload, size_t bytes, bool kept) {
    if (client->config != NULL && asks_each(client->config))
        return HUSHMOTE_REFUSED_UNASKED;
    return hm_enroll(client, NULL, payload, bytes, kept);
}

int hushmote_enroll(struct hushmote *client, const uint8_t *payload, size_t bytes) {
    return enroll_unasked(client, payload, bytes, false);
}

int hushmote_enroll_kept(struct hushmote *client, const uint8_t *payload, size_t bytes) {
    return enroll_unasked(client, payload, bytes, true);
}

static int withdraw(struct hushmote *client, const char *name, const uint8_t *payload, size_t bytes) {
    const struct hushmote_config *config = client->config;
    struct hushmote_experiment *known = find(config, name);
    int code = HUSHMOTE_OK;
    if (known == NULL)
        return HUSHMOTE_UNKNOWN;
    if (payload == NULL) { /* no version that was published before is taken again */
        if (known->enrolled && config->announce_key != NULL && known->serial < UINT32_MAX)
            known->serial++;
    } else if (bytes > 0 || config->announce_key != NULL) {
        code = authentic(config, known, payload, bytes, 0, false);
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

/* Return the place of an unsent report in the record, the oldest for 0, or the record's end if there is none. */
static size_t unsent_at(const struct hushmote *client, unsigned at) {
    size_t where = hm_unsent_at(client);
    while (at-- > 0 && where < client->record_bytes_used)
        where += 1u + client->record[where];
    return where;
}

static unsigned pending(const struct hushmote *client) {
    unsigned count = 0;
    while (unsent_at(client, count) < client->record_bytes_used)
        count++;
    return count;
}

/* Write the bytes of a report; return their number. */
static size_t encode(const struct hushmote_config *config, const struct hushmote_experiment *experiment, uint32_t number,
                     uint32_t code, uint8_t report[HUSHMOTE_REPORT_BYTES]) {
    struct hushmote_piece pieces[4];
    size_t bytes = 9u + experiment->code_bytes;
    report[0] = config->key == NULL ? 0x10 : 0x11;
    memcpy(report + 1, experiment->sha256, 4);
    hm_put(report + 5, 4, number);
    hm_put(report + 9, experiment->code_bytes, code);
    if (config->key == NULL)
        return bytes;
    pieces[0].data = config->device_id;
    pieces[0].bytes = strlen(config->device_id) + 1; /* with its zero byte */
    pieces[1].data = experiment->sha256;
    pieces[1].bytes = 32;
    pieces[2].data = report;
    pieces[2].bytes = bytes;
    hm_tag(config, pieces, 3, report + bytes);
    return bytes + 8;
}

static int report_of(struct hushmote *client, const char *name, const struct hushmote_reading *reading,
                     uint8_t report[HUSHMOTE_REPORT_BYTES]) {
    const struct hushmote_config *config = client->config;
    struct hushmote_experiment *experiment = find(config, name);
    uint8_t kept[HM_SEED_BYTES], *made;
    struct hm_entry entry;
    struct hm_index index;
    uint32_t randomized;
    bool due, silent;
    int code;
    if (experiment == NULL || !experiment->enrolled || hushmote_consent(client) != HUSHMOTE_YES)
        return 0; /* before a draw, and before the reading is looked at */
    due = experiment->due == DUE;
    code = stir(client, MORE_ENTROPY_BYTES, NULL, "");
    if (code != HUSHMOTE_OK)
        return code;
    silent = !due && experiment->every > 1 && hm_below(&client->random, experiment->every) != 0;
    code = hm_bucket(config, experiment, reading, &index);
    if (code != HUSHMOTE_OK)
        return code; /* the draw in advance is kept for the next call */
    experiment->due = 0;
    entry_of(client, experiment, experiment, &entry);
    if (silent || left(client, experiment, &entry) < 1 || !hm_fits(client, &entry) ||
        unsent_at(client, config->unsent_max - 1u) < client->record_bytes_used)
        return 0;
    entry.number++;
    if (entry.rule == HM_SUM)
        entry.spent += experiment->epsilon;
    else if (entry.rule == HM_SQUARES)
        entry.spent += (uint64_t)experiment->epsilon * experiment->epsilon;
    randomized = hm_randomize(experiment, &index, &client->random);
    hm_generate(&client->random, kept, sizeof kept);
    code = hm_prepare(client, HUSHMOTE_YES);
    memcpy(client->next + HM_SEED_AT, kept, sizeof kept);
    hm_debit(client, experiment->epsilon, &entry);
    made = client->next + client->next_bytes_used;
    *made = (uint8_t)encode(config, experiment, entry.number, randomized, made + 1);
    client->next_bytes_used += 1u + *made;
    client->error = (int8_t)hm_commit(client, code);
    if (client->error != HUSHMOTE_OK || hushmote_consent(client) != HUSHMOTE_YES)
        return 0; /* someone opted out meanwhile */
    memcpy(report, made + 1, *made); /* it is in the record in force now */
    return *made;
}

int hushmote_report(struct hushmote *client, const char *name, struct hushmote_reading reading,
                    uint8_t report[HUSHMOTE_REPORT_BYTES]) {
    return enter(client) ? leave_writing(client, report_of(client, name, &reading, report)) : 0;
}

static int unsent(const struct hushmote *client, unsigned at, uint8_t report[HUSHMOTE_REPORT_BYTES]) {
    size_t where = unsent_at(client, at);
    if (client->locked != HUSHMOTE_OK || hushmote_consent(client) != HUSHMOTE_YES || where >= client->record_bytes_used)
        return 0;
    memcpy(report, client->record + where + 1, client->record[where]);
    return client->record[where];
}

int hushmote_unsent(struct hushmote *client, unsigned at, uint8_t report[HUSHMOTE_REPORT_BYTES]) {
    return enter(client) ? leave(client, unsent(client, at, report)) : 0;
}

static int sent(struct hushmote *client, const uint8_t *report, size_t bytes) {
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
    return enter(client) ? leave_writing(client, sent(client, report, bytes)) : HUSHMOTE_BUSY;
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
    if (client->config == NULL) /* it did not begin */
        return HUSHMOTE_BUSY;
    if (!yes)
        client->opt_outs++;
    opt_outs = client->opt_outs;
    if (!enter(client))
        return yes ? HUSHMOTE_BUSY : HUSHMOTE_OK; /* the call that is under way writes the opt-out */
    if (yes && opt_outs == client->opt_outs) /* no opt-out has come since */
        code = answer(client, HUSHMOTE_YES, opt_outs);
    leave_writing(client, HUSHMOTE_OK);
    return yes || client->opt_outs == client->answered ? code : client->error;
}

int hushmote_status(struct hushmote *client, struct hushmote_status *status) {
    memset(status, 0, sizeof *status);
    status->locked = client->locked;
    if (client->config == NULL) /* it did not begin */
        return HUSHMOTE_OK;
    if (!enter(client))
        return HUSHMOTE_BUSY;
    status->error = client->error;
    status->consent = hushmote_consent(client);
    if (client->locked == HUSHMOTE_OK && status->consent == HUSHMOTE_YES)
        status->pending = pending(client);
    status->sum = hm_sum(client);
    status->squares = hm_squares(client);
    return leave(client, HUSHMOTE_OK);
}

static int line_of(const struct hushmote *client, const char *name, struct hushmote_line *line) {
    const struct hushmote_experiment *experiment = find(client->config, name);
    struct hm_entry entry;
    if (experiment == NULL)
        return HUSHMOTE_UNKNOWN;
    entry_of(client, experiment, experiment, &entry);
    line->enrolled = experiment->enrolled != 0;
    line->refused = experiment->refused;
    line->reports = entry.number;
    if (line->enrolled) {
        line->left = left(client, experiment, &entry);
        line->epsilon = experiment->epsilon;
        memcpy(line->digest, experiment->sha256, 4);
    }
    return HUSHMOTE_OK;
}

int hushmote_line(struct hushmote *client, const char *name, struct hushmote_line *line) {
    memset(line, 0, sizeof *line);
    return enter(client) ? leave(client, line_of(client, name, line)) : HUSHMOTE_BUSY;
}

/* --- Sleep ----------------------------------------------------------------------------------------------------- */

unsigned hushmote_gap(struct hushmote *client, unsigned most, uint64_t *drawn) {
    const struct hushmote_policy *policy;
    struct hushmote_line line;
    unsigned calls = 0;
    bool asking = false;
    *drawn = 0;
    if (!enter(client))
        return 0;
    policy = client->config->policy;
    for (unsigned i = 0; i < policy->name_count; i++) {
        line.left = 0; /* an experiment without budget makes no report, so it need not wake the board */
        line_of(client, policy->names[i], &line);
        client->config->experiments[i].due = line.left > 0 && hushmote_consent(client) == HUSHMOTE_YES ? NOT_DUE : 0;
        asking |= client->config->experiments[i].due != 0;
    }
    while (asking && calls < most && *drawn == 0) {
        uint64_t bit = 1;
        calls++;
        for (unsigned i = 0; i < policy->name_count; i++, bit += bit) {
            struct hushmote_experiment *experiment = client->config->experiments + i;
            if (experiment->due != 0 && (experiment->every == 1 || hm_below(&client->random, experiment->every) == 0)) {
                experiment->due = DUE;
                *drawn |= bit;
            }
        }
    }
    leave(client, HUSHMOTE_OK);
    return asking ? calls : most;
}
