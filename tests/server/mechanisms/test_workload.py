"""Workloads' closed forms and means compared with all of their statistics."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hushmote.server.mechanisms.tree import least_squares as hierarchy
from hushmote.server.mechanisms.workload import ALL_RANGES, FREQUENCIES, PREFIXES, Workload, WorkloadError

DOMAINS = st.integers(2, 40)
NAMED = {"frequencies": FREQUENCIES, "ranges": ALL_RANGES, "prefixes": PREFIXES}


def every(kind: str, domain: int, seed: int) -> tuple[Workload, np.ndarray]:
    """Return a workload and the indicators of its statistics, shape (domain, n)."""
    pairs = {
        "frequencies": [(i, i + 1) for i in range(domain)],
        "prefixes": [(0, i + 1) for i in range(domain)],
        "ranges": [(i, j) for i in range(domain) for j in range(i + 1, domain + 1)],
    }
    lows = np.random.default_rng(seed).integers(0, domain, 7)
    pairs["list"] = [(int(i), int(i) + 1 + seed % (domain - int(i))) for i in lows]
    index = np.arange(domain)
    columns = np.stack([(index >= lo) & (index < hi) for lo, hi in pairs[kind]], axis=1).astype(float)
    return NAMED.get(kind) or Workload.of(pairs["list"]), columns


@settings(max_examples=60)
@given(
    st.sampled_from(["frequencies", "ranges", "prefixes", "list"]), DOMAINS, st.integers(0, 1000), st.data()
)
def test_energy_is_that_of_block_means(kind: str, domain: int, seed: int, data: st.DataObject) -> None:
    workload, columns = every(kind, domain, seed)
    width = data.draw(st.integers(1, domain))
    starts = np.arange(0, domain, width)
    sizes = np.minimum(starts + width, domain) - starts
    held = np.add.reduceat(columns, starts, axis=0)
    expected = (held**2 / sizes[:, None]).sum(axis=0).mean()
    assert workload.energy(domain, width) == pytest.approx(expected, rel=1e-12)


@settings(max_examples=60)
@given(
    st.sampled_from(["frequencies", "ranges", "prefixes", "list"]), DOMAINS, st.integers(0, 1000), st.data()
)
def test_mean_variance_covers_every_statistic(kind: str, domain: int, seed: int, data: st.DataObject) -> None:
    workload, columns = every(kind, domain, seed)
    fanout = data.draw(st.integers(2, domain))
    rng = np.random.default_rng(seed)
    variances = rng.uniform(0.5, 5, len(hierarchy.heights(domain, fanout)))
    if len(variances) > 1:
        variances[0] = np.inf
    tree = hierarchy.tree(domain, fanout, list(variances * rng.uniform(0.5, 2, len(variances))))
    parts, _ = hierarchy.transpose(tree, columns)
    finite = np.where(np.isfinite(variances), variances, 0)
    expected = sum(v * (part**2).sum(axis=0).mean() for v, part in zip(finite, parts, strict=True))
    assert workload.mean_variance(tree, list(variances)) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_rejects_invalid_ranges() -> None:
    for ranges, text in (([], "at least one"), ([(3, 3)], "not 3 and 3"), ([(-1, 2)], "not -1 and 2")):
        with pytest.raises(WorkloadError, match=text):
            Workload.of(ranges)
    with pytest.raises(WorkloadError, match="hi <= 8, not 2 and 9"):
        Workload.of([(0, 8), (2, 9)]).check(8)
