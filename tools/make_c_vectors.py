"""Write the test vectors as C tables, for clients/c/check.c.

Run `python tools/make_c_vectors.py vectors.h`. It omits cases that C cannot express: keys with a wrong
length, device ids that are not text, bytes for a choice, and experiments with mechanisms that the C client
lacks.
"""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import _paths  # noqa: F401
from client_vectors import vectors

NAMES = (
    "vectors.json",
    "vectors_further.json",
    "vectors_groups.json",
    "vectors_text.json",
    "vectors_scale.json",
    "vectors_questions.json",
    "vectors_log.json",
)
MAX_CODES = 1 << 24
REALS = {"inf": "HUGE_VAL", "-inf": "-HUGE_VAL", "nan": "NAN"}
REFUSED_PROOFS = {
    None: "HUSHMOTE_OK",
    "its proof from the log is missing": "HUSHMOTE_REFUSED_NO_PROOF",
    "its proof is malformed": "HUSHMOTE_REFUSED_PROOF",
    "it is not in the log, or a signature in its proof is wrong": "HUSHMOTE_REFUSED_LOG",
    "too few witnesses have signed its proof": "HUSHMOTE_REFUSED_WITNESSES",
}
LOCKED = {None: 0, "locked: no ledger; provision this board": 1}  # any other text means damaged


class Tables:
    """C arrays under construction: each array's rows as text, and the bytes that the rows reference."""

    def __init__(self) -> None:
        self.blob = b""
        self.rows: dict[str, list[str]] = {}

    def add(self, name: str, *cells: Any) -> int:
        rows = self.rows.setdefault(name, [])
        rows.append("{" + ", ".join(map(str, cells)) + "}")
        return len(rows) - 1

    def span(self, data: bytes | None) -> str:
        """Return a reference to bytes, stored with a terminating zero; None becomes 0xffffffff."""
        if data is None:
            return "{0xffffffffu, 0}"
        at = self.blob.find(data + b"\0")
        if at < 0:
            at = len(self.blob)
            self.blob += data + b"\0"
        return f"{{{at}u, {len(data)}}}"

    def run(self, name: str, rows: Iterable[Sequence[Any]]) -> str:
        """Add rows to an array; return their start index and count as C."""
        first = len(self.rows.setdefault(name, []))
        count = sum(1 for row in rows if self.add(name, *row) >= 0)
        return f"{{{first}u, {count}}}"

    def text(self) -> str:
        """Return the header."""
        numbers = [str(byte) for byte in self.blob]
        lines = (",".join(numbers[i : i + 32]) for i in range(0, len(numbers), 32))
        parts = ["static const uint8_t blob[] = {\n" + ",\n".join(lines) + "};\n"]
        for name, rows in self.rows.items():
            parts.append(f"static const struct {name}_row {name}[] = {{\n" + ",\n".join(rows) + "};\n")
        return "\n".join(parts)


