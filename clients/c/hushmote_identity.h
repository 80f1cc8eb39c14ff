/**
 * @file
 * @brief A board's identity and network from flash, so that all boards of a fleet have the same firmware image.
 *
 * `hushmote provision devices` writes a page of 4,096 bytes for each board, or an item for ESP-IDF's NVS. Flash it next to
 * the firmware, where it stays when the firmware is updated. An erased, foreign, damaged or truncated page is refused;
 * nothing has a default.
 *
 * @code
 *     static struct hushmote_identity identity;
 *     int code = hushmote_config_from_page(&config, &identity, (const void *)0x0807f000, HUSHMOTE_PAGE_BYTES);
 *     if (code != HUSHMOTE_OK)
 *         puts(hushmote_text(code));
 * @endcode
 */
#ifndef HUSHMOTE_IDENTITY_H
#define HUSHMOTE_IDENTITY_H

#include "hushmote.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HUSHMOTE_PAGE_BYTES 4096 /**< Size of a page. */

/** A board's network. All texts point into the page; "" stands for a text that the page does not have. */
struct hushmote_identity {
    const char *hosts;  /**< "host", "host:port" or "[address]:port", separated by commas. */
    const char *prefix; /**< Topic levels before hushmote/v1. */
    const char *user, *password;                    /**< The broker's login. */
    const char *ca, *certificate, *certificate_key; /**< PEM. */
    const char *wifi_ssid, *wifi_password;
    uint16_t port;                /**< Port for hosts that do not specify one. */
    bool omit_status, omit_will;  /**< For struct hushmote_port. */
    bool consent_given;           /**< Provision the ledger with HUSHMOTE_YES: consent was given elsewhere. */
};

/**
 * @brief Read a board's identity: set the config's device_id, fleet, key and announce_key, and its network.
 *
 * Neither is changed unless this returns #HUSHMOTE_OK. Both then point into the page, which must stay readable and
 * unchanged, for example as memory-mapped flash. Never print the page, because it contains the board's keys.
 *
 * @param config The settings; config.sha256 must be set already if HUSHMOTE_WITH_SHA256 is 0.
 * @param[out] identity The network.
 * @param page The page; it may be at an odd address.
 * @param bytes Number of bytes that can be read there, at most #HUSHMOTE_PAGE_BYTES.
 * @return #HUSHMOTE_OK, #HUSHMOTE_NO_IDENTITY, #HUSHMOTE_IDENTITY_OTHER, #HUSHMOTE_IDENTITY_NEWER,
 *     #HUSHMOTE_IDENTITY_DAMAGED, or #HUSHMOTE_BAD_SETTINGS without a SHA-256.
 */
int hushmote_config_from_page(struct hushmote_config *config, struct hushmote_identity *identity, const void *page,
                              size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
