/* The device "desk" of the open fleet "open", or the one whose page is in the file BOARD_PAGE. BOARD_PORT is the broker's
   port, BOARD_FOLDER holds the flash. Input: p
   provisions the ledger, y and n set consent, b calls begin() without an id, l prints the longest poll() so far, w what a
   reading would send, and e the export. It reports a reading every 50 ms and prints each change of its state. */
#include <hushmote_arduino.h>
#include <hushmote_float.h>

#include <LittleFS.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>

HostFS LittleFS;

extern "C" unsigned long millis() {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (unsigned long)(now.tv_sec * 1000 + now.tv_nsec / 1000000);
}
extern "C" void delay(unsigned long ms) { usleep((useconds_t)ms * 1000); }
extern "C" {
void yield() {}
/* Only String's number conversions call these, and nothing uses them here. */
char *itoa(int, char *text, int) { return text; }
char *ltoa(long, char *text, int) { return text; }
char *utoa(unsigned, char *text, int) { return text; }
char *ultoa(unsigned long, char *text, int) { return text; }
char *dtostrf(double, signed char, unsigned char, char *text) { return text; }
}

int hushmote_entropy(uint8_t *data, size_t bytes) { return getrandom(data, bytes, 0) == (ssize_t)bytes ? 0 : -1; }

struct Network : Client {
    int fd = -1;
    int connect(IPAddress, uint16_t) override { return 0; }
    int connect(const char *host, uint16_t port) override {
        struct addrinfo *found;
        char service[8];
        stop();
        snprintf(service, sizeof service, "%u", port);
        if (getaddrinfo(host, service, nullptr, &found) != 0)
            return 0;
        fd = socket(found->ai_family, SOCK_STREAM, 0);
        if (::connect(fd, found->ai_addr, found->ai_addrlen) != 0)
            stop();
        freeaddrinfo(found);
        return fd >= 0;
    }
    size_t write(uint8_t byte) override { return write(&byte, 1); }
    size_t write(const uint8_t *data, size_t bytes) override {
        ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
        return sent < 0 ? 0 : (size_t)sent;
    }
    int available() override {
        char one;
        return recv(fd, &one, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
    }
    int read() override { return -1; }
    int read(uint8_t *data, size_t bytes) override { return (int)recv(fd, data, bytes, MSG_DONTWAIT); }
    int peek() override { return -1; }
    void flush() override {}
    void stop() override {
        if (fd >= 0)
            close(fd);
        fd = -1;
    }
    uint8_t connected() override {
        char one;
        return fd >= 0 && recv(fd, &one, 1, MSG_PEEK | MSG_DONTWAIT) != 0;
    }
    operator bool() override { return fd >= 0; }
};

HUSHMOTE_POLICY(policy, 40000000, 0, 4000000, HUSHMOTE_SUM, false, "temp");
static Network network;
static HushmoteBoard<1> board(policy, network);
static hushmote_last last;

struct Console : Print {
    size_t write(uint8_t byte) override { return (size_t)(putchar(byte) != EOF); }
};
static Console console;

int main() {
    unsigned shown = ~0u;
    unsigned long since = millis(), longest = 0;
    setvbuf(stdout, nullptr, _IOLBF, 0);
    LittleFS.root = getenv("BOARD_FOLDER");
    board.config.fleet = "open";
    board.config.device_id = "desk";
    board.arduino.host = "127.0.0.1";
    board.arduino.port = (uint16_t)atoi(getenv("BOARD_PORT"));
    if (getenv("BOARD_PAGE") != nullptr) {
        static uint8_t page[HUSHMOTE_PAGE_BYTES];
        FILE *file = fopen(getenv("BOARD_PAGE"), "rb");
        int code = board.load(page, file == nullptr ? 0 : fread(page, 1, sizeof page, file));
        printf("%s: %s\n", board.config.device_id, hushmote_text(code));
    }
    puts(hushmote_arduino_mount(false) ? hushmote_text(board.begin()) : "no file system");
    board.port.delay_ms = 0;
    board.port.spread_ms = 2000;
    for (;;) {
        struct pollfd input = {0, POLLIN, 0};
        char typed = 0;
        if (poll(&input, 1, 5) > 0 && read(0, &typed, 1) == 0)
            return 0;
        if (typed == 'p')
            puts(hushmote_arduino_mount(true) ? hushmote_text(board.provision()) : "no file system");
        if (typed == 'b') {
            board.config.device_id = nullptr;
            puts(hushmote_text(board.begin()));
            board.config.device_id = "desk";
        }
        board.port.delay_ms = 0;
        board.port.spread_ms = 2000;
        if (typed == 'y' || typed == 'n')
            puts(hushmote_text(board.consent(typed == 'y')));
        if (millis() - since >= 50) {
            since += 50;
            board.report("temp", hushmote_float(21.4f), nullptr, &last, (uint32_t)time(nullptr));
        }
        unsigned long before = millis();
        board.poll();
        if (millis() - before > longest)
            longest = millis() - before;
        if (typed == 'w')
            board.preview(console, "temp", hushmote_float(21.4f));
        if (typed == 'e')
            board.export_json(console, last);
        if (typed == 'l')
            printf("longest poll %lu ms\n", longest);
        struct hushmote_status status;
        hushmote_status(&board.client, &status);
        unsigned now = (unsigned)(status.sum / 1000000) * 100 + status.pending;
        if (now != shown)
            printf("spent %u, %u waiting\n", (unsigned)(status.sum / 1000000), status.pending);
        shown = now;
    }
}
