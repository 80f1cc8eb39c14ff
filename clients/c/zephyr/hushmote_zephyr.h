/**
 * @file
 * @brief A port of the client's storage and randomness to Zephyr: NVS and sys_csrand_get().
 */
#ifndef HUSHMOTE_ZEPHYR_H
#define HUSHMOTE_ZEPHYR_H

#include "hushmote_identity.h"

#ifdef __cplusplus
extern "C" {
#endif

struct nvs_fs;

/**
 * @brief Mount an NVS on the devicetree's entire storage_partition.
 *
 * It needs CONFIG_FLASH_MAP and CONFIG_FLASH_PAGE_LAYOUT. Never erase the partition or call nvs_clear() after an error,
 * because that erases the record of the spent budget.
 *
 * @param[out] fs The file system to mount.
 * @return 0, or an errno below 0.
 */
int hushmote_zephyr_mount(struct nvs_fs *fs);

/**
 * @brief Return the page of the board's identity, for hushmote_config_from_page().
 *
 * It is the first page of the devicetree's identity_partition, which must be in memory-mapped flash.
 *
 * @return The page, or NULL if the devicetree has no identity_partition.
 */
const void *hushmote_zephyr_page(void);

#define HUSHMOTE_ZEPHYR_NAMES 64 /**< Number of names whose serials are kept, including those of earlier policies. */
#ifndef HUSHMOTE_ZEPHYR_KEPT_ID
#define HUSHMOTE_ZEPHYR_KEPT_ID 0x4800 /**< First of 193 NVS ids for kept experiments. Never change it for a used board. */
#endif

/** The context of config and of the port's storage functions. */
struct hushmote_zephyr {
    struct nvs_fs *fs;   /**< Mounted file system. */
    uint16_t first_id;   /**< First of the ledger's two NVS ids. Earlier releases kept experiments under the ids that
                              follow, two for each name in the policy; they are still read, so do not use them either. */
    const struct hushmote_policy *policy; /**< The client's policy, in which earlier releases numbered the experiments. */
};

/**
 * @brief Read a ledger slot, for config.read.
 * @param zephyr A struct hushmote_zephyr.
 * @param slot 0 or 1.
 * @param[out] data The slot's bytes.
 * @param bytes Size of `data`.
 * @return Number of bytes in the slot, 0 if it was never written, below 0 if it cannot be read.
 */
long hushmote_zephyr_read(void *zephyr, int slot, uint8_t *data, size_t bytes);

/**
 * @brief Replace a ledger slot, for config.write.
 * @param zephyr A struct hushmote_zephyr.
 * @param slot 0 or 1.
 * @param data The new bytes.
 * @param bytes Number of bytes.
 * @return 0 once they are stored, or another value on failure.
 */
int hushmote_zephyr_write(void *zephyr, int slot, const uint8_t *data, size_t bytes);

/**
 * @brief Fill a buffer with random bytes, for config.entropy.
 * @param zephyr A struct hushmote_zephyr.
 * @param[out] data The buffer.
 * @param bytes Number of bytes.
 * @return 0, or another value on failure.
 */
int hushmote_zephyr_entropy(void *zephyr, uint8_t *data, size_t bytes);

/**
 * @brief Read a kept experiment, for port.read_kept.
 * @param zephyr A struct hushmote_zephyr.
 * @param name Name of the experiment.
 * @param[out] data The kept bytes.
 * @param bytes Size of `data`.
 * @return Number of bytes stored, 0 if there are none, below 0 if they cannot be read.
 */
long hushmote_zephyr_read_kept(void *zephyr, const char *name, uint8_t *data, size_t bytes);

/**
 * @brief Keep an experiment, for port.write_kept.
 * @param zephyr A struct hushmote_zephyr.
 * @param name Name of the experiment.
 * @param data The bytes to keep.
 * @param bytes Number of bytes; 0 removes the experiment.
 * @return 0 once they are stored, 1 if #HUSHMOTE_ZEPHYR_NAMES other names are kept, below 0 on failure.
 */
int hushmote_zephyr_write_kept(void *zephyr, const char *name, const uint8_t *data, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
