/* A model of ESP-IDF's NVS: the order in which it writes flash, and how a start recovers flash after a power cut.

   A page has 126 entries of 32 bytes, with two state bits each, which are written for 16 entries at a time. A string is
   a header and its data in consecutive entries of one page. A blob is such an item with a different kind of header,
   followed by an index. A start removes items that have a newer item with the same name on the newest page, and then
   blobs without an index. So if a blob's index was not written, it removes both the old and the new blob. */
#include "nvs.h"

#include <stdbool.h>
#include <string.h>

#include "../flash_model.h"
#include "nvs_flash.h"

#ifndef PAGES
#define PAGES 3
#endif
#define ENTRIES 126
#define ENTRY_BYTES 32
#define NOWHERE ENTRIES
#define DATA_MAX 4000
#define ANY 255
#ifndef NVS_OVERWRITES_ERASED
#define NVS_OVERWRITES_ERASED false /* true: with zeros, as ESP-IDF does since 6.0.1 */
#endif

#ifndef NVS_HAS_IDENTITY
#define NVS_HAS_IDENTITY true /* whether there is a partition "identity" */
#endif

#ifndef NVS_LOSES_UNCOMMITTED
#define NVS_LOSES_UNCOMMITTED false /* true: a start finds what nvs_commit() has written, the least that ESP-IDF promises */
#endif

enum kind { NUMBER = 1, STRING = 0x21, BLOB_DATA = 0x42, BLOB_INDEX = 0x48 };
enum state { FREE = 3, WRITTEN = 2, ERASED = 0 };
enum page_state { UNUSED, ACTIVE, FULL, FREEING };

struct item { /* an item's first entry */
    uint8_t space, kind, span, chunk;
    char key[16];
    uint32_t bytes; /* size of a string, a blob's data, or a whole blob */
    uint8_t first, count; /* chunks of a blob's data */
    uint8_t padding[2], seal[4];
};

static const uint8_t SEAL[4] = {0x5a, 1, 0xa5, 2}; /* in place of a CRC-32 */

struct image {
    enum page_state state;
    uint32_t sequence;
    uint8_t states[ENTRIES];
    uint8_t entries[ENTRIES][ENTRY_BYTES];
};

struct page { /* a page's state in the driver's RAM */
    enum page_state state;
    uint32_t sequence;
    uint8_t states[ENTRIES];
    bool listed[ENTRIES]; /* whether it is in the list used to find items */
    unsigned first, next;
};

static struct image flash[PAGES], committed[PAGES];
static struct page pages[PAGES];
static unsigned order[PAGES], used, spare[PAGES], spares; /* pages in order of sequence number, and unused pages */
static uint32_t sequence;

/* --- One page ------------------------------------------------------------------------------------------------- */

static void write_states(unsigned at, unsigned entry) {
    unsigned begin = entry / 16 * 16;
    flash_operation();
    for (unsigned i = begin; i < begin + 16 && i < ENTRIES; i++)
        flash[at].states[i] = pages[at].states[i];
}

static void set_states(unsigned at, unsigned begin, unsigned end, enum state state) {
    for (unsigned i = end; i-- > begin;) {
        pages[at].states[i] = (uint8_t)state;
        if (i == begin || i / 16 != (i - 1) / 16)
            write_states(at, i);
    }
}

static void set_page_state(unsigned at, enum page_state state) {
    flash_operation();
    flash[at].state = pages[at].state = state;
}

static void forget_page(unsigned at) {
    memset(&pages[at], 0, sizeof pages[at]);
    memset(pages[at].states, FREE, sizeof pages[at].states);
    pages[at].first = NOWHERE;
}

static void erase_page(unsigned at) {
    flash_operation();
    memset(&flash[at], 0xff, sizeof flash[at]);
    memset(flash[at].states, FREE, sizeof flash[at].states);
    flash[at].state = UNUSED;
    forget_page(at);
}

static struct item item_at(unsigned at, unsigned entry) {
    struct item item;
    memcpy(&item, flash[at].entries[entry], sizeof item);
    return item;
}

