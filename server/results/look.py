"""One look at a store: what the broker is to retain, and the gauges."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..answers.query import Facts
from ..answers.windows import SETTLED
from ..errors import HushmoteError
from ..planning import remaining
from ..store.store import Store, StoreError, Version
from ..wire.topics import result_topic
from . import home_assistant, measures
from .publication import Gauge, Publication
from .result import ENDLESS, Result, possible_statistics, result_of


@dataclass(frozen=True)
class Look:
    """What a look found: results by (fleet, experiment), all versions, gauges, and sentences for the log."""

    results: Mapping[tuple[str, str], Result] = field(default_factory=dict)
    versions: Sequence[Version] = ()
    gauges: Sequence[Gauge] = ()
    notes: Sequence[str] = ()


def state_of(versions: Sequence[Version], at: datetime.datetime) -> object:
    """What changes whenever ended windows may say something new: the experiments, and the hour."""
    settled = (at - SETTLED).strftime("%Y-%m-%dT%H")
    return settled, [(v.id, v.current, v.serial, v.unit, v.expires) for v in versions]


def look(store: Store, publication: Publication, at: datetime.datetime) -> Look:
    """Work out every current experiment's result at a time, UTC; one that fails is noted and left out."""
    versions, facts = store.experiments(), Facts(store)
    results: dict[tuple[str, str], Result] = {}
    shown: list[Gauge] = []
    notes: list[str] = []
    for version in versions:
        fleet, name = version.fleet, version.experiment.name
        if not version.current:
            continue
        try:
            live = publication.live_s is not None
            result = result_of(store, fleet, name, at, live=live, newest=publication.newest, facts=facts)
            results[fleet, name] = result
            shown += [*measures.of_result(result), *measures.of_version(store, version)]
            if result.note == ENDLESS:
                notes.append(f"{fleet}/{name}: {ENDLESS}; publish it with --publish SECONDS")
        except StoreError:
            raise
        except Exception as e:
            # Whatever one experiment has, the others are published; the text of a bug may hold anything.
            why = str(e) if isinstance(e, HushmoteError) else f"a fault in Hushmote, {type(e).__name__}"
            notes.append(f"{fleet}/{name} is not published: {why}")
    return Look(results, versions, shown, notes)


def budgets(store: Store, at: datetime.datetime) -> list[Gauge]:
    """The gauges of what boards can still give; it reads every board's row."""
    found: list[Gauge] = []
    for fleet in store.fleets():
        for line in remaining.read(store, fleet, at.date()).lines(at.date()):
            if line.budget.state == "current":
                found += measures.of_budget(fleet, line)
    return found


def retained(seen: Look, publication: Publication, at: datetime.datetime) -> dict[str, bytes]:
    """Topic -> what the broker is to keep there; empty where it is to keep nothing, as of what is withdrawn.

    at: said in every result.
    """
    wanted: dict[str, bytes] = {}
    for version in seen.versions:
        fleet, name = version.fleet, version.experiment.name
        result = seen.results.get((fleet, name))
        if publication.home_assistant is not None:
            for statistic in possible_statistics(version.experiment):
                topic = home_assistant.config_topic(publication.home_assistant, fleet, name, statistic)
                wanted.setdefault(topic, b"")
            for one in () if result is None else result.statistics:
                topic = home_assistant.config_topic(publication.home_assistant, fleet, name, one.id)
                assert result is not None
                wanted[topic] = home_assistant.sensor(result, one, publication.expire_s)
        wanted[result_topic(fleet, name)] = b"" if result is None else replace(result, at=at).to_json()
    return wanted