def unhexed(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def place(tables: Tables, fields: dict[str, Any], index: Any) -> str:
    """Return a reading's index as C: whether it is missing, the index, and the slots of a text's prefixes."""
    missing = index is None
    slots = []
    if "prefixes" in fields and not missing:
        slots = [(index // fields["slots"] ** i % fields["slots"],) for i in range(len(fields["prefixes"]))]
    at = 0 if missing or index >= MAX_CODES else index
    return f"{{{int(missing)}, {at}u, {tables.run('slots', slots)}}}"


def reading(tables: Tables, kind: str, value: Any) -> tuple[Any, ...]:
    """Return a reading's kind, number, real number, text and parts."""
    number, real, text, parts = 0, "0", b"", []
    if kind in ("int", "bool"):
        number = max(min(int(value), 2**63 - 1), -(2**63 - 1))
    elif kind == "float":
        real = REALS[value] if isinstance(value, str) else repr(float(value))
    elif kind in ("text", "bytes"):
        text = value.encode()
    elif kind in ("tuple", "list"):
        names = {bool: "bool", int: "int", str: "text", type(None): "none"}
        parts = [reading(tables, names[type(part)], part) for part in value]
    return f"KIND_{kind}", f"INT64_C({number})", real, tables.span(text), tables.run("readings", parts)


def texts(tables: Tables, values: Iterable[str]) -> str:
    return tables.run("texts", ((tables.span(value.encode()),) for value in values))


def optional_text(tables: Tables, text: str | None) -> str:
    return tables.span(None if text is None else text.encode())


def draws(tables: Tables, case: dict[str, Any]) -> str:
    return tables.run("draws", ((int(name == "below"), f"{n}u", f"{out}u") for name, n, out in case["draws"]))


def experiments(tables: Tables, cases: list[dict[str, Any]], numbers: dict[str, int]) -> None:
    for case in cases:
        levels = tables.run("levels", ([f"{x}u" for x in level] for level in case["levels"]))
        names = ("epsilon", "every", "code_count", "weight_sum", "code_bytes")
        domain = min(case["domain"], MAX_CODES + 1)
        every_of = tables.run("every_of", ((f"{n}u",) for n in case.get("every_of", [case["every"]])))
        groups = (optional_text(tables, case.get("group")), texts(tables, case.get("groups", [])), every_of)
        numbers[case["sha256"][:8]] = tables.add(
            "experiments",
            *(tables.span(case["payload"].encode()), tables.span(bytes.fromhex(case["sha256"]))),
            *(f"UINT64_C({case['cap']})", f"{domain}u", *(f"{case[name]}u" for name in names), levels),
            *groups,
        )


def clients(tables: Tables, case: dict[str, Any], section: str) -> None:
    """Add a case of reports, policies, signatures, withdrawals, ledgers or settings."""
    if section == "reports":
        around = (tables.span(case["payload"].encode()), tables.span(case["device"].encode()))
        slots = (tables.span(unhexed(slot)) for slot in (*case["before"], case["after"], case["report"]))
        names = (json.loads(case["payload"]).get("group"), case.get("group"))
        group = (optional_text(tables, name) for name in names)
        tables.add(section, *around, tables.span(unhexed(case["key"])), *group, *slots, draws(tables, case))
    elif section == "policies":
        names = case["groups"] or []
        is_valid = all(re.fullmatch("[a-z0-9_-]{1,32}", name) for name in names)
        code = "HUSHMOTE_REFUSED_GROUP" if case["refused"] else "HUSHMOTE_OK"
        payload = tables.span(case["payload"].encode())
        tables.add(section, payload, texts(tables, names), code if is_valid else "HUSHMOTE_BAD_SETTINGS")
    elif section in ("signatures", "withdrawals"):
        payload = tables.span(bytes.fromhex(case["payload" if section == "signatures" else "withdrawal"]))
        codes = {None: "HUSHMOTE_OK", "a newer version was published": "HUSHMOTE_REFUSED_SERIAL"}
        code = codes.get(case["refused"], "HUSHMOTE_REFUSED_SIGNATURE")
        fleet, key = tables.span(case["fleet"].encode()), tables.span(unhexed(case["key"]))
        tables.add(section, payload, fleet, key, f"{case['least']}u", code)
    elif section == "ledgers":
        says = {"consent": None, "sum": 0, "squares": 0, "reports": [0, 0], "outbox": [], **case}
        slots = (tables.span(unhexed(slot)) for slot in case["slots"])
        consent = 0 if says["consent"] is None else 1 + says["consent"]
        spent = (f"UINT64_C({says[name]})" for name in ("sum", "squares"))
        unsent = tables.run("unsent", ((tables.span(bytes.fromhex(x)),) for x in says["outbox"]))
        reports = "{" + ", ".join(f"{n}u" for n in says["reports"]) + "}"
        tables.add(
            section,
            f"{{{', '.join(slots)}}}",
            LOCKED.get(case["locked"], 2),
            consent,
            *spent,
            reports,
            unsent,
        )
    elif all(isinstance(case[name], (str, type(None))) for name in ("device", "fleet")):
        keys = [unhexed(case[name]) for name in ("key", "announce_key")]
        if keys[0] is None and (keys[1] is None or len(keys[1]) == 64):
            device, fleet = (None if case[n] is None else case[n].encode() for n in ("device", "fleet"))
            tables.add(section, tables.span(device), tables.span(fleet), tables.span(keys[1]))


def proofs(tables: Tables, logs: list[dict[str, Any]], cases: list[dict[str, Any]]) -> None:
    for log in logs:
        tables.add("logs", tables.span(log["origin"].encode()), texts(tables, log["keys"]), log["need"])
    for case in cases:
        code = REFUSED_PROOFS[case["refused"]]
        around = (tables.span(case[name].encode()) for name in ("fleet", "name"))
        message = (tables.span(bytes.fromhex(case[name])) for name in ("payload", "proof"))
        tables.add("proofs", case["log"], *around, *message, f"{case['index'] or 0}u", code)


def fill(tables: Tables, sections: dict[str, list[dict[str, Any]]]) -> None:
    proofs(tables, sections.get("logs", []), sections.get("proofs", []))
    for case in sections.get("questions", []):
        question = tables.span(unhexed(case["question"]))
        tables.add("questions", tables.span(case["payload"].encode()), question)
    numbers: dict[str, int] = {}
    fields = {case["sha256"][:8]: json.loads(case["payload"]) for case in sections.get("experiments", [])}
    experiments(tables, sections.get("experiments", []), numbers)
    for case in sections.get("thresholds", []):
        tables.add("thresholds", f"{case['epsilon']}u", f"{case['g']}u", f"{case['threshold']}u")
    for case in sections.get("malformed", []):
        payload = bytes.fromhex(case["hex"]) if "hex" in case else case["payload"].encode()
        tables.add("malformed", tables.span(payload))
    for case in sections.get("buckets", []):
        definition, kind, index = fields[case["experiment"]], case["kind"], case["index"]
        if (kind, definition["type"]) == ("bytes", "choice"):
            continue
        wrong = index == "TypeError"
        where = place(tables, definition, 0 if wrong else index)
        reading_row = "{" + ", ".join(reading(tables, kind, case["value"])) + "}"
        tables.add("buckets", numbers[case["experiment"]], reading_row, int(wrong), where)
    for case in sections.get("codes", []):
        where = place(tables, fields[case["experiment"]], case["index"])
        tables.add("codes", numbers[case["experiment"]], where, draws(tables, case), f"{case['code']}u")
    for case in sections.get("scales", []):
        edges = tables.run("edges", ((f"INT64_C({edge})",) for edge in case["edges"]))
        tables.add("scales", tables.span(case["payload"].encode()), edges)
    for case in sections.get("drbg", []):
        steps = []
        for name, *rest in case["steps"]:
            data = bytes.fromhex(rest[-1]) if name in ("reseed", "generate") else b""
            numbers_of = [0, 0] if name == "reseed" else [rest[0], 0 if name == "generate" else rest[1]]
            steps.append((f"STEP_{name}", *(f"{n}u" for n in numbers_of), tables.span(data)))
        tables.add("generators", tables.span(bytes.fromhex(case["seed"])), tables.run("steps", steps))
    for section in ("reports", "policies", "signatures", "withdrawals", "ledgers", "settings"):
        for case in sections.get(section, []):
            clients(tables, case, section)


def build() -> str:
    """Return the header's text."""
    tables = Tables()
    for name in NAMES:
        fill(tables, vectors("C", name))
    return tables.text()


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(build(), encoding="ascii")
