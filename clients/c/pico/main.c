/* A thermometer on the Raspberry Pi Pico that takes part in the experiment room_temp. All boards have this image; each
   board's identity is in the fifth flash sector from the end, below the ledger's four, from
   `hushmote provision devices --for page`. The board has no network connection: the computer on its serial port
   publishes the reports. In each interval, it prints `report HEX`, or `silent` if it makes no report. It reads these lines: `provision`, once; `yes` or `no`, the answer of the person at the board; `sent`,
   after the broker has acknowledged the oldest report; and an experiment's JSON as retained by the broker. Wait for the
   answer to each line, because the serial port's queue holds only 32 bytes. */
#include <stdio.h>
#include <string.h>

#include "hardware/adc.h"
#include "hardware/flash.h"
#include "hardware/structs/rosc.h"
#include "hushmote_identity.h"
#include "pico/flash.h"
#include "pico/stdlib.h"

/* --- Flash: two copies of each slot, in separate sectors, so that a power cut leaves the old copy or the new one ---- */

struct copy {
    uint32_t number, bytes, inverse[2]; /* written last, in a separate page; a torn page makes the copy invalid */
    uint8_t rest[FLASH_PAGE_SIZE - 16], data[FLASH_SECTOR_SIZE - FLASH_PAGE_SIZE];
};

struct job {
    uint32_t at; /* the sector's offset */
    const struct copy *copy;
};

#define PAGE ((const void *)(XIP_BASE + PICO_FLASH_SIZE_BYTES - 5 * FLASH_SECTOR_SIZE))

static struct copy buffer;

static const struct copy *copy_of(int slot, int which) {
    return (const struct copy *)(XIP_BASE + PICO_FLASH_SIZE_BYTES) - 4 + 2 * slot + which;
}

static bool is_valid(const struct copy *copy) {
    return copy->number == ~copy->inverse[0] && copy->bytes == ~copy->inverse[1];
}

/* Return the index of a slot's newest valid copy, or -1 if neither is valid. */
static int newest(int slot) {
    const struct copy *a = copy_of(slot, 0), *b = copy_of(slot, 1);
    if (is_valid(a) && is_valid(b))
        return b->number > a->number;
    return is_valid(a) ? 0 : is_valid(b) ? 1 : -1;
}

static long flash_read(void *context, int slot, uint8_t *data, size_t bytes) {
    int which = newest(slot);
    (void)context;
    if (which < 0)
        return 0;
    memcpy(data, copy_of(slot, which)->data, MIN(bytes, copy_of(slot, which)->bytes));
    return (long)copy_of(slot, which)->bytes;
}

static void replace(void *context) {
    const struct job *job = context;
    flash_range_erase(job->at, FLASH_SECTOR_SIZE);
    flash_range_program(job->at + FLASH_PAGE_SIZE, job->copy->data, sizeof job->copy->data);
    flash_range_program(job->at, (const uint8_t *)job->copy, FLASH_PAGE_SIZE);
}

static int flash_write(void *context, int slot, const uint8_t *data, size_t bytes) {
    int old = newest(slot), which = old == 0;
    struct job job = {(uint32_t)(uintptr_t)copy_of(slot, which) - XIP_BASE, &buffer};
    (void)context;
    memset(&buffer, 0xff, sizeof buffer);
    if (bytes > sizeof buffer.data)
        return -1;
    buffer.number = old < 0 ? 1 : copy_of(slot, old)->number + 1;
    buffer.bytes = bytes;
    buffer.inverse[0] = ~buffer.number;
    buffer.inverse[1] = ~buffer.bytes;
    memcpy(buffer.data, data, bytes);
    if (flash_safe_execute(replace, &job, UINT32_MAX) != PICO_OK)
        return -1;
    return memcmp(copy_of(slot, which), &buffer, sizeof buffer) == 0 ? 0 : -1;
}

/* --- Randomness: the ring oscillator, sampled slowly; the core hashes the bits and detects a stuck oscillator ------- */

