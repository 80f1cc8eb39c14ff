/* Storage in a folder, like device/disk.py: a lock, and files that are replaced atomically and synced. */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "posix.h"

#define PATH_BYTES 4096

static int path_of(const struct hushmote_posix *posix, const char *name, const char *end, char path[PATH_BYTES]) {
    int bytes = snprintf(path, PATH_BYTES, "%s/%s%s", posix->folder, name, end);
    return bytes > 0 && bytes < PATH_BYTES ? 0 : -1;
}

int hushmote_posix_open(struct hushmote_posix *posix, const char *folder) {
    posix->folder = folder;
    posix->lock = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (posix->lock >= 0 && flock(posix->lock, LOCK_EX | LOCK_NB) != 0) {
        int error = errno;
        close(posix->lock);
        posix->lock = -1;
        errno = error;
    }
    return posix->lock < 0 ? -1 : 0;
}

static long read_file(const struct hushmote_posix *posix, const char *name, uint8_t *data, size_t bytes) {
    char path[PATH_BYTES];
    struct stat info;
    size_t at = 0;
    ssize_t part = 1;
    int file;
    if (path_of(posix, name, "", path) != 0)
        return -1;
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return errno == ENOENT ? 0 : -1;
    while (at < bytes && part > 0) {
        part = read(file, data + at, bytes - at);
        if (part > 0)
            at += (size_t)part;
    }
    if (part < 0 || fstat(file, &info) != 0)
        info.st_size = -1;
    close(file);
    return (long)info.st_size;
}

static int write_all(int file, const uint8_t *data, size_t bytes) {
    while (bytes > 0) {
        ssize_t part = write(file, data, bytes);
        if (part < 0)
            return -1;
        data += part;
        bytes -= (size_t)part;
    }
    return fsync(file);
}

static int sync_folder(const char *path) {
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), code = -1;
    if (folder >= 0) {
        code = fsync(folder);
        close(folder);
    }
    return code;
}

int hushmote_posix_replace(const struct hushmote_posix *posix, const char *name, const void *data, size_t bytes) {
    char path[PATH_BYTES], new[PATH_BYTES];
    int file, code;
    if (path_of(posix, name, "", path) != 0 || path_of(posix, name, ".new", new) != 0)
        return -1;
    file = open(new, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file < 0)
        return -1;
    code = write_all(file, data, bytes);
    if (close(file) != 0 || code != 0 || rename(new, path) != 0)
        return -1;
    *strrchr(new, '/') = 0;
    return sync_folder(new);
}

long hushmote_posix_read(void *posix, int slot, uint8_t *data, size_t bytes) {
    return read_file(posix, slot == 0 ? "ledger0" : "ledger1", data, bytes);
}

int hushmote_posix_write(void *posix, int slot, const uint8_t *data, size_t bytes) {
    return hushmote_posix_replace(posix, slot == 0 ? "ledger0" : "ledger1", data, bytes);
}

int hushmote_posix_entropy(void *posix, uint8_t *data, size_t bytes) {
    (void)posix;
    while (bytes > 0) {
        ssize_t part = getrandom(data, bytes, 0);
        if (part < 0 && errno != EINTR)
            return -1;
        if (part > 0) {
            data += part;
            bytes -= (size_t)part;
        }
    }
    return 0;
}

long hushmote_posix_read_kept(void *posix, const char *name, uint8_t *data, size_t bytes) {
    char file[64];
    snprintf(file, sizeof file, "experiments/%s", name);
    return read_file(posix, file, data, bytes);
}

int hushmote_posix_write_kept(void *posix, const char *name, const uint8_t *data, size_t bytes) {
    const char *folder = ((const struct hushmote_posix *)posix)->folder;
    char file[64], path[PATH_BYTES];
    snprintf(file, sizeof file, "experiments/%s", name);
    if (path_of(posix, bytes > 0 ? "experiments" : file, "", path) != 0)
        return -1;
    if (bytes == 0) {
        if (unlink(path) != 0 && errno != ENOENT)
            return -1;
        /* A withdrawn experiment or ended opt-in must not reappear after a power cut. An earlier call may have removed
           the file but failed to sync. */
        *strrchr(path, '/') = 0;
        return sync_folder(path) == 0 || errno == ENOENT ? 0 : -1;
    }
    if ((mkdir(path, 0700) != 0 && errno != EEXIST) || sync_folder(folder) != 0)
        return -1;
    return hushmote_posix_replace(posix, file, data, bytes);
}
