/* The budget ledger stores consent, the spent budget and unacknowledged reports, and survives power cuts.

   Storage has two slots, written alternately, so a failed write leaves the current record intact. A record has the same
   format as in ldp_client.py, big-endian:
       1 format + consent (0 not asked, 1 no, 2 yes)   1 number of experiments   4 sequence number
       16 seed   6 sum of epsilon   8 sum of epsilon^2, over the board's lifetime
       per experiment: 4 first bytes of SHA-256(name)   4 last report number
                       7 rule << 54 | pinned cap   7 spent (rule count: the pinned epsilon)
       per unsent report, oldest first: 1 length   the report
       4 CRC-32
   Clients that did not ask for consent wrote FORMAT - 1, with enabled << 7 | number as the second byte. A stored opt-out
   is kept; everyone else is asked again. The record in RAM is the only state: changes are made to a copy, and take effect
   once the copy has been written to flash and read back. */
#include <string.h>

#include "core.h"

#define FORMAT 0x4e
#define HEAD_BYTES 36
#define CRC_BYTES 4
#define CAP_BITS 54

/* Update a CRC-32, which starts as 0, with more bytes. */
uint32_t hm_crc32(uint32_t crc, const void *data, size_t bytes) {
    const uint8_t *at = data;
    crc = ~crc;
    while (bytes-- > 0) {
        crc ^= *at++;
        for (int i = 0; i < 8; i++)
            crc = crc >> 1 ^ (0xedb88320u & (0u - (crc & 1)));
    }
    return ~crc;
}

uint32_t hm_seal(const struct hushmote_config *config, const char *name, const void *data, size_t bytes) {
    uint32_t crc = hm_crc32(0, config->fleet, strlen(config->fleet));
    crc = hm_crc32(crc, "/", 1);
    crc = hm_crc32(crc, name, strlen(name));
    if (config->announce_key != NULL)
        crc = hm_crc32(crc, config->announce_key, 64);
    return hm_crc32(crc, data, bytes);
}

/* Read a slot into a buffer and set *seen to its fingerprint. Return its length, which is above record_bytes if it does
   not fit, or below 0 if it cannot be read. */
static long read_slot(const struct hushmote_config *config, int slot, uint8_t *buffer, uint64_t *seen) {
    long length = config->read(config->context, slot, buffer, config->record_bytes);
    if (length >= 0)
        *seen = hm_fingerprint(buffer, (size_t)length, config->record_bytes);
    return length;
}

/* Convert a record to the current format and return its size without the CRC, or 0 if the record is damaged. */
static size_t upgrade_record(uint8_t *record, long length, size_t record_bytes) {
    size_t at, end;
    unsigned count;
    bool is_old;
    if (length < HEAD_BYTES + CRC_BYTES || (size_t)length > record_bytes)
        return 0;
    end = (size_t)length - CRC_BYTES;
    is_old = record[0] == FORMAT - 1;
    if (hm_get(record + end, CRC_BYTES) != hm_crc32(0, record, end) || record[0] < FORMAT - 1 || record[0] > FORMAT + 2)
        return 0;
    count = is_old ? record[1] & 127u : record[1];
    at = HEAD_BYTES + (size_t)HM_ENTRY_BYTES * count;
    while (at < end && record[at] >= 1 && record[at] <= HUSHMOTE_REPORT_BYTES)
        at += 1u + record[at];
    if (at != end)
        return 0;
    if (is_old) { /* do not send reports that were made before anyone opted in */
        record[0] = (uint8_t)(FORMAT + 1 - (record[1] >> 7));
        record[1] = (uint8_t)count;
        end = HEAD_BYTES + (size_t)HM_ENTRY_BYTES * count;
    }
    return end;
}

static uint32_t sequence(const uint8_t *record) {
    return (uint32_t)hm_get(record + 2, 4);
}

/* Make the next record current, and reuse the old one's buffer for the next. */
static void swap_records(struct hushmote *client) {
    uint8_t *record = client->record;
    client->record = client->next;
    client->next = record;
    client->record_bytes_used = client->next_bytes_used;
}

/* Make an empty record with sequence number 0 current, without writing it to flash. */
static void clear_record(struct hushmote *client) {
    memset(client->record, 0, HEAD_BYTES);
    client->record[0] = FORMAT;
    client->record_bytes_used = HEAD_BYTES;
}

/* Load the record from the slots. Both must be intact and one commit apart: a lost or damaged slot could have been the
   newer one, and continuing from the other would undo a debit. */
static int load_record(struct hushmote *client) {
    const struct hushmote_config *config = client->config;
    long first = read_slot(config, 0, client->record, &client->seen[0]), second;
    uint32_t number, step;
    if (first < 0)
        return HUSHMOTE_STORAGE;
    second = read_slot(config, 1, client->next, &client->seen[1]);
    if (second < 0)
        return HUSHMOTE_STORAGE;
    client->record_bytes_used = upgrade_record(client->record, first, config->record_bytes);
    client->next_bytes_used = upgrade_record(client->next, second, config->record_bytes);
    number = client->record_bytes_used ? sequence(client->record) : 0;
    if (second == 0 && (first == 0 || number == 1)) /* left by an interrupted provision() */
        return HUSHMOTE_NO_LEDGER;
    step = sequence(client->next) - number;
    if (!client->next_bytes_used || !(number & 1) || (step != 1 && step != UINT32_MAX))
        return HUSHMOTE_LOCKED;
    if (step == 1)
        swap_records(client);
    return HUSHMOTE_OK;
}

