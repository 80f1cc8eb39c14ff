/* littlefs as a folder; a file keeps its old content until the new content is closed. */
#pragma once
#include <stdio.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

struct File {
    FILE *file = nullptr;
    std::string path, written;
    operator bool() const { return file != nullptr; }
    size_t size() {
        fseek(file, 0, SEEK_END);
        long end = ftell(file);
        rewind(file);
        return (size_t)end;
    }
    size_t read(uint8_t *data, size_t bytes) { return fread(data, 1, bytes, file); }
    size_t write(const uint8_t *data, size_t bytes) { return fwrite(data, 1, bytes, file); }
    void close() {
        fclose(file);
        if (!written.empty())
            rename(written.c_str(), path.c_str());
    }
};

struct HostFS {
    std::string root;
    /* A file named "broken" stands for a file system that does not mount. */
    bool begin() { return !exists("/broken"); }
    bool format() {
        puts("formatted");
        return remove("/broken");
    }
    bool exists(const char *path) { return access((root + path).c_str(), F_OK) == 0; }
    bool remove(const char *path) { return unlink((root + path).c_str()) == 0; }
    bool mkdir(const char *path) { return ::mkdir((root + path).c_str(), 0700) == 0; }
    File open(const char *path, const char *mode) {
        File file;
        file.path = root + path;
        if (*mode == 'w')
            file.written = file.path + ".new";
        file.file = fopen((*mode == 'w' ? file.written : file.path).c_str(), *mode == 'w' ? "wb" : "rb");
        return file;
    }
};
extern HostFS LittleFS;
