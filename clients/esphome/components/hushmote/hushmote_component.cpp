#include "hushmote_component.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "esphome/components/network/util.h"
#include "esphome/core/application.h"
#include "esphome/core/hal.h"
#include "esphome/core/helpers.h"
#include "esphome/core/log.h"
#include "hushmote_float.h"

namespace esphome::hushmote_client {

static const char *const TAG = "hushmote";
static const size_t EXPORT_LINE = 200;

#ifdef USE_HOST
static const size_t SLOT_BYTES = sizeof(Slot::data);
static const size_t KEPT_SLOTS = HUSHMOTE_KEPT_BYTES / SLOT_BYTES + 1;
static const ::hushmote_port &MQTT = hushmote_posix_mqtt;
static void pass_events(Link *link) { hushmote_posix_wait(link, -1, 0); }
#else
static const ::hushmote_port &MQTT = hushmote_idf_mqtt;
static void pass_events(Link *link) { hushmote_idf_wait(link, 0); }
#endif

/* --- Settings ------------------------------------------------------------------------------------------------- */

void Hushmote::set_policy(const ::hushmote_policy *policy, uint8_t unsent_max) {
  this->config_.policy = policy;
  this->config_.unsent_max = unsent_max;
}

void Hushmote::set_identity(const char *fleet, const char *device_id, bool consent_given) {
  this->config_.fleet = fleet;
  this->config_.device_id = this->link_.device_id = device_id;
  this->consent_given_ = consent_given;
}

void Hushmote::set_keys(std::vector<uint8_t> key, std::vector<uint8_t> announce_key) {
  this->key_bytes_ = std::move(key);
  this->announce_bytes_ = std::move(announce_key);
  this->config_.key = this->key_bytes_.data();
  this->config_.announce_key = this->announce_bytes_.data();
}

#ifdef USE_HOST
void Hushmote::set_broker(const char *hosts, uint16_t port, const char *user, const char *password) {
  ::hushmote_broker &broker = this->link_.broker;
  snprintf(broker.hosts, sizeof broker.hosts, "%s", hosts);
  snprintf(broker.user, sizeof broker.user, "%s", user);
  snprintf(broker.password, sizeof broker.password, "%s", password);
  broker.port = port;
}
void Hushmote::set_tls(const char *, const char *, const char *) {}  // __init__.py rejects TLS on the host
#else
void Hushmote::set_broker(const char *hosts, uint16_t port, const char *user, const char *password) {
  this->link_.broker.hosts = hosts;
  this->link_.broker.port = port;
  this->link_.broker.user = user;
  this->link_.broker.password = password;
}

void Hushmote::set_tls(const char *ca, const char *certificate, const char *key) {
  this->link_.broker.ca = ca;
  this->link_.broker.certificate = certificate;
  this->link_.broker.certificate_key = key;
}
#endif

/* --- The identity in flash: on an ESP32 in NVS, on the host in a file ------------------------------------------ */

static int read_identity(Link *link, ::hushmote_config *config, ::hushmote_identity *identity) {
#ifdef USE_HOST
  static uint8_t page[HUSHMOTE_PAGE_BYTES];
  const char *path = getenv("HUSHMOTE_IDENTITY");
  FILE *file = path == nullptr ? nullptr : fopen(path, "rb");
  if (file == nullptr)
    return HUSHMOTE_NO_IDENTITY;
  size_t bytes = fread(page, 1, sizeof page, file);
  fclose(file);
  return hushmote_config_from_page(config, identity, page, bytes);
#else
  return hushmote_idf_load_identity(link, config, identity);
#endif
}

bool Hushmote::load_identity_() {
  ::hushmote_identity identity{};
  int code = read_identity(&this->link_, &this->config_, &identity);
  if (code != HUSHMOTE_OK) {
    ESP_LOGE(TAG, "%s", hushmote_text(code));
    return false;
  }
#ifdef USE_HOST
  if (*identity.ca) {
    ESP_LOGE(TAG, "the host platform is for tests: no TLS");
    return false;
  }
#endif
  this->set_identity(this->config_.fleet, this->config_.device_id, identity.consent_given);
  this->set_broker(identity.hosts, identity.port, identity.user, identity.password);
  this->set_tls(identity.ca, identity.certificate, identity.certificate_key);
  this->set_topic_prefix(identity.prefix);
  this->set_omitted(identity.omit_status, identity.omit_will);
  return true;
}

/* --- Flash: on the host ESPHome's preferences, on an ESP32 strings in NVS ------------------------------------- */

/* Keys depend on the identity, so a board with a new device id starts without a ledger and never reads its old one. */
uint32_t Hushmote::key_(const std::string &what) const {
  return fnv1_hash(std::string("hushmote/") + this->config_.fleet + "/" + this->config_.device_id + "/" + what);
}

#ifndef USE_HOST
/* ESPHome's preferences are not used because they are NVS blobs: a power cut can lose both the old and the new one. The
   partition "nvs" is only a fallback, for boards whose partition table was flashed without this component, because a
   factory reset erases it, as does ESPHome if it cannot open it. */
bool Hushmote::open_flash_() {
  snprintf(this->name_space_, sizeof this->name_space_, "hm%08x", (unsigned) this->key_(""));
  this->link_.name_space = this->name_space_;
  int code = hushmote_idf_open(&this->link_);
  if (code == ESP_ERR_NOT_FOUND) {
    ESP_LOGW(TAG, "No hushmote partition: flash this board once over USB, or a factory reset will lock it");
    this->link_.partition = "nvs";
    code = hushmote_idf_open(&this->link_);
  }
  if (code != 0)
    ESP_LOGE(TAG, "NVS: error %d", code);
  return code == 0;
}
#else
bool Hushmote::open_flash_() { return true; }

/* Create each key's preference only once, because objects from make_preference() are never freed. */
ESPPreferenceObject &Hushmote::preference_(const std::string &what) {
  auto [entry, is_new] = this->preferences_.try_emplace(this->key_(what));
  if (is_new)
    entry->second = global_preferences->make_preference<Slot>(entry->first, true);
  return entry->second;
}

bool Hushmote::load_(const std::string &what, Slot *slot) {
  return this->preference_(what).load(slot) && slot->bytes <= SLOT_BYTES;
}

bool Hushmote::save_(const std::string &what, const uint8_t *data, size_t bytes) {
  Slot slot{};
  if (bytes > SLOT_BYTES)
    return false;
  slot.bytes = bytes;
  if (bytes > 0)
    memcpy(slot.data, data, bytes);
  return this->preference_(what).save(&slot);
}
#endif

/* --- The core's callbacks ------------------------------------------------------------------------------------- */

void Hushmote::setup() {
  auto &config = this->config_;
  auto &port = this->port_;
  size_t names = config.policy->name_count;
  config.context = port.context = this;
#ifdef USE_HOST
  config.read = [](void *self, int slot, uint8_t *data, size_t bytes) -> long {
    Slot stored;
    if (!static_cast<Hushmote *>(self)->load_(slot == 0 ? "ledger0" : "ledger1", &stored))
      return 0;
    memcpy(data, stored.data, std::min<size_t>(bytes, stored.bytes));
    return stored.bytes;
  };
  config.write = [](void *self, int slot, const uint8_t *data, size_t bytes) -> int {
    bool saved = static_cast<Hushmote *>(self)->save_(slot == 0 ? "ledger0" : "ledger1", data, bytes);
    return saved && global_preferences->sync() ? 0 : -1;
  };
  port.read_kept = [](void *self, const char *name, uint8_t *data, size_t bytes) -> long {
    size_t total = 0;
    Slot slot{};
    slot.bytes = SLOT_BYTES;
    for (size_t i = 0; i < KEPT_SLOTS && slot.bytes == SLOT_BYTES; i++) {
      if (!static_cast<Hushmote *>(self)->load_(str_sprintf("kept/%s/%u", name, (unsigned) i), &slot))
        return 0;
      if (total + slot.bytes <= bytes)
        memcpy(data + total, slot.data, slot.bytes);
      total += slot.bytes;
    }
    return total;
  };
  port.write_kept = [](void *self, const char *name, const uint8_t *data, size_t bytes) -> int {
    bool saved = true;
    for (size_t i = 0, at = 0; i <= bytes / SLOT_BYTES; i++, at += SLOT_BYTES) {
      size_t part = std::min(bytes - at, SLOT_BYTES);
      saved &= static_cast<Hushmote *>(self)->save_(str_sprintf("kept/%s/%u", name, (unsigned) i), data + at, part);
    }
    return saved && global_preferences->sync() ? 0 : -1;
  };
#else
  config.read = [](void *self, int slot, uint8_t *data, size_t bytes) -> long {
    return hushmote_idf_read(&static_cast<Hushmote *>(self)->link_, slot, data, bytes);
  };
  config.write = [](void *self, int slot, const uint8_t *data, size_t bytes) -> int {
    return hushmote_idf_write(&static_cast<Hushmote *>(self)->link_, slot, data, bytes);
  };
  port.read_kept = [](void *self, const char *name, uint8_t *data, size_t bytes) -> long {
    return hushmote_idf_read_kept(&static_cast<Hushmote *>(self)->link_, name, data, bytes);
  };
  port.write_kept = [](void *self, const char *name, const uint8_t *data, size_t bytes) -> int {
    return hushmote_idf_write_kept(&static_cast<Hushmote *>(self)->link_, name, data, bytes);
  };
#endif
  config.entropy = [](void *, uint8_t *data, size_t bytes) -> int { return random_bytes(data, bytes) ? 0 : -1; };
  get_mac_address_raw(this->unique_id_);  // mixed into the seed, never sent
  config.unique_id = this->unique_id_;
  config.unique_id_bytes = sizeof this->unique_id_;
  config.record_bytes = HUSHMOTE_RECORD_BYTES(names, config.unsent_max);
  this->records_.resize(2 * config.record_bytes);
  this->experiments_.resize(names);
  this->topics_.resize(names);
  this->kept_.resize(HUSHMOTE_KEPT_BYTES);
  if (config.policy->log != nullptr) {
    this->entries_.resize(names);
    port.entries = this->entries_.data();
    config.feed = [](void *) { App.feed_wdt(); };
  }
  config.records = this->records_.data();
  config.experiments = this->experiments_.data();

  port.connect = [](void *self, const char *topic, const uint8_t *will, size_t bytes) -> int {
    return MQTT.connect(&static_cast<Hushmote *>(self)->link_, topic, will, bytes);
  };
  port.subscribe = [](void *self, const char *topic) -> long {
    return MQTT.subscribe(&static_cast<Hushmote *>(self)->link_, topic);
  };
  port.publish = [](void *self, const char *topic, const uint8_t *payload, size_t bytes, bool retain) -> long {
    return MQTT.publish(&static_cast<Hushmote *>(self)->link_, topic, payload, bytes, retain);
  };
  port.disconnect = [](void *self) { MQTT.disconnect(&static_cast<Hushmote *>(self)->link_); };
  hushmote_port_set_times(&port);
  port.delay_ms = this->delay_ms_;
  port.spread_ms = 60000;  // the default, with intervals that are known from the start
  for (const auto &question : this->questions_)
    port.spread_ms = std::min(port.spread_ms, question.interval_ms);
  this->link_.reporter = &this->reporter_;

  if ((this->identity_in_flash_ && !this->load_identity_()) || !this->open_flash_()) {
    this->mark_failed();
    return;
  }
  if (!this->begin_())
    return;
  for (auto &question : this->questions_)
    this->set_interval(question.interval_ms, [this, &question]() { this->report_(question); });
  this->set_interval(1000, [this]() { this->publish_(); });
  this->publish_();
}

bool Hushmote::begin_() {
  int code = hushmote_begin(&this->client_, &this->config_);
  if (code == HUSHMOTE_OK)
    code = hushmote_reporter_begin(&this->reporter_, &this->client_, &this->port_, this->topics_.data(), this->kept_.data());
  if (code == HUSHMOTE_OK)
    return true;
  ESP_LOGE(TAG, "%s", hushmote_text(code));
  this->mark_failed();
  return false;
}

/* --- The main loop -------------------------------------------------------------------------------------------- */

void Hushmote::loop() {
  pass_events(&this->link_);
  this->poll_button_();
  if (network::is_connected() || this->reporter_.link != 0)
    hushmote_reporter_tick(&this->reporter_, millis());
}

static ::hushmote_reading reading_of(const Source &source) {
  if (source.number != nullptr)
    return source.number->has_state() ? hushmote_float(source.number->state) : hushmote_none();
  if (source.flag != nullptr)
    return source.flag->has_state() ? hushmote_flag(source.flag->state) : hushmote_none();
  if (!source.text->has_state())
    return hushmote_none();
  return hushmote_bytes(source.text->state.data(), source.text->state.size());
}

/* Return a question's reading, and the open group's value in its period, or NULL for the policy's. */
::hushmote_reading Hushmote::read_(const Question &question, const char **group) {
  size_t count = 0;
  for (const auto &source : question.readings)
    this->parts_[count++] = reading_of(source);
  *group = nullptr;
  if (question.group != nullptr)
    *group = question.group->has_state() ? question.group->state.c_str() : "";  // "" counts as "other"
  return count == 1 ? this->parts_[0] : hushmote_parts(this->parts_, count);
}

void Hushmote::report_(Question &question) {
  uint8_t report[HUSHMOTE_REPORT_BYTES];
  const char *group;
  ::hushmote_reading reading = this->read_(question, &group);
  int bytes = hushmote_reporter_report_as(&this->reporter_, question.name, reading, group, report);
  if (bytes < 0)
    ESP_LOGE(TAG, "%s: %s", question.name, hushmote_text(bytes));
  size_t at = &question - this->questions_.data();
  if (this->topics_[at].mistyped)
    ESP_LOGW(TAG, "%s: the experiment does not accept readings of this type", question.name);
  hushmote_remember(&this->last_, report, bytes, (uint32_t) ::time(nullptr));
  if (bytes > 0) {
    char words[160];
    struct ::hushmote_line line;
    hushmote_line(&this->client_, question.name, &line);
    hushmote_describe(&this->client_, report, bytes, words, sizeof words);
    ESP_LOGI(TAG, "Report %u of %s", (unsigned) line.reports, words);
    if (this->last_report_ != nullptr)
      this->last_report_->publish_state(
          str_sprintf("%s %u%s", question.name, (unsigned) line.reports, words + strlen(question.name)));
  }
  question.on_reading->trigger();
}

static void append(void *context, const char *text, size_t bytes) { static_cast<std::string *>(context)->append(text, bytes); }

void Hushmote::show() {
  char text[HUSHMOTE_PREVIEW_BYTES];
  std::string exported;
  if (this->is_failed())  // setup() has logged the reason
    return;
  for (const auto &question : this->questions_) {
    const char *group;
    ::hushmote_reading reading = this->read_(question, &group);
    int code = hushmote_preview(&this->client_, question.name, reading, group, text, sizeof text);
    if (code != HUSHMOTE_OK)
      snprintf(text, sizeof text, "%s: %s", question.name, hushmote_text(code));
    for (char *line = strtok(text, "\n"); line != nullptr; line = strtok(nullptr, "\n"))
      ESP_LOGI(TAG, "%s", line);
  }
  for (unsigned i = 0; i < this->last_.count; i++) {
    hushmote_describe(&this->client_, this->last_.reports[i].report, this->last_.reports[i].bytes, text, sizeof text);
    ESP_LOGI(TAG, "Sent or waiting: %s", text);
  }
  hushmote_export(&this->client_, &this->last_, append, &exported);
  for (size_t at = 0; at < exported.size(); at += EXPORT_LINE)  // the logger cuts long lines
    ESP_LOGI(TAG, "JSON: %s", exported.substr(at, EXPORT_LINE).c_str());
}

/* If someone holds the button, toggle the consent. */
void Hushmote::poll_button_() {
  if (this->yes_button_ != nullptr && this->yes_button_->has_state() &&
      hushmote_held(&this->button_, this->yes_button_->state, millis()))
    this->set_consent(hushmote_consent(&this->client_) != HUSHMOTE_YES, true);
}

void Hushmote::set_consent(bool yes, bool at_board) {
  if (this->is_failed())  // setup() has logged the reason
    return;
  int code = at_board ? hushmote_set_consent(&this->client_, yes) : hushmote_consent_from_network(&this->client_, yes);
  if (code != HUSHMOTE_OK)
    ESP_LOGE(TAG, "%s: %s", yes ? "yes" : "no", hushmote_text(code));
  else if (yes)
    this->log_policy_();
  this->takes_part_->publish_state(hushmote_consent(&this->client_) == HUSHMOTE_YES);
}

/* Provisioning starts a new privacy bound, so someone must be at the board. */
void Hushmote::provision() {
  if (this->is_failed())
    return;
  if (this->yes_button_ != nullptr && !this->yes_button_->state) {
    ESP_LOGE(TAG, "provision: hold the board's button at the same time");
    return;
  }
  int code = hushmote_provision(&this->config_, false, this->consent_given_ ? HUSHMOTE_YES : HUSHMOTE_NOT_ASKED);
  ESP_LOGI(TAG, "provision: %s", hushmote_text(code));
  if (code == HUSHMOTE_OK && this->begin_())
    this->publish_();
}

void Hushmote::publish_() {
  struct ::hushmote_status status;
  hushmote_status(&this->client_, &status);
  bool yes = status.consent == HUSHMOTE_YES;
  if (this->takes_part_->state != yes || !this->takes_part_->has_state())
    this->takes_part_->publish_state(yes);
  if (status.locked != this->logged_lock_)
    ESP_LOGE(TAG, "%s", hushmote_text(status.locked));
  this->logged_lock_ = status.locked;
  this->log_broker_();
  for (auto &question : this->questions_) {
    struct ::hushmote_line line;
    if (question.budget_left == nullptr || hushmote_line(&this->client_, question.name, &line) != HUSHMOTE_OK)
      continue;
    float left = line.enrolled ? static_cast<float>(line.left) : NAN;
    float shown = question.budget_left->get_raw_state();
    if (!question.budget_left->has_state() || !(left == shown || (std::isnan(left) && std::isnan(shown))))
      question.budget_left->publish_state(left);
  }
}

/* Log what the broker does not permit, once per change. */
void Hushmote::log_broker_() {
  const auto &reporter = this->reporter_;
  uint8_t problems = (reporter.status_failures >= HUSHMOTE_LEFT_OUT) | (reporter.will_failures >= HUSHMOTE_LEFT_OUT) << 1 |
                     (reporter.short_connections >= HUSHMOTE_SHORT) << 2 | (reporter.connack != 0) << 3;
  uint8_t added = problems & ~this->logged_broker_;
  this->logged_broker_ = problems;
  if (added & 1)
    ESP_LOGW(TAG, "Left out: the broker does not permit the status topic");
  if (added & 2)
    ESP_LOGW(TAG, "Left out: the broker does not permit a last will on the status topic");
  if (added & 4)
    ESP_LOGW(TAG, "Another device may be using this device id: the last connections were closed within 30 s");
  if (added & 8)
    ESP_LOGW(TAG, "The broker refuses the connection, code %u", reporter.connack);
}

void Hushmote::log_policy_() {
  for (unsigned i = 0; i < this->config_.policy->group_count; i++) {
    const auto &group = this->config_.policy->groups[i];
    ESP_LOGI(TAG, "Reports may contain the %s unprotected: %s", group.name, group.value);
  }
  const auto *log = this->config_.policy->log;
  if (log != nullptr)
    ESP_LOGI(TAG, "Each question is asked of every device alike, checked by %u of %u witness%s of the log %s", log->need,
             log->key_count - 1u, log->key_count == 2 ? "" : "es", log->origin);
}

void Hushmote::dump_config() {
  if (this->config_.device_id == nullptr)  // setup() has logged the reason
    return;
  ESP_LOGCONFIG(TAG, "Hushmote: device %s of fleet %s, %s, up to %u unsent reports", this->config_.device_id,
                this->config_.fleet, this->config_.key != nullptr ? "with keys" : "open", this->config_.unsent_max);
  for (const auto &question : this->questions_)
    ESP_LOGCONFIG(TAG, "  %s: every %u s", question.name, (unsigned) (question.interval_ms / 1000));
  this->log_policy_();
}

void TakesPart::write_state(bool state) { this->parent_->set_consent(state, false); }
void Provision::press_action() { this->parent_->provision(); }
void Show::press_action() { this->parent_->show(); }

}  // namespace esphome::hushmote_client
