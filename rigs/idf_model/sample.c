#include <stdio.h>

#include "../flash_model.h"
#include "../sample.h"
#include "broker.h"
#include "driver/gpio.h"
#include "esp_event.h"
#include "esp_netif.h"
#include "esp_random.h"
#include "esp_timer.h"
#include "nvs.h"
#include "nvs_flash.h"
#include "protocol_examples_common.h"
#include "virtual_time.h"

void app_main(void);

long flash_operations, flash_cut = -1;
jmp_buf flash_power;

void esp_error_check(esp_err_t code) {
    if (code != ESP_OK)
        abort();
}

int64_t esp_timer_get_time(void) {
    if (virtual_now() >= end_ms) {
        printf("connections: %u, goodbyes: %u\n", broker.connect_count, broker.disconnect_count);
        exit(0);
    }
    return (int64_t)virtual_now() * 1000;
}

void esp_fill_random(void *buf, size_t len) {
    fill_with_noise(buf, len);
}

esp_err_t nvs_flash_init(void) {
    return ESP_OK;
}

esp_err_t esp_netif_init(void) {
    return ESP_OK;
}

esp_err_t esp_event_loop_create_default(void) {
    return ESP_OK;
}

esp_err_t example_connect(void) {
    return ESP_OK;
}

esp_err_t gpio_set_pull_mode(gpio_num_t gpio_num, gpio_pull_mode_t pull) {
    (void)gpio_num;
    return pull == GPIO_PULLUP_ONLY ? ESP_OK : ESP_FAIL;
}

int gpio_get_level(gpio_num_t gpio_num) {
    (void)gpio_num;
    return !is_down(virtual_now());
}

/* Store the board's identity from the file identity.bin, if there is one. */
static void store_identity(void) {
    static uint8_t record[4096];
    FILE *file = fopen("identity.bin", "rb");
    nvs_handle_t handle;
    if (file == NULL)
        return;
    esp_error_check(nvs_open_from_partition("identity", "hushmote", NVS_READWRITE, &handle));
    esp_error_check(nvs_set_blob(handle, "identity", record, fread(record, 1, sizeof record, file)));
    fclose(file);
}

int main(int count, char **arguments) {
    read_arguments(count, arguments);
    storage_new();
    storage_start();
    store_identity();
    app_main();
    return 0;
}
