/* A thermometer that takes part in the experiment room_temp. Create device.h with
   `hushmote provision device NAME --for c`.

   Type p once to create the ledger, y to opt in, n to opt out, w to read what a reading would send, and e to export the
   last reports, the consent and the budget as JSON. If the flash contains no file system, p also formats
   it. On a board that was already in use this erases the record of the spent budget, so give it a new device id first.
   */
#include <LittleFS.h>
#include <WiFi.h>
#include <hushmote_arduino.h>
#include <hushmote_float.h>

#include "device.h"

HUSHMOTE_POLICY(policy, 8000000, 0, 1000000, HUSHMOTE_SUM, false, "room_temp");

static const uint8_t key[32] = HUSHMOTE_KEY, announce_key[64] = HUSHMOTE_ANNOUNCE_KEY;
static WiFiClient network; /* for TLS, use WiFiClientSecure and setCACert(HUSHMOTE_BROKER_CA) */
static HushmoteBoard<1> board(policy, network);
static hushmote_last last;
static uint32_t since;

void setup() {
    Serial.begin(115200);
    WiFi.begin(HUSHMOTE_WIFI_SSID, HUSHMOTE_WIFI_PASSWORD);
    if (!hushmote_arduino_mount(false))
        Serial.println("no file system: type p to format the flash; a used board needs a new device id first");
    board.config.fleet = HUSHMOTE_FLEET;
    board.config.device_id = HUSHMOTE_DEVICE_ID;
    board.config.key = key;
    board.config.announce_key = announce_key;
    board.arduino.host = HUSHMOTE_BROKER;
    board.arduino.port = HUSHMOTE_BROKER_PORT;
    board.arduino.prefix = HUSHMOTE_TOPIC_PREFIX;
    Serial.println(hushmote_text(board.begin()));
}

void loop() {
    int typed = Serial.read();
    if (typed == 'p')
        Serial.println(hushmote_arduino_mount(true) ? hushmote_text(board.provision()) : "no file system");
    if (typed == 'y' || typed == 'n')
        Serial.println(hushmote_text(board.consent(typed == 'y')));
    if (typed == 'w')
        board.preview(Serial, "room_temp", hushmote_float(temperature()));
    if (typed == 'e')
        board.export_json(Serial, last);
    if (millis() - since >= 600000) { /* every 10 minutes, regardless of the reading */
        since += 600000;
        board.report("room_temp", hushmote_float(temperature()), nullptr, &last);
    }
    board.poll();
}

float temperature() { return 21.4f; /* replace with your sensor's reading; return NAN if it fails */ }
