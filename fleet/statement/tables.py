"""Fill in the tables of a statement, and list each of its numbers with its source."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

from ...device.ldp_client import Experiment
from ...server.epsilon import MICRO, nats
from ...server.estimate.shuffled import LIMITS
from ...server.words import label as words
from ...server.words.answers import capitalize
from ...server.words.epsilon import ALL_SEEN, belief, rounded_up
from ...server.words.experiment import budget, describe_group, mechanism, unprotected
from ...server.words.label import Phrase
from ...server.words.numbers import chance, counted
from .fleet_facts import FleetFacts, FleetQuestion
from .product_values import evidence_values, fleet_values, transport_values, volume_values
from .versions_in_use import FIRMWARE
from .volume import volume_of


def chapters(facts: FleetFacts) -> list[dict[str, Any]]:
    """Return the chapters for standards and law, and the numbers: title, about, and tables of texts."""
    questions, result = [_question_values(facts, q) for q in facts.questions], []
    fleet = _fleet_values(facts, questions)
    items = {"question": questions, **evidence_values(facts)}
    for chapter in (chapter for name in _FILES for chapter in _texts(name)["chapters"]):
        tables: list[dict[str, Any]] = []
        for table in chapter.pop("tables"):
            is_per_question = table.pop("each", "") == "question"
            table = _with_rows(table, items, fleet)
            values = questions if is_per_question else [fleet]
            tables += [_fill({"note": "", **table}, fleet | value) for value in values]
        result.append(_fill(chapter, fleet) | {"tables": tables})
    return [*result, _numbers_chapter(facts)]


def _with_rows(
    table: Mapping[str, Any], items: Mapping[str, Sequence[Mapping[str, str]]], fleet: Mapping[str, str]
) -> dict[str, Any]:
    """Return a table with its rows repeated for each item that `row_each` names, if it names some."""
    filled = {name: value for name, value in table.items() if name not in ("row_each", "empty")}
    if "row_each" in table:
        each = items[table["row_each"]]
        rows = [_fill(row, {**fleet, **item}) for row in table["rows"] for item in each]
        # Texts are filled in once, so braces in a value must not be filled in again.
        filled["rows"] = [[_escape(cell) for cell in row] for row in rows or [table["empty"]]]
    return filled


def _escape(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def registry(facts: FleetFacts) -> list[dict[str, Any]]:
    """Return an entry of the Differential Privacy Deployments Registry for each question."""
    entries, texts = [], _texts(_FILES[0])["registry"]
    for q in facts.questions:
        entry = _fill(texts, _question_values(facts, q))
        entry["deployment"]["privacy_loss"]["privacy_parameters"] = {"epsilon": q.epsilon}
        if q.version.experiment.window == "all":
            entry["deployment"]["deployment_model"]["release_type"] = "One release"
        entries.append(entry)
    return entries


_FILES = (
    "compliance_tables.toml",
    "cra_tables.toml",
    "privacy_assets_tables.toml",
    "data_act_tables.toml",
    "privacy_level_tables.toml",
)


def _texts(file: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(file).read_text(encoding="utf-8"))


def _fill(value: Any, values: Mapping[str, str]) -> Any:
    """Return the value with every {name} in its texts filled in."""
    if isinstance(value, str):
        return value.format_map(values)
    if isinstance(value, dict):
        return {name: _fill(inner, values) for name, inner in value.items()}
    return [_fill(inner, values) for inner in value] if isinstance(value, list) else value


def _question_values(facts: FleetFacts, q: FleetQuestion) -> dict[str, str]:
    v, e = q.version, q.version.experiment
    return {
        "name": q.name,
        "slug": f"{facts.fleet}-{q.name}".replace("_", "-"),
        "purpose": _english(q.purpose),
        "owner": _english(q.owner),
        "answer": _english(words.answer(e, v.unit)),
        "window": _WINDOW[e.window],
        "keep": _english(q.keep),
        "since": str(q.since),
        "mechanism": mechanism(e),
        "budget": budget(e),
        "epsilon": rounded_up(q.epsilon),
        "told": belief(q.epsilon),
        **_group_texts(e),
        "counts_of_it": _counts_sentence(q),
        "promised": facts.promised.words,
        "version": version("hushmote"),
        **volume_values(facts, q),
    }


def _group_texts(e: Experiment) -> dict[str, str]:
    """Return the texts about an experiment's open group; all are "" without one."""
    if not e.group:
        return dict.fromkeys(("with_group", "by_group", "without_epsilon"), "")
    return {
        "with_group": f" {unprotected(e)}",
        "by_group": f", separately for each {e.group}",
        "without_epsilon": f" The {e.group} is not anonymized.",
    }


