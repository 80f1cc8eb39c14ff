/* A client for open fleets, from docs/wire-format.md: reading -> index -> code -> report. No I/O, no heap. */
#ifndef HUSHMOTE_H
#define HUSHMOTE_H

#include <stdbool.h>
#include <stdint.h>

#define HM_LEVELS 24          /* fanout 2 over 2^24 indices */
#define HM_REPORT_BYTES 12    /* the longest: 1 + 4 + 4 + 3 */

typedef enum { HM_BOOL, HM_CHOICE, HM_NUMBER } hm_type;
typedef enum { HM_RR, HM_GRR, HM_OLH, HM_HH } hm_mechanism;
typedef enum { HM_UNLIMITED, HM_SUM, HM_SQUARES, HM_COUNT } hm_rule;

typedef struct { uint32_t nodes, g, t, width, offset, threshold, weight, seeds; } hm_level;

typedef struct {
    /* as the experiment's JSON has them; experiment_h.py writes them down */
    const char *name;
    uint8_t digest[4];
    hm_type type;
    const char *const *labels;  /* HM_CHOICE: label_count of them */
    uint32_t label_count;
    int64_t low, high;          /* HM_NUMBER: thousandths of a unit, and bins */
    uint32_t bins;
    hm_mechanism mechanism;
    uint32_t g, fanout, cells[HM_LEVELS], weights[HM_LEVELS], cell_count;
    uint32_t epsilon, every;
    hm_rule rule;
    uint64_t cap;
    /* what hm_derive() adds */
    uint32_t domain, level_count, weight_sum, code_count, code_bytes;
    hm_level level[HM_LEVELS];
} hm_experiment;

/* The source of chance; a test puts another in its place. below(n): uniform over 0 to n - 1. */
typedef struct {
    bool (*bernoulli)(void *context, uint32_t threshold);
    uint32_t (*below)(void *context, uint32_t n);
    void *context;
} hm_random;

extern const hm_random hm_kernel_random; /* kernel_random.c: Linux */

/* floor(2^30 p); 0 where epsilon or g is out of range, or exp() is not exact enough to tell. */
uint32_t hm_threshold(uint32_t epsilon, uint32_t g);

/* Fill in levels and counts; false: refuse the experiment. */
bool hm_derive(hm_experiment *e);

/* The index of a reading: bool and number as a double, choice as a text. NaN and NULL: no reading, and the
   index is drawn. */
uint32_t hm_bucket(const hm_experiment *e, double number, const char *label, hm_random *random);

/* The code of an index, 0 to domain - 1. */
uint32_t hm_randomize(const hm_experiment *e, uint32_t index, hm_random *random);

/* Write a report's bytes; returns how many. */
int hm_report(const hm_experiment *e, uint32_t number, uint32_t code, uint8_t bytes[HM_REPORT_BYTES]);

/* What a report costs of the cap. */
uint64_t hm_cost(const hm_experiment *e);

#endif
