/* Loaded before the C library, this records a process's changes to the files in one folder, in order.
 *
 * WRITE_LOG_FOLDER: the folder's absolute path. WRITE_LOG: the file for the records. A record is five numbers of
 * 8 bytes (kind, inode, offset or new size, length of the following bytes, length of their first part), then the
 * bytes: the written data, the name, or the old and the new name. write_log.py reads them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CREATED = 1, WRITTEN, TRUNCATED, SYNCED, FOLDER_SYNCED, UNLINKED, LINKED, RENAMED };

#define FILES 4096 /* more than any recorded process has open */

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static char watched[FILES];
static const char *folder;
static size_t folder_bytes;
static int log_fd = -1;

__attribute__((constructor)) static void start(void)
{
    const char *log = getenv("WRITE_LOG");
    folder = getenv("WRITE_LOG_FOLDER");
    if (!log || !folder)
        return;
    folder_bytes = strlen(folder);
    int fd = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    log_fd = fcntl(fd, F_DUPFD_CLOEXEC, FILES);
    syscall(SYS_close, fd);
}

static void record(uint64_t kind, uint64_t inode, uint64_t at, const void *a, uint64_t na, const void *b, uint64_t nb)
{
    uint64_t head[5] = {kind, inode, at, na + nb, na};
    struct iovec parts[3] = {{head, sizeof head}, {(void *)a, na}, {(void *)b, nb}};
    if (syscall(SYS_writev, log_fd, parts, 3) != (long)(sizeof head + na + nb))
        abort(); /* an incomplete log proves nothing */
}

/* Returns the name within the folder, "" for the folder itself, or NULL for a path elsewhere. */
static const char *name_of(const char *path)
{
    if (log_fd < 0 || strncmp(path, folder, folder_bytes))
        return NULL;
    if (!path[folder_bytes])
        return "";
    return path[folder_bytes] == '/' ? path + folder_bytes + 1 : NULL;
}

static int is_watched(int fd)
{
    return fd >= 0 && fd < FILES && watched[fd];
}

static struct stat about(int fd)
{
    struct stat s;
    if (fstat(fd, &s))
        abort();
    return s;
}

static int open_file(int at, const char *path, int flags, mode_t mode)
{
    const char *name = name_of(path);
    if (!name)
        return syscall(SYS_openat, at, path, flags, mode);
    pthread_mutex_lock(&order);
    int fd = syscall(SYS_openat, at, path, flags, mode), error = errno;
    if (fd >= FILES)
        abort();
    if (fd >= 0) {
        watched[fd] = 1;
        if (flags & O_CREAT)
            record(CREATED, about(fd).st_ino, 0, name, strlen(name), NULL, 0);
        if (flags & O_TRUNC)
            record(TRUNCATED, about(fd).st_ino, 0, NULL, 0, NULL, 0);
    }
    pthread_mutex_unlock(&order);
    errno = error;
    return fd;
}

#define OPEN(function, ...)                                   \
    {                                                         \
        mode_t mode = 0;                                      \
        if (flags & O_CREAT) {                                \
            va_list rest;                                     \
            va_start(rest, flags);                            \
            mode = va_arg(rest, mode_t);                      \
            va_end(rest);                                     \
        }                                                     \
        return open_file(__VA_ARGS__, path, flags, mode);     \
    }

int open(const char *path, int flags, ...) OPEN(open, AT_FDCWD)
int open64(const char *path, int flags, ...) OPEN(open64, AT_FDCWD)
int openat(int at, const char *path, int flags, ...) OPEN(openat, at)
int openat64(int at, const char *path, int flags, ...) OPEN(openat64, at)

int close(int fd)
{
    if (fd >= 0 && fd < FILES)
        watched[fd] = 0;
    return syscall(SYS_close, fd);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset)
{
    if (!is_watched(fd))
        return syscall(SYS_pwrite64, fd, data, size, offset);
    pthread_mutex_lock(&order);
    ssize_t done = syscall(SYS_pwrite64, fd, data, size, offset);
    int error = errno;
    if (done > 0)
        record(WRITTEN, about(fd).st_ino, offset, data, done, NULL, 0);
    pthread_mutex_unlock(&order);
    errno = error;
    return done;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t offset)
{
    return pwrite(fd, data, size, offset);
}

ssize_t write(int fd, const void *data, size_t size)
{
    if (!is_watched(fd))
        return syscall(SYS_write, fd, data, size);
    pthread_mutex_lock(&order);
    ssize_t done = syscall(SYS_write, fd, data, size);
    int error = errno;
    if (done > 0) {
        off_t end = lseek(fd, 0, SEEK_CUR);
        record(WRITTEN, about(fd).st_ino, end - done, data, done, NULL, 0);
    }
    pthread_mutex_unlock(&order);
    errno = error;
    return done;
}

int ftruncate(int fd, off_t size)
{
    if (!is_watched(fd))
        return syscall(SYS_ftruncate, fd, size);
    pthread_mutex_lock(&order);
    int failed = syscall(SYS_ftruncate, fd, size), error = errno;
    if (!failed)
        record(TRUNCATED, about(fd).st_ino, size, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&order);
    errno = error;
    return failed;
}

int ftruncate64(int fd, off64_t size)
{
    return ftruncate(fd, size);
}

static int sync_file(long call, int fd)
{
    if (!is_watched(fd))
        return syscall(call, fd);
    pthread_mutex_lock(&order);
    int failed = syscall(call, fd), error = errno;
    if (!failed) {
        struct stat s = about(fd);
        record(S_ISDIR(s.st_mode) ? FOLDER_SYNCED : SYNCED, s.st_ino, 0, NULL, 0, NULL, 0);
    }
    pthread_mutex_unlock(&order);
    errno = error;
    return failed;
}

int fsync(int fd) { return sync_file(SYS_fsync, fd); }
int fdatasync(int fd) { return sync_file(SYS_fdatasync, fd); }

int unlinkat(int at, const char *path, int flags)
{
    const char *name = name_of(path);
    if (!name)
        return syscall(SYS_unlinkat, at, path, flags);
    pthread_mutex_lock(&order);
    int failed = syscall(SYS_unlinkat, at, path, flags), error = errno;
    if (!failed)
        record(UNLINKED, 0, 0, name, strlen(name), NULL, 0);
    pthread_mutex_unlock(&order);
    errno = error;
    return failed;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }

static int two_names(uint64_t kind, long call, int from_at, const char *from, int to_at, const char *to, int flags)
{
    const char *old = name_of(from), *new = name_of(to);
    if (!old || !new)
        return syscall(call, from_at, from, to_at, to, flags);
    pthread_mutex_lock(&order);
    int failed = syscall(call, from_at, from, to_at, to, flags), error = errno;
    if (!failed)
        record(kind, 0, 0, old, strlen(old), new, strlen(new));
    pthread_mutex_unlock(&order);
    errno = error;
    return failed;
}

int linkat(int from_at, const char *from, int to_at, const char *to, int flags)
{
    return two_names(LINKED, SYS_linkat, from_at, from, to_at, to, flags);
}

int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

int renameat(int from_at, const char *from, int to_at, const char *to)
{
    return two_names(RENAMED, SYS_renameat2, from_at, from, to_at, to, 0);
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }
