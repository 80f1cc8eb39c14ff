"""clients/esphome/health.yaml: valid for an ESP32, and right during a recorded lifetime on the host."""

from __future__ import annotations

import json
import math
import re
import subprocess
from pathlib import Path
from typing import Any

import make_health_lifetime
import pytest
from boards import FLEET_KEYS
from command_line import hushmote
from esphome_host import COMPONENTS, build, esphome, needs_esphome, needs_esphome_build

from hushmote.device.ldp_client import Experiment
from hushmote.fleet.provisioning.master_key import to_text

pytestmark = needs_esphome
PACKAGE = COMPONENTS.parent / "health.yaml"
PORT = COMPONENTS / "hushmote" / "health_port.h"
CLIENTS_C = COMPONENTS.parents[1] / "c"
LINES = make_health_lifetime.PATH.read_text("ascii").splitlines()
CAUSES = ("other", "power", "panic", "watchdog", "brown-out", "update")
OUTCOMES = (None, "ok", "download", "verify", "rolled back", "refused")
NUMBERS = ("uptime", "signal", "heap_low", "boot_time", "days_behind", "battery_life")
HUSHMOTE = """
hushmote:
  identity: !include desk.esphome.yaml
  policy: {sum: 8, epsilon: 2, rules: sum, consent_from: network}
  experiments:
    - {name: crashed, reading: health_crashed, interval: 1h}
    - {name: restart, reading: health_restart, interval: 1h}
    - {name: uptime, reading: health_uptime, interval: 1h}
  takes_part: {name: Takes part}
  provision: {name: Provision}
"""
ESP32 = """
packages:
  health: !include health.yaml
esphome: {name: desk}
esp32: {board: esp32dev}
wifi: {ssid: any, password: any-password}
"""
# After all components have started, the host replays the events and prints its sensors at each reading.
HOST = """
packages:
  health: !include health.yaml
host:
logger: {level: WARN}
esphome:
  name: desk
  on_boot:
    priority: -200
    then:
      - lambda: |-
          auto &board = hushmote_client::host_board;
          auto *port = &hushmote_client::health_port;
          id(health) = hushmote_health{};
          FILE *file = fopen("events.txt", "r");
          char kind[16];
          unsigned seconds;
          int value;
          while (fscanf(file, "%u %15s %d", &seconds, kind, &value) == 3) {
            board.seconds = seconds;
            std::string what = kind;
            if (what == "start") {
              board.cause = static_cast<hushmote_cause>(value);
              hushmote_health_start(&id(health), port);
            } else if (what == "ack") {
              board.rssi = value;
              hushmote_health_acknowledged(&id(health), port);
            } else if (what == "heap") {
              board.free_heap = value;
              hushmote_health_sample(&id(health), port);
            } else if (what == "newer") {
              hushmote_health_newer(&id(health), port);
            } else if (what == "updated") {
              hushmote_health_updated(&id(health), static_cast<hushmote_update>(value));
            } else if (what == "why") {
              hushmote_health_restarting(&id(health), static_cast<hushmote_cause>(value));
            } else if (what == "battery") {
              hushmote_health_battery(&id(health), port, value);
            } else {
              id(health_crashed).loop();
              id(health_unreachable).loop();
              id(health_restart).update();
              id(health_update).update();
              printf("READ|%d|%d|%s|%s", id(health_crashed).state, id(health_unreachable).state,
                     id(health_restart).state.c_str(), id(health_update).state.c_str());
              template_::TemplateSensor *numbers[] = {NUMBERS};
              for (auto *number : numbers) {
                number->update();
                printf("|%.5f", number->state);
              }
              printf("\\n");
            }
          }
          fflush(stdout);
          _exit(0);
"""
MODEL = """
#include <cmath>
#include <optional>
#include <string>
#include <cstdint>
template<typename T> using optional = std::optional<T>;
"""
ESP_SYSTEM = """
#pragma once
#include <cstdint>
enum esp_reset_reason_t {
  ESP_RST_UNKNOWN, ESP_RST_POWERON, ESP_RST_EXT, ESP_RST_SW, ESP_RST_PANIC, ESP_RST_INT_WDT, ESP_RST_TASK_WDT,
  ESP_RST_WDT, ESP_RST_DEEPSLEEP, ESP_RST_BROWNOUT, ESP_RST_SDIO
};
esp_reset_reason_t esp_reset_reason();
uint32_t esp_get_free_heap_size();
"""


