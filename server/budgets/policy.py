"""The firmware's POLICY: a device's limits for its lifetime, whatever a server requests.

`policy_for` derives one from a total (ε, δ), `policy_statement` formats it as Python, `write` writes it into
a firmware file, and `read` reads it back.
"""

import ast
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ...device import ldp_client, ldp_log_policy
from ..accounting import Filter, Guarantee, History, ZcdpFilter
from ..epsilon import MICRO, check_epsilon
from ..errors import HushmoteError, os_reason
from ..experiments.budget import USUAL_DELTA
from ..wire.topics import is_fleet

RULES = ("sum", "squares", "count")
USUAL_EPSILON = 4.0
"""The default limit for one report, in nats, unless the total is smaller."""

NETWORK_START_NOTE = "The policy allows devices to be started over the network."
"""The note on a policy whose consent_from is "network"."""

_NAME = "POLICY"
_UNKNOWN = object()  # value of a constant that a firmware file does not define
_MAX_EXPERIMENTS = 64  # capacity of a board's ledger
_EXAMPLES = (1_000_000, 500_000, 100_000)  # micro-nats


class PolicyError(HushmoteError):
    """Raised if no device would accept a policy, or a file does not have one."""


@dataclass(frozen=True)
class PolicyLog:
    """The public log that must have every experiment, and the witnesses that must have signed its state.

    Attributes:
        origin: The log's name.
        keys: P-256 keys as 128 hex digits, first the log's and then each witness's.
        need: The number of witnesses that a device needs.
    """

    origin: str
    keys: tuple[str, ...]
    need: int

    @property
    def witnesses(self) -> tuple[str, ...]:
        """The witnesses' names: the first 16 digits of their keys."""
        return tuple(key[:16] for key in self.keys[1:])

    @property
    def words(self) -> str:
        """The log's meaning for the people who are asked, as a board states it."""
        return ldp_log_policy.words(asdict(self))


@dataclass(frozen=True)
class Policy:
    """The policy of an `ldp_client.Client`.

    Attributes:
        sum: The limit on the lifetime's Σε, in micro-nats; reports continue while this or `squares` allows
            it.
        squares: The limit on the lifetime's Σε², in micro-nats squared.
        epsilon: The limit for one report, in micro-nats.
        rules: The budget rules that the device accepts.
        experiments: The experiments that the device accepts.
        ask: "each" for consent to each experiment, "once" for one consent to all.
        groups: The groups whose values the device may send unprotected.
        consent_from: "network" if network messages may start a board, "board" if only someone at the board
            can.
        log: The public log that must have every experiment, or None.

    Raises:
        PolicyError: If a device would not accept it, or could never report under it.
    """

    sum: int
    squares: int
    epsilon: int
    rules: tuple[str, ...]
    experiments: tuple[str, ...]
    groups: tuple[str, ...] = ()
    ask: str = "once"
    consent_from: str = "board"
    log: PolicyLog | None = None

    def __post_init__(self) -> None:
        _check(self)
        if self.log is not None:
            _check_log(asdict(self.log))

    def to_dict(self) -> dict[str, Any]:
        """Return the fields of a firmware's POLICY, which has no "log" if there is none."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    def remaining_reports(self, epsilon: int, total: int = 0, squares: int = 0) -> int:
        """Return the number of remaining reports, all with the same ε.

        Args:
            epsilon: The ε of a report, in micro-nats.
            total: Σε so far, in micro-nats, as in a board's status().
            squares: Σε² so far, in micro-nats squared, likewise.
        """
        if epsilon > self.epsilon:
            return 0
        return max(0, (self.sum - total) // epsilon, (self.squares - squares) // (epsilon * epsilon))


def _check(policy: Policy) -> None:
    for name, low, high in (
        ("sum", 0, 2**48 - 1),
        ("squares", 0, 2**64 - 1),
        ("epsilon", ldp_client.EPSILON_MIN, ldp_client.EPSILON_MAX),
    ):
        value: object = getattr(policy, name)
        if type(value) is not int or not low <= value <= high:
            raise PolicyError(f"policy: {name} must be an integer from {low} to {high}")
    for name in ("rules", "experiments", "groups"):  # a board would find "at" in the str ("bath")
        value = getattr(policy, name)
        if not isinstance(value, tuple):
            raise PolicyError(f"policy: {name} must be a tuple of str")
    for name, words in (("ask", ("once", "each")), ("consent_from", ("board", "network"))):
        if getattr(policy, name) not in words:
            raise PolicyError(f"policy: {name} must be {' or '.join(words)}")
    for rule in policy.rules:
        if rule not in (*RULES, "unlimited"):
            raise PolicyError(f"policy: rules must be chosen from unlimited, {', '.join(RULES)}")
    for kind in ("experiments", "groups"):
        for name in getattr(policy, kind):
            if not (isinstance(name, str) and is_fleet(name)):
                raise PolicyError(
                    f"policy: the names of {kind} must be 1 to 32 of a-z, 0-9, _ and -, not {name!r}"
                )
    if not len(set(policy.experiments)) == len(policy.experiments) <= _MAX_EXPERIMENTS:
        raise PolicyError(f"policy: experiments must list at most {_MAX_EXPERIMENTS} names, each only once")


def _check_log(log: Any) -> None:
    try:  # whether there is an announce key is in the board's settings
        ldp_log_policy.check(log, announce_key=b"")
    except ldp_client.SettingsError as e:
        raise PolicyError(str(e)) from None


def _policy_log(log: Any) -> PolicyLog:
    _check_log(log)
    return PolicyLog(**log | {"keys": tuple(log["keys"])})


def policy_for(
    total: float,
    delta: float,
    experiments: Sequence[str],
    max_epsilon: int | None = None,
    rules: Sequence[str] = RULES,
) -> Policy:
    """Return the policy under which all reports in a board's lifetime are (total, delta)-LDP.

    Privacy: `accounting.Filter` defines the two caps.

    Args:
        total: The total ε of all reports, in nats, above 0.
        delta: δ, in [0, 1); with 0, only the sum is limited, and the reports are total-LDP.
        experiments: The experiments that boards accept.
        max_epsilon: The limit for one report, in micro-nats.
        rules: The budget rules that boards accept.

    Raises:
        AccountingError: If total or delta is out of range.
        PolicyError: If a board would not accept the policy or could never report under it.
    """
    caps = Filter(total, delta)
    if caps.remaining_reports(ldp_client.EPSILON_MIN) < 1:
        raise PolicyError(f"a total of {total:g} allows no reports; the smallest ε of a report is 0.001")
    if max_epsilon is None:
        max_epsilon = min(round(USUAL_EPSILON * MICRO), caps.sum_cap)
    check_epsilon(max_epsilon, PolicyError, "the limit for one report")
    if caps.remaining_reports(max_epsilon) < 1:
        raise PolicyError(
            f"no report of ε = {max_epsilon / MICRO:g} fits within a total of {total:g}; "
            "allow less for one report"
        )
    if not experiments:
        raise PolicyError("name the experiments that devices may take part in; they ignore all others")
    return Policy(caps.sum_cap, caps.squares_cap, max_epsilon, tuple(rules), tuple(experiments))


def guarantee(total: float, delta: float) -> Guarantee:
    """Return the guarantee for all of a device's reports under `policy_for(total, delta, ...)`."""
    return Filter(total, delta).guarantee()