def _open_group(group: str) -> str:
    """Return an open group for a list of what a device sends."""
    return f"; also the {'firmware version' if group == FIRMWARE else group}, which is not protected"


def _group_risk(grouped: Mapping[str, str]) -> str:
    """Return what open groups can give away, for questions' names and their groups."""
    if not grouped:
        return "Nothing, apart from the device's id and the number of the report."
    lines = (_english(words.open_group(names, group)) for group, names in _names_by_group(grouped).items())
    return "\n".join(lines)


def _names_by_group(grouped: Mapping[str, str]) -> dict[str, list[str]]:
    return {group: [name for name in grouped if grouped[name] == group] for group in grouped.values()}


def _fleet_values(facts: FleetFacts, questions: Sequence[Mapping[str, str]]) -> dict[str, str]:
    def repeat(template: str, between: str = "\n") -> str:
        return between.join(map(template.format_map, questions))

    consent = facts.consent
    obtaining = words.consent(
        consent.given, consent.because, consent.network, consent.each, consent.button, consent.light
    )
    withdrawing = words.stop_sentences(consent.button, consent.light)
    grouped = {q.name: q.version.experiment.group for q in facts.questions if q.version.experiment.group}
    signed = "Questions are signed, and devices verify the signature. " if facts.keyed else ""
    return {
        "owners": _english(facts.owners),
        "carried": _carried(facts),
        "obtaining": " ".join(map(_english, obtaining)),
        "withdrawing": " ".join(map(_english, withdrawing)),
        "stop": _english(words.stop(consent.button)),
        "confirmed": _confirmed(consent.light),
        "kept": repeat("{name}: {keep}"),
        "epsilons": repeat("{name}: ε = {epsilon}", "; "),
        "purposes": repeat("{name}: {purpose}"),
        "answers": repeat("{name}: {answer}", "; "),
        "single": repeat("{name}: {told}"),
        "lifetime": _but(facts.promised.delta, belief(facts.promised.epsilon, reports=ALL_SEEN)),
        "counts": repeat("{name}: {counts_of_it}"),
        "seen": _english(Phrase.of("seen")),
        "open_groups": "".join(map(_open_group, _names_by_group(grouped))),
        "group_risk": _group_risk(grouped),
        "forged": _FORGED[facts.keyed],
        **transport_values(facts),
        "measures": f"{_MEASURES} {signed}{_carried(facts)}",
        "mechanisms": repeat("{name}: {mechanism}"),
        "ends": repeat("{name}: {end}"),
        "promised": facts.promised.words,
        "version": version("hushmote"),
        **fleet_values(facts),
    }


_english = words.words_in("en").write


def _confirmed(light: bool | None) -> str:
    """Return how a device shows that it has stopped.

    Args:
        light: Whether it has one, None if unknown.
    """
    place = "[For the maker: what the device shows] "
    light_words = {True: "Three short flashes of its light. ", False: "", None: place}[light]
    return f"{light_words}`status()` shows that consent was refused."


def _but(delta: float, sentence: str) -> str:
    """Return a sentence on a promise, preceded by the chance that it fails."""
    return (
        f"Except with a chance of {chance(delta, up=True)}, {sentence[:1].lower()}{sentence[1:]}"
        if delta
        else sentence
    )


_WINDOW = {
    "hour": "by the hour of arrival",
    "day": "by the day of arrival",
    "all": "in one sum",
}
_FORGED = {
    True: "A report counts only with its device's key.",
    False: "Anyone can send reports to this open fleet, because they have no tag. That harms accuracy, but "
    "not any device's privacy.",
}
_MEASURES = (
    "Readings are randomized on the device, before anything is sent. Each device keeps a lifetime budget in "
    "flash, which no server can raise. No table of the store links a device to a code, value, address or "
    "time."
)


