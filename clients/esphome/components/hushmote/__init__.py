"""Hushmote for ESPHome: reports that are provably private through local differential privacy.

The C client's files are copied from the same clone when code is generated: from clients/c of Hushmote's
repository, or from the root of hushmote-embedded.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

import re
from decimal import Decimal
from pathlib import Path

import esphome.codegen as cg
import esphome.config_validation as cv
import esphome.final_validate as fv
from esphome import automation, yaml_util
from esphome.components import binary_sensor, button, sensor, switch, text_sensor
from esphome.const import (
    CONF_BROKER,
    CONF_DISABLED_BY_DEFAULT,
    CONF_ESPHOME,
    CONF_GROUP,
    CONF_ID,
    CONF_INTERVAL,
    CONF_NAME,
    CONF_PASSWORD,
    CONF_PORT,
    CONF_PROJECT,
    CONF_USERNAME,
    CONF_VERSION,
    ENTITY_CATEGORY_CONFIG,
    ENTITY_CATEGORY_DIAGNOSTIC,
    PLATFORM_ESP32,
    PLATFORM_HOST,
    STATE_CLASS_MEASUREMENT,
)
from esphome.core import CORE, EsphomeError

AUTO_LOAD = ["binary_sensor", "button", "sensor", "switch", "text_sensor"]
DEPENDENCIES = ["network"]

CONF_ANNOUNCE_KEY = "announce_key"
CONF_BUDGET_LEFT = "budget_left"
CONF_CA = "ca"
CONF_CERTIFICATE = "certificate"
CONF_CERTIFICATE_KEY = "certificate_key"
CONF_ASK = "ask"
CONF_CONSENT_FROM = "consent_from"
CONF_CONSENT_GIVEN = "consent_given"
CONF_DELAY = "delay"
CONF_DEVICE_ID = "device_id"
CONF_EPSILON = "epsilon"
CONF_EXPERIMENTS = "experiments"
CONF_FLEET = "fleet"
CONF_GROUPS = "groups"
CONF_IDENTITY = "identity"
CONF_KEY = "key"
CONF_KEYS = "keys"
CONF_LAST_REPORT = "last_report"
CONF_LOG = "log"
CONF_NEED = "need"
CONF_OMIT_STATUS = "omit_status"
CONF_OMIT_WILL = "omit_will"
CONF_ON_READING = "on_reading"
CONF_ORIGIN = "origin"
CONF_POLICY = "policy"
CONF_PROVISION = "provision"
CONF_READING = "reading"
CONF_RULES = "rules"
CONF_SHOW = "show"
CONF_SQUARES = "squares"
CONF_SUM = "sum"
CONF_TAKES_PART = "takes_part"
CONF_TOPIC_PREFIX = "topic_prefix"
CONF_YES_BUTTON = "yes_button"

# The C client, and the folder of its core: in hushmote-embedded, and in Hushmote's repository.
CLIENTS = ((Path(__file__).parents[2], "src"), (Path(__file__).parents[3] / "c", "."))
PORTS = {
    "host": ("posix/posix.h", "posix/mqtt.c", "posix/folder.c"),
    "esp32": ("idf/hushmote_idf.h", "idf/idf_identity.c", "idf/idf_mqtt.c", "idf/idf_nvs.c"),
}
NOT_CORE = ("check.c", "fuzz.c", "hushmote_arduino.h")
RULES = {name: f"HUSHMOTE_{name.upper()}" for name in ("sum", "squares", "count", "unlimited")}
FIRMWARE = "firmware"  # the group whose value is the project's version unless the YAML gives another
# Supported reading components; C++ overload resolution selects the function for each entity class.
READINGS = ("sensor", "binary_sensor", "text_sensor")
SECRETS = (CONF_KEY, CONF_PASSWORD, CONF_CERTIFICATE_KEY)
PARTITION_BYTES = 0x10000  # 16 NVS pages; an experiment needs at most one page
IDENTITY_BYTES = 0x3000  # the fewest NVS pages that nvs_partition_gen makes
WAKE_UPS = ("wakeup_pin", "esp32_ext1_wakeup", "touch_wakeup")
REPORT_BYTES = 22  # in the record, including its length
RECORD_BYTES = 254  # host preferences hold 255 bytes, one of which stores the record's length

# Not named hushmote because the C client has a struct with that name.
ns = cg.esphome_ns.namespace("hushmote_client")
Hushmote = ns.class_("Hushmote", cg.Component)
TakesPart = ns.class_("TakesPart", switch.Switch)
Provision = ns.class_("Provision", button.Button)
Show = ns.class_("Show", button.Button)


def _matching(pattern, description):
    def check(value):
        value = cv.string_strict(value)
        if not re.fullmatch(pattern, value):
            raise cv.Invalid(f"must be {description}")
        return value

    return check


def _hex(count):
    return _matching(
        f"[0-9a-fA-F]{{{2 * count}}}", f"{2 * count} hex digits, as written by `hushmote provision device`"
    )


def _micro(low, high):
    """Return a validator that converts an epsilon, or its square, to millionths."""

    def check(value):
        value = Decimal(str(cv.float_(value))) * 1_000_000
        if value != int(value) or not low <= value <= high:
            raise cv.Invalid(f"must be {low / 1e6:g} to {high / 1e6:g}, in steps of a millionth")
        return int(value)

    return check


def _squares(value):
    """Return a bound on the sum of squares, in millionths squared."""
    return int(Decimal(str(cv.float_range(min=0, max=1_000_000)(value))) * 10**12)


name = _matching("[a-z0-9_-]{1,32}", "1 to 32 of a-z, 0-9, _ and -")

# Invisible characters: controls, line separators, marks of direction and order, half surrogate pairs.
INVISIBLE = r"\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ufffd\ud800-\udfff"
_group_text = _matching(rf'[^{INVISIBLE}"\\]{{1,32}}', 'a text of 1 to 32 bytes without " and \\')


def group_value(value):
    """Accept a value of an open group."""
    value = _group_text(value)
    if len(value.encode()) > 32:
        raise cv.Invalid("must be a text of 1 to 32 bytes in UTF-8")
    return value


login = cv.All(
    cv.string, _matching(rf"[^{INVISIBLE}]*", "a text without control characters and byte-order marks")
)

IN_FLASH = "nvs"
IDENTITY_BLOCK = cv.Schema(
    {
        cv.Required(CONF_FLEET): name,
        cv.Required(CONF_DEVICE_ID): _matching(
            "[a-z0-9-]{1,32}", "1 to 32 of a-z, 0-9 and -; never a MAC address"
        ),
        cv.Inclusive(CONF_KEY, "keys"): cv.sensitive(_hex(32)),
        cv.Inclusive(CONF_ANNOUNCE_KEY, "keys"): _hex(64),
        cv.Required(CONF_BROKER): cv.string_strict,
        cv.Optional(CONF_PORT, default=1883): cv.port,
        cv.Optional(CONF_TOPIC_PREFIX, default=""): cv.All(cv.string_strict, cv.Length(max=64)),
        cv.Optional(CONF_USERNAME, default=""): login,
        cv.Optional(CONF_PASSWORD, default=""): cv.sensitive(login),
        cv.Optional(CONF_CA, default=""): cv.string,
        cv.Inclusive(CONF_CERTIFICATE, "certificate"): cv.string,
        cv.Inclusive(CONF_CERTIFICATE_KEY, "certificate"): cv.sensitive(),
        cv.Optional(CONF_OMIT_STATUS, default=False): cv.boolean,
        cv.Optional(CONF_OMIT_WILL, default=False): cv.boolean,
        cv.Optional(CONF_CONSENT_GIVEN, default=False): cv.boolean,
    }
)


def identity(value):
    """Accept a device's identity, or "nvs": the identity is in each board's flash."""
    return value if value == IN_FLASH else IDENTITY_BLOCK(value)


def ask(value):
    """Accept "once", an opt-in to all experiments."""
    if value == "each":
        raise cv.Invalid("this component asks once for all experiments: omit ask, or set it to once")
    return cv.one_of("once")(value)


def groups(value):
    """Accept open groups as names, or as names with this device's values."""
    if not isinstance(value, dict):
        value = dict.fromkeys(cv.ensure_list(name)(value))
    return {name(key): None if text is None else group_value(text) for key, text in value.items()}