def guarantee_of(policy: Policy, delta: float = USUAL_DELTA) -> Guarantee:
    """Return the guarantee for all of a device's reports.

    It is the smallest total, in thousandths of a nat, whose caps are at least the policy's.

    Args:
        policy: The policy.
        delta: δ, above 0 and below 1, used only if the policy limits squares.
    """
    if not policy.squares:
        return Filter(max(policy.sum, 1) / MICRO).guarantee()
    root = math.isqrt(policy.squares)
    by_squares = ZcdpFilter(1.0, delta).spent(History.equal(root, 1)).epsilon
    steps = max(1, math.floor(1000 * max(policy.sum / MICRO, by_squares)))
    while True:
        caps = Filter(steps / 1000, delta)
        if caps.sum_cap >= policy.sum and caps.squares_cap >= policy.squares:
            return caps.guarantee()
        steps += 1


def examples(policy: Policy) -> dict[int, int]:
    """Return how many reports a lifetime allows, for a few example ε values in micro-nats."""
    return {
        e: policy.remaining_reports(e)
        for e in sorted({policy.epsilon, *_EXAMPLES}, reverse=True)
        if e <= policy.epsilon
    }


def policy_statement(policy: Policy, comment: Iterable[str] = ()) -> str:
    """Return the Python statement for a firmware file, preceded by comment lines, with a trailing newline."""
    lines = [f"# {line}" for line in comment]
    lines.append(f"{_NAME} = {{")
    for field in fields(policy):
        value = getattr(policy, field.name)
        if value == field.default:
            continue
        lines.append(f'    "{field.name}": {_python_literal(value)},')
    return "\n".join([*lines, "}"]) + "\n"


def replace_policy(text: str, statement: str) -> str:
    """Return a firmware file's text with its POLICY and the comment above it replaced by a statement."""
    node, lines = _policy_of(text), text.splitlines(keepends=True)
    start = node.lineno - 1
    while start and lines[start - 1].startswith("#"):
        start -= 1
    return "".join([*lines[:start], statement, *lines[node.end_lineno :]])


def write(path: Path, statement: str, experiments: Iterable[str]) -> list[str]:
    """Replace the POLICY in a firmware file, and return the experiments that are missing from its READINGS.

    Raises:
        PolicyError: If the file has no POLICY, or cannot be read or written.
    """
    text = read_text(path)
    try:
        path.write_text(replace_policy(text, statement), encoding="utf-8")
    except OSError as e:
        raise PolicyError(f"cannot write {path}: {e.strerror}") from None
    except PolicyError as e:
        raise PolicyError(f"{path}: {e}") from None
    readings = {
        key.value
        for node in _assignments(text, "READINGS")
        if isinstance(node.value, ast.Dict)
        for key in node.value.keys
        if isinstance(key, ast.Constant)
    }
    return [name for name in experiments if name not in readings]


