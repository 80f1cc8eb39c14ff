/* The core's cryptography and randomness from the PSA Crypto API. */
#include <string.h>

#include <psa/crypto.h>

#include "hushmote_psa.h"

/* Half the order of P-256, rounded down. Only signatures with s in the lower half are accepted. */
static const uint8_t half[32] = {0x7f, 0xff, 0xff, 0xff, 0x80, 0x00, 0x00, 0x00, 0x7f, 0xff, 0xff,
                                 0xff, 0xff, 0xff, 0xff, 0xff, 0xde, 0x73, 0x7d, 0x56, 0xd3, 0x8b,
                                 0xcf, 0x42, 0x79, 0xdc, 0xe5, 0x61, 0x7e, 0x31, 0x92, 0xa8};

/* Seeds and tags depend on this function, and it cannot report a failure, so it stops the board if hashing fails, for
   example because psa_crypto_init() was not called. */
void hushmote_psa_sha256(void *context, const struct hushmote_piece *pieces, size_t count, uint8_t digest[32]) {
    psa_hash_operation_t hash = PSA_HASH_OPERATION_INIT;
    psa_status_t status = psa_hash_setup(&hash, PSA_ALG_SHA_256);
    size_t bytes = 0;
    (void)context;
    for (size_t i = 0; status == PSA_SUCCESS && i < count; i++)
        status = pieces[i].bytes == 0 ? PSA_SUCCESS : psa_hash_update(&hash, pieces[i].data, pieces[i].bytes);
    if (status == PSA_SUCCESS)
        status = psa_hash_finish(&hash, digest, 32, &bytes);
    if (status != PSA_SUCCESS) {
        for (;;) {
        }
    }
}

bool hushmote_psa_verify(void *context, const uint8_t key[64], const uint8_t digest[32], const uint8_t signature[64]) {
    psa_key_attributes_t attributes = PSA_KEY_ATTRIBUTES_INIT;
    psa_key_id_t id = 0;
    psa_status_t status;
    uint8_t point[65];
    (void)context;
    if (memcmp(signature + 32, half, sizeof half) > 0)
        return false;
    point[0] = 4; /* uncompressed */
    memcpy(point + 1, key, 64);
    psa_set_key_type(&attributes, PSA_KEY_TYPE_ECC_PUBLIC_KEY(PSA_ECC_FAMILY_SECP_R1));
    psa_set_key_usage_flags(&attributes, PSA_KEY_USAGE_VERIFY_HASH);
    psa_set_key_algorithm(&attributes, PSA_ALG_ECDSA(PSA_ALG_SHA_256));
    if (psa_import_key(&attributes, point, sizeof point, &id) != PSA_SUCCESS)
        return false;
    status = psa_verify_hash(id, PSA_ALG_ECDSA(PSA_ALG_SHA_256), digest, 32, signature, 64);
    psa_destroy_key(id);
    return status == PSA_SUCCESS;
}

int hushmote_psa_entropy(void *context, uint8_t *data, size_t bytes) {
    (void)context;
    return psa_generate_random(data, bytes) == PSA_SUCCESS ? 0 : -1;
}
