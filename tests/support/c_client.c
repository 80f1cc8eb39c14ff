/* What a test asks of the C client beyond its own functions; scripted draws where it is built with SCRIPTED. */
#include "core.h"
#include "hushmote_float.h"
#include "hushmote_port.h"

const size_t test_client_bytes = sizeof(struct hushmote), test_experiment_bytes = sizeof(struct hushmote_experiment),
             test_reporter_bytes = sizeof(struct hushmote_reporter), test_topic_bytes = sizeof(struct hushmote_topic);

void test_set_serial(struct hushmote_experiment *experiments, unsigned at, uint32_t serial) {
    experiments[at].serial = serial;
}

uint32_t test_serial(const struct hushmote_experiment *experiments, unsigned at) {
    return experiments[at].serial;
}

void test_set_enrolled(struct hushmote_experiment *experiments, unsigned at) {
    experiments[at].enrolled = 1;
}

/* Thousandths of a float or a double; INT64_MIN for no reading. */
int64_t test_milli(double value, int single) {
    struct hushmote_reading reading = single ? hushmote_float((float)value) : hushmote_double(value);
    return reading.kind == HUSHMOTE_IS_NONE ? INT64_MIN : reading.number;
}

/* The index of a reading under experiment `at`; -1 for no reading, HUSHMOTE_WRONG_TYPE - 1 for one of the wrong type. */
int64_t test_bucket(const struct hushmote_config *config, unsigned at, struct hushmote_reading reading) {
    struct hm_index index;
    if (hm_bucket(config, config->experiments + at, &reading, &index) != 0)
        return HUSHMOTE_WRONG_TYPE;
    return index.missing ? -1 : (int64_t)index.at;
}

#ifdef SCRIPTED
/* A draw that is asked for: `below` with n, or `bernoulli` with a threshold; what comes back is the outcome. */
static uint32_t (*test_draw)(int is_below, uint32_t argument);

void test_script(uint32_t (*draw)(int is_below, uint32_t argument)) {
    test_draw = draw;
}

bool __wrap_hm_bernoulli(struct hushmote_random *random, uint32_t threshold);
bool __wrap_hm_bernoulli(struct hushmote_random *random, uint32_t threshold) {
    (void)random;
    return test_draw(0, threshold) != 0;
}

uint32_t __wrap_hm_below(struct hushmote_random *random, uint32_t n);
uint32_t __wrap_hm_below(struct hushmote_random *random, uint32_t n) {
    (void)random;
    return test_draw(1, n);
}
#endif
