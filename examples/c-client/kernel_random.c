/* The two primitives on the bits of the kernel's generator. Without them the program ends: no report is made. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>

#include "hushmote.h"

static uint32_t bits(void) { /* 30 of them */
    uint32_t x;
    if (getrandom(&x, sizeof x, 0) != sizeof x) {
        fputs("report: the kernel gives no randomness\n", stderr);
        exit(1);
    }
    return x & 0x3fffffff;
}

static bool bernoulli(void *context, uint32_t threshold) {
    (void)context;
    return bits() < threshold;
}

static uint32_t below(void *context, uint32_t n) {
    uint32_t mask = 1, x;
    (void)context;
    while (mask < n) mask <<= 1;
    do x = bits() & (mask - 1);
    while (x >= n); /* again, never a remainder: that would not be uniform */
    return x;
}

const hm_random hm_kernel_random = {bernoulli, below, NULL};
