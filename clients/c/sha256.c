/* SHA-256 of concatenated pieces, and the tag that authenticates a keyed fleet's reports.

   Citation: FIPS 180-4, 6.2, for SHA-256; RFC 2104 for HMAC. */
#include <string.h>

#include "core.h"

/* A compiler may omit a memset of memory that is not read again, but never a volatile access. */
void hm_wipe(void *data, size_t bytes) {
    volatile uint8_t *at = data;
    while (bytes--)
        *at++ = 0;
}

#if HUSHMOTE_WITH_SHA256

struct hash {
    uint32_t state[8], words[64]; /* words: the message schedule, which starts with the current block */
    uint8_t used;                 /* number of bytes in the current block */
};

static const uint32_t START[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                  0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static const uint32_t ROUND[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotated(uint32_t x, int right) {
    return x >> right | x << (32 - right);
}

static void hash_block(struct hash *hash) {
    uint32_t s[8]; /* the variables a to h */
    memcpy(s, hash->state, sizeof s);
    for (unsigned i = 0; i < 64; i++) {
        uint32_t *w = hash->words + i, a = s[0], e = s[4];
        uint32_t sum = s[7] + (rotated(e, 6) ^ rotated(e, 11) ^ rotated(e, 25)) + ((e & s[5]) ^ (~e & s[6])) +
                       ROUND[i] + *w;
        if (i < 48)
            w[16] = *w + (rotated(w[1], 7) ^ rotated(w[1], 18) ^ w[1] >> 3) + w[9] +
                    (rotated(w[14], 17) ^ rotated(w[14], 19) ^ w[14] >> 10);
        a = sum + (rotated(a, 2) ^ rotated(a, 13) ^ rotated(a, 22)) + ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
        for (unsigned k = 0; k < 8; k++) { /* shift each variable to the next place */
            uint32_t next = s[k];
            s[k] = a;
            a = next;
        }
        s[4] += sum;
    }
    for (unsigned i = 0; i < 8; i++)
        hash->state[i] += s[i];
    hash->used = 0;
}

static void hash_byte(struct hash *hash, uint8_t byte) {
    uint32_t *word = hash->words + (hash->used++ >> 2);
    *word = *word << 8 | byte;
    if (hash->used == 64)
        hash_block(hash);
}

static void sha256(const struct hushmote_piece *pieces, size_t count, uint8_t digest[32]) {
    struct hash hash;
    size_t bytes = 0;
    memset(&hash, 0, sizeof hash);
    memcpy(hash.state, START, sizeof START);
    for (; count > 0; count--, pieces++) {
        for (size_t i = 0; i < pieces->bytes; i++)
            hash_byte(&hash, ((const uint8_t *)pieces->data)[i]);
        bytes += pieces->bytes;
    }
    hash_byte(&hash, 0x80);
    while (hash.used != 56)
        hash_byte(&hash, 0);
    hm_put(digest, 8, (uint64_t)bytes << 3);
    for (unsigned i = 0; i < 8; i++)
        hash_byte(&hash, digest[i]);
    for (unsigned i = 0; i < 8; i++)
        hm_put(digest + 4 * i, 4, hash.state[i]);
    hm_wipe(&hash, sizeof hash); /* the input may include keys */
}

#endif

void hm_sha256(const struct hushmote_config *config, const struct hushmote_piece *pieces, size_t count,
               uint8_t digest[32]) {
#if HUSHMOTE_WITH_SHA256
    if (config->sha256 == NULL) {
        sha256(pieces, count, digest);
        return;
    }
#endif
    config->sha256(config->context, pieces, count, digest);
}

void hm_tag(const struct hushmote_config *config, const struct hushmote_piece *pieces, size_t count, uint8_t tag[8]) {
    struct hushmote_piece all[1 + HM_PIECES];
    uint8_t pad[64], inner[32], digest[32]; /* two digests, as a hardware engine may write before it has read all input */
    memset(pad, 0x36, sizeof pad);
    for (unsigned i = 0; i < 32; i++)
        pad[i] ^= config->key[i];
    all[0].data = pad;
    all[0].bytes = sizeof pad;
    memcpy(all + 1, pieces, count * sizeof *pieces);
    hm_sha256(config, all, 1 + count, inner);
    for (unsigned i = 0; i < 64; i++)
        pad[i] ^= 0x36 ^ 0x5c;
    all[1].data = inner;
    all[1].bytes = sizeof inner;
    hm_sha256(config, all, 2, digest);
    memcpy(tag, digest, 8);
    hm_wipe(pad, sizeof pad);
}
