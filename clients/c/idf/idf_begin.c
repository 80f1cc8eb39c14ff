/* Connect the client, the reporter and this port. */
#include "hushmote_idf.h"

int hushmote_idf_begin(struct hushmote_idf *idf, struct hushmote *client, const struct hushmote_config *config,
                       struct hushmote_reporter *reporter, struct hushmote_topic *topics, uint8_t *kept) {
    int code = hushmote_begin(client, config);
    idf->device_id = config->device_id;
    idf->reporter = reporter;
    idf->port = hushmote_idf_mqtt;
    idf->port.context = idf;
    idf->port.read_kept = hushmote_idf_read_kept;
    idf->port.write_kept = hushmote_idf_write_kept;
    idf->port.entries = idf->entries;
    idf->port.prefix = idf->broker.prefix;
    idf->port.omit_status = idf->broker.omit_status;
    idf->port.omit_will = idf->broker.omit_will;
    hushmote_port_set_times(&idf->port);
    return code == HUSHMOTE_OK ? hushmote_reporter_begin(reporter, client, &idf->port, topics, kept) : code;
}
