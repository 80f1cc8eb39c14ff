/* Bins on a logarithmic scale, for numbers with "scale": "log".

   The edges are integers in thousandths: low, then each edge plus max(1, floor(edge * growth / 2^20)), with the largest
   growth for which the last of them does not exceed high, which then replaces it. All of them are computed again for
   every reading rather than stored, so the number of steps does not depend on the reading. */
#include "core.h"

#include <string.h>

#if HUSHMOTE_WITH_SCALE

#define MAX_BINS 256
#define UNIT_BITS 20   /* growth is in units of 2^-20 */
#define GROWTH_BITS 40 /* edges and growth are at most 2^40, so the products below have at most 61 bits */

static uint64_t next_edge(uint64_t edge, uint64_t growth) {
    uint64_t low_bits = edge & ((1u << UNIT_BITS) - 1);
    uint64_t step = (edge >> UNIT_BITS) * growth + (low_bits * growth >> UNIT_BITS);
    return edge + (step > 1 ? step : 1);
}

static bool fits(const struct hm_part *part, uint64_t growth) {
    uint64_t edge = (uint64_t)part->low, high = (uint64_t)part->high;
    for (uint32_t i = 0; i < part->domain && edge <= high; i++)
        edge = next_edge(edge, growth);
    return edge <= high;
}

int hm_take_scale(struct hushmote_experiment *e, struct hm_object *fields, struct hm_part *part) {
    uint64_t growth = 0;
    if (hm_json_word(hm_take(fields, HM_F_SCALE), "log") < 0 || part->low < 1 || part->domain > MAX_BINS ||
        part->domain > part->high - part->low)
        return HUSHMOTE_REFUSED;
    for (uint64_t bit = UINT64_C(1) << (GROWTH_BITS - 1); bit; bit >>= 1)
        if (fits(part, growth | bit))
            growth |= bit;
    if (!hm_keep(e, &growth, sizeof growth))
        return HUSHMOTE_REFUSED_ROOM;
    part->words = e->room_end;
    return 0;
}

uint32_t hm_bucket_scale(const struct hushmote_experiment *e, const struct hm_part *part, uint64_t milli) {
    uint64_t growth, edge = (uint64_t)part->low;
    uint32_t bins = part->domain - part->missing, at = 0;
    memcpy(&growth, e->room.bytes + part->words + 1, sizeof growth);
    for (uint32_t i = 1; i < bins; i++) {
        edge = next_edge(edge, growth);
        at += 1u - (uint32_t)((milli - edge) >> 63); /* 1 if milli is at or above the edge */
    }
    return at;
}

#endif