def _carried(facts: FleetFacts) -> str:
    """Return a description of how reports are sent."""
    tags = (
        "Each report has a tag, HMAC-SHA256 by the device's key."
        if facts.keyed
        else "Reports do not have a tag."
    )
    over = "" if facts.hosts else "MQTT. "
    return f"{over}{transport_values(facts)['transport']} {tags}"


def _counts_sentence(q: FleetQuestion) -> str:
    if q.epsilons is None:
        return "No reports have arrived yet."
    if q.epsilons.histogram is None:
        return capitalize(f"{q.epsilons.holds}.")
    sentence = belief(q.epsilons.histogram, reports="The counts")
    return f"{_but(q.epsilons.delta, sentence)} It holds {LIMITS}."


# --- The numbers


def _numbers_chapter(facts: FleetFacts) -> dict[str, Any]:
    rows = [[what, _format_value(value), source] for what, value, source in _numbers(facts)]
    note = (
        "The label states the confidence as e^ε / (9 + e^ε), rounded up, because odds of 1 to 9 grow by at "
        "most e^ε. For all answers to the current questions, the ε of a report is multiplied by the number "
        "of reports in a device's lifetime, and the products are added up."
    )
    table = {"title": "Numbers", "headings": ["quantity", "value", "source"], "rows": rows, "note": note}
    about = "For an auditor: read the source, and compare."
    return {"title": "Each number and its source", "about": about, "tables": [table]}


def _format_value(value: float | str | None) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else f"{value:,.10g}"


def _numbers(facts: FleetFacts) -> Iterator[tuple[str, float | str | None, str]]:
    for q in facts.questions:
        e, at = q.version.experiment, f"store: experiment {q.name} {q.version.experiment.digest.hex()}"
        yield f"{q.name}: ε of a report", q.epsilon, f"{at}, epsilon"
        yield f"{q.name}: codes", e.code_count, f"{at}, mechanism: {mechanism(e)}"
        if e.group:
            yield f"{q.name}: in each report, not protected", describe_group(e), f"{at}, group"
        yield f"{q.name}: budget of a device", budget(e), f"{at}, budget"
        most = "the smaller of its budget and the policy's remainder at this ε"
        yield f"{q.name}: reports of a device's lifetime", q.most, most
        volume = volume_of(facts, q)
        yield (
            f"{q.name}: bytes of a report, without MQTT and TLS",
            volume.report_bytes,
            f"{at}, with a tag in a keyed fleet",
        )
        yield (
            f"{q.name}: bytes of a device's lifetime, likewise",
            volume.lifetime_bytes,
            "bytes times reports",
        )
        if volume.reports is not None:
            how = f"at most, on average: readings, divided by every = {volume.every:,}, within the budget"
            yield f"{q.name}: reports of a device in a year", volume.reports, how
        yield f"{q.name}: first asked", str(q.since), f"{at}, its first serial"
        yield f"{q.name}: last day", str(q.version.expires or "none"), f"{at}, expires"
        yield f"{q.name}: counts are kept", _english(q.keep), f"{at}, keep"
        yield f"{q.name}: reports counted", q.reports, "store: histogram, all versions"
        yield f"{q.name}: devices that reported", q.devices, "store: report numbers"
        yield f"{q.name}: reports of windows that were erased", q.erased, f"{at}, erased, all versions"
        if q.epsilons is not None:
            how = f"computed from {counted(q.epsilons.reports)}, at most {q.epsilons.own:,} from one device"
            yield (
                f"{q.name}: ε of the counts of all ended windows that are kept",
                q.epsilons.histogram,
                f"{how}; {q.epsilons.holds}",
            )
            yield f"{q.name}: δ of the counts", q.epsilons.delta, "this package's default"
    p, file = facts.policy, facts.policy_file
    if facts.interval_s is not None:
        yield "seconds between two readings", facts.interval_s, f"{file}: INTERVAL_S"
    yield "policy: Σε of a device's lifetime", nats(p.sum), f"{file}: POLICY sum"
    yield (
        "policy: Σε² of a device's lifetime",
        f"{Decimal(p.squares) / MICRO**2:f}",
        f"{file}: POLICY squares",
    )
    yield "policy: ε of a report", nats(p.epsilon), f"{file}: POLICY epsilon"
    yield "ε of all reports of a device", facts.promised.epsilon, "computed from sum and squares"
    yield "δ of all reports of a device", facts.promised.delta, "computed with it; 0 if squares is 0"
