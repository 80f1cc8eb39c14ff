/* The network and the broker behind esp_mqtt.c. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

extern struct broker {
    uint32_t dns_ms;       /* how long a name takes */
    bool refuses;          /* a connection, at once */
    bool is_silent;        /* packets to it are lost */
    bool is_gone;          /* it closes connections */
    bool stops_in_packets; /* the rest of a packet does not come */
    bool takes_nothing;    /* the window is closed: a write waits */
    unsigned retained;     /* messages, one for each subscription */
    unsigned connects, goodbyes, clients; /* clients: that were not destroyed */
    char payload[1200];    /* of a retained message; %s is its topic's last part */
    unsigned bytes;
} broker;
