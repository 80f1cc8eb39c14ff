/* Run a port's sample on its models in virtual time: sample SECONDS [FROM TO]...; the button is down between FROM and
   TO. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

static uint32_t end_ms, presses_ms[16];
static int press_count;

static void read_arguments(int count, char **arguments) {
    end_ms = (uint32_t)atoi(arguments[1]) * 1000;
    for (int i = 2; i < count && press_count < 16; i++)
        presses_ms[press_count++] = (uint32_t)atoi(arguments[i]) * 1000;
}

static bool is_down(uint32_t now_ms) {
    for (int i = 0; i + 1 < press_count; i += 2) {
        if (now_ms >= presses_ms[i] && now_ms < presses_ms[i + 1])
            return true;
    }
    return false;
}

static void fill_with_noise(uint8_t *data, size_t bytes) {
    static uint64_t noise = 88172645463325252u;
    while (bytes-- > 0) {
        noise ^= noise << 13;
        noise ^= noise >> 7;
        noise ^= noise << 17;
        *data++ = (uint8_t)(noise >> 24);
    }
}
