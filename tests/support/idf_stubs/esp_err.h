/* Stand-ins for the parts of ESP-IDF that clients/c/idf takes, for gcc -fsyntax-only: they do nothing. */
#pragma once
typedef int esp_err_t;
#define ESP_OK 0