def group_values(config, full):
    """Return the value of each of the policy's groups; None if there is none for a group."""
    project = full[CONF_ESPHOME].get(CONF_PROJECT) or {}
    values = dict(config[CONF_POLICY][CONF_GROUPS])
    if FIRMWARE in values and values[FIRMWARE] is None:
        values[FIRMWARE] = project.get(CONF_VERSION)
    return values


def log(value):
    """Accept the public log in which experiments must be: its name, and its key and those of witnesses."""
    value = LOG(value)
    starts = {key[:8].lower() for key in value[CONF_KEYS]}  # a proof names the keys by these
    if len(starts) < len(value[CONF_KEYS]):
        raise cv.Invalid("two keys start with the same 8 digits: each witness has its own", [CONF_KEYS])
    least, most = (len(value[CONF_KEYS]) + 1) // 2, len(value[CONF_KEYS]) - 1
    if not least <= value[CONF_NEED] <= most:
        raise cv.Invalid(f"must be more than half of the witnesses, at least {least} of {most}", [CONF_NEED])
    return value


LOG = cv.Schema(
    {
        cv.Required(CONF_ORIGIN): _matching(
            "[!-*,-~]{1,255}", "the log's name: printable, without spaces and +"
        ),
        cv.Required(CONF_KEYS): cv.All(cv.ensure_list(_hex(64)), cv.Length(min=2, max=8)),
        cv.Required(CONF_NEED): cv.int_range(min=1, max=7),
    }
)
POLICY = cv.Schema(
    {
        cv.Required(CONF_SUM): _micro(0, 1_000_000_000_000),
        cv.Optional(CONF_SQUARES, default=0): _squares,
        cv.Required(CONF_EPSILON): _micro(1_000, 16_000_000),
        cv.Required(CONF_RULES): cv.All(cv.ensure_list(cv.one_of(*RULES, lower=True)), cv.Length(min=1)),
        cv.Optional(CONF_GROUPS, default={}): groups,
        cv.Optional(CONF_LOG): log,
        cv.Optional(CONF_ASK, default="once"): ask,
        cv.Optional(CONF_CONSENT_FROM, default="board"): cv.one_of("board", "network", lower=True),
    }
)