static bool is_whole(const struct item *item, unsigned entry) {
    return memcmp(item->seal, SEAL, sizeof SEAL) == 0 && item->span > 0 && entry + item->span <= ENTRIES;
}

static bool has_data(const struct item *item) {
    return item->kind == STRING || item->kind == BLOB_DATA;
}

static void write_entries(unsigned at, const void *data, unsigned count, size_t bytes) {
    struct page *page = &pages[at];
    flash_operation();
    memset(flash[at].entries[page->next], 0xff, (size_t)count * ENTRY_BYTES);
    memcpy(flash[at].entries[page->next], data, bytes);
    set_states(at, page->next, page->next + count, WRITTEN);
    if (page->first == NOWHERE)
        page->first = page->next;
    page->next += count;
}

static void erase_item(unsigned at, unsigned entry) {
    struct page *page = &pages[at];
    struct item item = item_at(at, entry);
    unsigned span = page->states[entry] == WRITTEN && is_whole(&item, entry) ? item.span : 1;
    page->listed[entry] = false;
    set_states(at, entry, entry + span, ERASED);
    for (unsigned i = entry; NVS_OVERWRITES_ERASED && i < entry + span; i++) {
        flash_operation();
        memset(flash[at].entries[i], 0, ENTRY_BYTES);
    }
    if (entry == page->first) {
        page->first = NOWHERE;
        for (unsigned i = entry + span; i < page->next && page->first == NOWHERE; i++) {
            if (page->states[i] == WRITTEN)
                page->first = i;
        }
    }
    if (entry + span > page->next)
        page->next = entry + span;
}

/* Return the first entry at or after `from` with this item's name, of any kind, or NOWHERE. */
static unsigned same_name(unsigned at, unsigned from, const struct item *item) {
    for (unsigned i = from; i < ENTRIES; i++) {
        struct item other = item_at(at, i);
        if (pages[at].listed[i] && other.space == item->space && other.chunk == item->chunk &&
            strncmp(other.key, item->key, sizeof other.key) == 0)
            return i;
    }
    return NOWHERE;
}

/* Return the first item at or after an entry; a NULL key matches any name. */
static unsigned find_on(unsigned at, unsigned from, unsigned space, unsigned kind, const char *key, unsigned chunk) {
    const struct page *page = &pages[at];
    unsigned step;
    if (page->state == UNUSED)
        return NOWHERE;
    for (unsigned i = from > page->first ? from : page->first; i < page->next && i < ENTRIES; i += step) {
        struct item item = item_at(at, i);
        step = 1;
        if (page->states[i] != WRITTEN)
            continue;
        if (!is_whole(&item, i)) {
            erase_item(at, i);
            continue;
        }
        step = item.span;
        if ((space == ANY || item.space == space) && (kind == ANY || item.kind == kind) &&
            (key == NULL || strcmp(item.key, key) == 0) && (chunk == ANY || item.chunk == chunk))
            return i;
    }
    return NOWHERE;
}

/* Write an item; return false if it does not fit. */
static bool write_item(unsigned at, struct item item, const void *data, size_t bytes) {
    struct page *page = &pages[at];
    size_t whole = bytes - bytes % ENTRY_BYTES;
    item.span = (uint8_t)(1 + (bytes + ENTRY_BYTES - 1) / ENTRY_BYTES);
    if (page->state == UNUSED) {
        flash_operation();
        flash[at].state = page->state = ACTIVE;
        flash[at].sequence = page->sequence;
        page->next = 0;
    }
    if (page->state == FULL || page->next + item.span > ENTRIES)
        return false;
    memcpy(item.seal, SEAL, sizeof SEAL);
    page->listed[page->next] = true;
    write_entries(at, &item, 1, sizeof item);
    if (whole > 0)
        write_entries(at, data, (unsigned)(whole / ENTRY_BYTES), whole);
    if (bytes > whole)
        write_entries(at, (const uint8_t *)data + whole, 1, bytes - whole);
    return true;
}

