/**
 * @file
 * @brief Read a board's health for the standard questions, which `hushmote questions` lists.
 *
 * Keep one struct hushmote_health across restarts: in memory that a reset does not clear, or in flash. After a start that
 * is not the end of a sleep, call hushmote_health_start(). Record events with the other functions, and report what
 * hushmote_health_read() returns:
 *
 *     hushmote_report(&client, "crashed", hushmote_health_read(&health, &port, "crashed"), report);
 */
#ifndef HUSHMOTE_HEALTH_H
#define HUSHMOTE_HEALTH_H

#include <string.h>

#include "hushmote.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HUSHMOTE_DAY_S 86400u
#define HUSHMOTE_YEAR_S 31536000u
#define HUSHMOTE_FULL_PERCENT 95u /**< Charge from which a battery is full. */
#define HUSHMOTE_EMPTY_PERCENT 10u /**< Charge at which a battery is used up. */

/** Why a board started. */
enum hushmote_cause {
    HUSHMOTE_CAUSE_OTHER,
    HUSHMOTE_CAUSE_POWER,
    HUSHMOTE_CAUSE_PANIC,
    HUSHMOTE_CAUSE_WATCHDOG,
    HUSHMOTE_CAUSE_BROWN_OUT,
    HUSHMOTE_CAUSE_UPDATE
};

/** The outcome of an offered update: the step that failed, or what became of it. */
enum hushmote_update {
    HUSHMOTE_UPDATE_NONE, /**< No update was ever offered. */
    HUSHMOTE_UPDATE_OK,
    HUSHMOTE_UPDATE_DOWNLOAD,
    HUSHMOTE_UPDATE_VERIFY,
    HUSHMOTE_UPDATE_ROLLED_BACK,
    HUSHMOTE_UPDATE_REFUSED
};

/** What the board can read. A function may be NULL if the board lacks the sensor. */
struct hushmote_health_port {
    void *context;
    enum hushmote_cause (*reset_cause)(void *context); /**< Such as esp_reset_reason(). */
    int (*rssi)(void *context);            /**< Signal of the last connection, dBm; 0 if there is none. */
    uint32_t (*free_heap)(void *context);  /**< Free heap, or its lowest value since the last call, bytes. */
    /** Seconds of a clock that keeps running across restarts and sleep, if the board has one. If it is reset, or moves
        by more than a year, the time in between counts as zero. */
    uint32_t (*seconds)(void *context);
};

/** What a board remembers. Initialize it with zeros. `has` tells which of the others are set. */
struct hushmote_health {
    uint32_t seen, started, crashed, acknowledged, newer, full; /**< Times. */
    uint32_t boot_s, life_s;                                    /**< Durations. */
    uint32_t day, heap_today, heap_before;                      /**< The lowest free heap of two days, bytes. */
    int16_t rssi;
    uint16_t has;
    uint8_t cause, update, next_cause;
};

enum {
    HUSHMOTE_HAS_SEEN = 1,
    HUSHMOTE_HAS_STARTED = 2,
    HUSHMOTE_HAS_CRASHED = 4,
    HUSHMOTE_HAS_ACKNOWLEDGED = 8,
    HUSHMOTE_HAS_NEWER = 16,
    HUSHMOTE_HAS_FULL = 32,
    HUSHMOTE_HAS_BOOT = 64,
    HUSHMOTE_HAS_LIFE = 128,
    HUSHMOTE_HAS_TODAY = 256,
    HUSHMOTE_HAS_BEFORE = 512,
    HUSHMOTE_HAS_RSSI = 1024
};

/** Return the time, and shift stored times if the clock was reset or set. */
static inline uint32_t hushmote_health_now(struct hushmote_health *h, const struct hushmote_health_port *port) {
    uint32_t now = port->seconds(port->context);
    if ((h->has & HUSHMOTE_HAS_SEEN) && (now < h->seen || now - h->seen > HUSHMOTE_YEAR_S)) {
        uint32_t lost = h->seen - now; /* the differences stay right, even below zero */
        h->started -= lost;
        h->crashed -= lost;
        h->acknowledged -= lost;
        h->newer -= lost;
        h->full -= lost;
    }
    h->seen = now;
    h->has |= HUSHMOTE_HAS_SEEN;
    return now;
}

/** Announce an intended restart and its reason, such as #HUSHMOTE_CAUSE_UPDATE. */
static inline void hushmote_health_restarting(struct hushmote_health *h, enum hushmote_cause why) {
    h->next_cause = (uint8_t)why;
}

/** Record a start that is not the end of a sleep. */
static inline void hushmote_health_start(struct hushmote_health *h, const struct hushmote_health_port *port) {
    h->started = hushmote_health_now(h, port);
    h->cause = h->next_cause ? h->next_cause : (uint8_t)port->reset_cause(port->context);
    h->next_cause = 0;
    if (!(h->has & HUSHMOTE_HAS_ACKNOWLEDGED))
        h->acknowledged = h->started;
    h->has = (uint16_t)((h->has | HUSHMOTE_HAS_STARTED | HUSHMOTE_HAS_ACKNOWLEDGED) & ~HUSHMOTE_HAS_BOOT);
    if (h->cause == HUSHMOTE_CAUSE_PANIC || h->cause == HUSHMOTE_CAUSE_WATCHDOG || h->cause == HUSHMOTE_CAUSE_BROWN_OUT) {
        h->crashed = h->started;
        h->has |= HUSHMOTE_HAS_CRASHED;
    }
}

