/* The network and the broker behind esp_mqtt.c. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

extern struct broker {
    uint32_t dns_ms;       /* duration of a name lookup */
    bool refuses;          /* it refuses connections immediately */
    bool is_silent;        /* packets to it are lost */
    bool is_gone;          /* it closes connections */
    bool stops_in_packets; /* the rest of a packet never arrives */
    bool takes_nothing;    /* the TCP window is closed, so a write blocks */
    unsigned retained;     /* number of messages, one per subscription */
    unsigned connects, goodbyes, clients; /* clients: not yet destroyed */
    char payload[1200];    /* a retained message; %s stands for its topic's last part */
    unsigned bytes;
} broker;