/* Erase the active page's items that a power cut left incomplete, and those that a newer item replaces. */
static void check_active(unsigned at) {
    struct page *page = &pages[at];
    unsigned last = NOWHERE, step, older;
    struct item item = {0};
    while (page->next < ENTRIES && page->states[page->next] != FREE)
        page->next++;
    while (page->next < ENTRIES && memcmp(flash[at].entries[page->next], "\xff\xff\xff\xff", 4) != 0) {
        set_states(at, page->next, page->next + 1, ERASED);
        if (NVS_OVERWRITES_ERASED) {
            flash_operation();
            memset(flash[at].entries[page->next], 0, ENTRY_BYTES);
        }
        page->next++;
    }
    for (unsigned i = 0; i < page->next; i += step) {
        bool is_complete = true;
        step = 1;
        last = NOWHERE;
        if (page->states[i] == ERASED)
            continue;
        item = item_at(at, i);
        last = i;
        if (!is_whole(&item, i)) {
            erase_item(at, i);
            continue;
        }
        page->listed[i] = true;
        older = same_name(at, 0, &item);
        if (has_data(&item)) {
            step = item.span;
            for (unsigned j = i; j < i + step; j++)
                is_complete = is_complete && page->states[j] == WRITTEN;
        }
        if (!is_complete) {
            last = NOWHERE;
            erase_item(at, i);
        } else if (older < i) {
            erase_item(at, older);
        }
    }
    if (last != NOWHERE) { /* for any chunk: this removes the old blob that this new data replaces */
        older = find_on(at, 0, item.space, item.kind, item.key, ANY);
        if (older < last)
            erase_item(at, older);
    }
}

static void list_items(unsigned at) {
    struct page *page = &pages[at];
    unsigned step;
    for (unsigned i = page->first; i < ENTRIES; i += step) {
        struct item item = item_at(at, i);
        step = 1;
        if (page->states[i] != WRITTEN)
            continue;
        if (!is_whole(&item, i)) {
            erase_item(at, i);
            continue;
        }
        page->listed[i] = true;
        step = item.span;
        for (unsigned j = i + 1; j < i + step; j++) {
            if (page->states[j] != WRITTEN) {
                erase_item(at, i);
                break;
            }
        }
    }
}

static void load_page(unsigned at) {
    struct page *page = &pages[at];
    forget_page(at);
    page->state = flash[at].state;
    if (page->state == UNUSED)
        return;
    page->sequence = flash[at].sequence;
    memcpy(page->states, flash[at].states, ENTRIES);
    for (unsigned i = ENTRIES; i-- > 0;) {
        if (page->states[i] == WRITTEN)
            page->first = i;
    }
    page->next = page->state == ACTIVE ? 0 : ENTRIES;
    if (page->state == ACTIVE)
        check_active(at);
    else
        list_items(at);
}

/* --- All pages ------------------------------------------------------------------------------------------------ */

static unsigned newest(void) {
    return order[used - 1];
}

static bool activate_page(void) {
    unsigned at = spare[0];
    if (spares == 0)
        return false;
    memmove(spare, spare + 1, --spares * sizeof *spare);
    pages[at].sequence = sequence++;
    order[used++] = at;
    return true;
}

static void drop_page(unsigned where) {
    spare[spares++] = order[where];
    memmove(order + where, order + where + 1, (--used - where) * sizeof *order);
}

static void copy_items(unsigned from, unsigned to) {
    for (unsigned i = pages[from].first; i < ENTRIES;) {
        struct item item = item_at(from, i);
        if (pages[from].states[i] != WRITTEN) {
            i++;
            continue;
        }
        if (pages[to].state == UNUSED) {
            flash_operation();
            flash[to].state = pages[to].state = ACTIVE;
            flash[to].sequence = pages[to].sequence;
            pages[to].next = 0;
        }
        pages[to].listed[pages[to].next] = true;
        for (unsigned end = i + item.span; i < end; i++)
            write_entries(to, flash[from].entries[i], 1, ENTRY_BYTES);
    }
}

static unsigned unused_entries(unsigned at) {
    unsigned count = 0;
    for (unsigned i = 0; i < ENTRIES; i++)
        count += pages[at].states[i] != WRITTEN;
    return count;
}