void hm_open(struct hushmote *client) {
    client->record = client->config->records;
    client->next = client->record + client->config->record_bytes;
    client->locked = (int8_t)load_record(client);
    if (client->locked != HUSHMOTE_OK)
        clear_record(client);
}

/* Start a new ledger, regardless of the slots' contents; hm_open() must have read them. */
void hm_renew(struct hushmote *client) {
    client->locked = HUSHMOTE_OK;
    clear_record(client);
}

enum hushmote_consent hm_consent(const struct hushmote *client) {
    return (enum hushmote_consent)(client->record[0] - FORMAT);
}

uint64_t hm_sum(const struct hushmote *client) {
    return hm_get(client->record + 22, 6);
}

uint64_t hm_squares(const struct hushmote *client) {
    return hm_get(client->record + 28, 8);
}

/* Return how many times cost * factor fits between the spent budget and a bound. */
uint32_t hm_times(uint64_t bound, uint64_t spent, uint32_t cost, uint32_t factor) {
    if (spent >= bound)
        return 0;
    bound = (bound - spent) / cost / factor;
    return bound < UINT32_MAX ? (uint32_t)bound : UINT32_MAX;
}

bool hm_entry(const struct hushmote *client, struct hm_entry *entry) {
    const uint8_t *line = client->record + HEAD_BYTES;
    unsigned count = client->record[1];
    uint64_t pinned;
    while (count > 0 && memcmp(line, entry->key, 4) != 0) {
        line += HM_ENTRY_BYTES;
        count--;
    }
    entry->at = (size_t)(line - client->record);
    if (count == 0)
        return false;
    pinned = hm_get(line + 8, 7);
    entry->number = (uint32_t)hm_get(line + 4, 4);
    entry->rule = (uint8_t)(pinned >> CAP_BITS);
    entry->cap = pinned & ((UINT64_C(1) << CAP_BITS) - 1);
    entry->spent = hm_get(line + 15, 7);
    return true;
}

size_t hm_unsent_at(const struct hushmote *client) {
    return HEAD_BYTES + (size_t)HM_ENTRY_BYTES * client->record[1];
}

bool hm_fits(const struct hushmote *client, const struct hm_entry *entry) {
    size_t needed = client->record_bytes_used + CRC_BYTES + 1 + HUSHMOTE_REPORT_BYTES;
    if (entry->at == hm_unsent_at(client))
        needed += HM_ENTRY_BYTES;
    return needed <= client->config->record_bytes;
}

/* Check that no other client has written to the slots, because two clients on one ledger would spend the budget twice.
   Uses the next record's buffer. */
static int check_unchanged(struct hushmote *client, int slot) {
    uint64_t current, other;
    if (read_slot(client->config, slot, client->next, &current) < 0 ||
        read_slot(client->config, 1 - slot, client->next, &other) < 0)
        return HUSHMOTE_STORAGE;
    if (other != client->seen[1 - slot] || (current != client->seen[slot] && current != client->tried))
        return client->locked = HUSHMOTE_ANOTHER;
    return HUSHMOTE_OK;
}

static int next_slot(const struct hushmote *client) { /* records with odd sequence numbers go into slot 0 */
    return (int)(sequence(client->record) & 1);
}

int hm_prepare(struct hushmote *client, enum hushmote_consent consent) {
    uint8_t *next = client->next;
    int code = client->locked;
    if (code == HUSHMOTE_OK && sequence(client->record) == UINT32_MAX)
        code = HUSHMOTE_WORN_OUT;
    if (code == HUSHMOTE_OK)
        code = check_unchanged(client, next_slot(client));
    memcpy(next, client->record, client->record_bytes_used);
    next[0] = (uint8_t)(FORMAT + consent);
    hm_put(next + 2, 4, sequence(next) + 1u);
    client->next_bytes_used = client->record_bytes_used;
    return code;
}

void hm_debit(struct hushmote *client, uint32_t epsilon, const struct hm_entry *entry) {
    size_t end = hm_unsent_at(client);
    uint8_t *next = client->next, *line = next + entry->at;
    hm_put(next + 22, 6, hm_sum(client) + epsilon);
    hm_put(next + 28, 8, hm_squares(client) + (uint64_t)epsilon * epsilon);
    if (entry->at == end) { /* the experiment's first report */
        next[1]++;
        memcpy(line + HM_ENTRY_BYTES, client->record + end, client->record_bytes_used - end);
        client->next_bytes_used += HM_ENTRY_BYTES;
    }
    memcpy(line, entry->key, 4);
    hm_put(line + 4, 4, entry->number);
    hm_put(line + 8, 7, (uint64_t)entry->rule << CAP_BITS | entry->cap);
    hm_put(line + 15, 7, entry->spent);
}

void hm_drop(struct hushmote *client, size_t at, size_t bytes) {
    client->next_bytes_used -= bytes;
    memcpy(client->next + at, client->record + at + bytes, client->next_bytes_used - at);
}

int hm_commit(struct hushmote *client, int code) {
    const struct hushmote_config *config = client->config;
    int slot = next_slot(client);
    size_t end = client->next_bytes_used;
    if (code != HUSHMOTE_OK)
        return code;
    hm_put(client->next + end, CRC_BYTES, hm_crc32(0, client->next, end));
    end += CRC_BYTES;
    client->tried = hm_fingerprint(client->next, end, end);
    code = config->write(config->context, slot, client->next, end);
    if (read_slot(config, slot, client->next, &client->seen[slot]) < 0 || /* reads even after a failed write */
        code != 0 || client->seen[slot] != client->tried)
        return HUSHMOTE_STORAGE;
    swap_records(client);
    return HUSHMOTE_OK;
}