static int random_fill(void *context, uint8_t *data, size_t bytes) {
    (void)context;
    for (size_t i = 0; i < 8 * bytes; i++) {
        data[i / 8] = (uint8_t)(data[i / 8] << 1 | (rosc_hw->randombit & 1));
        busy_wait_us_32(1);
    }
    return 0;
}

/* --- The application ----------------------------------------------------------------------------------------------- */

/* At most epsilon = 8 per lifetime and 2 per report; opt-in only at the board. */
HUSHMOTE_POLICY(policy, 8000000, 0, 2000000, HUSHMOTE_SUM, false, "room_temp");

static struct hushmote_experiment experiments[1];
static uint8_t records[2 * HUSHMOTE_RECORD_BYTES(1, 4)];
static struct hushmote_config config = {
    .read = flash_read, .write = flash_write, .entropy = random_fill, .policy = &policy,
    .experiments = experiments, .records = records, .record_bytes = sizeof records / 2, .unsent_max = 4,
};
static struct hushmote_identity identity;
static struct hushmote client;

static int32_t millidegrees(void) { /* RP2040 datasheet, section 4.9.5 */
    int64_t microvolts = (int64_t)adc_read() * 3300000 / 4096;
    return (int32_t)(27000 - (microvolts - 706000) * 1000 / 1721);
}

static void print_report(const uint8_t *report, int bytes) {
    printf("report ");
    for (int i = 0; i < bytes; i++)
        printf("%02x", report[i]);
    puts("");
}

static int run_command(const char *line) {
    uint8_t report[HUSHMOTE_REPORT_BYTES];
    if (strcmp(line, "provision") == 0) {
        int code = hushmote_provision(&config, false, identity.consent_given ? HUSHMOTE_YES : HUSHMOTE_NOT_ASKED);
        return code == HUSHMOTE_OK ? hushmote_begin(&client, &config) : code;
    }
    if (strcmp(line, "yes") == 0 || strcmp(line, "no") == 0)
        return hushmote_set_consent(&client, *line == 'y');
    if (strcmp(line, "sent") == 0) {
        int bytes = hushmote_unsent(&client, 0, report);
        return bytes > 0 ? hushmote_sent(&client, report, (size_t)bytes) : bytes;
    }
    return hushmote_enroll(&client, (const uint8_t *)line, strlen(line));
}

int main(void) {
    static char line[1025];
    uint8_t report[HUSHMOTE_REPORT_BYTES];
    struct hushmote_status status;
    size_t at = 0;
    int bytes;
    stdio_init_all();
    while ((bytes = hushmote_config_from_page(&config, &identity, PAGE, HUSHMOTE_PAGE_BYTES)) != HUSHMOTE_OK) {
        puts(hushmote_text(bytes));
        sleep_ms(INTERVAL_MS);
    }
    adc_init();
    adc_set_temp_sensor_enabled(true);
    adc_select_input(4);
    bytes = hushmote_begin(&client, &config);
    hushmote_status(&client, &status);
    puts(hushmote_text(bytes == HUSHMOTE_OK ? status.locked : bytes));
    for (unsigned i = 0; (bytes = hushmote_unsent(&client, i, report)) > 0; i++)
        print_report(report, bytes); /* resend the same bytes */
    for (absolute_time_t next = make_timeout_time_ms(INTERVAL_MS);; sleep_ms(1)) {
        for (int c; (c = getchar_timeout_us(0)) >= 0;) {
            if (c == '\n' || c == '\r') {
                line[at] = 0;
                if (at > 0)
                    puts(hushmote_text(run_command(line)));
                at = 0;
            } else if (at < sizeof line - 1) {
                line[at++] = (char)c;
            }
        }
        if (time_reached(next)) { /* on a schedule, regardless of the reading */
            next = delayed_by_ms(next, INTERVAL_MS);
            bytes = hushmote_report(&client, "room_temp", hushmote_milli(millidegrees()), report);
            if (bytes > 0)
                print_report(report, bytes);
            else
                puts(bytes == 0 ? "silent" : hushmote_text(bytes));
        }
    }
}
