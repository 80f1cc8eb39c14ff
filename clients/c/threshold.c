/* The probability of reporting the truth: exactly floor(p * 2^30), in integers.

   p = inside e^epsilon / (inside e^epsilon + g - 1). `inside` codes share this probability, and g - 1 codes share the
   rest. Rounding down keeps their ratio below e^epsilon, and the server's estimates use exactly the rounded number. p *
   2^30 is irrational, so sufficiently close bounds have the same floor; if these bounds do not, the result is 0. */
#include "core.h"

/* A number has 256 bits: 64 before the point and 192 after it, in 16-bit limbs, lowest first. Products of limbs and
   intermediate dividends then fit in 32 bits, which every chip can multiply and divide. */
#define LIMBS 16
#define POINT 12 /* limbs after the point */

struct number {
    uint16_t limb[LIMBS];
};

static void set(struct number *a, uint32_t whole) {
    *a = (struct number){{0}};
    a->limb[POINT] = (uint16_t)whole;
    a->limb[POINT + 1] = (uint16_t)(whole >> 16);
}

/* Set a = floor(a * factor / divisor), in units in the last place. divisor must be at most 65,535. Return whether a is
   not 0. */
static bool scale(struct number *a, uint32_t factor, uint32_t divisor) {
    uint64_t carry = 0;
    uint32_t remainder = 0;
    bool is_nonzero = false;
    for (int i = 0; i < LIMBS; i++) {
        carry += (uint64_t)a->limb[i] * factor;
        a->limb[i] = (uint16_t)carry;
        carry >>= 16;
    }
    for (int i = LIMBS - 1; i >= 0; i--) {
        remainder = remainder << 16 | a->limb[i];
        a->limb[i] = (uint16_t)(remainder / divisor);
        remainder %= divisor;
        is_nonzero |= a->limb[i] != 0;
    }
    return is_nonzero;
}

/* Set a = a + b, or a = a - b if minus is 1. Return the carry: 1 if a sum overflowed, or if a difference did not borrow. */
static bool add(struct number *a, const struct number *b, unsigned minus) {
    uint32_t carry = minus;
    for (int i = 0; i < LIMBS; i++) {
        carry += (uint32_t)a->limb[i] + (uint16_t)(b->limb[i] ^ (0u - minus));
        a->limb[i] = (uint16_t)carry;
        carry >>= 16;
    }
    return carry != 0;
}

/* Compute low <= e^-x <= high for x = epsilon / 10^6, with the series 1 - x + x^2 / 2 - x^3 / 6 ...

   A term is the previous one times x / i, rounded down, so its error is less than 1 unit plus the previous error times
   x / i. Each rounding error thus propagates to the later terms with a total factor below e^x. There are fewer than 256
   terms and x is at most 16, so the total error, including the omitted terms, is below 256 e^16 < 2^32 units. */
static void exp_bounds(uint32_t epsilon, struct number *low, struct number *high) {
    struct number term;
    set(&term, 1);
    *high = term;
    for (unsigned i = 1;; i++) {
        scale(&term, epsilon, 62500); /* 62500 * 16 = 10^6 */
        if (!scale(&term, 1, 16 * i))
            break;
        add(high, &term, i & 1);
    }
    *low = *high;
    term.limb[2] = 1; /* term was 0 and is now 2^32 units */
    add(low, &term, 1);
    add(high, &term, 0);
}

/* Return floor(2^30 * inside / (inside + outside * e)), with 30 steps of long division. Overwrites e with the divisor. */
static uint32_t quotient(uint32_t inside, uint32_t outside, struct number *e) {
    struct number remainder;
    uint32_t result = 0;
    set(&remainder, inside);
    scale(e, outside, 1);
    add(e, &remainder, 0);
    for (int i = 0; i < 30; i++) {
        bool fits;
        add(&remainder, &remainder, 0);
        fits = add(&remainder, e, 1);
        if (!fits)
            add(&remainder, e, 0);
        result = result << 1 | fits;
    }
    return result;
}

uint32_t hm_threshold(uint32_t epsilon, uint32_t g, uint32_t inside) {
    struct number low, high;
    uint32_t threshold;
    if (epsilon < HUSHMOTE_EPSILON_MIN || epsilon > HUSHMOTE_EPSILON_MAX || g < 2 || g > HM_MAX_CODES)
        return 0;
    exp_bounds(epsilon, &low, &high);
    threshold = quotient(inside, g - 1, &high);
    return threshold == quotient(inside, g - 1, &low) ? threshold : 0;
}

/* Find the largest n with n e^-epsilon < 10, bit by bit; n is below 10 e^16 < 2^27. */
uint32_t hm_tenths(uint32_t epsilon) {
    struct number low, high, ten;
    uint32_t n = 0;
    exp_bounds(epsilon, &low, &high);
    set(&ten, 10);
    for (uint32_t bit = 1u << 26; bit > 0; bit >>= 1) {
        high = low;
        scale(&high, n | bit, 1);
        if (!add(&high, &ten, 1))
            n |= bit;
    }
    return n + 1;
}
