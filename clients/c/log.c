/* Check that an experiment is in the policy's public log, like device/ldp_log.py, which describes a proof's bytes.

   Firmware whose policy has no log does not link this file.
   Citation: RFC 6962, 2.1, for the tree; C2SP's tlog-checkpoint for the text that the log and its witnesses sign. */
#include <string.h>

#include "core.h"

#if HUSHMOTE_WITH_LOG

#define NODE_BYTES 32
#define PATH_AT 9          /* an index, the tree's size, and the number of nodes in the path */
#define SIGNATURE_BYTES 64 /* r and s */
#define START_BYTES 4      /* of a witness's key, before its signature */
#define WITNESS_BYTES (START_BYTES + SIGNATURE_BYTES)
#define KEY_BYTES 64
#define ROOT_DIGITS 43

/* Set a node to its parent: the hash of a one, the node and its sibling. */
static void climb(const struct hushmote_config *config, uint8_t *node, const uint8_t *sibling, bool is_left) {
    uint8_t copy[NODE_BYTES]; /* a hardware engine may write before it has read all input */
    struct hushmote_piece pieces[3];
    memcpy(copy, node, NODE_BYTES);
    pieces[0].data = "\1";
    pieces[0].bytes = 1;
    pieces[1].bytes = pieces[2].bytes = NODE_BYTES;
    pieces[1].data = is_left ? sibling : copy;
    pieces[2].data = is_left ? copy : sibling;
    hm_sha256(config, pieces, 3, node);
}

/* Compute the hash of what is signed: the origin, the tree's size and its root in base64, each with a newline. The root
   is followed by a zero byte. */
static void hash_checkpoint(const struct hushmote_config *config, uint32_t size, const uint8_t *root, uint8_t digest[32]) {
    char text[1 + 10 + 1 + ROOT_DIGITS + 2], *end = text + sizeof text, *at = end;
    struct hushmote_piece pieces[2];
    *--at = '\n';
    *--at = '=';
    for (unsigned bit = 6 * ROOT_DIGITS; bit > 0;) {
        unsigned digit;
        bit -= 6;
        digit = (unsigned)(root[bit / 8] << 8 | root[bit / 8 + 1]) >> (10 - bit % 8) & 63;
        digit += digit < 26 ? 'A' : digit < 52 ? 'a' - 26 : digit < 62 ? '0' - 52u : digit == 62 ? '+' - 62u : '/' - 63u;
        *--at = (char)digit;
    }
    *--at = '\n';
    for (; size > 0; size /= 10)
        *--at = (char)('0' + size % 10);
    *--at = '\n';
    pieces[0].data = config->policy->log->origin;
    pieces[0].bytes = strlen(config->policy->log->origin);
    pieces[1].data = at;
    pieces[1].bytes = (size_t)(end - at);
    hm_sha256(config, pieces, 2, digest);
}

/* Check the signatures of the log and of as many witnesses as the policy needs, and no more. Skip witnesses that the
   policy does not have. */
static int verify_signatures(const struct hushmote_config *config, const uint8_t digest[32], const uint8_t *own,
                             const uint8_t *end) {
    const struct hushmote_log *log = config->policy->log;
    unsigned count = 0;
    for (unsigned number = 0; number < log->key_count && count <= log->need; number++) {
        uint8_t key[KEY_BYTES] = {0};
        const uint8_t *at = own;
        for (unsigned i = 0; i < 2 * KEY_BYTES; i++) { /* fits() has checked the digits: '0' is 0x30, 'A' 0x41 and 'a' 0x61 */
            char digit = log->keys[number][i];
            key[i / 2] = (uint8_t)(key[i / 2] << 4 | ((digit & 15) + 9 * (digit >> 6)));
        }
        if (number > 0) {
            for (at += SIGNATURE_BYTES; at < end && memcmp(at, key, START_BYTES) != 0;)
                at += WITNESS_BYTES;
            if (at >= end)
                continue;
            at += START_BYTES;
        }
        if (config->feed != NULL)
            config->feed(config->context);
        if (!hm_verify(config, key, digest, at))
            return HUSHMOTE_REFUSED_LOG;
        count++;
    }
    return count > log->need ? HUSHMOTE_OK : HUSHMOTE_REFUSED_WITNESSES;
}

static int verify(const struct hushmote_config *config, const struct hushmote_piece *entry, struct hushmote_proof *proof) {
    const uint8_t *at = proof->data, *end = at + proof->bytes, *path_end;
    uint8_t node[NODE_BYTES + 1], digest[32];
    uint32_t index, last;
    int rest;
    if (proof->bytes <= PATH_AT || proof->bytes > HUSHMOTE_PROOF_BYTES)
        return HUSHMOTE_REFUSED_PROOF;
    rest = (int)proof->bytes - PATH_AT - NODE_BYTES * at[8] - SIGNATURE_BYTES;
    if (rest < 0 || rest % WITNESS_BYTES != 0)
        return HUSHMOTE_REFUSED_PROOF;
    path_end = end - rest - SIGNATURE_BYTES;
    proof->leaf = index = (uint32_t)hm_get(at, 4);
    last = (uint32_t)hm_get(at + 4, 4) - 1;
    if (index > last || last == UINT32_MAX)
        return HUSHMOTE_REFUSED_PROOF;
    hm_sha256(config, entry, HM_ENTRY_PIECES, node);
    node[NODE_BYTES] = 0;
    for (at += PATH_AT; at < path_end; at += NODE_BYTES, index >>= 1, last >>= 1) {
        bool is_left = (index & 1) != 0 || index == last;
        if (last == 0)
            return HUSHMOTE_REFUSED_PROOF;
        climb(config, node, at, is_left);
        for (; is_left && index > 0 && (index & 1) == 0; index >>= 1)
            last >>= 1;
    }
    if (last != 0)
        return HUSHMOTE_REFUSED_PROOF;
    hash_checkpoint(config, (uint32_t)hm_get(proof->data + 4, 4), node, digest);
    return verify_signatures(config, digest, path_end, end);
}

/* Return how many hex digits two keys have in common at their beginning, in either case. */
static unsigned common_digits(const char *key, const char *other) {
    unsigned i = 0;
    while (((unsigned)(key[i] - '0') < 10 || (unsigned)((key[i] | 32) - 'a') < 6) && (key[i] | 32) == (other[i] | 32))
        i++;
    return i;
}

static bool fits(const struct hushmote_config *config) {
    const struct hushmote_log *log = config->policy->log;
    /* need: more than half of the witnesses, as two such groups have one in common; key_count includes the log's own key */
    bool good = config->announce_key != NULL && 2u * log->need >= log->key_count && log->need < log->key_count &&
                log->key_count <= HM_LOG_KEYS && log->origin[0] != 0;
    for (const char *c = log->origin; *c; c++)
        good = good && *c > ' ' && *c <= '~' && *c != '+';
    for (unsigned i = 0; i < log->key_count; i++) {
        const char *key = log->keys[i];
        good = good && common_digits(key, key) == 2 * KEY_BYTES && key[2 * KEY_BYTES] == 0;
        for (unsigned k = 0; k < i; k++)
            good = good && common_digits(key, log->keys[k]) < 2 * START_BYTES;
    }
    return good;
}

const struct hushmote_log_check hushmote_log_check = {fits, verify};

#endif
