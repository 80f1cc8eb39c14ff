/* hushmote-post: report readings from standard input, one "NAME VALUE" per line, or "NAME@GROUP VALUE" for a reading of
   a period in which the open group had another value.

   FOLDER contains the ledger and the settings.json that `hushmote provision device` wrote, or the page of a device of
   `hushmote provision devices`, as identity.bin. */
#define _DEFAULT_SOURCE
#include <errno.h>
#include <mosquitto.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "hushmote_float.h"
#include "hushmote_identity.h"
#include "hushmote_preview.h"
#include "posix.h"

#ifndef POLICY_H
#define POLICY_H "policy.h"
#endif
#include POLICY_H

#define NAMES (sizeof policy_names / sizeof *policy_names)
#define RECORD_BYTES HUSHMOTE_RECORD_BYTES(64, HUSHMOTE_UNSENT_MAX)
#define QUIET_MS 2000 /* after this time, all retained messages should have arrived */
#define NO "no"       /* a file that tells the process that holds the lock to opt out; it stores the opt-out and removes the file */
#define LAST "last" /* a file with the last reports, one "SECONDS HEX" per line */
#define NO_MS 5000    /* longest wait until that process has done so */

static struct hushmote_experiment experiments[NAMES];
static struct hushmote_topic topics[NAMES];
static struct hushmote_log_entry entries[NAMES];
static uint8_t records[2 * RECORD_BYTES], kept[HUSHMOTE_KEPT_BYTES];
static struct hushmote_posix posix;
static struct hushmote client;
static struct hushmote_reporter reporter;
static struct hushmote_last last;
static volatile sig_atomic_t ended;

static const char usage[] =
    "usage: hushmote-post FOLDER provision | yes | no | status | run [SECONDS] | preview NAME VALUE | export\n"
    "run reads lines \"NAME VALUE\" and sends each report after a random delay of up to SECONDS (30)\n"
    "\"NAME@2.3.1 VALUE\" reports under another value of the open group, such as the version before an update\n"
    "no also stops a running program\n"
    "preview says in words what VALUE would send; export writes the last 8 reports, the consent and the budget as JSON\n";

static int fail(const char *what, const char *why) {
    fprintf(stderr, "hushmote-post: %s: %s\n", what, why);
    return 1;
}

/* --- Settings: a flat JSON object ----------------------------------------------------------------------------- */

static char settings[65536];

/* Return the start of a field's value, or NULL if there is no such field. */
static const char *value_of(const char *name) {
    char quoted[40];
    const char *at = settings;
    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    while ((at = strstr(at, quoted)) != NULL) {
        at += strlen(quoted);
        at += strspn(at, " \t\r\n");
        if (*at == ':') /* otherwise the text was a value */
            return at + 1 + strspn(at + 1, " \t\r\n");
    }
    return NULL;
}

/* Return the four hexadecimal digits at a position as a number, or 0 if they are not. */
static unsigned four_digits(const char *at) {
    unsigned value = 0;
    return strspn(at, "0123456789abcdefABCDEF") >= 4 && sscanf(at, "%4x", &value) == 1 ? value : 0;
}

/* Write the character of the escapes that *at points behind the \u of as UTF-8, at most 4 bytes. Advance to their last
   digit. Return the number of bytes; 0 for U+0000, which C texts cannot contain, and for half of a surrogate pair. */
static size_t unescape(const char **at, char utf8[4]) {
    unsigned point = four_digits(*at), low;
    *at += 3;
    if (point >= 0xD800 && point < 0xDC00) {
        low = (*at)[1] == '\\' && (*at)[2] == 'u' ? four_digits(*at + 3) : 0;
        if (low < 0xDC00 || low > 0xDFFF)
            return 0;
        point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
        *at += 6;
    }
    if (point == 0 || (point >= 0xD800 && point < 0xE000))
        return 0;
    if (point < 0x80) {
        utf8[0] = (char)point;
        return 1;
    }
    size_t more = 1 + (size_t)(point > 0x7FF) + (size_t)(point > 0xFFFF);
    utf8[0] = (char)(0xF00u >> (more + 1) | point >> 6 * more);
    for (size_t i = 1; i <= more; i++)
        utf8[i] = (char)(0x80 | (point >> 6 * (more - i) & 0x3F));
    return 1 + more;
}

/* Copy a field's value as text, or "" if it is null or missing. Return false if it is too long or contains an invalid
   escape. */
static bool field(const char *name, char *value, size_t capacity) {
    static const char escapes[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    const char *at = value_of(name), *escape;
    size_t used = 0, bytes;
    char utf8[4];
    value[0] = 0;
    if (at == NULL || strncmp(at, "null", 4) == 0)
        return true;
    if (*at != '"') {
        used = strspn(at, "0123456789");
        snprintf(value, capacity, "%.*s", (int)used, at);
        return used < capacity;
    }
    for (at++; *at && *at != '"'; at++) {
        bytes = 1;
        utf8[0] = *at;
        if (*at == '\\' && at[1] == 'u') {
            at += 2;
            bytes = unescape(&at, utf8);
        } else if (*at == '\\') {
            escape = *++at ? strchr(escapes, *at) : NULL;
            bytes = escape != NULL;
            utf8[0] = escape != NULL ? meanings[escape - escapes] : 0;
        }
        if (bytes == 0 || used + bytes >= capacity)
            return false;
        memcpy(value + used, utf8, bytes);
        used += bytes;
    }
    value[used] = 0;
    return *at == '"';
}

static bool hex(const char *name, uint8_t *key, size_t bytes, const uint8_t **result) {
    char text[130];
    unsigned value;
    *result = NULL;
    if (!field(name, text, sizeof text) || (text[0] && strlen(text) != 2 * bytes))
        return false;
    if (text[0])
        *result = key;
    for (size_t i = 0; text[0] && i < bytes; i++) {
        if (strspn(text + 2 * i, "0123456789abcdefABCDEF") < 2 || sscanf(text + 2 * i, "%2x", &value) != 1)
            return false;
        key[i] = (uint8_t)value;
    }
    return true;
}

#define BASE64 "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="

/* Convert base64 of DER, or several separated by spaces, to PEM. Return false if it is not base64, or too long. */
static bool to_pem(const char *label, const char *text, char *lines, size_t capacity) {
    size_t used = 0;
    while (*text) {
        size_t left = strspn(text, BASE64);
        if (left == 0 || (text[left] != 0 && text[left] != ' ') || used + left + left / 64 + 80 > capacity)
            return false;
        used += (size_t)sprintf(lines + used, "-----BEGIN %s-----\n", label);
        while (left > 0) {
            size_t line = left < 64 ? left : 64;
            used += (size_t)sprintf(lines + used, "%.*s\n", (int)line, text);
            text += line;
            left -= line;
        }
        used += (size_t)sprintf(lines + used, "-----END %s-----\n", label);
        text += *text == ' ';
    }
    return true;
}

/* Write PEM to a file in the folder, because libmosquitto requires files. */
static bool write_pem(const char *name, const char *lines, char *path, size_t capacity) {
    path[0] = 0;
    if (!lines[0])
        return true;
    snprintf(path, capacity, "%s/%s.pem", posix.folder, name);
    return hushmote_posix_replace(&posix, strrchr(path, '/') + 1, lines, strlen(lines)) == 0;
}

/* Write a setting to a PEM file. `hushmote provision` writes base64 of DER; PEM is also accepted. */
static bool pem(const char *name, const char *label, char *path, size_t capacity) {
    static char text[16384], lines[sizeof text * 2];
    path[0] = 0;
    if (!field(name, text, sizeof text))
        return false;
    if (!text[0])
        return true;
    if (strstr(text, "-----BEGIN ") != NULL)
        strcpy(lines, text);
    else if (!to_pem(label, text, lines, sizeof lines))
        return false;
    return write_pem(name, lines, path, capacity);
}

/* Return whether a field is false; a missing field is true. */
static bool is_off(const char *name) {
    const char *at = value_of(name);
    return at != NULL && strncmp(at, "false", 5) == 0;
}

static bool omit_status, omit_will;

/* Read a page as firmware does; return NULL or what is wrong. Set *is_there if the folder has one. */
static const char *read_page(struct hushmote_config *config, bool *is_there) {
    static uint8_t page[HUSHMOTE_PAGE_BYTES + 1];
    struct hushmote_broker *broker = &posix.broker;
    struct hushmote_identity identity;
    char path[4096];
    FILE *file;
    int code;
    snprintf(path, sizeof path, "%s/identity.bin", posix.folder);
    file = fopen(path, "rb");
    *is_there = file != NULL || errno != ENOENT;
    if (file == NULL)
        return "cannot read identity.bin";
    code = hushmote_config_from_page(config, &identity, page, fread(page, 1, sizeof page, file));
    fclose(file);
    if (code != HUSHMOTE_OK)
        return hushmote_text(code);
    if (!identity.hosts[0])
        return "identity.bin has no broker: give `hushmote provision devices` --broker or --folder";
    if ((size_t)snprintf(broker->hosts, sizeof broker->hosts, "%s", identity.hosts) >= sizeof broker->hosts ||
        (size_t)snprintf(broker->user, sizeof broker->user, "%s", identity.user) >= sizeof broker->user ||
        (size_t)snprintf(broker->password, sizeof broker->password, "%s", identity.password) >= sizeof broker->password ||
        (size_t)snprintf(broker->prefix, sizeof broker->prefix, "%s", identity.prefix) >= sizeof broker->prefix)
        return "identity.bin: the broker, its user, its password or the topic prefix is too long for this program";
    if (!write_pem("mqtt_ca", identity.ca, broker->ca, sizeof broker->ca) ||
        !write_pem("mqtt_cert", identity.certificate, broker->cert, sizeof broker->cert) ||
        !write_pem("mqtt_key", identity.certificate_key, broker->key, sizeof broker->key))
        return "the folder cannot be written";
    broker->port = identity.port;
    posix.device_id = config->device_id;
    omit_status = identity.omit_status;
    omit_will = identity.omit_will;
    return NULL;
}

static const char *read_settings(struct hushmote_config *config) {
    static char fleet[40], device[40], path[4096];
    static uint8_t key[32], announce_key[64];
    struct hushmote_broker *broker = &posix.broker;
    char port[8];
    FILE *file;
    snprintf(path, sizeof path, "%s/settings.json", posix.folder);
    file = fopen(path, "r");
    if (file == NULL)
        return "cannot read settings.json; create it with `hushmote provision device`";
    settings[fread(settings, 1, sizeof settings - 1, file)] = 0;
    fclose(file);
    if (!field("fleet", fleet, sizeof fleet) || !field("device_id", device, sizeof device) ||
        !hex("key", key, sizeof key, &config->key) ||
        !hex("announce_key", announce_key, sizeof announce_key, &config->announce_key))
        return "settings.json: fleet, device_id, key (64 hex digits) or announce_key (128) is wrong";
    if (!field("mqtt_host", broker->hosts, sizeof broker->hosts) || !broker->hosts[0] ||
        !field("mqtt_port", port, sizeof port) || !field("mqtt_user", broker->user, sizeof broker->user) ||
        !field("mqtt_password", broker->password, sizeof broker->password) ||
        !field("mqtt_prefix", broker->prefix, sizeof broker->prefix))
        return "settings.json: mqtt_host, mqtt_port, mqtt_user, mqtt_password or mqtt_prefix is wrong: set mqtt_host, and "
               "write user and password with at most 255 bytes";
    if (mosquitto_validate_utf8(broker->user, (int)strlen(broker->user)) != 0)
        return "settings.json: mqtt_user must be UTF-8 without control characters";
    if (strncmp(broker->hosts, "ws://", 5) == 0 || strncmp(broker->hosts, "wss://", 6) == 0)
        return "settings.json: mqtt_host: hushmote-post does not speak MQTT over WebSocket; if the network lets only HTTPS "
               "through, send the reports to a `hushmote door`, as docs/door.md describes";
    for (unsigned i = 0; i < sizeof broker->hosts; i++) {
        if (hushmote_broker_at(broker->hosts, i, 1, path, sizeof path) == 0)
            return "settings.json: write mqtt_host as host or host:port, as in a,b:1884,[fd00::5]:1884";
    }
    if (!pem("mqtt_ca", "CERTIFICATE", broker->ca, sizeof broker->ca) ||
        !pem("mqtt_cert", "CERTIFICATE", broker->cert, sizeof broker->cert) ||
        !pem("mqtt_key", "EC PRIVATE KEY", broker->key, sizeof broker->key))
        return "settings.json: mqtt_ca, mqtt_cert or mqtt_key is wrong (write base64 of DER, or PEM), or the folder "
               "cannot be written";
    broker->port = atoi(port);
    omit_status = is_off("mqtt_status");
    omit_will = is_off("mqtt_last_will");
    config->fleet = fleet;
    config->device_id = posix.device_id = device;
    return NULL;
}

/* --- The last reports ------------------------------------------------------------------------------------------ */

/* Read the last reports, up to the first line that is not a report. */
static void load_last(void) {
    char path[4096], hexadecimal[2 * HUSHMOTE_REPORT_BYTES + 1]; /* 42 characters and a zero */
    uint8_t report[HUSHMOTE_REPORT_BYTES] = {0};
    unsigned at, value;
    FILE *file;
    snprintf(path, sizeof path, "%s/" LAST, posix.folder);
    file = fopen(path, "r");
    while (file != NULL && fscanf(file, "%u %42[0-9a-f]", &at, hexadecimal) == 2) {
        size_t bytes = strlen(hexadecimal) / 2;
        for (size_t i = 0; i < bytes && sscanf(hexadecimal + 2 * i, "%2x", &value) == 1; i++)
            report[i] = (uint8_t)value;
        if (bytes >= 10u + 8 * (report[0] & 1u))
            hushmote_remember(&last, report, (int)bytes, at);
    }
    if (file != NULL)
        fclose(file);
}

/* Add a report to the last ones, which survive the program's end. */
static void remember(const uint8_t *report, int bytes) {
    char lines[HUSHMOTE_LAST * (2 * HUSHMOTE_REPORT_BYTES + 16)];
    size_t used = 0;
    hushmote_remember(&last, report, bytes, (uint32_t)time(NULL));
    for (unsigned i = 0; i < last.count; i++) {
        used += (size_t)sprintf(lines + used, "%u ", (unsigned)last.reports[i].at);
        for (unsigned k = 0; k < last.reports[i].bytes; k++)
            used += (size_t)sprintf(lines + used, "%02x", last.reports[i].report[k]);
        lines[used++] = '\n';
    }
    if (hushmote_posix_replace(&posix, LAST, lines, used) != 0)
        fprintf(stderr, "hushmote-post: %s/" LAST " cannot be written; export will lack this report\n", posix.folder);
}

/* --- Readings ------------------------------------------------------------------------------------------------- */

/* Parse a reading: - for a missing one, true or false, an integer or a number. Anything else is a text, as is
   everything in quotes. */
static struct hushmote_reading reading_of(char *text) {
    size_t bytes = strlen(text);
    char *end;
    double number;
    long long whole;
    if (bytes >= 2 && text[0] == '"' && text[bytes - 1] == '"')
        return hushmote_bytes(text + 1, bytes - 2);
    if (strcmp(text, "-") == 0)
        return hushmote_none();
    if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
        return hushmote_flag(text[0] == 't');
    errno = 0;
    whole = strtoll(text, &end, 10);
    if (bytes > 0 && *end == 0 && errno == 0)
        return hushmote_whole(whole);
    number = strtod(text, &end);
    return bytes > 0 && *end == 0 ? hushmote_double(number) : hushmote_bytes(text, bytes);
}

/* Report a line's reading. Print whether a report was made, which never depends on the value, but not its content. */
static void handle_line(char *text) {
    char *value = strchr(text, ' '), *group;
    uint8_t report[HUSHMOTE_REPORT_BYTES];
    struct hushmote_line line;
    int bytes;
    if (value != NULL)
        *value++ = 0;
    group = strchr(text, '@');
    if (group != NULL)
        *group++ = 0;
    if (value == NULL || hushmote_line(&client, text, &line) != HUSHMOTE_OK) {
        fprintf(stderr, "hushmote-post: %s: each line must be NAME VALUE, with a NAME from the policy\n", text);
        return;
    }
    bytes = hushmote_reporter_report_as(&reporter, text, reading_of(value), group, report);
    (void)hushmote_line(&client, text, &line);
    if (bytes > 0)
        remember(report, bytes);
    if (bytes > 0)
        printf("%s: report %u, %d bytes; %u more left\n", text, (unsigned)line.reports, bytes, (unsigned)line.left);
    else
        printf("%s: no report; %u more left\n", text, (unsigned)line.left);
    for (size_t i = 0; i < NAMES; i++) {
        if (topics[i].mistyped && strcmp(policy_names[i], text) == 0)
            printf("%s: %s; it counted as missing\n", text, hushmote_text(HUSHMOTE_WRONG_TYPE));
    }
    fflush(stdout);
}

static char input[4096];
static size_t input_used;

/* Read the available input. Return false at its end. */
static bool read_more(void) {
    ssize_t got = read(STDIN_FILENO, input + input_used, sizeof input - 1 - input_used);
    if (got > 0)
        input_used += (size_t)got;
    return got > 0 || (got < 0 && errno == EINTR);
}

static bool has_line(void) {
    return memchr(input, '\n', input_used) != NULL;
}

/* Handle the first line. A line that is too long is discarded up to its end. */
static void take_line(void) {
    static bool too_long;
    char *line_end = memchr(input, '\n', input_used);
    size_t bytes = line_end == NULL ? input_used : (size_t)(line_end - input) + 1;
    if (line_end != NULL) {
        *line_end = 0;
        if (*input && !too_long)
            handle_line(input);
    } else if (!too_long) {
        fprintf(stderr, "hushmote-post: ignored a line of more than %u bytes\n", (unsigned)sizeof input - 1);
    }
    too_long = line_end == NULL;
    input_used -= bytes;
    memmove(input, input + bytes, input_used);
}

/* --- Commands ------------------------------------------------------------------------------------------------- */

static uint32_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint32_t)((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
}

static void end(int number) {
    (void)number;
    ended = 1;
}

static int print_status(void) {
    static const char *const consents[] = {"not asked", "no", "yes"};
    struct hushmote_status status;
    struct hushmote_line line;
    (void)hushmote_status(&client, &status);
    printf("consent: %s; %u waiting", consents[status.consent], status.pending);
    if (status.locked)
        printf("; %s", hushmote_text(status.locked));
    if (reporter.fault || status.error)
        printf("; %s", hushmote_text(reporter.fault ? reporter.fault : status.error));
    printf("%s%s\n", posix.error ? "; " : "", posix.error ? posix.error : "");
    if (reporter.status_failures >= HUSHMOTE_LEFT_OUT || reporter.will_failures >= HUSHMOTE_LEFT_OUT)
        printf("left out: the broker does not permit %s%s%s on %s%shushmote/v1/%s/status/%s\n",
               reporter.status_failures >= HUSHMOTE_LEFT_OUT ? "the status" : "",
               reporter.status_failures >= HUSHMOTE_LEFT_OUT && reporter.will_failures >= HUSHMOTE_LEFT_OUT ? " or " : "",
               reporter.will_failures >= HUSHMOTE_LEFT_OUT ? "a last will" : "", posix.broker.prefix,
               posix.broker.prefix[0] ? "/" : "", client.config->fleet, posix.device_id);
    if (reporter.short_connections >= HUSHMOTE_SHORT)
        printf("another device may be using this id: the last %u connections were closed within 30 s\n",
               reporter.short_connections);
    for (size_t i = 0; i < NAMES; i++) {
        int refused;
        (void)hushmote_line(&client, policy_names[i], &line);
        refused = topics[i].refused ? topics[i].refused : line.refused;
        printf("%s: %u report%s made, %u left", policy_names[i], (unsigned)line.reports, line.reports == 1 ? "" : "s",
               (unsigned)line.left);
        if (line.group != NULL)
            printf("; its %s is sent unprotected", line.group->name);
        if (policy.log != NULL && line.enrolled)
            printf("; entry %u of the log %s", (unsigned)entries[i].leaf, policy.log->origin);
        printf("%s%s\n", refused ? "; refused: " : "", refused ? hushmote_text(refused) : "");
    }
    return status.locked ? 1 : 0;
}

/* Print what a line "NAME VALUE" of `run` would send. */
static int print_preview(char *name, char *value) {
    char text[HUSHMOTE_PREVIEW_BYTES], *group = strchr(name, '@');
    struct hushmote_status status;
    int code;
    if (group != NULL)
        *group++ = 0;
    (void)hushmote_status(&client, &status);
    code = hushmote_preview(&client, name, reading_of(value), group, text, sizeof text);
    if (code != HUSHMOTE_OK)
        return fail(name, hushmote_text(code));
    if (status.locked)
        return fail(posix.folder, hushmote_text(status.locked));
    puts(text);
    return 0;
}

static void print_piece(void *context, const char *text, size_t bytes) {
    (void)context;
    fwrite(text, 1, bytes, stdout);
}

/* Store an opt-out requested by another process. Return 0, or the code of an error, in which case the file remains. */
static int apply_requested_no(void) {
    char path[4096];
    int code;
    snprintf(path, sizeof path, "%s/%s", posix.folder, NO);
    if (access(path, F_OK) != 0)
        return HUSHMOTE_OK;
    code = hushmote_set_consent(&client, false);
    if (code == HUSHMOTE_OK)
        unlink(path);
    return code;
}

/* Open the folder. If another process has locked it, `no` writes the file, which survives a power cut, and waits until
   that process has stored the opt-out (then it returns 1) or has ended. */
static int open_folder(const char *folder, bool no) {
    char path[4096];
    uint32_t since = now_ms();
    int code = hushmote_posix_open(&posix, folder);
    if (code == 0 || !no || errno != EWOULDBLOCK)
        return code;
    snprintf(path, sizeof path, "%s/%s", folder, NO);
    if (hushmote_posix_replace(&posix, NO, "", 0) != 0)
        return -1;
    while (code != 0 && now_ms() - since < NO_MS) {
        poll(NULL, 0, 20);
        if (access(path, F_OK) != 0)
            return 1;
        code = hushmote_posix_open(&posix, folder);
    }
    return code;
}

/* Return whether to start reading input: an experiment is known, or the broker has sent all retained messages. */
static bool is_ready(uint32_t now) {
    static uint32_t connects, since;
    static bool connected;
    for (size_t i = 0; i < NAMES; i++) {
        if (experiments[i].enrolled)
            return true;
    }
    if (!posix.open)
        connected = false;
    if (connects != reporter.connects) {
        connects = reporter.connects;
        since = now;
        connected = posix.open;
    }
    return connected && now - since >= QUIET_MS;
}

static int run(struct hushmote_port *port, long seconds) {
    struct hushmote_status status;
    bool open = true, ready;
    port->delay_ms = (uint32_t)seconds * 1000;
    if (seconds == 0)
        port->spread_ms = 0;
    mosquitto_lib_init();
    signal(SIGTERM, end);
    signal(SIGINT, end);
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        uint32_t now = now_ms();
        (void)apply_requested_no();
        hushmote_reporter_tick(&reporter, now);
        (void)hushmote_status(&client, &status);
        if (ended || status.consent != HUSHMOTE_YES || (!open && !has_line() && status.pending == 0))
            break;
        ready = status.pending < HUSHMOTE_UNSENT_MAX && is_ready(now); /* leave input unread while the outbox is full */
        if (ready && (has_line() || input_used == sizeof input - 1))
            take_line();
        else if (hushmote_posix_wait(&posix, open && ready ? STDIN_FILENO : -1, 50))
            open = read_more();
    }
    if (!open && input_used > 0 && status.consent == HUSHMOTE_YES)
        fprintf(stderr, "hushmote-post: ignored the last line, which does not end with a newline and may be truncated\n");
    hushmote_reporter_close(&reporter);
    (void)print_status();
    mosquitto_destroy(posix.mqtt);
    mosquitto_lib_cleanup();
    return status.locked ? 1 : status.pending > 0 ? 3 : 0;
}

