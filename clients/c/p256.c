/* Verify ECDSA signatures over P-256 with SHA-256, which authenticate a fleet's experiments.

   All numbers here are public, so nothing needs to run in constant time.
   Citation: FIPS 186-5, 6.4.2, and SEC 1, 4.1.4, for the scheme; Montgomery, "Modular multiplication without trial
   division", 1985; hyperelliptic.org/EFD, "Jacobian coordinates with a4=-3 for short Weierstrass curves". */
#include <string.h>

#include "core.h"

#if HUSHMOTE_WITH_P256

/* A number has 256 bits in 16-bit limbs, lowest first: the product of two limbs plus two limbs fits in 32 bits, which
   every chip can multiply. p and n are prime; n is the order of the base point. */
#define LIMBS 16

typedef uint16_t number[LIMBS];

static const number P = {0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0xffff, 0x0000, 0x0000,
                         0x0000, 0x0000, 0x0000, 0x0000, 0x0001, 0x0000, 0xffff, 0xffff};
static const number N = {0x2551, 0xfc63, 0xcac2, 0xf3b9, 0x9e84, 0xa717, 0xfaad, 0xbce6,
                         0xffff, 0xffff, 0xffff, 0xffff, 0x0000, 0x0000, 0xffff, 0xffff};
static const number B = {0x604b, 0x27d2, 0x3c3e, 0x3bce, 0xb0f6, 0xcc53, 0x06b0, 0x651d,
                         0x86bc, 0x7698, 0xbd55, 0xb3eb, 0x93e7, 0xaa3a, 0x35d8, 0x5ac6};
static const number BASE_X = {0xc296, 0xd898, 0x3945, 0xf4a1, 0x33a0, 0x2deb, 0x7d81, 0x7703,
                              0x40f2, 0x63a4, 0xe6e5, 0xf8bc, 0x4247, 0xe12c, 0xd1f2, 0x6b17};
static const number BASE_Y = {0x51f5, 0x37bf, 0x4068, 0xcbb6, 0x5ece, 0x6b31, 0x3357, 0x2bce,
                              0x9e16, 0x7c0f, 0xeb4a, 0x8ee7, 0x7f9b, 0xfe1a, 0x42e2, 0x4fe3};

/* Constants for multiplication modulo an odd number. The Montgomery form of x is x * 2^256 modulo that number. */
struct modulus {
    const uint16_t *value;
    number one, square; /* 2^256 and 2^512 modulo value: 1 in Montgomery form, and the factor that converts to it */
    uint16_t inverse;   /* inverse of -value modulo 2^16 */
};

/* Points in Montgomery form: (x, y), and (x / z^2, y / z^3) with z = 0 for the point at infinity. */
struct affine {
    number x, y;
};
struct point {
    number x, y, z;
};

static bool is_zero(const number a) {
    static const number ZERO = {0};
    return memcmp(a, ZERO, sizeof ZERO) == 0;
}

static bool is_equal(const number a, const number b) {
    return memcmp(a, b, sizeof(number)) == 0;
}

/* Set to = a + b and return the carry. */
static uint16_t add(number to, const number a, const number b) {
    uint32_t carry = 0;
    for (int i = 0; i < LIMBS; i++) {
        carry += (uint32_t)a[i] + b[i];
        to[i] = (uint16_t)carry;
        carry >>= 16;
    }
    return (uint16_t)carry;
}

/* Set to = a - b and return the borrow, which is 1 if a < b. */
static uint16_t subtract(number to, const number a, const number b) {
    uint32_t borrow = 0;
    for (int i = 0; i < LIMBS; i++) {
        borrow = (uint32_t)a[i] - b[i] - borrow;
        to[i] = (uint16_t)borrow;
        borrow = borrow >> 16 & 1;
    }
    return (uint16_t)borrow;
}

static bool is_below(const number a, const number b) {
    number difference;
    return subtract(difference, a, b) != 0;
}

/* Reduce to + carry * 2^256, which must be below twice the modulus. */
static void reduce(number to, uint16_t carry, const struct modulus *m) {
    if (carry || !is_below(to, m->value))
        subtract(to, to, m->value);
}

static void add_modulo(number to, const number a, const number b, const struct modulus *m) {
    reduce(to, add(to, a, b), m);
}

