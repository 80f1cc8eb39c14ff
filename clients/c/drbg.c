/* Randomness: the platform's source, checked and condensed, behind the two primitives.

   The state is a key of 32 bytes. SHA-256 of byte 1 and the key is the next key, which replaces it; SHA-256 of byte 2,
   3, ... and the key is the output; SHA-256 of byte 0, the key and entropy is the key after a reseed. First byte and
   length keep these apart, so SHA-256 serves as a keyed random function, as in HMAC-DRBG (SP 800-90A), with the same
   properties: earlier output cannot be computed from the state, and entropy makes a known state unknown again.
   Citation: Bernstein, "Fast-key-erasure random-number generators", 2017. */
#include <string.h>

#include "core.h"

/* A source with 1 bit of entropy per byte repeats a checked piece of this length less than once in 2^22 calls, which
   then make no report; a good source never does. */
#define PIECE_BYTES 32

/* A stuck source repeats itself, though not byte by byte: an RP2040 whose oscillator has stopped gives a cycle of 93.
   So the first piece must not recur, nor the last one occur earlier. bytes: at least PIECE_BYTES. */
int hm_entropy(const struct hushmote_config *config, uint8_t *data, size_t bytes) {
    const uint8_t *last = data + bytes - PIECE_BYTES;
    memset(data, 0, bytes); /* so that a source that writes nothing is a stuck one */
    if (config->entropy == NULL || config->entropy(config->context, data, bytes) != 0)
        return HUSHMOTE_BAD_ENTROPY;
    for (const uint8_t *at = data; at < last; at++) {
        if (memcmp(data, at + 1, PIECE_BYTES) == 0 || memcmp(last, at, PIECE_BYTES) == 0)
            return HUSHMOTE_BAD_ENTROPY;
    }
    return HUSHMOTE_OK;
}

/* Bytes of SHA-256 of a first byte, the key and at most HM_PIECES pieces; out may be the key. */
static void keyed(const struct hushmote_random *random, uint8_t first, const struct hushmote_piece *pieces,
                  size_t count, uint8_t *out, size_t bytes) {
    struct hushmote_piece all[2 + HM_PIECES];
    uint8_t digest[32]; /* as an engine may write before it has read all */
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

/* Mix entropy in; bits drawn ahead are thrown away. A new generator has a key of zero bytes. */
void hm_reseed(struct hushmote_random *random, const struct hushmote_piece *entropy, size_t count) {
    keyed(random, 0, entropy, count, random->key, sizeof random->key);
    memset(random->pool, 0, sizeof random->pool);
    random->left = 0;
}

/* At most 8,096 bytes, for which the first byte lasts. */
void hm_generate(struct hushmote_random *random, uint8_t *out, size_t bytes) {
    for (uint8_t block = 2; bytes > 0; block++) {
        size_t part = bytes < 32 ? bytes : 32;
        keyed(random, block, NULL, 0, out, part);
        out += part;
        bytes -= part;
    }
    keyed(random, 1, NULL, 0, random->key, sizeof random->key);
}

/* 30 uniform bits, which leave the pool. */
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

/* True with probability threshold / HM_ONE, exactly. */
bool hm_bernoulli(struct hushmote_random *random, uint32_t threshold) {
    return bits(random) < threshold;
}

/* Uniform over 0 to n - 1, 1 <= n <= 2^24, exactly: by rejection, never by a remainder. */
uint32_t hm_below(struct hushmote_random *random, uint32_t n) {
    uint32_t mask = 0, drawn;
    while (mask < n - 1)
        mask = mask << 1 | 1;
    do
        drawn = bits(random) & mask;
    while (drawn >= n);
    return drawn;
}
