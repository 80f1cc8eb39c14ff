/* Functions that tests of the C client need in addition to its own. */
#include <string.h>

#include "core.h"
#include "hushmote_float.h"
#include "hushmote_health.h"
#include "hushmote_port.h"

const size_t test_client_bytes = sizeof(struct hushmote), test_experiment_bytes = sizeof(struct hushmote_experiment),
             test_reporter_bytes = sizeof(struct hushmote_reporter), test_topic_bytes = sizeof(struct hushmote_topic),
             test_question_bytes = sizeof(struct hushmote_question),
             test_log_entry_bytes = sizeof(struct hushmote_log_entry);

/* Returns the index in the log of the version in force. */
uint32_t test_leaf(const struct hushmote_port *port, unsigned at) {
    return port->entries[at].leaf;
}

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

/* Checks a proof alone: returns 0 or the code of its refusal, and sets *leaf. */
int test_proof(struct hushmote_config *config, const char *name, const uint8_t *payload, size_t bytes,
               const uint8_t *data, size_t data_bytes, uint32_t *leaf) {
    struct hushmote_proof proof = {data, data_bytes, 0};
    struct hushmote_piece entry[HM_ENTRY_PIECES] = {
        {"", 1}, {"hushmote/v1/", 12}, {config->fleet, strlen(config->fleet)}, {"/experiment/", 12},
        {name, strlen(name)}, {"", 1}, {payload, bytes}};
    int code = config->policy->log->check->verify(config, entry, &proof);
    *leaf = proof.leaf;
    return code;
}

uint32_t test_serial(const struct hushmote_experiment *experiments, unsigned at) {
    return experiments[at].serial;
}

/* Returns a float or double in thousandths, or INT64_MIN for a missing reading. */
int64_t test_milli(double value, int single) {
    struct hushmote_reading reading = single ? hushmote_float((float)value) : hushmote_double(value);
    return reading.kind == HUSHMOTE_IS_NONE ? INT64_MIN : reading.number;
}

/* A board whose sensors a test sets. */
struct test_board {
    uint32_t seconds, free_heap;
    int rssi, cause;
};

static enum hushmote_cause test_cause(void *context) {
    return (enum hushmote_cause)((struct test_board *)context)->cause;
}

static int test_rssi(void *context) {
    return ((struct test_board *)context)->rssi;
}

static uint32_t test_free_heap(void *context) {
    return ((struct test_board *)context)->free_heap;
}

static uint32_t test_seconds(void *context) {
    return ((struct test_board *)context)->seconds;
}

const size_t test_health_bytes = sizeof(struct hushmote_health);

/* Tells the readers what happened: start, ack, heap, newer, updated, why, battery. */
void test_health(struct hushmote_health *health, struct test_board *board, const char *kind, int value) {
    struct hushmote_health_port port = {board, test_cause, test_rssi, test_free_heap, test_seconds};
    switch (kind[0]) {
    case 's':
        hushmote_health_start(health, &port);
        break;
    case 'a':
        hushmote_health_acknowledged(health, &port);
        break;
    case 'h':
        hushmote_health_sample(health, &port);
        break;
    case 'n':
        hushmote_health_newer(health, &port);
        break;
    case 'u':
        hushmote_health_updated(health, (enum hushmote_update)value);
        break;
    case 'w':
        hushmote_health_restarting(health, (enum hushmote_cause)value);
        break;
    default:
        hushmote_health_battery(health, &port, (unsigned)value);
    }
}

struct hushmote_reading test_health_read(struct hushmote_health *health, struct test_board *board,
                                         const char *question) {
    struct hushmote_health_port port = {board, test_cause, test_rssi, test_free_heap, test_seconds};
    return hushmote_health_read(health, &port, question);
}
