/* A report from a reading, for a machine with Linux: randomness from the kernel, the debit in a file before the report.
     report FILE new       once: the empty record of what was spent; a record that is there is never replaced
     report FILE READING   write a report's bytes to standard output, or, where one waits, the same bytes again
     report FILE sent      the broker has acknowledged it
   Exit status 0; 1: refused, and why; 3: no report this time. The experiment is that of experiment.h. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "experiment.h"
#include "hushmote.h"

#define LIFE_EPSILON 8000000u   /* the policy: the most of this board's life, and of one report */
#define REPORT_EPSILON 4000000u
#define RECORD "hushmote-c 1 %32s %d %" SCNu64 " %" SCNu64 " %" SCNu32 " %" SCNu64 " %d %24s%c"

typedef struct { char name[33]; int rule; uint64_t cap, spent, life; uint32_t number; int epsilon; char waiting[25]; } record;

static void refuse(const char *why) {
    fprintf(stderr, "report: %s\n", why);
    exit(1);
}

static record load(const char *path) {
    record r;
    char end;
    FILE *file = fopen(path, "r");
    if (!file) refuse("no record of what was spent: nothing may be spent");
    int found = fscanf(file, RECORD, r.name, &r.rule, &r.cap, &r.spent, &r.number, &r.life, &r.epsilon, r.waiting, &end);
    fclose(file);
    if (found != 9 || end != '\n') refuse("the record is damaged: nothing may be spent");
    return r;
}

/* Put the record in force: a new file, on the disk, in the old one's place. */
static void save(const char *path, const record *r) {
    char other[4096], folder[4096];
    if (snprintf(other, sizeof other, "%s.new", path) >= (int)sizeof other) refuse("the path is too long");
    strcpy(folder, path);
    char *slash = strrchr(folder, '/');
    strcpy(slash ? slash + 1 : folder, ".");
    FILE *file = fopen(other, "w");
    int at = open(folder, O_RDONLY);
    if (!file || at < 0 ||
        fprintf(file, "hushmote-c 1 %s %d %" PRIu64 " %" PRIu64 " %" PRIu32 " %" PRIu64 " %d %s\n", r->name, r->rule, r->cap,
                r->spent, r->number, r->life, r->epsilon, r->waiting) < 0 ||
        fflush(file) || fsync(fileno(file)) || fclose(file) || rename(other, path) || fsync(at))
        refuse("the record cannot be written: nothing was spent");
    close(at);
}

int main(int count, char **arguments) {
    hm_experiment e = EXPERIMENT;
    hm_random random = hm_kernel_random;
    if (count != 3) refuse("report FILE new, report FILE READING or report FILE sent");
    const char *path = arguments[1], *what = arguments[2];
    if (!hm_derive(&e) || e.epsilon > REPORT_EPSILON || e.rule == HM_UNLIMITED) refuse("the experiment is refused");
    char lock[4096];
    if (snprintf(lock, sizeof lock, "%s.lock", path) >= (int)sizeof lock) refuse("the path is too long");
    int held = open(lock, O_RDWR | O_CREAT, 0600);
    if (held < 0 || flock(held, LOCK_EX | LOCK_NB)) refuse("another process has the record");

    if (strcmp(what, "new") == 0) {
        record r = {.rule = (int)e.rule, .cap = e.cap, .epsilon = (int)e.epsilon, .waiting = "-"};
        if (access(path, F_OK) == 0 || errno != ENOENT) refuse("a record is there, and stays");
        strncpy(r.name, e.name, sizeof r.name - 1);
        save(path, &r);
        return 0;
    }
    record r = load(path);
    if (strcmp(what, "sent") == 0) {
        strcpy(r.waiting, "-");
        save(path, &r);
        return 0;
    }
    uint8_t bytes[HM_REPORT_BYTES];
    int length = 0;
    if (strcmp(r.waiting, "-") == 0) {
        char *end;
        double number = e.type == HM_CHOICE ? NAN : strtod(what, &end);
        if (e.type != HM_CHOICE && (*end || end == what)) refuse("the reading must be a number, or nan for none");
        if (e.every > 1 && random.below(NULL, e.every) != 0) return 3; /* before the reading is looked at */
        uint32_t index = hm_bucket(&e, number, what, &random);
        uint64_t cap = r.cap < e.cap ? r.cap : e.cap, spent = e.rule == HM_COUNT ? r.number : r.spent;
        if (strcmp(r.name, e.name) || r.rule != (int)e.rule || (e.rule == HM_COUNT && r.epsilon != (int)e.epsilon))
            refuse("the record was made for another experiment, rule or epsilon");
        if (spent + hm_cost(&e) > cap || r.life + e.epsilon > LIFE_EPSILON || r.number == UINT32_MAX) return 3;
        length = hm_report(&e, ++r.number, hm_randomize(&e, index, &random), bytes);
        r.spent += e.rule == HM_COUNT ? 0 : hm_cost(&e);
        r.life += e.epsilon;
        for (int i = 0; i < length; i++) sprintf(r.waiting + 2 * i, "%02x", bytes[i]);
        save(path, &r); /* the debit is on the disk before anybody sees the report */
    }
    for (length = 0; sscanf(r.waiting + 2 * length, "%2hhx", &bytes[length]) == 1; length++) {}
    fwrite(bytes, 1, (size_t)length, stdout);
    return fflush(stdout) ? 1 : 0;
}
