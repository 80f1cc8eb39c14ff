/* The network and the broker behind esp_mqtt.c. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

extern struct broker {
    uint32_t dns_ms;       /* duration of a name lookup */
    bool refuses_connections;
    bool drops_packets; /* packets to the broker are lost */
    bool closes_connections;
    bool stalls_mid_packet;  /* the second part of a packet never arrives */
    bool blocks_writes;      /* the TCP window is closed */
    int connack_code;        /* 0, or the code with which it refuses connections */
    int suback_code;         /* the granted QoS, or 0x80 */
    unsigned retained_count; /* retained messages, one per subscription */
    unsigned connect_count, disconnect_count;
    unsigned client_count; /* clients that are not yet destroyed */
    char payload[1200];    /* of each retained message; %s stands for the topic's last part */
    unsigned bytes;
} broker;
