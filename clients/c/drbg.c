/* Randomness: checks and hashes the platform's entropy, and provides the two primitives.

   The state is a 32-byte key. The next key is SHA-256 of byte 1 and the key; the output is SHA-256 of byte 2, 3, ...
   and the key; the key after a reseed is SHA-256 of byte 0, the key and the entropy. The first byte and the length
   separate these inputs, so SHA-256 serves as a keyed pseudorandom function, as in HMAC-DRBG (SP 800-90A), with the
   same properties: earlier output cannot be computed from the state, and new entropy makes a compromised state secret
   again. Citation: Bernstein, "Fast-key-erasure random-number generators", 2017. */
#include <string.h>

#include "core.h"

/* Even a source with only 1 bit of entropy per byte fails this repetition check in fewer than one in 2^22 calls, and
   then only one report is not made. A good source never repeats a piece of this length. */
#define PIECE_BYTES 32

/* A stuck source repeats itself, though not necessarily every byte: an RP2040 whose oscillator has stopped returns a
   cycle of 93 bytes. So the first piece must not recur, and the last must not occur earlier. bytes must be at least
   PIECE_BYTES. */
int hm_entropy(const struct hushmote_config *config, uint8_t *data, size_t bytes) {
    const uint8_t *last = data + bytes - PIECE_BYTES;
    memset(data, 0, bytes); /* a source that writes nothing then counts as stuck */
    if (config->entropy == NULL || config->entropy(config->context, data, bytes) != 0)
        return HUSHMOTE_BAD_ENTROPY;
    for (const uint8_t *at = data; at < last; at++) {
        if (memcmp(data, at + 1, PIECE_BYTES) == 0 || memcmp(last, at, PIECE_BYTES) == 0)
            return HUSHMOTE_BAD_ENTROPY;
    }
    return HUSHMOTE_OK;
}

/* Write SHA-256 of a first byte, the key and at most HM_PIECES pieces to out, which may be the key. */
static void hash_with_key(const struct hushmote_random *random, uint8_t first, const struct hushmote_piece *pieces,
                          size_t count, uint8_t *out, size_t bytes) {
    struct hushmote_piece all[2 + HM_PIECES];
    uint8_t digest[32]; /* a hardware engine may write its output before it has read all input */
    all[0].data = &first;
    all[0].bytes = 1;
    all[1].data = random->key;
    all[1].bytes = sizeof random->key;
    if (count > 0)
        memcpy(all + 2, pieces, count * sizeof *pieces);
    hm_sha256(random->config, all, 2 + count, digest);
    memcpy(out, digest, bytes);
    hm_wipe(digest, sizeof digest);
}

/* Mix in entropy and discard generated but unused bits. A new generator has a key of zero bytes. */
void hm_reseed(struct hushmote_random *random, const struct hushmote_piece *entropy, size_t count) {
    hash_with_key(random, 0, entropy, count, random->key, sizeof random->key);
    memset(random->pool, 0, sizeof random->pool);
    random->left = 0;
}

/* Generate at most 8,096 bytes, the limit of the one-byte counter. */
void hm_generate(struct hushmote_random *random, uint8_t *out, size_t bytes) {
    for (uint8_t block = 2; bytes > 0; block++) {
        size_t part = bytes < 32 ? bytes : 32;
        hash_with_key(random, block, NULL, 0, out, part);
        out += part;
        bytes -= part;
    }
    hash_with_key(random, 1, NULL, 0, random->key, sizeof random->key);
}

/* Take 30 uniform bits from the pool. */
static uint32_t bits(struct hushmote_random *random) {
    uint8_t *p;
    uint32_t drawn;
    if (random->left == 0) {
        hm_generate(random, random->pool, sizeof random->pool);
        random->left = sizeof random->pool;
    }
    p = random->pool + sizeof random->pool - random->left;
    drawn = (uint32_t)hm_get(p, 4) & (HM_ONE - 1);
    memset(p, 0, 4);
    random->left = (uint8_t)(random->left - 4);
    return drawn;
}

/* Return true with probability threshold / HM_ONE, exactly. */
bool hm_bernoulli(struct hushmote_random *random, uint32_t threshold) {
    return bits(random) < threshold;
}

/* Return an exactly uniform number from 0 to n - 1, 1 <= n <= 2^24, by rejection, never with a remainder. */
uint32_t hm_below(struct hushmote_random *random, uint32_t n) {
    uint32_t mask = 0, drawn;
    while (mask < n - 1)
        mask = mask << 1 | 1;
    do
        drawn = bits(random) & mask;
    while (drawn >= n);
    return drawn;
}
