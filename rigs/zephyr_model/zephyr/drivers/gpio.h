#pragma once
struct gpio_dt_spec { int pin; };
#define DT_ALIAS(name) 0
#define GPIO_DT_SPEC_GET(node, property) {node}
#define GPIO_INPUT 1
int gpio_pin_configure_dt(const struct gpio_dt_spec *spec, unsigned extra_flags);
int gpio_pin_get_dt(const struct gpio_dt_spec *spec);
