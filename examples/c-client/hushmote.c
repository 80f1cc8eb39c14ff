#include "hushmote.h"

#include <math.h>
#include <string.h>

#define ONE 1073741824.0 /* 2^30 */
#define MOST_CODES (1u << 24)

uint32_t hm_threshold(uint32_t epsilon, uint32_t g) {
    if (epsilon < 1000 || epsilon > 16000000 || g < 2 || g > MOST_CODES) return 0;
    /* exp() is right to a unit or two in the last place; 2^-48 covers it and the four steps after it. */
    double p = ONE / (1 + (g - 1) * exp(-(epsilon / 1e6)));
    double slip = p / 281474976710656.0;
    uint32_t low = (uint32_t)floor(p - slip), high = (uint32_t)floor(p + slip);
    return low == high ? low : 0;
}

static bool is_prime(uint32_t n) {
    for (uint32_t i = 2; i * i <= n; i++)
        if (n % i == 0) return false;
    return n > 1;
}

static bool add_level(hm_experiment *e, uint32_t width, uint32_t g, uint32_t weight) {
    hm_level *l = &e->level[e->level_count++];
    uint64_t size = 1;
    l->width = width;
    l->nodes = (e->domain + width - 1) / width;
    l->g = g;
    l->weight = weight;
    l->offset = e->code_count;
    l->t = 0;
    if (g != l->nodes) {
        if (g > l->nodes || g > 65536 || !is_prime(g)) return false;
        for (; size < l->nodes; l->t++) size *= g;
    }
    l->seeds = l->t ? (uint32_t)(size - 1) : 1; /* size < nodes * g <= 2^40: judged before it is used */
    if (size > MOST_CODES || (uint64_t)l->seeds * g + e->code_count > MOST_CODES) return false;
    l->threshold = hm_threshold(e->epsilon, g);
    e->code_count += l->seeds * g;
    e->weight_sum += weight;
    return (uint64_t)l->threshold * g > 1u << 30;
}

bool hm_derive(hm_experiment *e) {
    static const uint32_t once = 1;
    uint64_t nodes = 1;
    uint32_t height = 0, width = 1;
    e->level_count = e->weight_sum = e->code_count = 0;
    e->domain = e->type == HM_BOOL ? 2 : e->type == HM_CHOICE ? e->label_count + 1 : e->bins;
    if (e->domain < 2 || e->domain > MOST_CODES || e->every < 1 || e->every > MOST_CODES) return false;
    if (e->type == HM_NUMBER && (e->low >= e->high || e->low < -(1LL << 40) || e->high > 1LL << 40)) return false;
    if (e->rule != HM_UNLIMITED && (e->cap < 1 || e->cap >= 1ULL << 54)) return false;
    if (e->mechanism == HM_HH) {
        if (e->fanout < 2 || e->fanout > e->domain) return false;
        for (; nodes < e->domain; height++) nodes *= e->fanout;
        if (e->cell_count != height || e->weights[height - 1] == 0) return false;
        for (uint32_t i = 1; i < height; i++) width *= e->fanout;
        for (uint32_t i = 0; i < height; i++, width /= e->fanout)
            if (e->weights[i] > 65535 || !add_level(e, width, e->cells[i], e->weights[i])) return false;
    } else {
        if (e->mechanism == HM_RR && e->domain != 2) return false;
        if (e->mechanism == HM_OLH && e->g >= e->domain) return false;
        if (!add_level(e, 1, e->mechanism == HM_OLH ? e->g : e->domain, once)) return false;
    }
    e->code_bytes = e->code_count <= 1u << 8 ? 1 : e->code_count <= 1u << 16 ? 2 : 3;
    return true;
}

/* floor(a D / range) for a < range <= 2^41, bit by bit: the product has up to 65 bits. */
static uint32_t bin(uint64_t a, uint32_t domain, uint64_t range) {
    uint64_t quotient = 0, rest = 0;
    for (int bit = 24; bit >= 0; bit--) {
        rest = 2 * rest + (domain >> bit & 1 ? a : 0);
        quotient = 2 * quotient + rest / range;
        rest %= range;
    }
    return (uint32_t)quotient;
}

uint32_t hm_bucket(const hm_experiment *e, double number, const char *label, hm_random *random) {
    double milli = number * 1000;
    if (e->type == HM_CHOICE ? label == NULL : isnan(number)) return random->below(random->context, e->domain);
    switch (e->type) {
    case HM_CHOICE:
        for (uint32_t i = 0; i < e->label_count; i++)
            if (strcmp(e->labels[i], label) == 0) return i;
        return e->label_count;
    case HM_BOOL: return number != 0;
    default: break;
    }
    if (milli >= (double)e->high) return e->domain - 1;
    if (milli < (double)e->low) return 0;
    int64_t m = (int64_t)floor(milli + 0.5);
    return m >= e->high ? e->domain - 1 : bin((uint64_t)(m - e->low), e->domain, (uint64_t)(e->high - e->low));
}

uint32_t hm_randomize(const hm_experiment *e, uint32_t index, hm_random *random) {
    const hm_level *l = e->level;
    if (e->level_count > 1) {
        uint32_t draw = random->below(random->context, e->weight_sum);
        for (; draw >= l->weight; l++) draw -= l->weight;
    }
    uint32_t node = index / l->width, cell = node, seed = 1;
    if (l->t) {
        seed += random->below(random->context, l->seeds);
        uint64_t sum = 0;
        uint32_t rest = seed;
        for (uint32_t i = 0; i < l->t; i++, node /= l->g, rest /= l->g) sum += (uint64_t)(node % l->g) * (rest % l->g);
        cell = (uint32_t)(sum % l->g);
    }
    /* Both are always drawn: the time taken does not tell a lie from the truth. */
    bool truthful = random->bernoulli(random->context, l->threshold);
    uint32_t other = 1 + random->below(random->context, l->g - 1);
    cell = (cell + (truthful ? 0 : other)) % l->g;
    return l->offset + (seed - 1) * l->g + cell;
}

int hm_report(const hm_experiment *e, uint32_t number, uint32_t code, uint8_t bytes[HM_REPORT_BYTES]) {
    uint8_t *b = bytes;
    *b++ = 0x10;
    memcpy(b, e->digest, 4);
    b += 4;
    for (int shift = 24; shift >= 0; shift -= 8) *b++ = (uint8_t)(number >> shift);
    for (int shift = 8 * (int)e->code_bytes - 8; shift >= 0; shift -= 8) *b++ = (uint8_t)(code >> shift);
    return (int)(b - bytes);
}

uint64_t hm_cost(const hm_experiment *e) {
    uint64_t epsilon = e->epsilon;
    return e->rule == HM_SUM ? epsilon : e->rule == HM_SQUARES ? epsilon * epsilon : 1;
}