def write(folder: Path, text: str) -> None:
    """Write a device's identity, the package and its YAML."""
    (folder / "master.key").write_text(to_text(FLEET_KEYS))
    (folder / "master.key").chmod(0o600)
    device = "provision device desk --for esphome --fleet home --master-key master.key"
    hushmote(*device.split(), "--broker", "mqtt://127.0.0.1", cwd=folder)
    (folder / "health.yaml").write_text(PACKAGE.read_text())
    components = f"external_components:\n  - source: {COMPONENTS}\n"
    numbers = ", ".join(f"id(health_{name})" for name in NUMBERS)
    (folder / "desk.yaml").write_text(text.replace("NUMBERS", numbers) + components + HUSHMOTE)


def event_lines() -> str:
    """Return the recorded events as numbers."""
    lines = []
    for now, kind, value in map(json.loads, LINES[1:]):
        number = value if isinstance(value, int) else 0
        if kind in ("start", "why"):
            number = CAUSES.index(value)
        elif kind == "updated":
            number = OUTCOMES.index(value)
        lines.append(f"{now} {kind} {number}")
    return "\n".join(lines)


def test_package_is_valid_for_an_esp32(tmp_path: Path):
    write(tmp_path, ESP32)
    assert "Configuration is valid!" in esphome("config", "desk.yaml", folder=tmp_path)


@needs_esphome_build
def test_readings_are_the_recorded_truth(tmp_path: Path):
    write(tmp_path, HOST)
    firmware = build(tmp_path, "desk")
    (tmp_path / "events.txt").write_text(event_lines())
    done = subprocess.run(
        [firmware], cwd=tmp_path, env={"HOME": str(tmp_path)}, capture_output=True, text=True, timeout=120
    )
    readings = [line.split("|")[1:] for line in done.stdout.splitlines() if line.startswith("READ")]
    truths = [value for _, kind, value in map(json.loads, LINES[1:]) if kind == "read"]
    assert len(readings) == len(truths) > 100, done.stderr
    experiments = {name: Experiment.parse(text.encode()) for name, text in json.loads(LINES[0]).items()}
    for (crashed, unreachable, restart, update, *numbers), truth in zip(readings, truths, strict=True):
        values: dict[str, Any] = {"crashed": crashed == "1", "unreachable": unreachable == "1"}
        values |= {"restart": restart, "update": update or None}
        floats = map(float, numbers)
        values |= {n: None if math.isnan(x) else x for n, x in zip(NUMBERS, floats, strict=True)}
        for name, (true, index) in truth.items():
            value = values[name]
            assert value == true or value == pytest.approx(true, rel=1e-5, abs=2e-3), name
            assert experiments[name].bucket(value) in (index, None), name


def test_port_compiles_for_an_esp32(tmp_path: Path):
    """Compile with models of ESP-IDF's and ESPHome's headers, without and with Wi-Fi."""
    (tmp_path / "esp_system.h").write_text(ESP_SYSTEM)
    wifi = tmp_path / "esphome" / "components" / "wifi"
    wifi.mkdir(parents=True)
    (wifi / "wifi_component.h").write_text(
        "namespace esphome::wifi { struct WiFiComponent { bool is_connected(); int wifi_rssi(); };"
        " extern WiFiComponent *global_wifi_component; }\n"
    )
    (tmp_path / "main.cpp").write_text(MODEL + '#include "health_port.h"\nint main() { return 0; }\n')
    for flags in ([], ["-DUSE_WIFI"]):
        command = [
            "g++",
            "-std=gnu++20",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-DUSE_ESP32",
            *flags,
            "-fsyntax-only",
        ]
        command += [f"-I{path}" for path in (tmp_path, PORT.parent, CLIENTS_C)]
        done = subprocess.run([*command, tmp_path / "main.cpp"], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_package_has_a_sensor_for_each_question():
    sensors = set(re.findall(r"id: health_(\w+)", PACKAGE.read_text())) - {"sent"}
    assert sensors == {*make_health_lifetime.READ}