EXPERIMENT = cv.Schema(
    {
        cv.Required(CONF_NAME): name,
        cv.Required(CONF_READING): cv.All(cv.ensure_list(cv.use_id(cg.EntityBase)), cv.Length(min=1, max=3)),
        cv.Required(CONF_INTERVAL): cv.All(
            cv.positive_time_period_milliseconds,
            cv.Range(min=cv.TimePeriod(seconds=1), max=cv.TimePeriod(days=20)),
        ),
        cv.Optional(CONF_GROUP): cv.use_id(text_sensor.TextSensor),
        cv.Optional(CONF_ON_READING): automation.validate_automation(single=True),
        cv.Optional(CONF_BUDGET_LEFT): sensor.sensor_schema(
            unit_of_measurement="reports",
            icon="mdi:shield-half-full",
            accuracy_decimals=0,
            state_class=STATE_CLASS_MEASUREMENT,
            entity_category=ENTITY_CATEGORY_DIAGNOSTIC,
        ),
    }
)


def _hide_secrets(config):
    """Hide the secrets when ESPHome prints the whole block because a value is wrong."""
    identity = config.get(CONF_IDENTITY) if isinstance(config, dict) else None
    for field in SECRETS if isinstance(identity, dict) else ():
        if identity.get(field):
            yaml_util._SECRET_VALUES[str(identity[field])] = f"{field} of the identity"
    return config


