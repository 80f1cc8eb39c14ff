/* A thermometer that takes part in the experiment room_temp. All boards have this image; each board's identity is in
   its NVS partition "identity", from `hushmote provision devices --for nvs`, which may also have identity.wifi_ssid.

   Hold the board's button for 3 s to opt in, and again to opt out. Before first use, create the ledger: flash a
   separate build with `idf.py -B build_ledger -DHUSHMOTE_MAKE_LEDGER=1 flash`, hold the button, then flash the normal
   build. */
#include <stdio.h>

#include "driver/gpio.h"
#include "esp_event.h"
#include "esp_netif.h"
#include "esp_timer.h"
#include "hushmote_button.h"
#include "hushmote_float.h"
#include "hushmote_idf.h"
#include "nvs_flash.h"
#include "protocol_examples_common.h"

#define BUTTON GPIO_NUM_0
#define INTERVAL_MS 600000

HUSHMOTE_POLICY(policy, 8000000, 0, 1000000, HUSHMOTE_SUM, false, "room_temp");

static struct hushmote_idf idf;
static struct hushmote_identity identity;
static struct hushmote_experiment experiments[1];
static struct hushmote_topic topics[1];
static uint8_t records[2 * HUSHMOTE_RECORD_BYTES(1, 8)], kept[HUSHMOTE_KEPT_BYTES];
static struct hushmote_config config = {
    .context = &idf, .read = hushmote_idf_read, .write = hushmote_idf_write, .entropy = hushmote_idf_entropy,
    .policy = &policy, .experiments = experiments, .records = records, .record_bytes = sizeof records / 2,
    .unsent_max = 8,
};
static struct hushmote client;
static struct hushmote_reporter reporter;

static float temperature(void) { return 21.4f; } /* replace with your sensor's reading; return NAN if it fails */

static void on_hold(void) {
    enum hushmote_consent consent = identity.consent_given ? HUSHMOTE_YES : HUSHMOTE_NOT_ASKED;
    if (HUSHMOTE_MAKE_LEDGER && hushmote_provision(&config, false, consent) == HUSHMOTE_OK)
        ESP_ERROR_CHECK(hushmote_idf_begin(&idf, &client, &config, &reporter, topics, kept));
    else
        puts(hushmote_text(hushmote_set_consent(&client, hushmote_consent(&client) != HUSHMOTE_YES)));
}

void app_main(void) {
    struct hushmote_button button = {0};
    uint8_t report[HUSHMOTE_REPORT_BYTES];
    int code = hushmote_idf_load_identity(&idf, &config, &identity);
    if (code != HUSHMOTE_OK) {
        puts(hushmote_text(code));
        return;
    }
    ESP_ERROR_CHECK(nvs_flash_init()); /* for Wi-Fi; the ledger and the identity have their own partitions */
    ESP_ERROR_CHECK(esp_netif_init());
    ESP_ERROR_CHECK(esp_event_loop_create_default());
    ESP_ERROR_CHECK(example_connect()); /* before the client, because the generator is random only while the radio is on */
    ESP_ERROR_CHECK(gpio_set_pull_mode(BUTTON, GPIO_PULLUP_ONLY));
    ESP_ERROR_CHECK(hushmote_idf_open(&idf));
    ESP_ERROR_CHECK(hushmote_idf_begin(&idf, &client, &config, &reporter, topics, kept));
    if (client.locked == HUSHMOTE_NO_LEDGER)
        puts("no ledger: build with HUSHMOTE_MAKE_LEDGER=1 and hold the button once; a used board needs a new device id");
    for (uint32_t since = 0, now;; hushmote_idf_wait(&idf, 100)) {
        now = (uint32_t)(esp_timer_get_time() / 1000);
        hushmote_reporter_tick(&reporter, now);
        if (hushmote_held(&button, gpio_get_level(BUTTON) == 0, now))
            on_hold();
        if (now - since >= INTERVAL_MS) { /* every 10 minutes, regardless of the reading */
            since += INTERVAL_MS;
            (void)hushmote_reporter_report(&reporter, "room_temp", hushmote_float(temperature()), report);
        }
    }
}
