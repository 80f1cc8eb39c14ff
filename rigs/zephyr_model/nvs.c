/* A model of Zephyr's NVS: the order in which it writes flash, and how a start recovers flash after a power cut.

   A sector is filled with data from its beginning, and from its end with entries that locate the items' data. Data is
   written first, so an item exists once its entry does. An entry at a sector's very end closes a full sector. Then the
   oldest sector's items without a newer entry move to the next sector, an entry marks the end of the move, and the
   oldest sector is erased. */
#include <zephyr/fs/nvs.h>

#include <errno.h>
#include <string.h>

#include "../flash_model.h"

#define SECTORS 3
#define SECTOR_BYTES 4096
#define BLOCK_BYTES 4 /* smallest unit that can be written */
#define ENTRY_BYTES 8
#define MOST (SECTOR_BYTES / ENTRY_BYTES)
#define MARK 0xffff /* the id of an entry without an item */
#ifndef NVS_MARKS_MOVES
#define NVS_MARKS_MOVES 1 /* 0: Zephyr 2.5, which repeats an interrupted move from the start */
#endif

struct entry {
    uint16_t id, offset, bytes;
};

struct sector {
    struct entry entries[MOST]; /* oldest first */
    unsigned count;
    bool is_closed;
    uint8_t data[SECTOR_BYTES];
    unsigned written; /* bytes of data, including data without an entry */
};

static struct sector flash[SECTORS];
static unsigned current, data_end;

static unsigned aligned(size_t bytes) {
    return (unsigned)(bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

static unsigned after(unsigned sector) {
    return (sector + 1) % SECTORS;
}

static bool is_blank(const struct sector *sector) {
    return sector->count == 0 && !sector->is_closed && sector->written == 0;
}

static void erase(unsigned at) {
    flash_operation();
    memset(&flash[at], 0, sizeof flash[at]);
}

static void program(const uint8_t *data, unsigned bytes) {
    struct sector *sector = &flash[current];
    if (bytes == 0)
        return;
    flash_operation();
    memcpy(sector->data + data_end, data, bytes);
    data_end += aligned(bytes);
    if (data_end > sector->written)
        sector->written = data_end;
}

static void add_entry(uint16_t id, unsigned offset, size_t bytes) {
    struct entry entry = {id, (uint16_t)offset, (uint16_t)bytes};
    flash_operation();
    flash[current].entries[flash[current].count++] = entry;
}

/* Write whole blocks first, then the rest. */
static void write_data(const void *data, size_t bytes) {
    unsigned whole = (unsigned)(bytes / BLOCK_BYTES * BLOCK_BYTES);
    program(data, whole);
    program((const uint8_t *)data + whole, (unsigned)bytes - whole);
}

/* Return the space between the data and the next entry, excluding the place reserved for the closing entry. */
static int free_bytes(void) {
    return SECTOR_BYTES - ENTRY_BYTES * (int)(flash[current].count + 2) - (int)data_end;
}

/* Find an item's newest entry, backwards from the current sector. */
static const struct entry *newest(uint16_t id, unsigned *where) {
    for (unsigned i = 0; i < SECTORS; i++) {
        *where = (current + SECTORS - i) % SECTORS;
        for (unsigned e = flash[*where].count; e-- > 0;) {
            if (flash[*where].entries[e].id == id)
                return &flash[*where].entries[e];
        }
    }
    return NULL;
}

static void collect(void) {
    unsigned oldest = after(current), where;
    const struct sector *from = &flash[oldest];
    for (unsigned e = from->is_closed ? from->count : 0; e-- > 0;) {
        struct entry entry = from->entries[e];
        unsigned offset = data_end;
        if (newest(entry.id, &where) != &from->entries[e] || entry.bytes == 0)
            continue;
        for (unsigned done = 0; done < entry.bytes; done += 32) /* its buffer */
            write_data(from->data + entry.offset + done, entry.bytes - done < 32 ? entry.bytes - done : 32);
        add_entry(entry.id, offset, entry.bytes);
    }
    if (NVS_MARKS_MOVES && free_bytes() >= ENTRY_BYTES)
        add_entry(MARK, data_end, 0);
    erase(oldest);
}

void storage_new(void) {
    memset(flash, 0, sizeof flash);
}

void storage_start(void) {
    unsigned at = 0, mark = 0;
    while (at < SECTORS && !(flash[at].is_closed && !flash[after(at)].is_closed))
        at++;
    current = at < SECTORS ? after(at) : 0;
    data_end = 0;
    for (unsigned e = 0; e < flash[current].count; e++) {
        const struct entry *entry = &flash[current].entries[e];
        data_end = aligned((size_t)entry->offset + entry->bytes);
        mark += entry->id == MARK;
    }
    if (!is_blank(&flash[after(current)])) { /* a move was interrupted */
        if (mark > 0) {
            erase(after(current));
        } else {
            erase(current);
            data_end = 0;
            collect();
        }
    } else {
        if (flash[current].written > data_end)
            data_end = flash[current].written;
        if (NVS_MARKS_MOVES && flash[current].count == 0 && data_end > 0) {
            erase(current);
            data_end = 0;
        }
    }
    if (NVS_MARKS_MOVES && flash[current].count == 0)
        add_entry(MARK, data_end, 0);
}

ssize_t nvs_read(struct nvs_fs *fs, uint16_t id, void *data, size_t len) {
    unsigned where;
    const struct entry *entry = newest(id, &where);
    (void)fs;
    if (entry == NULL || entry->bytes == 0)
        return -ENOENT;
    memcpy(data, flash[where].data + entry->offset, entry->bytes < len ? entry->bytes : len);
    return entry->bytes;
}

ssize_t nvs_write(struct nvs_fs *fs, uint16_t id, const void *data, size_t len) {
    unsigned where, offset;
    const struct entry *entry = newest(id, &where);
    (void)fs;
    if (len > SECTOR_BYTES - 4 * ENTRY_BYTES)
        return -EINVAL;
    if (entry == NULL ? len == 0
                      : len == entry->bytes && memcmp(flash[where].data + entry->offset, data, len) == 0)
        return 0;
    for (unsigned tries = 0; free_bytes() < (int)(len > 0 ? aligned(len) + ENTRY_BYTES : 0); tries++) {
        if (tries == SECTORS)
            return -ENOSPC;
        flash_operation();
        flash[current].is_closed = true;
        current = after(current);
        data_end = 0;
        collect();
    }
    offset = data_end;
    write_data(data, len);
    add_entry(id, offset, len);
    return (ssize_t)len;
}

int nvs_delete(struct nvs_fs *fs, uint16_t id) {
    return (int)nvs_write(fs, id, NULL, 0);
}
