/* Connect the C client to ESPHome: entities provide readings, preferences or NVS provide storage, and a switch sets
   consent.

   The component has its own MQTT connection, because an mqtt: block would publish every reading along with the reports.
   Everything runs in ESPHome's main loop. */
#pragma once

#include <map>
#include <string>
#include <vector>

#include "esphome/components/binary_sensor/binary_sensor.h"
#include "esphome/components/button/button.h"
#include "esphome/components/sensor/sensor.h"
#include "esphome/components/switch/switch.h"
#include "esphome/components/text_sensor/text_sensor.h"
#include "esphome/core/automation.h"
#include "esphome/core/component.h"
#include "esphome/core/preferences.h"
#include "hushmote_button.h"
#include "hushmote_identity.h"
#include "hushmote_port.h"
#include "hushmote_preview.h"

extern "C" {
#ifdef USE_HOST
#include "posix.h"
#else
#include "esp_err.h"
#include "hushmote_idf.h"
#endif
}

namespace esphome::hushmote_client {

#ifdef USE_HOST
using Link = ::hushmote_posix;
#else
using Link = ::hushmote_idf;
#endif

#ifdef USE_HOST
/* Host preferences hold at most 255 bytes and must be read with the size with which they were saved, so all of them
   have the same size. */
struct Slot {
  uint8_t bytes;
  uint8_t data[254];
};
#endif

struct Source {
  sensor::Sensor *number;
  binary_sensor::BinarySensor *flag;
  text_sensor::TextSensor *text;
};

struct Question {
  const char *name;
  uint32_t interval_ms;
  std::vector<Source> readings;
  sensor::Sensor *budget_left;
  text_sensor::TextSensor *group; /* the open group's value in the period that the reading describes */
  Trigger<> *on_reading;
};

class Hushmote;

class TakesPart : public switch_::Switch {
 public:
  void set_parent(Hushmote *parent) { this->parent_ = parent; }

 protected:
  void write_state(bool state) override;
  Hushmote *parent_{nullptr};
};

class Provision : public button::Button {
 public:
  void set_parent(Hushmote *parent) { this->parent_ = parent; }

 protected:
  void press_action() override;
  Hushmote *parent_{nullptr};
};

class Show : public button::Button {
 public:
  void set_parent(Hushmote *parent) { this->parent_ = parent; }

 protected:
  void press_action() override;
  Hushmote *parent_{nullptr};
};

class Hushmote : public Component {
 public:
  void set_policy(const ::hushmote_policy *policy, uint8_t unsent_max);
  void set_identity(const char *fleet, const char *device_id, bool consent_given);
  void set_identity_from_flash() { this->identity_in_flash_ = true; }
  void set_keys(std::vector<uint8_t> key, std::vector<uint8_t> announce_key);
  void set_broker(const char *hosts, uint16_t port, const char *user, const char *password);
  void set_tls(const char *ca, const char *certificate, const char *key);
  void set_delay(uint32_t ms) { this->delay_ms_ = ms; }
  void set_topic_prefix(const char *prefix) { this->port_.prefix = prefix; }
  void set_omitted(bool status, bool will) {
    this->port_.omit_status = status;
    this->port_.omit_will = will;
  }
  void add_experiment(const char *name, uint32_t interval_ms) {
    this->questions_.push_back({name, interval_ms, {}, nullptr, nullptr, new Trigger<>()});
  }
  void add_reading(sensor::Sensor *number) { this->questions_.back().readings.push_back({number, nullptr, nullptr}); }
  void add_reading(binary_sensor::BinarySensor *flag) { this->questions_.back().readings.push_back({nullptr, flag, nullptr}); }
  void add_reading(text_sensor::TextSensor *text) { this->questions_.back().readings.push_back({nullptr, nullptr, text}); }
  void set_budget_left(sensor::Sensor *left) { this->questions_.back().budget_left = left; }
  void set_group(text_sensor::TextSensor *group) { this->questions_.back().group = group; }
  Trigger<> *on_reading() { return this->questions_.back().on_reading; }
  void set_takes_part(TakesPart *takes_part) { this->takes_part_ = takes_part; }
  void set_yes_button(binary_sensor::BinarySensor *button) { this->yes_button_ = button; }
  void set_last_report(text_sensor::TextSensor *last) { this->last_report_ = last; }

  void setup() override;
  void loop() override;
  void dump_config() override;
  /* Start after the radio, which an ESP32's generator needs. */
  float get_setup_priority() const override { return setup_priority::AFTER_WIFI; }

  /* Create the empty ledger. If there is a button, someone must hold it. An existing ledger is kept. */
  void provision();
  /* The number of reports that the broker has acknowledged since the start. */
  uint32_t sent() const { return this->reporter_.sent; }
  /* Store an opt-in or opt-out. at_board: given at the board, not over the network. */
  void set_consent(bool yes, bool at_board);
  /* Log what each experiment's next report would contain, the last reports, and both as JSON. */
  void show();

 protected:
  bool begin_();
  ::hushmote_reading read_(const Question &question, const char **group);
  void report_(Question &question);
  void poll_button_();
  void publish_();
  void log_policy_();
  void log_broker_();
  uint32_t key_(const std::string &what) const;
  bool open_flash_();
  bool load_identity_();
#ifdef USE_HOST
  ESPPreferenceObject &preference_(const std::string &what);
  bool load_(const std::string &what, Slot *slot);
  bool save_(const std::string &what, const uint8_t *data, size_t bytes);
#endif

  ::hushmote_config config_{};
  ::hushmote_port port_{};
  ::hushmote client_{};
  ::hushmote_reporter reporter_{};
  ::hushmote_last last_{};
  ::hushmote_reading parts_[3]{};  // of the reading that read_() returned
  Link link_{};
#ifdef USE_HOST
  std::map<uint32_t, ESPPreferenceObject> preferences_;
#else
  char name_space_[16];
#endif
  std::vector<Question> questions_;
  std::vector<::hushmote_experiment> experiments_;
  std::vector<::hushmote_topic> topics_;
  std::vector<::hushmote_log_entry> entries_;
  std::vector<uint8_t> records_, kept_, key_bytes_, announce_bytes_;
  uint8_t unique_id_[6];
  TakesPart *takes_part_{nullptr};
  binary_sensor::BinarySensor *yes_button_{nullptr};
  text_sensor::TextSensor *last_report_{nullptr};
  ::hushmote_button button_{};
  uint32_t delay_ms_{0};
  int logged_lock_{0};
  uint8_t logged_broker_{0};
  bool consent_given_{false}, identity_in_flash_{false};
};

}  // namespace esphome::hushmote_client