static void subtract_modulo(number to, const number a, const number b, const struct modulus *m) {
    if (subtract(to, a, b))
        add(to, to, m->value);
}

/* Add a * factor to LIMBS + 2 limbs. */
static void add_product(uint16_t *to, const uint16_t *a, uint32_t factor) {
    uint32_t carry = 0;
    for (int i = 0; i < LIMBS; i++) {
        carry += to[i] + a[i] * factor;
        to[i] = (uint16_t)carry;
        carry >>= 16;
    }
    carry += to[LIMBS];
    to[LIMBS] = (uint16_t)carry;
    to[LIMBS + 1] = (uint16_t)(to[LIMBS + 1] + (carry >> 16));
}

/* Set to = a * b / 2^256 modulo m. At least one of a and b must be below m. */
static void multiply(number to, const number a, const number b, const struct modulus *m) {
    uint16_t sum[2 * LIMBS + 1] = {0};
    for (int i = 0; i < LIMBS; i++) { /* each step clears the lowest limb */
        add_product(sum + i, b, a[i]);
        add_product(sum + i, m->value, (uint16_t)((uint32_t)sum[i] * m->inverse));
    }
    memcpy(to, sum + LIMBS, sizeof(number));
    reduce(to, sum[2 * LIMBS], m);
}

static void set_modulus(struct modulus *m, const number value) {
    static const number ZERO = {0};
    m->value = value;
    m->inverse = 1;
    for (int i = 0; i < 4; i++) /* Newton's method: each step doubles the number of correct bits */
        m->inverse = (uint16_t)(m->inverse * (2u + (uint32_t)value[0] * m->inverse));
    subtract(m->one, ZERO, value); /* correct because value is above 2^255 */
    memcpy(m->square, m->one, sizeof(number));
    for (int i = 0; i < 256; i++)
        add_modulo(m->square, m->square, m->square, m);
}

static bool bit(const number a, int i) {
    return a[i >> 4] >> (i & 15) & 1;
}

/* Set to = 1 / a modulo a prime m, as a^(m - 2) (Fermat's little theorem). */
static void invert(number to, const number a, const struct modulus *m) {
    static const number TWO = {2};
    number exponent;
    subtract(exponent, m->value, TWO);
    memcpy(to, m->one, sizeof(number));
    for (int i = 255; i >= 0; i--) {
        multiply(to, to, to, m);
        if (bit(exponent, i))
            multiply(to, to, a, m);
    }
}

/* No point on this curve has y = 0. The point at infinity stays at infinity because its z is 0. */
static void double_point(struct point *a, const struct modulus *p) {
    number zz, yy, beta, slope;
    multiply(zz, a->z, a->z, p);
    multiply(yy, a->y, a->y, p);
    multiply(a->z, a->y, a->z, p);
    add_modulo(a->z, a->z, a->z, p);
    multiply(beta, a->x, yy, p); /* 4 * x * y^2 */
    add_modulo(beta, beta, beta, p);
    add_modulo(beta, beta, beta, p);
    add_modulo(slope, a->x, zz, p); /* 3 * (x - z^2) * (x + z^2) */
    subtract_modulo(zz, a->x, zz, p);
    multiply(zz, slope, zz, p);
    add_modulo(slope, zz, zz, p);
    add_modulo(slope, slope, zz, p);
    multiply(a->x, slope, slope, p); /* x = slope^2 - 2 * beta */
    subtract_modulo(a->x, a->x, beta, p);
    subtract_modulo(a->x, a->x, beta, p);
    subtract_modulo(beta, beta, a->x, p); /* y = slope * (beta - x) - 8 * y^4 */
    multiply(a->y, slope, beta, p);
    add_modulo(yy, yy, yy, p);
    multiply(yy, yy, yy, p);
    add_modulo(yy, yy, yy, p);
    subtract_modulo(a->y, a->y, yy, p);
}

