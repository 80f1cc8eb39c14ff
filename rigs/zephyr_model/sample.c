#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <zephyr/drivers/flash.h>
#include <zephyr/drivers/gpio.h>
#include <zephyr/fs/nvs.h>
#include <zephyr/kernel.h>
#include <zephyr/random/random.h>
#include <zephyr/storage/flash_map.h>
#include <zephyr/sys/printk.h>

#include "../flash_model.h"
#include "../sample.h"

#undef main /* the compiler calls the sample's sample_main */
int sample_main(void);

long flash_operations, flash_cut = -1;
jmp_buf flash_power;
static uint32_t now_ms;
uint8_t identity_page[4096];

int32_t k_msleep(int32_t ms) {
    now_ms += (uint32_t)ms;
    if (now_ms >= end_ms)
        exit(0);
    return 0;
}

uint32_t k_uptime_get_32(void) {
    return now_ms;
}

void printk(const char *fmt, ...) {
    va_list values;
    va_start(values, fmt);
    vprintf(fmt, values);
    va_end(values);
}

int sys_csrand_get(void *dst, size_t len) {
    fill_with_noise(dst, len);
    return 0;
}

bool device_is_ready(const struct device *dev) {
    (void)dev;
    return true;
}

int flash_get_page_info_by_offs(const struct device *dev, off_t offset, struct flash_pages_info *info) {
    (void)dev;
    info->start_offset = offset;
    info->size = 4096;
    return 0;
}

int nvs_mount(struct nvs_fs *fs) {
    return fs->sector_size == 4096 && fs->sector_count == 3 ? 0 : -1;
}

int gpio_pin_configure_dt(const struct gpio_dt_spec *spec, unsigned extra_flags) {
    (void)spec;
    return extra_flags == GPIO_INPUT ? 0 : -1;
}

int gpio_pin_get_dt(const struct gpio_dt_spec *spec) {
    (void)spec;
    return is_down(now_ms);
}

int main(int count, char **arguments) {
    FILE *file = fopen("identity.bin", "rb");
    read_arguments(count, arguments);
    memset(identity_page, 0xff, sizeof identity_page);
    if (file != NULL && fread(identity_page, 1, sizeof identity_page, file) > 0)
        fclose(file);
    storage_new();
    storage_start();
    return sample_main();
}
