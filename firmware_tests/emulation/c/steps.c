/* Mark the cycles of every branch of some experiments' draws on the emulated RP2040, for steps_c.py.

   steps.h defines the experiments' PAYLOADS and their numbers of indices, DOMAINS. A mark's number is the experiment's index
   times 1000 plus the level drawn. This file replaces drbg.c when linked with the core. */
#include <stdio.h>
#include <string.h>

#include "core.h"
#include "steps.h"

#define MARK ((volatile uint32_t *)0x40060020) /* a register that the real chip does not have */
#define MAX_DRAWS 8

static const char *const payloads[] = {PAYLOADS}, *const names[] = {"e"};
static const uint32_t domains[] = {DOMAINS};
static const struct hushmote_policy policy = {.name_count = 1, .names = names};
static const struct hushmote_config config = {.policy = &policy};
static struct hushmote_experiment experiment;

static volatile uint32_t choices[MAX_DRAWS];
static uint32_t sizes[MAX_DRAWS];
static unsigned known, at;
/* Each branch runs twice: first to record its draws, then to measure it with a constant time per draw. */
static bool measured;

static uint32_t choose(uint32_t n) {
    if (!measured && at == known) {
        choices[known] = 0;
        sizes[known++] = n;
    }
    return choices[at++];
}

bool hm_bernoulli(struct hushmote_random *random, uint32_t threshold) {
    (void)random;
    (void)threshold;
    return choose(2);
}

uint32_t hm_below(struct hushmote_random *random, uint32_t n) {
    (void)random;
    return choose(n);
}

static bool advance(void) {
    while (known && choices[known - 1] == sizes[known - 1] - 1)
        known--;
    if (known)
        choices[known - 1]++;
    return known > 0;
}

static uint32_t level_of(uint32_t code) {
    uint32_t level = 0;
    while (level + 1u < experiment.level_count && hm_level(&experiment, level + 1)->offset <= code)
        level++;
    return level;
}

static uint32_t run(uint32_t index, uint32_t mark) {
    struct hm_index copy;
    uint32_t code;
    memset(&copy, 0, sizeof copy);
    copy.at = index;
    at = 0;
    *MARK = mark;
    code = hm_randomize(&experiment, &copy, NULL);
    *MARK = mark;
    return code;
}

int main(void) {
    unsigned number;
    for (uint32_t i = 0; i < sizeof payloads / sizeof *payloads; i++) {
        if (hm_parse(&config, (const uint8_t *)payloads[i], strlen(payloads[i]), &experiment, &number) != 0) {
            printf("%s is refused\n", payloads[i]);
            return 1;
        }
        for (uint32_t index = 0; index < domains[i]; index++) {
            known = 0;
            do {
                uint32_t level;
                measured = false;
                level = level_of(run(index, 999999));
                measured = true;
                run(index, 1000 * i + level);
            } while (advance());
        }
    }
    return 0;
}