static bool next_page(void) {
    unsigned best = 0;
    if (spares >= 2)
        return activate_page();
    for (unsigned i = 1; i < used; i++) {
        if (unused_entries(order[i]) > unused_entries(order[best]))
            best = i;
    }
    if (spares == 0 || unused_entries(order[best]) == 0)
        return false;
    set_page_state(order[best], FREEING);
    (void)activate_page();
    copy_items(order[best], newest());
    erase_page(order[best]);
    drop_page(best);
    return true;
}

static unsigned find(unsigned space, unsigned kind, const char *key, unsigned chunk, unsigned *entry) {
    for (unsigned i = 0; i < used; i++) {
        *entry = find_on(order[i], 0, space, kind, key, chunk);
        if (*entry != NOWHERE)
            return order[i];
    }
    return PAGES;
}

static void erase_found(unsigned space, unsigned kind, const char *key, unsigned chunk) {
    unsigned entry, at = find(space, kind, key, chunk, &entry);
    if (at < PAGES)
        erase_item(at, entry);
}

/* The newest item's predecessor may be on another page. */
static void erase_older(void) {
    unsigned entry = NOWHERE, older;
    struct item item;
    for (unsigned i = 0; (i = find_on(newest(), i, ANY, ANY, NULL, ANY)) != NOWHERE; i += item.span) {
        entry = i;
        item = item_at(newest(), i);
    }
    if (entry == NOWHERE)
        return;
    item = item_at(newest(), entry);
    for (unsigned i = 0; i + 1 < used; i++) {
        older = find_on(order[i], 0, item.space, item.kind, item.key, item.chunk);
        if (pages[order[i]].state != FREEING && older != NOWHERE) {
            erase_item(order[i], older);
            return;
        }
    }
}

/* Finish moving a page if a power cut interrupted that. */
static void finish_move(void) {
    for (unsigned i = 0; i < used; i++) {
        unsigned from = order[i];
        if (pages[from].state != FREEING)
            continue;
        if (pages[newest()].state == ACTIVE) {
            erase_page(newest());
            drop_page(used - 1);
        }
        (void)activate_page();
        copy_items(from, newest());
        erase_page(from);
        drop_page(i);
        return;
    }
}

static bool is_indexed(const struct item *data) {
    unsigned entry, at = find(data->space, BLOB_INDEX, data->key, ANY, &entry);
    struct item index = item_at(at < PAGES ? at : 0, at < PAGES ? entry : 0);
    return at < PAGES && data->chunk >= index.first && data->chunk < index.first + index.count;
}

/* Erase a blob's data without an index, and an index without all its data. */
static void check_blobs(void) {
    struct item item, data;
    for (unsigned i = 0; i < used; i++) {
        for (unsigned e = 0; (e = find_on(order[i], e, ANY, BLOB_INDEX, NULL, ANY)) != NOWHERE; e++) {
            uint32_t bytes = 0, count = 0;
            item = item_at(order[i], e);
            for (unsigned j = 0; j < used; j++) {
                for (unsigned f = 0; (f = find_on(order[j], f, item.space, BLOB_DATA, item.key, ANY)) != NOWHERE; f += data.span) {
                    data = item_at(order[j], f);
                    if ((data.chunk >= 128) == (item.first >= 128)) {
                        bytes += data.bytes;
                        count++;
                    }
                }
            }
            if (bytes != item.bytes || count != item.count)
                erase_item(order[i], e);
        }
    }
    for (unsigned i = 0; i < used; i++) {
        for (unsigned e = 0; (e = find_on(order[i], e, ANY, BLOB_DATA, NULL, ANY)) != NOWHERE; e += item.span) {
            item = item_at(order[i], e);
            if (!is_indexed(&item))
                erase_item(order[i], e);
        }
    }
}

void storage_new(void) {
    memset(flash, 0xff, sizeof flash);
    for (unsigned at = 0; at < PAGES; at++) {
        memset(flash[at].states, FREE, ENTRIES);
        flash[at].state = UNUSED;
    }
    memcpy(committed, flash, sizeof flash);
}

