/* Models of the parts of ESP-IDF that clients/c/idf uses: nvs.c, and esp_mqtt.c over freertos.c. */
#pragma once
typedef int esp_err_t;
#define ESP_OK 0
#define ESP_FAIL -1
#define ESP_ERR_NO_MEM 0x101
#define ESP_ERR_NOT_FOUND 0x105
void esp_error_check(esp_err_t code);
#define ESP_ERROR_CHECK(x) esp_error_check(x)
