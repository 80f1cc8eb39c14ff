/* Unlisted texts: a text's index is its slot, a salted hash of its bytes.

   With prefixes, which are lengths in bytes, a text has one slot for each prefix. Every text has a slot, so whether a
   report is made never depends on the text. Texts that share a slot cannot be distinguished; which texts share a slot
   depends on the salt. */
#include "core.h"

#include <string.h>

#if HUSHMOTE_WITH_TEXT

#define MAX_TEXT 255 /* bytes; the rest of a text is ignored */
#define MAX_PREFIXES 16

/* Return the number of prefixes, whose lengths must not decrease; 0 if they are invalid. */
static uint8_t take_prefixes(const uint8_t *length, uint8_t prefixes[MAX_PREFIXES]) {
    uint32_t min_length = 1;
    uint8_t count = 0;
    while (length && count < MAX_PREFIXES) {
        min_length = hm_json_each(&length, min_length, 16); /* must not be below the previous length */
        if (min_length == HM_NONE)
            return 0;
        prefixes[count++] = (uint8_t)min_length;
    }
    return length ? 0 : count;
}

int hm_take_text(struct hushmote_experiment *e, struct hm_object *fields, struct hm_part *part) {
    const uint8_t *salt = hm_take(fields, HM_F_SALT);
    uint8_t prefixes[MAX_PREFIXES], count = 0;
    int length = hm_json_length(salt);
    e->slots = hm_take_number(fields, HM_F_SLOTS, 2, 1u << 20);
    if (length < 1 || length > 32 || e->slots == HM_NONE || (e->slots & (e->slots - 1)) != 0)
        return HUSHMOTE_REFUSED;
    if (fields->at[HM_F_PREFIXES]) {
        count = take_prefixes(hm_json_list(hm_take(fields, HM_F_PREFIXES)), prefixes);
        if (count == 0)
            return HUSHMOTE_REFUSED;
    }
    if (!hm_keep(e, prefixes, count) || !hm_keep(e, salt + 1, (size_t)length))
        return HUSHMOTE_REFUSED_ROOM;
    part->words = e->room_end;
    for (part->domain = e->slots; count > 1; count--)
        part->domain = part->domain > HM_MAX_CODES / e->slots ? HM_MAX_CODES + 1 : part->domain * e->slots;
    return 0;
}

/* Return the first 8 bytes of SHA-256(salt, number, text, zeros) modulo slots, which is at most 2^20. */
static uint32_t slot_of(const struct hushmote_config *config, const struct hushmote_experiment *e, uint8_t number,
                        const uint8_t *text, size_t bytes, size_t zeros) {
    static const uint8_t zero_bytes[MAX_PREFIXES];
    const uint8_t *salt = e->room.bytes + hm_part(e, 0)->words;
    struct hushmote_piece pieces[4] = {{salt + 1, *salt}, {&number, 1}, {text, bytes}, {zero_bytes, zeros}};
    uint8_t digest[32];
    hm_sha256(config, pieces, 4, digest);
    return (uint32_t)hm_get(digest, 8) & (e->slots - 1);
}

int hm_bucket_text(const struct hushmote_config *config, const struct hushmote_experiment *e,
                   const struct hushmote_reading *reading, struct hm_index *index) {
    const uint8_t *prefixes = e->room.bytes + hm_part(e, 0)->words;
    const uint8_t *text = reading->count ? (const uint8_t *)reading->data : (const uint8_t *)"";
    size_t bytes = reading->count < MAX_TEXT ? reading->count : MAX_TEXT;
    if (reading->kind != HUSHMOTE_IS_TEXT)
        return HUSHMOTE_WRONG_TYPE;
    prefixes += 1 + *prefixes;
    if (*prefixes == 0)
        index->at = slot_of(config, e, 0, text, bytes, 0);
    for (uint8_t i = *prefixes; i > 0; i--) {
        size_t length = prefixes[i], used = bytes < length ? bytes : length;
        uint32_t slot = slot_of(config, e, i, text, used, length - used);
        index->at = index->at * e->slots + slot; /* meaningless if the domain is above 2^24 */
#if HUSHMOTE_WITH_PREFIX
        index->slots[i - 1] = slot;
#endif
    }
    return 0;
}

#endif