void storage_start(void) {
    if (NVS_LOSES_UNCOMMITTED)
        memcpy(flash, committed, sizeof flash);
    used = spares = 0;
    for (unsigned at = 0; at < PAGES; at++) {
        unsigned where = used;
        load_page(at);
        if (pages[at].state == UNUSED) {
            spare[spares++] = at;
            continue;
        }
        while (where > 0 && pages[order[where - 1]].sequence > pages[at].sequence)
            where--;
        memmove(order + where + 1, order + where, (used++ - where) * sizeof *order);
        order[where] = at;
    }
    sequence = used == 0 ? 0 : pages[newest()].sequence + 1;
    if (used == 0) {
        (void)activate_page();
    } else {
        erase_older();
        finish_move();
    }
    check_blobs();
}

/* --- The application's interface ------------------------------------------------------------------------------ */

static struct item named(unsigned space, unsigned kind, const char *key) {
    struct item item = {(uint8_t)space, (uint8_t)kind, 1, ANY, {0}, 0, 0, 0, {0}, {0}};
    strncpy(item.key, key, sizeof item.key - 1);
    return item;
}

/* Write to the newest page, or to a new one if that is full. */
static bool append(struct item item, const void *data, size_t bytes) {
    if (write_item(newest(), item, data, bytes))
        return true;
    if (pages[newest()].state != FULL)
        set_page_state(newest(), FULL);
    return next_page() && write_item(newest(), item, data, bytes);
}

/* The board's identity has a partition of its own; here it shares the flash of "hushmote", and no key. */
static bool is_partition(const char *label) {
    return strcmp(label, "hushmote") == 0 || (NVS_HAS_IDENTITY && strcmp(label, "identity") == 0);
}

esp_err_t nvs_flash_init_partition(const char *partition_label) {
    return is_partition(partition_label) ? ESP_OK : ESP_ERR_NOT_FOUND;
}

/* A namespace is also an item. */
esp_err_t nvs_open_from_partition(const char *part_name, const char *namespace_name, nvs_open_mode_t open_mode,
                                  nvs_handle_t *out_handle) {
    unsigned entry;
    if (!is_partition(part_name))
        return ESP_ERR_NOT_FOUND;
    *out_handle = 1;
    if (open_mode == NVS_READONLY)
        return find(0, NUMBER, namespace_name, ANY, &entry) < PAGES ? ESP_OK : ESP_ERR_NVS_NOT_FOUND;
    if (find(0, NUMBER, namespace_name, ANY, &entry) == PAGES && !append(named(0, NUMBER, namespace_name), NULL, 0))
        return ESP_ERR_NVS_NOT_ENOUGH_SPACE;
    return ESP_OK;
}

static void read_data(unsigned at, unsigned entry, void *data) {
    memcpy(data, flash[at].entries[entry + 1], item_at(at, entry).bytes);
}

static bool is_same(unsigned at, unsigned entry, const void *data, size_t bytes) {
    return item_at(at, entry).bytes == bytes && memcmp(flash[at].entries[entry + 1], data, bytes) == 0;
}

esp_err_t nvs_get_str(nvs_handle_t handle, const char *key, char *out_value, size_t *length) {
    unsigned entry, at = find(handle, STRING, key, ANY, &entry);
    if (at == PAGES)
        return ESP_ERR_NVS_NOT_FOUND;
    *length = item_at(at, entry).bytes;
    if (out_value != NULL)
        read_data(at, entry, out_value);
    return ESP_OK;
}

esp_err_t nvs_set_str(nvs_handle_t handle, const char *key, const char *value) {
    struct item item = named(handle, STRING, key);
    unsigned entry, at = find(handle, STRING, key, ANY, &entry);
    uint32_t before;
    item.bytes = (uint32_t)strlen(value) + 1;
    if (item.bytes > DATA_MAX)
        return ESP_FAIL;
    if (at < PAGES && is_same(at, entry, value, item.bytes))
        return ESP_OK;
    before = at < PAGES ? pages[at].sequence : 0;
    if (!append(item, value, item.bytes))
        return ESP_ERR_NVS_NOT_ENOUGH_SPACE;
    if (at == PAGES)
        return ESP_OK;
    if (pages[at].sequence != before || pages[at].state == UNUSED) /* it was moved */
        at = find(handle, STRING, key, ANY, &entry);
    erase_item(at, entry);
    return ESP_OK;
}

