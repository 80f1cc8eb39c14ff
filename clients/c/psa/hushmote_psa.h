/* SHA-256, signatures and randomness by the PSA Crypto API: of mbedTLS, ESP-IDF, Zephyr and nRF Connect. Without
   HUSHMOTE_WITH_SHA256 and HUSHMOTE_WITH_P256 the client leaves its own out. Call psa_crypto_init() first. */
#ifndef HUSHMOTE_PSA_H
#define HUSHMOTE_PSA_H

#include "hushmote.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For config.sha256, config.verify and config.entropy; none uses its context. */
void hushmote_psa_sha256(void *context, const struct hushmote_piece *pieces, size_t count, uint8_t digest[32]);
bool hushmote_psa_verify(void *context, const uint8_t key[64], const uint8_t digest[32], const uint8_t signature[64]);
int hushmote_psa_entropy(void *context, uint8_t *data, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
