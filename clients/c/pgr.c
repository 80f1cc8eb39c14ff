/* pgr: local hashing with as few codes as possible, using projective geometry.

   Both values and codes are points in the projective space over the integers mod q, q prime: vectors of t digits whose
   highest nonzero digit is 1, so that no point is a multiple of another. A code is e^epsilon times as likely for the
   values whose dot product with it is 0. For these values, the code is called *inside*.

   Privacy: a code inside is at most e^epsilon times as likely as a code outside; the threshold is the total probability
   of all codes inside, rounded down. Utility: any two values share the same number of codes inside, so estimates are
   unbiased; their errors match those of olh. Cost: (q^t - 1) / (q - 1) codes, q - 1 times fewer than an olh that
   distinguishes as many values; 3 draws, and a number of steps that depends only on q and t. Citation: Feldman, Nelson,
   Nguyen, Talwar, "Private Frequency Estimation via Projective Geometry", ICML 2022. */
#include "core.h"

#if HUSHMOTE_WITH_PGR

#define MAX_DIGITS 24

int hm_add_points(struct hushmote_experiment *e, uint32_t domain, uint32_t q, uint32_t weight) {
    struct hm_level level = {0, 0, q, 0, (uint16_t)weight, 2, 0};
    uint32_t inside = 1, outside = q;
    if (!hm_is_prime(q))
        return HUSHMOTE_REFUSED;
    for (; inside + outside < domain; outside *= q, level.t++) {
        if (outside > HM_MAX_CODES / q)
            return HUSHMOTE_REFUSED; /* the experiment would have too many codes */
        inside += outside;
    }
    level.width = outside;
    if (inside + outside <= HM_MAX_CODES)
        level.threshold = hm_threshold(e->epsilon, outside + 1, inside);
    return level.threshold == 0 ? HUSHMOTE_REFUSED : hm_push_level(e, &level, inside + outside);
}

int hm_take_pgr(struct hushmote_experiment *e, struct hm_object *fields) {
    /* With q up to 4096, products of two digits are small, and the threshold is so large that a code inside is more
       likely than one outside at every epsilon, even after rounding down. */
    uint32_t q = hm_take_number(fields, HM_F_Q, 2, 4096);
    return q == HM_NONE ? HUSHMOTE_REFUSED : hm_add_points(e, e->domain, q, 1);
}

static uint32_t modulo(uint32_t n, uint32_t q) {
    uint32_t remainder;
    hm_divide(n, q, &remainder);
    return remainder;
}

static uint32_t is_positive(uint32_t x) { /* returns 1 or 0; x must be at most 2^31 */
    return (0u - x) >> 31;
}

/* Return the index of the point that is a multiple of this vector of t digits, lowest first. Not all digits may be 0. */
static uint32_t number_of(const uint16_t *digits, unsigned t, uint32_t q) {
    uint32_t top = 0, inverse = 1, code = 0, seen = 0;
    for (unsigned i = 0; i < t; i++) /* find the highest nonzero digit */
        top += (digits[i] - top) * is_positive(digits[i]);
    for (uint32_t power = q - 2; power; power >>= 1) { /* top^(q - 2), which is 1 / top by Fermat's little theorem */
        if (power & 1)
            inverse = modulo(inverse * top, q);
        top = modulo(top * top, q);
    }
    for (unsigned i = t; i-- > 0;) {
        code = code * q + (1 + modulo(digits[i] * inverse, q)) * seen;
        seen |= is_positive(digits[i]);
    }
    return code;
}

/* Return a randomized code for a node. */
uint32_t hm_randomize_points(const struct hm_level *level, uint32_t node, struct hushmote_random *random) {
    uint16_t digits[MAX_DIGITS];
    uint32_t q = level->g, outside = level->width, at = 0, dot = 0, live = 1, digit;
    /* Everything is always drawn, so timing does not reveal whether the code is inside. */
    uint32_t out = 1u - hm_bernoulli(random, level->threshold);
    /* All digits except the one to solve for; inside, not all of them are 0. */
    uint32_t quotient = 1 + hm_below(random, outside - 1);
    quotient += out * (hm_below(random, outside) - quotient);
    for (unsigned i = 0; i < level->t; i++) {
        /* The node's digits, lowest first: the node written with digits 1 to q, minus 1 each; a 1; zeros. */
        uint32_t has_digit = is_positive(node), node_digit;
        quotient = hm_divide(quotient, q, &digit);
        node = has_digit * hm_divide(node - has_digit, q, &node_digit);
        dot += digit * (has_digit * node_digit + (live - has_digit));
        digits[i] = (uint16_t)digit;
        at += has_digit;
        live = has_digit;
    }
    /* Move the digit at the position of the node's leading 1 to the top, which has no digit yet, and put in its
       place the digit that makes the product 0 inside and 1 outside. */
    digit = digits[at]; /* NOLINT: t is at least 2, and the 1 on top is one of the t digits */
    digits[level->t - 1] = (uint16_t)digit;
    digits[at] = (uint16_t)modulo(digit + out + q - modulo(dot, q), q);
    return level->offset + number_of(digits, level->t, q);
}

#endif
