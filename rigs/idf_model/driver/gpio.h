#pragma once
#include "esp_err.h"
typedef enum { GPIO_NUM_0 } gpio_num_t;
typedef enum { GPIO_PULLUP_ONLY } gpio_pull_mode_t;
esp_err_t gpio_set_pull_mode(gpio_num_t gpio_num, gpio_pull_mode_t pull);
int gpio_get_level(gpio_num_t gpio_num);
