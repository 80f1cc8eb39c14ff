"""Cached results always match the store after any change."""

import datetime
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from experiments import experiment_json

from hushmote.server.answers.query import Facts, Selection
from hushmote.server.answers.result_cache import ResultCache
from hushmote.server.store import Description, Store
from hushmote.server.store.erase import erase, expire

DAYS = ("2026-11-20", "2026-11-21", "2026-11-22")
AT = datetime.datetime(2026, 11, 23, 12, tzinfo=datetime.UTC)
FIELDS = {"name": "temp", "type": "number", "low": 0, "high": 32_000, "bins": 32}
TEMP = experiment_json(**FIELDS, mechanism="grr", epsilon=3_000_000)


def filled(store: Store, code: int) -> None:
    store.add_experiment("home", TEMP, description=Description(keep="2d"))
    count(store, dict.fromkeys(DAYS, 100), code)


def count(store: Store, windows: dict[str, int], code: int) -> None:
    (version,) = store.experiments("home")
    with store.ingest() as transaction:
        transaction.write({}, {(version.id, window, 0, code): n for window, n in windows.items()}, {})


def a_late_report(store: Store) -> None:
    count(store, {DAYS[0]: 1}, 9)


def expired_and_as_many_again(store: Store) -> None:
    deleted = expire(store, AT)
    assert deleted
    assert deleted[1:] == (DAYS[0], 100)
    count(store, {DAYS[0]: 100}, 9)


def erased_and_asked_again(store: Store) -> None:
    (before,) = store.experiments("home")
    store.withdraw_experiment("home", "temp")
    erase(store, "home", experiment="temp")
    filled(store, 9)
    assert store.experiments("home")[0].id == before.id


@pytest.mark.parametrize("change", [a_late_report, expired_and_as_many_again, erased_and_asked_again])
def test_cached_estimates_match_store(tmp_path: Path, change: Callable[[Store], None]) -> None:
    cache, all_days = ResultCache(), Selection("temp", "home")
    some = [all_days, *(replace(all_days, windows=(day,)) for day in DAYS)]

    def shares(cache: ResultCache) -> np.ndarray:
        facts = Facts(store, AT, cache)
        return np.array([facts.selected(selection).estimate().frequencies for selection in some])

    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as store:
        store.add_fleet("home", keyed=False)
        filled(store, 3)
        before = shares(cache)
        change(store)
        after = shares(cache)
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as store:
        assert np.array_equal(after, shares(ResultCache()))
        assert not np.array_equal(after, before)
        assert np.array_equal(after, shares(cache))


def test_another_file_with_equal_reports_is_another_store(tmp_path: Path) -> None:
    cache, shares = ResultCache(), []
    for code in (3, 9):
        with Store(f"sqlite:///{tmp_path / f'{code}.sqlite'}") as store:
            store.add_fleet("home", keyed=False)
            filled(store, code)
            facts = Facts(store, AT, cache)
            shares.append(facts.selected(Selection("temp", "home")).estimate().frequencies)
    assert shares[0].argmax() == 3
    assert shares[1].argmax() == 9


def test_reads_only_changed_windows_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, read, original = ResultCache(), list[tuple[str, ...]](), Store.window_counts

    def reading(self: Store, version: object, *windows: str, group: int | None) -> object:
        read.append(windows)
        return original(self, version, *windows, group=group)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "window_counts", reading)
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as store:
        store.add_fleet("home", keyed=False)
        filled(store, 3)
        for _ in range(2):
            for windows in ((), DAYS[:1], DAYS[1:]):
                Facts(store, AT, cache).selected(Selection("temp", "home", windows)).estimate()
            a_late_report(store)
        Facts(store, AT, cache).selected(Selection("temp", "home")).estimate()
    assert read == [DAYS, DAYS[:1], DAYS[:1]]


def test_cache_is_bounded(tmp_path: Path) -> None:
    cache, every = ResultCache(max_codes=2), [Selection("temp", "home", (day,)) for day in DAYS]
    with Store(f"sqlite:///{tmp_path / 'hushmote.sqlite'}") as store:
        store.add_fleet("home", keyed=False)
        filled(store, 3)
        for _ in range(3):
            for selection in every:
                assert Facts(store, AT, cache).selected(selection).estimate().reports >= 100
            assert len(cache._windows) == cache._codes == 2
            count(store, {DAYS[2]: 1}, 3)  # read instead of the cached window
