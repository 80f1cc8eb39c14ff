/* A thermometer that takes part in the experiment room_temp. All boards of an open fleet have this image; each board's
   identity is in the devicetree's identity_partition, from `hushmote provision devices --for page --open`. The board has
   no network connection: it prints each report in hexadecimal. Publish the reports at QoS 1, or use the reporter in hushmote_port.h with your MQTT library.

   Hold the first button for 3 s to opt in, and again to opt out. Before first use, create the ledger: flash a separate
   build from `west build -d build_ledger -b BOARD . -- -DHUSHMOTE_MAKE_LEDGER=1`, hold the button, then flash the
   normal build. */
#include <string.h>
#include <zephyr/drivers/gpio.h>
#include <zephyr/fs/nvs.h>
#include <zephyr/kernel.h>
#include <zephyr/sys/printk.h>

#include "hushmote_button.h"
#include "hushmote_float.h"
#include "hushmote_zephyr.h"

#define INTERVAL_MS 600000

HUSHMOTE_POLICY(policy, 8000000, 0, 1000000, HUSHMOTE_SUM, false, "room_temp");

static const char experiment[] = /* as published by `hushmote experiment` */
    "{\"v\":1,\"name\":\"room_temp\",\"type\":\"number\",\"low\":16000,\"high\":28000,\"bins\":6,\"mechanism\":\"grr\","
    "\"epsilon\":1000000,\"every\":1,\"budget\":{\"rule\":\"sum\",\"cap\":8000000},\"window\":\"day\"}";
static const struct gpio_dt_spec pin = GPIO_DT_SPEC_GET(DT_ALIAS(sw0), gpios);
static struct nvs_fs fs;
static struct hushmote_zephyr zephyr = {.fs = &fs, .first_id = 1, .policy = &policy};
static struct hushmote_experiment experiments[1];
static uint8_t records[2 * HUSHMOTE_RECORD_BYTES(1, 8)];
static struct hushmote_identity identity;
static struct hushmote_config config = {
    .context = &zephyr, .read = hushmote_zephyr_read, .write = hushmote_zephyr_write,
    .entropy = hushmote_zephyr_entropy, .policy = &policy, .experiments = experiments, .records = records,
    .record_bytes = sizeof records / 2, .unsent_max = 8,
};
static struct hushmote client;

static float temperature(void) { return 21.4f; } /* replace with your sensor's reading; return NAN if it fails */

static void begin(void) {
    printk("%s\n", hushmote_text(hushmote_begin(&client, &config)));
    printk("%s\n", hushmote_text(hushmote_enroll(&client, (const uint8_t *)experiment, strlen(experiment))));
}

static void on_hold(void) {
    enum hushmote_consent consent = identity.consent_given ? HUSHMOTE_YES : HUSHMOTE_NOT_ASKED;
    if (HUSHMOTE_MAKE_LEDGER && hushmote_provision(&config, false, consent) == HUSHMOTE_OK)
        begin();
    else
        printk("%s\n", hushmote_text(hushmote_set_consent(&client, hushmote_consent(&client) != HUSHMOTE_YES)));
}

int main(void) {
    struct hushmote_button button = {0};
    uint8_t report[HUSHMOTE_REPORT_BYTES];
    int code = hushmote_config_from_page(&config, &identity, hushmote_zephyr_page(), HUSHMOTE_PAGE_BYTES);
    if (code != HUSHMOTE_OK) {
        printk("%s\n", hushmote_text(code));
        return 0;
    }
    if (hushmote_zephyr_mount(&fs) != 0 || gpio_pin_configure_dt(&pin, GPIO_INPUT) != 0)
        return -1;
    begin();
    if (client.locked == HUSHMOTE_NO_LEDGER)
        printk("no ledger: build with HUSHMOTE_MAKE_LEDGER=1 and hold the button once; a used board needs a new id\n");
    for (uint32_t since = 0, now;; k_msleep(100)) {
        now = k_uptime_get_32();
        if (hushmote_held(&button, gpio_pin_get_dt(&pin) > 0, now))
            on_hold();
        if (now - since < INTERVAL_MS) /* every 10 minutes, regardless of the reading */
            continue;
        since += INTERVAL_MS;
        int bytes = hushmote_report(&client, "room_temp", hushmote_float(temperature()), report);
        for (int i = 0; i < bytes; i++)
            printk("%02x%s", report[i], i + 1 < bytes ? "" : "\n");
    }
}
