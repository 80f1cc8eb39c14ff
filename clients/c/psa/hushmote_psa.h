/**
 * @file
 * @brief SHA-256, signatures and randomness from the PSA Crypto API of mbedTLS, ESP-IDF, Zephyr and nRF Connect.
 *
 * Define #HUSHMOTE_WITH_SHA256 and #HUSHMOTE_WITH_P256 as 0 to omit the client's implementations. Call
 * psa_crypto_init() first.
 */
#ifndef HUSHMOTE_PSA_H
#define HUSHMOTE_PSA_H

#include "hushmote.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * @brief Compute SHA-256 of the concatenated pieces, for config.sha256.
 *
 * It cannot report a failure, so it stops the board if one occurs, for example if psa_crypto_init() was not called.
 *
 * @param context Unused.
 * @param pieces The pieces.
 * @param count Number of pieces.
 * @param[out] digest The digest.
 */
void hushmote_psa_sha256(void *context, const struct hushmote_piece *pieces, size_t count, uint8_t digest[32]);

/**
 * @brief Verify an ECDSA P-256 signature, for config.verify.
 * @param context Unused.
 * @param key The public key (x, y).
 * @param digest The digest that was signed.
 * @param signature The signature (r, s).
 * @return Whether the signature is valid and s is in the lower half.
 */
bool hushmote_psa_verify(void *context, const uint8_t key[64], const uint8_t digest[32], const uint8_t signature[64]);

/**
 * @brief Fill a buffer with random bytes, for config.entropy.
 * @param context Unused.
 * @param[out] data The buffer.
 * @param bytes Number of bytes.
 * @return 0, or another value on failure.
 */
int hushmote_psa_entropy(void *context, uint8_t *data, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
