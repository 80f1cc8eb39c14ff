"""Measures tests and writes slow.txt: those of more than 0.2 s of CPU time, which `make quick` leaves out.

python tools/make_slow.py                       add what has become slow of what `make quick` runs
python tools/make_slow.py FILE [FILE ...]       judge all tests of these files anew

A line is one case of a test, or a test whose cases are slow in the mean. The first test with a fixture of
its module pays for it: once that test is left out another pays, and a second run adds it.
"""

import resource
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean

import pytest

FILE = Path(__file__).with_name("slow.txt")
_LEAST_S = 0.2
_MAY_RUN = "not (broker or browser or database or micropython)"


class Measure:
    """A plugin of pytest; taken_s: test -> seconds of CPU time, those of its children as well."""

    def __init__(self) -> None:
        self.taken_s: dict[str, float] = {}

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        before_s = _cpu_s()
        try:
            return (yield)
        finally:
            self.taken_s[item.nodeid] = _cpu_s() - before_s


def _cpu_s() -> float:
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def slow(taken_s: Mapping[str, float]) -> set[str]:
    """Tests that are slow, and the slow cases of others."""
    cases: dict[str, list[str]] = {}
    for case in taken_s:
        cases.setdefault(case.partition("[")[0], []).append(case)
    found = {test for test, own in cases.items() if mean(map(taken_s.__getitem__, own)) > _LEAST_S}
    single = (case for case, taken in taken_s.items() if taken > _LEAST_S)
    return found | {case for case in single if case.partition("[")[0] not in found}


def main() -> None:
    files, measure = sys.argv[1:], Measure()
    pytest.main(["-m", _MAY_RUN if files else f"{_MAY_RUN} and not slow", *files], plugins=[measure])
    lines = FILE.read_text().splitlines()
    kept = {line for line in lines if line.partition("::")[0] not in files}
    FILE.write_text("".join(f"{line}\n" for line in sorted(kept | slow(measure.taken_s))))


if __name__ == "__main__":
    main()
