/* The platform's sensors for hushmote_health.h: reset reason, Wi-Fi signal, free heap and clock. */
#pragma once

#include <ctime>

#include "hushmote_health.h"

#ifdef USE_ESP32
#include "esp_system.h"
#ifdef USE_WIFI
#include "esphome/components/wifi/wifi_component.h"
#endif
#endif

namespace esphome::hushmote_client {

#ifdef USE_HOST
/* The host has none of these sensors; a test sets them. Without a test, its clock is the machine's. */
struct HostBoard {
  uint32_t seconds, free_heap;
  int rssi;
  ::hushmote_cause cause;
};
inline HostBoard host_board{};

inline ::hushmote_cause health_cause(void *) { return host_board.cause; }
inline int health_rssi(void *) { return host_board.rssi; }
inline uint32_t health_free_heap(void *) { return host_board.free_heap; }
inline uint32_t health_seconds(void *) {
  return host_board.seconds ? host_board.seconds : static_cast<uint32_t>(::time(nullptr));
}
inline bool health_was_asleep() { return false; }
#else
inline ::hushmote_cause health_cause(void *) {
  switch (esp_reset_reason()) {
    case ESP_RST_POWERON:
      return HUSHMOTE_CAUSE_POWER;
    case ESP_RST_PANIC:
      return HUSHMOTE_CAUSE_PANIC;
    case ESP_RST_INT_WDT:
    case ESP_RST_TASK_WDT:
    case ESP_RST_WDT:
      return HUSHMOTE_CAUSE_WATCHDOG;
    case ESP_RST_BROWNOUT:
      return HUSHMOTE_CAUSE_BROWN_OUT;
    default: /* such as a restart by the application or the reset pin */
      return HUSHMOTE_CAUSE_OTHER;
  }
}
inline int health_rssi(void *) {
#ifdef USE_WIFI
  return wifi::global_wifi_component->is_connected() ? wifi::global_wifi_component->wifi_rssi() : 0;
#else
  return 0;
#endif
}
inline uint32_t health_free_heap(void *) { return esp_get_free_heap_size(); }
/* The RTC keeps running across restarts and deep sleep, and is reset when the power fails. */
inline uint32_t health_seconds(void *) { return static_cast<uint32_t>(::time(nullptr)); }
inline bool health_was_asleep() { return esp_reset_reason() == ESP_RST_DEEPSLEEP; }
#endif

inline const ::hushmote_health_port health_port{nullptr, health_cause, health_rssi, health_free_heap, health_seconds};

/* Return a number, or NAN if there is no reading. */
inline float health_number(::hushmote_health &health, const char *question) {
  auto reading = ::hushmote_health_read(&health, &health_port, question);
  if (reading.kind == HUSHMOTE_IS_NONE)
    return NAN;
  return reading.kind == HUSHMOTE_IS_MILLI ? reading.number / 1000.0f : static_cast<float>(reading.number);
}

inline bool health_flag(::hushmote_health &health, const char *question) {
  return ::hushmote_health_read(&health, &health_port, question).number != 0;
}

/* Return a label, or nothing if there is no reading. */
inline optional<std::string> health_label(::hushmote_health &health, const char *question) {
  auto reading = ::hushmote_health_read(&health, &health_port, question);
  if (reading.kind == HUSHMOTE_IS_NONE)
    return {};
  return std::string(static_cast<const char *>(reading.data), reading.count);
}

}  // namespace esphome::hushmote_client