esp_err_t nvs_get_blob(nvs_handle_t handle, const char *key, void *out_value, size_t *length) {
    unsigned entry, at = find(handle, BLOB_INDEX, key, ANY, &entry);
    struct item index;
    if (at == PAGES)
        return ESP_ERR_NVS_NOT_FOUND;
    index = item_at(at, entry);
    *length = index.bytes;
    for (unsigned i = 0, offset = 0; out_value != NULL && i < index.count; i++) {
        at = find(handle, BLOB_DATA, key, index.first + i, &entry);
        if (at == PAGES)
            return ESP_FAIL;
        read_data(at, entry, (uint8_t *)out_value + offset);
        offset += item_at(at, entry).bytes;
    }
    return ESP_OK;
}

static unsigned free_bytes(void) {
    const struct page *page = &pages[newest()];
    if (page->state == UNUSED)
        return DATA_MAX;
    return page->state == FULL || page->next >= ENTRIES - 1 ? 0 : (ENTRIES - page->next - 1) * ENTRY_BYTES;
}

esp_err_t nvs_set_blob(nvs_handle_t handle, const char *key, const void *value, size_t length) {
    struct item data = named(handle, BLOB_DATA, key), index = named(handle, BLOB_INDEX, key), old = {0};
    unsigned entry, at = find(handle, BLOB_INDEX, key, ANY, &entry);
    size_t left = length;
    uint8_t there[DATA_MAX];
    size_t bytes;
    if (at < PAGES) {
        old = item_at(at, entry);
        if (old.bytes == length && nvs_get_blob(handle, key, there, &bytes) == ESP_OK && memcmp(there, value, length) == 0)
            return ESP_OK;
        index.first = old.first == 0 ? 128 : 0;
    }
    if (free_bytes() < length && free_bytes() < DATA_MAX / 10) {
        if (pages[newest()].state != FULL)
            set_page_state(newest(), FULL);
        if (!next_page())
            return ESP_ERR_NVS_NOT_ENOUGH_SPACE;
    }
    while (left > 0) {
        unsigned space = free_bytes();
        bytes = left < space ? left : space;
        if (bytes == 0)
            return ESP_ERR_NVS_NOT_ENOUGH_SPACE;
        data.chunk = (uint8_t)(index.first + index.count++);
        data.bytes = (uint32_t)bytes;
        (void)write_item(newest(), data, (const uint8_t *)value + length - left, bytes);
        left -= bytes;
        if (left > 0 || space - bytes < ENTRY_BYTES) {
            if (pages[newest()].state != FULL)
                set_page_state(newest(), FULL);
            if (!next_page())
                return ESP_ERR_NVS_NOT_ENOUGH_SPACE;
        }
    }
    index.bytes = (uint32_t)length;
    (void)write_item(newest(), index, NULL, 0);
    if (at == PAGES)
        return ESP_OK;
    for (unsigned i = 0; i < used; i++) { /* the old index, then its data */
        for (entry = 0; (entry = find_on(order[i], entry, handle, BLOB_INDEX, key, ANY)) != NOWHERE; entry++) {
            if (item_at(order[i], entry).first == old.first) {
                erase_item(order[i], entry);
                i = used;
                break;
            }
        }
    }
    for (unsigned i = 0; i < old.count; i++)
        erase_found(handle, BLOB_DATA, key, old.first + i);
    return ESP_OK;
}

esp_err_t nvs_erase_key(nvs_handle_t handle, const char *key) {
    unsigned entry, at = find(handle, STRING, key, ANY, &entry);
    if (at == PAGES)
        return ESP_ERR_NVS_NOT_FOUND;
    erase_item(at, entry);
    return ESP_OK;
}

void nvs_close(nvs_handle_t handle) {
    (void)handle;
}

esp_err_t nvs_commit(nvs_handle_t handle) {
    (void)handle;
    if (NVS_LOSES_UNCOMMITTED)
        memcpy(committed, flash, sizeof flash);
    return ESP_OK;
}
