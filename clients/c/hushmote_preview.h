/**
 * @file
 * @brief What a board would send, the last reports that it made, and an export of both for the board's owner.
 *
 * Nothing here draws, spends or writes to flash. Call these functions from the task that makes the reports. Firmware
 * that calls none of them does not link preview.c.
 */
#ifndef HUSHMOTE_PREVIEW_H
#define HUSHMOTE_PREVIEW_H

#include "hushmote.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HUSHMOTE_PREVIEW_BYTES 1280 /**< Enough for every preview. */
#define HUSHMOTE_LAST 8             /**< Number of reports that are described. */

/** The last reports, newest last; in RAM, and empty after a start. Initialize it with zeros. */
struct hushmote_last {
    uint8_t count;
    struct {
        uint32_t at; /**< Seconds since 1970; before 2025, the clock is taken as not set. */
        uint8_t bytes, report[HUSHMOTE_REPORT_BYTES];
    } reports[HUSHMOTE_LAST];
};

/**
 * @brief Describe what hushmote_report_as() would send.
 *
 * @param client The client.
 * @param name The experiment's name.
 * @param reading The reading.
 * @param group The open group's value, or NULL for the policy's.
 * @param[out] text Lines of text with a zero at the end; cut if they do not fit.
 * @param bytes Size of `text`, such as #HUSHMOTE_PREVIEW_BYTES.
 * @return #HUSHMOTE_OK, #HUSHMOTE_UNKNOWN, #HUSHMOTE_WRONG_TYPE or #HUSHMOTE_BUSY.
 */
int hushmote_preview(struct hushmote *client, const char *name, struct hushmote_reading reading, const char *group,
                     char *text, size_t bytes);

/**
 * @brief Describe a report in one line: its question, code, size and cost, and if it is the newest, the remaining budget.
 *
 * @param client The client.
 * @param report The report.
 * @param report_bytes Its size.
 * @param[out] text The line, with a zero at the end; cut if it does not fit.
 * @param bytes Size of `text`; 160 is enough.
 */
void hushmote_describe(struct hushmote *client, const uint8_t *report, size_t report_bytes, char *text, size_t bytes);

/**
 * @brief Add a report to the last ones.
 * @param last The last reports.
 * @param report A report, as hushmote_report() or the reporter returned it.
 * @param bytes Its size; if it is not above 0, nothing is added.
 * @param at Seconds since 1970, or 0 if there is no clock.
 */
void hushmote_remember(struct hushmote_last *last, const uint8_t *report, int bytes, uint32_t at);

/**
 * @brief Write the last reports, the consent and the budget as one JSON object, for the board's owner.
 *
 * @param client The client.
 * @param last The last reports.
 * @param write Called with each piece of the JSON; it must not call the client.
 * @param context Passed to `write`.
 * @return #HUSHMOTE_OK, or #HUSHMOTE_BUSY if nothing was written.
 */
int hushmote_export(struct hushmote *client, const struct hushmote_last *last,
                    void (*write)(void *context, const char *text, size_t bytes), void *context);

#ifdef __cplusplus
}
#endif

#endif
