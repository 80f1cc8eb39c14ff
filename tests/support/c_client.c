/* Functions that tests of the C client need in addition to its own. */
#include <string.h>

#include "core.h"
#include "hushmote_float.h"
#include "hushmote_port.h"

const size_t test_client_bytes = sizeof(struct hushmote), test_experiment_bytes = sizeof(struct hushmote_experiment),
             test_reporter_bytes = sizeof(struct hushmote_reporter), test_topic_bytes = sizeof(struct hushmote_topic),
             test_question_bytes = sizeof(struct hushmote_question);

/* Copies the payload that awaits an opt-in and returns its length. */
unsigned test_waiting(const struct hushmote_port *port, unsigned at, uint8_t payload[HUSHMOTE_PAYLOAD_BYTES]) {
    if (port->questions == NULL)
        return 0;
    memcpy(payload, port->questions[at].payload, HUSHMOTE_PAYLOAD_BYTES);
    return port->questions[at].bytes;
}

/* Returns the open group's name in the question that awaits an opt-in, or "". */
const char *test_waiting_group(const struct hushmote_port *port, unsigned at) {
    const struct hushmote_group *group = port->questions[at].group;
    return group == NULL ? "" : group->name;
}

uint32_t test_serial(const struct hushmote_experiment *experiments, unsigned at) {
    return experiments[at].serial;
}

/* Returns a float or double in thousandths, or INT64_MIN for a missing reading. */
int64_t test_milli(double value, int single) {
    struct hushmote_reading reading = single ? hushmote_float((float)value) : hushmote_double(value);
    return reading.kind == HUSHMOTE_IS_NONE ? INT64_MIN : reading.number;
}