def read(path: Path) -> Policy:
    """Read the policy from a firmware's Python file or from JSON; `budget policy` prints both formats.

    The JSON may also consist of only the policy's fields.

    Raises:
        PolicyError: If there is no valid policy.
    """
    text = read_text(path)
    try:
        values = _plain_fields(path, text)
        values |= {key: tuple(x) for key, x in values.items() if isinstance(x, list)}
        if "log" in values:
            values["log"] = _policy_log(values["log"])
        return Policy(**values)
    except PolicyError as e:
        raise PolicyError(f"{path}: {e}") from None
    except (ValueError, TypeError, AttributeError, KeyError):
        names = ", ".join(field.name for field in fields(Policy))
        raise PolicyError(f"{path}: {_NAME} must contain only plain values for {names}") from None


def read_fields(path: Path) -> dict[str, Any]:
    """Return a policy's fields as they are written, which read() checks.

    Raises:
        PolicyError: If there is no valid policy.
    """
    read(path)
    return _plain_fields(path, read_text(path))


def _plain_fields(path: Path, text: str) -> dict[str, Any]:
    if path.suffix == ".json":
        plain = json.loads(text)
        plain = plain.get("policy", plain)
    else:
        plain = ast.literal_eval(_policy_of(text).value)
    return {**plain}


def has_pin(path: Path, name: str) -> bool | None:
    """Return whether a firmware file sets a name, such as BUTTON, to a pin, or None if it does not define it.

    Raises:
        PolicyError: If the file cannot be read.
    """
    constant = _constant(path, name)
    return None if constant is _UNKNOWN else constant is not None and constant is not False  # pin 0 is a pin


def text_constant(path: Path, name: str) -> str:
    """Return the text that a firmware file assigns to a name, such as ID_AT, or "".

    Raises:
        PolicyError: If the file cannot be read.
    """
    constant = _constant(path, name)
    return constant if isinstance(constant, str) else ""


def number_constant(path: Path, name: str) -> float | None:
    """Return the number above 0 that a firmware file assigns to a name, such as INTERVAL_S, or None.

    Raises:
        PolicyError: If the file cannot be read.
    """
    constant = _constant(path, name)
    if isinstance(constant, bool) or not isinstance(constant, int | float):
        return None
    return constant if 0 < constant < math.inf else None


def is_application(path: Path) -> bool:
    """Return whether a file is a firmware application, not just its POLICY and other constants."""
    if path.suffix != ".py":
        return False
    return any(not isinstance(node, ast.Assign | ast.Expr) for node in ast.parse(read_text(path)).body)


def _constant(path: Path, name: str) -> object:
    """Return a firmware constant, from its Python or from next to "policy" in JSON, or _UNKNOWN."""
    if path.suffix == ".json":
        values = json.loads(read_text(path))
        return values.get(name, _UNKNOWN) if "policy" in values else _UNKNOWN
    nodes = [node.value for node in _assignments(read_text(path), name)]
    if len(nodes) != 1 or not isinstance(nodes[0], ast.Constant):
        return _UNKNOWN
    return nodes[0].value


def read_text(path: Path) -> str:
    """Return a file's text.

    Raises:
        PolicyError: If it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as e:
        why = os_reason(e) if isinstance(e, OSError) else "not UTF-8 text"
        raise PolicyError(f"cannot read {path}: {why}") from None


def _policy_of(text: str) -> ast.Assign:
    statements = _assignments(text, _NAME)
    if len(statements) != 1:
        raise PolicyError(f"the file must contain exactly one {_NAME} = {{...}}, not {len(statements)}")
    return statements[0]


def _assignments(text: str, name: str) -> list[ast.Assign]:
    """Return the `name = ...` statements in Python source."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        raise PolicyError("the file is not valid Python") from None
    return [
        node
        for node in body
        if isinstance(node, ast.Assign)
        and len(node.targets) == 1
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id == name
    ]


def notes(policy: Policy) -> list[str]:
    """Return sentences on what a policy lets the network do, and on what it requires of each experiment."""
    lines = [NETWORK_START_NOTE] if policy.consent_from == "network" else []
    if policy.log is not None:
        lines.append(f"Each experiment is in the log {policy.log.origin}: {policy.log.words}.")
    return lines


def _python_literal(value: int | str | tuple[str, ...] | PolicyLog) -> str:
    if isinstance(value, PolicyLog):
        inside = ", ".join(f'"{name}": {_python_literal(part)}' for name, part in vars(value).items())
        return f"{{{inside}}}"
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, str):
        return json.dumps(value)
    inside = ", ".join(json.dumps(x) for x in value)
    return f"({inside}{',' if len(value) == 1 else ''})"