/** Record the free heap; call it at every wake-up, or once an hour. */
static inline void hushmote_health_sample(struct hushmote_health *h, const struct hushmote_health_port *port) {
    uint32_t day = hushmote_health_now(h, port) / HUSHMOTE_DAY_S, free_heap = port->free_heap(port->context);
    if ((h->has & HUSHMOTE_HAS_TODAY) && day != h->day) {
        h->heap_before = h->heap_today;
        h->has = (uint16_t)((h->has | HUSHMOTE_HAS_BEFORE) & ~HUSHMOTE_HAS_TODAY);
    }
    if (!(h->has & HUSHMOTE_HAS_TODAY) || free_heap < h->heap_today)
        h->heap_today = free_heap;
    h->day = day;
    h->has |= HUSHMOTE_HAS_TODAY;
}

/** Record that the broker acknowledged a message. */
static inline void hushmote_health_acknowledged(struct hushmote_health *h, const struct hushmote_health_port *port) {
    uint32_t now = hushmote_health_now(h, port);
    int rssi = port->rssi ? port->rssi(port->context) : 0;
    if ((h->has & HUSHMOTE_HAS_STARTED) && !(h->has & HUSHMOTE_HAS_BOOT)) {
        h->boot_s = now - h->started;
        h->has |= HUSHMOTE_HAS_BOOT;
    }
    h->acknowledged = now;
    h->rssi = (int16_t)rssi;
    h->has = (uint16_t)(rssi ? h->has | HUSHMOTE_HAS_RSSI : h->has & ~HUSHMOTE_HAS_RSSI);
}

/** Record that a version newer than the running one exists. */
static inline void hushmote_health_newer(struct hushmote_health *h, const struct hushmote_health_port *port) {
    uint32_t now = hushmote_health_now(h, port);
    if (!(h->has & HUSHMOTE_HAS_NEWER))
        h->newer = now;
    h->has |= HUSHMOTE_HAS_NEWER;
}

/** Record the outcome of an offered update. */
static inline void hushmote_health_updated(struct hushmote_health *h, enum hushmote_update outcome) {
    h->update = (uint8_t)outcome;
    if (outcome == HUSHMOTE_UPDATE_OK)
        h->has = (uint16_t)(h->has & ~HUSHMOTE_HAS_NEWER);
}

/** Record the battery's charge in percent. */
static inline void hushmote_health_battery(struct hushmote_health *h, const struct hushmote_health_port *port,
                                           unsigned percent) {
    uint32_t now = hushmote_health_now(h, port);
    if (percent >= HUSHMOTE_FULL_PERCENT) {
        h->full = now;
        h->has |= HUSHMOTE_HAS_FULL;
    } else if (percent <= HUSHMOTE_EMPTY_PERCENT && (h->has & HUSHMOTE_HAS_FULL)) {
        h->life_s = now - h->full;
        h->has = (uint16_t)((h->has | HUSHMOTE_HAS_LIFE) & ~HUSHMOTE_HAS_FULL);
    }
}

/** Return a label of static duration as a reading, or hushmote_none() for NULL. */
static inline struct hushmote_reading hushmote_health_label(const char *const *labels, unsigned at) {
    return labels[at] ? hushmote_bytes(labels[at], strlen(labels[at])) : hushmote_none();
}

/**
 * @brief Return the reading for a standard question.
 * @param h What the board remembers.
 * @param port The port.
 * @param question The question's name, such as "crashed".
 * @return The reading; hushmote_none() if there is none yet, or for an unknown question.
 */
static inline struct hushmote_reading hushmote_health_read(struct hushmote_health *h,
                                                           const struct hushmote_health_port *port,
                                                           const char *question) {
    static const char *const causes[] = {"other", "power", "panic", "watchdog", "brown-out", "update"};
    static const char *const outcomes[] = {NULL, "ok", "download", "verify", "rolled back", "refused"};
    uint32_t now = hushmote_health_now(h, port);
    if (!strcmp(question, "crashed"))
        return hushmote_flag((h->has & HUSHMOTE_HAS_CRASHED) && now - h->crashed < HUSHMOTE_DAY_S);
    if (!strcmp(question, "unreachable"))
        return hushmote_flag((h->has & HUSHMOTE_HAS_ACKNOWLEDGED) && now - h->acknowledged >= HUSHMOTE_DAY_S);
    if (!strcmp(question, "days_behind"))
        return hushmote_milli((h->has & HUSHMOTE_HAS_NEWER) ? (int64_t)(now - h->newer) * 1000 / HUSHMOTE_DAY_S : 0);
    if (!strcmp(question, "update"))
        return hushmote_health_label(outcomes, h->update);
    if (!strcmp(question, "heap_low") && (h->has & (HUSHMOTE_HAS_TODAY | HUSHMOTE_HAS_BEFORE)))
        return hushmote_milli((int64_t)((h->has & HUSHMOTE_HAS_BEFORE) ? h->heap_before : h->heap_today) * 1000 / 1024);
    if (!strcmp(question, "signal") && (h->has & HUSHMOTE_HAS_RSSI))
        return hushmote_whole(h->rssi);
    if (!strcmp(question, "battery_life") && (h->has & HUSHMOTE_HAS_LIFE))
        return hushmote_milli((int64_t)h->life_s * 1000 / 3600);
    if (!(h->has & HUSHMOTE_HAS_STARTED))
        return hushmote_none();
    if (!strcmp(question, "restart"))
        return hushmote_health_label(causes, h->cause);
    if (!strcmp(question, "uptime"))
        return hushmote_milli((int64_t)(now - h->started) * 1000 / 3600);
    if (!strcmp(question, "boot_time") && (h->has & HUSHMOTE_HAS_BOOT))
        return hushmote_whole(h->boot_s);
    return hushmote_none();
}

#ifdef __cplusplus
}
#endif

#endif