def unsent_max(config):
    """Return the maximum number of unsent reports: the number that fits into the record, at most 16."""
    return min(16, (RECORD_BYTES - 40 - 22 * len(config[CONF_EXPERIMENTS])) // REPORT_BYTES)


def _check_consistency(config):
    identity, policy, experiments = (config[key] for key in (CONF_IDENTITY, CONF_POLICY, CONF_EXPERIMENTS))
    names = [experiment[CONF_NAME] for experiment in experiments]
    if len(set(names)) < len(names):
        raise cv.Invalid("two experiments have the same name", [CONF_EXPERIMENTS])
    if unsent_max(config) < 1:
        raise cv.Invalid(
            "at most 8 experiments are supported: the ledger record has no space for more", [CONF_EXPERIMENTS]
        )
    if policy[CONF_SUM] < policy[CONF_EPSILON] and policy[CONF_SQUARES] < policy[CONF_EPSILON] ** 2:
        raise cv.Invalid("sum does not allow even one report of epsilon: raise it", [CONF_POLICY, CONF_SUM])
    if identity == IN_FLASH:
        return config
    if CONF_LOG in policy and CONF_ANNOUNCE_KEY not in identity:
        raise cv.Invalid(
            "a log requires an announce_key: use the identity of a fleet with keys", [CONF_POLICY, CONF_LOG]
        )
    can_opt_in = CONF_YES_BUTTON in config or policy[CONF_CONSENT_FROM] == "network"
    if not can_opt_in and not identity[CONF_CONSENT_GIVEN]:
        raise cv.Invalid(
            "nobody could opt in: set yes_button, a binary_sensor that someone at the board holds, or "
            "policy consent_from: network, which lets the switch in Home Assistant opt in",
            [CONF_POLICY],
        )
    if CONF_CERTIFICATE in identity and not identity[CONF_CA]:
        raise cv.Invalid("a certificate requires the broker's ca", [CONF_IDENTITY, CONF_CA])
    if CORE.is_host and (identity[CONF_CA] or "," in identity[CONF_BROKER]):
        path = [CONF_IDENTITY, CONF_CA if identity[CONF_CA] else CONF_BROKER]
        raise cv.Invalid("the host platform is for tests: one broker, without TLS", path)
    return config


CONFIG_SCHEMA = cv.All(
    _hide_secrets,
    cv.Schema(
        {
            cv.GenerateID(): cv.declare_id(Hushmote),
            cv.Required(CONF_IDENTITY): identity,
            cv.Required(CONF_POLICY): POLICY,
            cv.Required(CONF_EXPERIMENTS): cv.All(cv.ensure_list(EXPERIMENT), cv.Length(min=1)),
            cv.Required(CONF_TAKES_PART): switch.switch_schema(
                TakesPart,
                icon="mdi:account-check",
                entity_category=ENTITY_CATEGORY_CONFIG,
                block_inverted=True,
            ),
            cv.Required(CONF_PROVISION): button.button_schema(
                Provision, icon="mdi:shield-plus", entity_category=ENTITY_CATEGORY_CONFIG
            ).extend({cv.Optional(CONF_DISABLED_BY_DEFAULT, default=True): cv.boolean}),
            cv.Optional(CONF_YES_BUTTON): cv.use_id(binary_sensor.BinarySensor),
            cv.Optional(CONF_LAST_REPORT): text_sensor.text_sensor_schema(
                icon="mdi:send-check", entity_category=ENTITY_CATEGORY_DIAGNOSTIC
            ),
            cv.Optional(CONF_SHOW): button.button_schema(
                Show, icon="mdi:text-search", entity_category=ENTITY_CATEGORY_DIAGNOSTIC
            ),
            cv.Optional(CONF_DELAY, default="30s"): cv.All(
                cv.positive_time_period_milliseconds, cv.Range(max=cv.TimePeriod(seconds=16_000))
            ),
        }
    ).extend(cv.COMPONENT_SCHEMA),
    _check_consistency,
    cv.only_on([PLATFORM_ESP32, PLATFORM_HOST]),
)


def _final_validate(config):
    full = fv.full_config.get()
    for at, experiment in enumerate(config[CONF_EXPERIMENTS]):
        for reading in experiment[CONF_READING]:
            if full.get_path_for_id(reading)[0] not in READINGS:
                raise cv.Invalid(
                    f"{reading} must be a sensor, a binary_sensor or a text_sensor",
                    [CONF_EXPERIMENTS, at, CONF_READING],
                )
    for group, value in group_values(config, full).items():
        default = " or set the version of project: in esphome:" if group == FIRMWARE else ""
        if value is None:
            raise cv.Invalid(
                f"group {group} has no value: write {group}: VALUE{default}", [CONF_POLICY, CONF_GROUPS]
            )
        with cv.prepend_path([CONF_POLICY, CONF_GROUPS, group]):
            group_value(value)
    # Only a timer may wake the board: a report that is triggered by an event reveals the event.
    if set(WAKE_UPS) & set(full.get("deep_sleep") or ()):
        raise cv.Invalid(
            "a board that takes part may wake up only after sleep_duration, not by pin or touch",
            [CONF_EXPERIMENTS],
        )
    # An ESP32's generator is random only while its radio is on.
    if CORE.is_esp32 and not {"wifi", "esp32_ble"} & full.keys():
        raise cv.Invalid("an ESP32 needs wifi: or esp32_ble: to generate good random numbers", [CONF_POLICY])


FINAL_VALIDATE_SCHEMA = _final_validate


def _file_names(port):
    return [Path(name).name for name in PORTS[port]]


def FILTER_SOURCE_FILES():
    """Return the source files for other platforms, which ESPHome must not compile."""
    return [name for port in PORTS for name in _file_names(port) if port != CORE.target_platform]


def copy_client():
    """Copy the C client into this folder, because ESPHome compiles only files here; git ignores them."""
    here = Path(__file__).parent
    clients = [(client, core) for client, core in CLIENTS if (client / core / "hushmote.h").exists()]
    if not clients:
        if not (here / "hushmote.h").exists():
            raise EsphomeError("no C client: use the whole repository, not only this folder")
        return
    client, core = clients[0]
    files = [
        path for kind in ("*.c", "*.h") for path in (client / core).glob(kind) if path.name not in NOT_CORE
    ]
    files += [client / name for names in PORTS.values() for name in names]
    for path in files:
        copy, content = here / path.name, path.read_bytes()
        if not copy.exists() or copy.read_bytes() != content:
            copy.write_bytes(content)
    for copy in set(here.glob("*.c")) - {here / path.name for path in files}:
        copy.unlink()


def _bytes(digits):
    return cg.RawExpression("{" + ", ".join(f"0x{byte:02x}" for byte in bytes.fromhex(digits)) + "}")


def _compile_identity(var, identity):
    cg.add(var.set_identity(identity[CONF_FLEET], identity[CONF_DEVICE_ID], identity[CONF_CONSENT_GIVEN]))
    if CONF_KEY in identity:
        cg.add(var.set_keys(_bytes(identity[CONF_KEY]), _bytes(identity[CONF_ANNOUNCE_KEY])))
    cg.add(
        var.set_broker(
            identity[CONF_BROKER], identity[CONF_PORT], identity[CONF_USERNAME], identity[CONF_PASSWORD]
        )
    )
    if identity[CONF_CA]:
        cg.add(
            var.set_tls(
                identity[CONF_CA], identity.get(CONF_CERTIFICATE, ""), identity.get(CONF_CERTIFICATE_KEY, "")
            )
        )
    if identity[CONF_TOPIC_PREFIX]:
        cg.add(var.set_topic_prefix(identity[CONF_TOPIC_PREFIX]))
    cg.add(var.set_omitted(identity[CONF_OMIT_STATUS], identity[CONF_OMIT_WILL]))


def _compile_log(log):
    keys = ", ".join(f'"{key}"' for key in log[CONF_KEYS])
    cg.add_build_flag("-DHUSHMOTE_WITH_LOG=1")
    origin = cg.safe_exp(log[CONF_ORIGIN])  # a C++ string, with its quotes escaped
    cg.add_global(cg.RawStatement(f"HUSHMOTE_LOG(hushmote_questions, {origin}, {log[CONF_NEED]}, {keys});"))


async def _compile_experiment(var, experiment):
    cg.add(var.add_experiment(experiment[CONF_NAME], experiment[CONF_INTERVAL]))
    for reading in experiment[CONF_READING]:
        cg.add(var.add_reading(await cg.get_variable(reading)))
    if CONF_BUDGET_LEFT in experiment:
        cg.add(var.set_budget_left(await sensor.new_sensor(experiment[CONF_BUDGET_LEFT])))
    if CONF_GROUP in experiment:
        cg.add(var.set_group(await cg.get_variable(experiment[CONF_GROUP])))
    if CONF_ON_READING in experiment:
        await automation.build_automation(var.on_reading(), [], experiment[CONF_ON_READING])


async def to_code(config):
    """Generate the C++ code for the component's configuration."""
    copy_client()
    identity_config, policy = config[CONF_IDENTITY], config[CONF_POLICY]
    names = ", ".join(f'"{experiment[CONF_NAME]}"' for experiment in config[CONF_EXPERIMENTS])
    rules = " | ".join(RULES[rule] for rule in policy[CONF_RULES])
    network = "true" if policy[CONF_CONSENT_FROM] == "network" else "false"
    values = group_values(config, CORE.config)
    macro, arguments = "HUSHMOTE_POLICY", "hushmote_policy"
    if values:
        pairs = ", ".join(f'{{"{group}", "{value}"}}' for group, value in values.items())
        cg.add_global(cg.RawStatement(f"static ::hushmote_group hushmote_groups[] = {{{pairs}}};"))
        macro, arguments = f"{macro}_WITH_GROUPS", f"{arguments}, hushmote_groups"
    if CONF_LOG in policy:
        _compile_log(policy[CONF_LOG])
        macro += "_AND_LOG" if values else "_WITH_LOG"
        arguments += ", hushmote_questions"
    cg.add_global(
        cg.RawStatement(
            f"{macro}({arguments}, UINT64_C({policy[CONF_SUM]}), "
            f"UINT64_C({policy[CONF_SQUARES]}), {policy[CONF_EPSILON]}, {rules}, {network}, {names});"
        )
    )
    var = cg.new_Pvariable(config[CONF_ID])
    await cg.register_component(var, config)
    cg.add(var.set_policy(cg.RawExpression("&hushmote_policy"), unsent_max(config)))
    if identity_config == IN_FLASH:
        cg.add(var.set_identity_from_flash())
    else:
        _compile_identity(var, identity_config)
    cg.add(var.set_delay(config[CONF_DELAY]))
    for experiment in config[CONF_EXPERIMENTS]:
        await _compile_experiment(var, experiment)
    takes_part = await switch.new_switch(config[CONF_TAKES_PART])
    cg.add(takes_part.set_parent(var))
    cg.add(var.set_takes_part(takes_part))
    provision = await button.new_button(config[CONF_PROVISION])
    cg.add(provision.set_parent(var))
    if CONF_SHOW in config:
        show = await button.new_button(config[CONF_SHOW])
        cg.add(show.set_parent(var))
    if CONF_YES_BUTTON in config:
        cg.add(var.set_yes_button(await cg.get_variable(config[CONF_YES_BUTTON])))
    if CONF_LAST_REPORT in config:
        cg.add(var.set_last_report(await text_sensor.new_text_sensor(config[CONF_LAST_REPORT])))
    if CORE.is_host:
        cg.add_build_flag("-lmosquitto")
    else:
        from esphome.components import esp32

        esp32.add_partition("hushmote", "data", "nvs", PARTITION_BYTES)
        if identity_config == IN_FLASH:
            esp32.add_partition("identity", "data", "nvs", IDENTITY_BYTES)
        if esp32.idf_version() >= cv.Version(6, 0, 0):
            esp32.add_idf_component(name="espressif/mqtt", ref="1.0.0")
        else:
            esp32.include_builtin_idf_component("mqtt")
