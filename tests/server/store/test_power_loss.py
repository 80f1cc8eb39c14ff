"""A power cut at any write never loses an acknowledged report from a SQLite store.

A real process's writes are recorded and replayed up to many cuts that lose unsynced data in many ways; see
support/write_log.py. benchmarks/store_power_loss.py is the long form.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import write_log
from store_workload import BATCHES, STORE, WORKLOADS, recorded
from write_log import Kind, Loss, PowerCut

SEED = 1
PAGE_BYTES = 1024
MIN_STATES = {
    "count": 90,
    "upgrade": 20,
    "backup": 30,
}  # minimum number of states, so that the replay is not empty


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> write_log.Recording:
    return recorded("count", tmp_path_factory.mktemp("counting") / "disk")


def cuts(recording: write_log.Recording) -> Iterator[PowerCut]:
    return write_log.power_cuts(recording, np.random.default_rng(SEED), draws=1, more=0.03)


class TestPowerLoss:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", WORKLOADS)
    def test_never_loses_or_double_counts_a_report(
        self, name: str, counting: write_log.Recording, tmp_path: Path
    ):
        recording = counting if name == "count" else recorded(name, tmp_path / "disk")
        states = list(cuts(recording))
        assert len(states) >= MIN_STATES[name]
        # Losing only some files often equals another loss, and is then not reported.
        assert {cut.loss for cut in states} >= set(Loss) - {Loss.FILES}
        failures = [(str(cut), WORKLOADS[name].failure(cut, tmp_path / "after")) for cut in states]
        assert [failure for failure in failures if failure[1] is not None] == []


class TestReplay:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "mistake", "violation"),
        [
            ("count", ("--synchronous", "NORMAL"), "reports are counted, not"),
            ("count", ("--early",), "0 reports are counted, not 24 or 48"),
            pytest.param("upgrade", ("--synchronous", "OFF"), "", marks=pytest.mark.long),
            pytest.param("backup", ("--no-sync",), "the backup is gone", marks=pytest.mark.long),
        ],
        ids=["without sync", "early acknowledgement", "upgrade without sync", "backup without sync"],
    )
    def test_finds_a_deliberate_mistake(
        self, name: str, mistake: tuple[str, ...], violation: str, tmp_path: Path
    ):
        states = cuts(recorded(name, tmp_path / "disk", *mistake))
        acknowledged_cuts = (cut for cut in states if cut.acknowledged)  # before that, nothing can be missing
        failures = (WORKLOADS[name].failure(cut, tmp_path / "after") for cut in acknowledged_cuts)
        assert any(failure is not None and violation in failure for failure in failures)

    @pytest.mark.slow
    def test_records_acknowledgements_checkpoints_and_restarts(self, counting: write_log.Recording):
        disk = write_log.Disk(counting.before)
        acknowledged: list[str] = []
        removed: list[str] = []
        write_numbers: set[int] = set()
        for operation in counting.operations:
            disk.do(operation)
            if disk.acknowledged not in acknowledged:
                acknowledged.append(disk.acknowledged)
            if operation.kind is Kind.UNLINKED:
                removed += operation.names
            # Pages of the store itself: at its creation, by checkpoints in between, and at each end.
            if (
                operation.kind is Kind.WRITTEN
                and len(operation.data) == PAGE_BYTES
                and not operation.at % PAGE_BYTES
            ):
                write_numbers.add(len(acknowledged))
        assert acknowledged == ["", *map(str, range(BATCHES + 1))]
        assert removed.count(f"{STORE}-wal") == 3  # each time the store is closed
        assert len(write_numbers) >= 5
