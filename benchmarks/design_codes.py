"""Compare pgr and olh at their lowest-variance parameters: error, codes, and decoding and drawing time.

    python benchmarks/design_codes.py [--quick]

Both take turns in one run. It measures the variance of the frequency of a value that nobody holds, times
reports, by the exact formula; the number of codes and the code bytes of a report; the processor time from a
histogram of 1,000,000 reports to all frequencies, and to all frequencies, the distribution function and both
their errors; and the time of one randomize() on this machine, on CPython and on 32-bit MicroPython, which
boards use. Times are the lowest of several rounds, because the machine may be busy. Writes
benchmarks/results/design_codes.json.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from published import payload
from results_file import Options, min_cpu_s, run

from hushmote.device import ldp_client, ldp_pgr
from hushmote.device.ldp_client import Experiment
from hushmote.server.mechanisms import choose as oracle
from hushmote.server.mechanisms import mechanism_of
from hushmote.server.mechanisms.workload import FREQUENCIES
from hushmote.simulator import vectorised

ROOT = Path(__file__).resolve().parent.parent
MICROPYTHON = ROOT / ".rig" / "unix32f" / "micropython"
DOMAINS = (64, 256, 1024, 4096, 65_536)
EPSILONS = (1, 2, 3, 4, 5, 6, 7)
REPORTS = 1_000_000

# Runs on both CPython and MicroPython; prints microseconds per call, the lowest of several rounds.
BOARD = """
import json, sys, time
import ldp_client, ldp_pgr
ticks = getattr(time, "ticks_us", None) or (lambda: time.perf_counter_ns() // 1000)
rng = ldp_client.DRBG(b"benchmark")
for line in open("experiments.txt"):
    exp = ldp_client.Experiment.parse(line.strip().encode())
    rounds = []
    for number in range(20):
        start = ticks()
        for i in range(50):
            exp.randomize((i * 7919 + number) % exp.domain, rng)
        rounds.append((ticks() - start) / 50)
    print(min(rounds))
"""


def designs(domain: int, epsilon: int) -> list[str]:
    """Return the lowest-variance experiments of olh and pgr."""
    texts = []
    for name in ("olh", "pgr"):
        offered = oracle.designs(domain, epsilon * 1_000_000, FREQUENCIES, name)
        best = min(offered, key=lambda choice: choice.variance)
        texts.append(payload(domain=domain, epsilon=epsilon * 1_000_000, **best.fields()).decode())
    return texts


def measure(published: str, rounds: int) -> dict:
    experiment = Experiment.parse(published.encode())
    mechanism = mechanism_of(experiment)
    shares = np.arange(1, experiment.domain + 1) ** -1.1
    rng = np.random.default_rng(1)
    readings = rng.multinomial(REPORTS, shares / shares.sum())
    counts = vectorised.histogram(experiment, readings, rng)

    def everything() -> None:
        decoded = mechanism.decode(counts)
        assert decoded.frequencies.sum() > 0
        assert decoded.frequency_spread.variance[0] > 0
        assert decoded.cdf_spread.variance[0] > 0

    everything()  # fill the caches that depend only on the domain
    return {
        "mechanism": experiment.mechanism,
        "domain": experiment.domain,
        "epsilon": experiment.epsilon / 1e6,
        "parameter": next(value for name, value in mechanism.fields().items() if name in "gq"),
        "variance": mechanism.frequency_variance(0.0),
        "codes": experiment.code_count,
        "code_bytes": experiment.code_bytes,
        "decode": min_cpu_s(lambda: mechanism.decode(counts).frequencies, rounds),
        "everything": min_cpu_s(everything, rounds),
    }


def draw_times(published: list[str]) -> list[list[float]]:
    """Return the microseconds per randomize() call for each experiment, on CPython and on MicroPython."""
    times = []
    with tempfile.TemporaryDirectory() as folder:
        for module in (ldp_client, ldp_pgr):
            shutil.copy(str(module.__file__), folder)
        (Path(folder) / "experiments.txt").write_text("\n".join(published))
        (Path(folder) / "board.py").write_text(BOARD)
        for runtime in (sys.executable, str(MICROPYTHON)):
            done = subprocess.run(
                [runtime, "board.py"], cwd=folder, capture_output=True, text=True, check=True
            )
            times.append([float(line) for line in done.stdout.split()])
    return times


def rows(options: Options) -> dict:
    if not MICROPYTHON.exists():
        sys.exit("32-bit MicroPython is missing; run python firmware_tests/runtimes.py --install")
    domains, epsilons = (DOMAINS[:2], EPSILONS[:5:3]) if options.quick else (DOMAINS, EPSILONS)
    published = [text for d in domains for e in epsilons for text in designs(d, e)]
    measurements = [measure(text, 3) for text in published]
    for row, cpython, micropython in zip(measurements, *draw_times(published), strict=True):
        row |= {"cpython": cpython, "micropython": micropython}
    return {"reports": REPORTS, "rows": measurements}


if __name__ == "__main__":
    run(__doc__, "design_codes.json", {"": rows})