/* Add a point. Return true if the points are equal, in which case the formula does not apply: double the point instead. */
static bool add_point(struct point *a, const struct affine *other, const struct modulus *p) {
    number zz, dx, dy, square;
    if (is_zero(a->z)) {
        memcpy(a->x, other->x, sizeof(number));
        memcpy(a->y, other->y, sizeof(number));
        memcpy(a->z, p->one, sizeof(number));
        return false;
    }
    multiply(zz, a->z, a->z, p);
    multiply(dx, other->x, zz, p);
    subtract_modulo(dx, dx, a->x, p);
    multiply(dy, zz, a->z, p);
    multiply(dy, dy, other->y, p);
    subtract_modulo(dy, dy, a->y, p);
    if (is_zero(dx) && is_zero(dy))
        return true;
    multiply(a->z, a->z, dx, p); /* 0 (infinity) if the points are opposite */
    multiply(square, dx, dx, p);
    multiply(dx, dx, square, p);
    multiply(square, a->x, square, p);
    multiply(a->x, dy, dy, p); /* x = dy^2 - dx^3 - 2 * x * dx^2 */
    subtract_modulo(a->x, a->x, dx, p);
    subtract_modulo(a->x, a->x, square, p);
    subtract_modulo(a->x, a->x, square, p);
    subtract_modulo(square, square, a->x, p); /* y = dy * (x_before * dx^2 - x) - y * dx^3 */
    multiply(dy, dy, square, p);
    multiply(a->y, a->y, dx, p);
    subtract_modulo(a->y, dy, a->y, p);
    return false;
}

static void read_number(number to, const uint8_t bytes[32]) {
    for (int i = 0; i < LIMBS; i++)
        to[i] = (uint16_t)(bytes[30 - 2 * i] << 8 | bytes[31 - 2 * i]);
}

/* Set a point from its coordinates; return whether it is on the curve. */
static bool set_point(struct affine *point, const number x, const number y, const struct modulus *p) {
    number left, right, three;
    multiply(point->x, x, p->square, p);
    multiply(point->y, y, p->square, p);
    multiply(left, point->y, point->y, p);
    multiply(right, point->x, point->x, p); /* y^2 = (x^2 - 3) * x + b */
    add_modulo(three, p->one, p->one, p);
    add_modulo(three, three, p->one, p);
    subtract_modulo(right, right, three, p);
    multiply(right, right, point->x, p);
    multiply(three, B, p->square, p);
    add_modulo(right, right, three, p);
    return is_below(x, P) && is_below(y, P) && is_equal(left, right);
}

/* Return whether a point's x equals r modulo n. */
static bool has_x(const struct point *point, number r, const struct modulus *p) {
    number zz, x;
    multiply(zz, point->z, point->z, p);
    while (true) { /* x is below p, so it is r or r + n */
        multiply(x, r, p->square, p);
        multiply(x, x, zz, p);
        if (is_equal(x, point->x))
            return !is_zero(zz);
        if (add(r, r, N) || !is_below(r, P))
            return false;
    }
}

/* u = digest / s and v = r / s modulo n; return false if r or s is out of range. */
static bool set_factors(number u, number v, const number r, const uint8_t digest[32], const uint8_t s_bytes[32]) {
    struct modulus n;
    number s;
    set_modulus(&n, N);
    read_number(s, s_bytes);
    if (is_zero(r) || !is_below(r, N) || is_zero(s) || !is_below(s, N))
        return false;
    subtract(u, N, s);
    if (is_below(u, s)) /* s is in the upper half; accepting it would let anyone derive a second valid signature */
        return false;
    multiply(s, s, n.square, &n);
    invert(v, s, &n); /* v stays in Montgomery form, so its products are in normal form */
    read_number(u, digest);
    multiply(u, u, v, &n);
    multiply(v, r, v, &n);
    return true;
}

bool hm_p256_verify(const uint8_t key[64], const uint8_t digest[32], const uint8_t signature[64]) {
    struct modulus p;
    struct affine base, other;
    struct point sum;
    number r, u, v;
    set_modulus(&p, P);
    set_point(&base, BASE_X, BASE_Y, &p);
    read_number(u, key);
    read_number(v, key + 32);
    read_number(r, signature);
    if (!set_point(&other, u, v, &p) || !set_factors(u, v, r, digest, signature + 32))
        return false;
    /* Compute u * base + v * key in one pass over the bits of both. */
    memset(&sum, 0, sizeof sum);
    for (int i = 255; i >= 0; i--) {
        double_point(&sum, &p);
        if (bit(u, i) && add_point(&sum, &base, &p))
            double_point(&sum, &p);
        if (bit(v, i) && add_point(&sum, &other, &p))
            double_point(&sum, &p);
    }
    return has_x(&sum, r, &p);
}

#endif
