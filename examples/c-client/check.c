/* Answers the questions of tests/vectors.json, a line each; the experiments are those of experiments.h. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments.h"
#include "hushmote.h"

static hm_experiment all[] = EXPERIMENTS;

/* Draws that the line names: name, argument, outcome. Another argument than the client's ends the run. */
static uint32_t drawn(const char *wanted, uint32_t argument) {
    const char *name = strtok(NULL, " "), *given = strtok(NULL, " "), *outcome = strtok(NULL, " ");
    if (!outcome || strcmp(name, wanted) != 0 || strtoul(given, NULL, 10) != argument) {
        printf("drew %s %" PRIu32 "\n", wanted, argument);
        exit(1);
    }
    return (uint32_t)strtoul(outcome, NULL, 10);
}

static uint32_t below(void *context, uint32_t n) { (void)context; return drawn("below", n); }
static bool bernoulli(void *context, uint32_t n) { (void)context; return drawn("bernoulli", n) != 0; }

static uint32_t argument(void) { return (uint32_t)strtoul(strtok(NULL, " "), NULL, 10); }

int main(void) {
    static char line[4096];
    hm_random random = {bernoulli, below, NULL};
    uint8_t bytes[HM_REPORT_BYTES];
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = 0;
        const char *what = strtok(line, " ");
        if (strcmp(what, "threshold") == 0) {
            uint32_t epsilon = argument();
            printf("%" PRIu32 "\n", hm_threshold(epsilon, argument()));
            continue;
        }
        if (strcmp(what, "below") == 0 || strcmp(what, "bernoulli") == 0) { /* how often each outcome comes */
            uint32_t n = argument(), draws = argument(), counts[256] = {0};
            for (uint32_t i = 0; i < draws; i++)
                counts[what[2] == 'l' ? hm_kernel_random.below(NULL, n) : hm_kernel_random.bernoulli(NULL, n)]++;
            for (uint32_t i = 0; i < (what[2] == 'l' ? n : 2); i++) printf("%" PRIu32 " ", counts[i]);
            puts("");
            continue;
        }
        hm_experiment *e = &all[argument()];
        bool good = hm_derive(e);
        if (strcmp(what, "levels") == 0) {
            printf("%d %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32, good, e->domain, e->weight_sum, e->code_count,
                   e->code_bytes);
            for (const hm_level *l = e->level; good && l < e->level + e->level_count; l++)
                printf(" %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32 " %" PRIu32, l->nodes, l->g,
                       l->t, l->width, l->offset, l->threshold, l->weight);
            puts("");
        } else if (strcmp(what, "number") == 0) {
            printf("%" PRIu32 "\n", hm_bucket(e, strtod(strtok(NULL, " "), NULL), NULL, &random));
        } else if (strcmp(what, "text") == 0) {
            const char *text = strtok(NULL, ""); /* the rest of the line */
            printf("%" PRIu32 "\n", hm_bucket(e, NAN, text ? text : "", &random));
        } else if (strcmp(what, "none") == 0) { /* no reading: it draws the index, too */
            printf("%" PRIu32 "\n", hm_randomize(e, hm_bucket(e, NAN, NULL, &random), &random));
        } else if (strcmp(what, "code") == 0) {
            uint32_t index = argument();
            printf("%" PRIu32 "\n", hm_randomize(e, index, &random));
        } else { /* report: its number, then the draws of a report of no reading */
            uint32_t number = argument();
            int count = hm_report(e, number, hm_randomize(e, hm_bucket(e, NAN, NULL, &random), &random), bytes);
            for (int i = 0; i < count; i++) printf("%02x", bytes[i]);
            puts("");
        }
    }
    return 0;
}