int main(int count, char **arguments) {
    struct hushmote_port port = hushmote_posix_mqtt;
    struct hushmote_config config = {
        .context = &posix,
        .read = hushmote_posix_read,
        .write = hushmote_posix_write,
        .entropy = hushmote_posix_entropy,
        .policy = &policy,
        .experiments = experiments,
        .records = records,
        .record_bytes = RECORD_BYTES,
        .unsent_max = HUSHMOTE_UNSENT_MAX,
    };
    const char *command = count > 2 ? arguments[2] : "";
    bool has_page, is_preview = strcmp(command, "preview") == 0;
    long seconds = count > 3 && !is_preview ? strtol(arguments[3], NULL, 10) : 30;
    const char *wrong;
    int code;
    if (count < 3 || (is_preview ? count != 5 : count > 3 + (strcmp(command, "run") == 0)) || seconds < 0 ||
        seconds > 16000) {
        fputs(usage, stderr);
        return 2;
    }
    code = open_folder(arguments[1], strcmp(command, "no") == 0);
    if (code > 0)
        return 0;
    if (code != 0)
        return fail(arguments[1], errno != EWOULDBLOCK        ? strerror(errno)
                                   : strcmp(command, "no") == 0 ? "the opt-out is stored, but the running client has not applied it yet"
                                                                : "another client uses this folder");
    wrong = read_page(&config, &has_page);
    if (!has_page)
        wrong = read_settings(&config);
    if (policy.consent & HUSHMOTE_ASK_EACH)
        wrong = "hushmote-post does not support a policy with HUSHMOTE_ASK_EACH";
    if (policy.log != NULL && config.announce_key == NULL)
        wrong = "the policy names a log, which requires an announce_key: provision a device of a fleet with keys";
    if (wrong != NULL)
        return fail(arguments[1], wrong);
    if (strcmp(command, "provision") == 0) {
        code = hushmote_provision(&config, false, HUSHMOTE_NOT_ASKED);
        return code == HUSHMOTE_OK ? 0 : fail(arguments[1], hushmote_text(code));
    }
    code = hushmote_begin(&client, &config);
    if (code == HUSHMOTE_OK && apply_requested_no() != HUSHMOTE_OK && command[0] == 'y')
        return fail(arguments[1], "an earlier opt-out cannot be stored");
    if (code == HUSHMOTE_OK && (strcmp(command, "yes") == 0 || strcmp(command, "no") == 0)) {
        for (unsigned i = 0; command[0] == 'y' && i < policy.group_count; i++)
            printf("it may send %s unprotected\n", policy.groups[i].name);
        code = hushmote_set_consent(&client, command[0] == 'y');
        return code == HUSHMOTE_OK ? 0 : fail(arguments[1], hushmote_text(code));
    }
    port.context = &posix;
    hushmote_port_set_times(&port);
    port.entries = policy.log == NULL ? NULL : entries;
    port.prefix = posix.broker.prefix;
    port.omit_status = omit_status;
    port.omit_will = omit_will;
    posix.reporter = &reporter;
    if (code == HUSHMOTE_OK)
        code = hushmote_reporter_begin(&reporter, &client, &port, topics, kept);
    if (code != HUSHMOTE_OK)
        return fail(arguments[1], hushmote_text(code));
    load_last();
    if (strcmp(command, "status") == 0)
        return print_status();
    if (is_preview)
        return print_preview(arguments[3], arguments[4]);
    if (strcmp(command, "export") == 0)
        return hushmote_export(&client, &last, print_piece, NULL) == HUSHMOTE_OK ? 0 : 1;
    if (strcmp(command, "run") == 0)
        return run(&port, seconds);
    fputs(usage, stderr);
    return 2;
}
