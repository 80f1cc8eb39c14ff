"""The inputs of fuzz.py, led by coverage: what reaches new branches is kept and mutated further.

    python benchmarks/fuzz_coverage.py [--inputs 2000000] [--seed 1] [--only TARGET] [--quick]

atheris (libFuzzer) makes the choices that fuzz.py's targets build their inputs from, and follows the branches
taken in hushmote's modules. Each target runs in a process of its own with libFuzzer's limits: HANG_S seconds
and 1 GiB for one input. Needs the extra `fuzz`. Prints outcomes, features reached and memory, writes
benchmarks/results/fuzz_coverage.json, and exits with 1 where an input brought out anything undocumented; that
input stays in a file that is named.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from results_file import machine, write

try:
    import atheris  # pyright: ignore[reportMissingImports, reportMissingModuleSource]
except ImportError:
    sys.exit("coverage-guided fuzzing needs atheris: pip install 'hushmote[fuzz]'")

with atheris.instrument_imports(  # pyright: ignore[reportAttributeAccessIssue]
    include=["hushmote"]
):
    import fuzz

    from hushmote.server.store import Store

_INPUT_BYTES = 1024
_FIRST_INPUTS = 32
_LIMIT_MIB = 1024
# Percent of the inputs; those that take a millisecond and more get fewer.
SHARES = {
    "report": 35,
    "topic": 20,
    "experiment": 20,
    "definition": 3,
    "numbers": 20,
    "ledger": 1,
    "ingest": 1,
}


class Led(fuzz.Choices):
    """Choices read from libFuzzer's bytes; once these are used up, the lowest of each range."""

    def __init__(self, data: bytes) -> None:
        self._data = atheris.FuzzedDataProvider(data)  # pyright: ignore[reportAttributeAccessIssue]

    def integer(self, low: int, high: int) -> int:
        return self._data.ConsumeIntInRange(low, high)

    def data(self, most: int) -> bytes:
        return self._data.ConsumeBytes(self.integer(0, most))


def child(name: str, inputs: int, out: Path, arguments: list[str]) -> None:
    """Fuzz one target in this process; libFuzzer ends it."""
    outcomes: Counter[str] = Counter()
    memory: list[float] = []
    done, start = 0, time.perf_counter()
    with ExitStack() as stack:
        path = None
        if name == "ingest":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            path = fuzz.Ingest(stack.enter_context(Store(f"sqlite:///{folder}/fuzz.sqlite")))
        target = next((t for t in fuzz.PURE if t.name == name), None)

        def one(data: bytes) -> None:
            nonlocal done
            choose = Led(data)
            if path is not None:
                messages = fuzz.make_messages(choose)
                outcome = path.check(messages)
            else:
                assert target is not None
                outcome = target.check(target.make(choose))
            outcomes[outcome] += 1
            done += 1
            if done * 20 // inputs > len(memory):
                memory.append(round(fuzz.memory_mib(), 1))
            if done == inputs:
                if path is not None:
                    path.check_store()
                summary = {
                    "inputs": done,
                    "outcomes": dict(outcomes),
                    "memory_mib": memory[:: len(memory) - 1 or 1],
                }
                summary["seconds"] = round(time.perf_counter() - start, 1)
                out.write_text(json.dumps(summary))

        atheris.Setup([sys.argv[0], *arguments], one)
        atheris.Fuzz()


def run(name: str, inputs: int, seed: int) -> dict[str, Any]:
    """Fuzz one target in a new process; returns what it found."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.json"
        limits = [f"-runs={inputs + 10}", f"-seed={seed}", f"-max_len={_INPUT_BYTES}"]
        limits += [f"-timeout={fuzz.HANG_S}", f"-rss_limit_mb={_LIMIT_MIB}", "-print_final_stats=1"]
        limits += [f"-artifact_prefix={tempfile.gettempdir()}/hushmote-fuzz-{name}-", "-len_control=0"]
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        rng = np.random.default_rng(seed)
        for i in range(_FIRST_INPUTS):
            (corpus / str(i)).write_bytes(rng.bytes(_INPUT_BYTES))
        command = [sys.executable, __file__, "--child", name, "--inputs", str(inputs), "--out", str(out)]
        done = subprocess.run(
            [*command, "--", *limits, str(corpus)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0 or not out.exists():
            return {"failed": done.stderr[-3000:]}
        features = re.findall(r"cov: (\d+) ft: (\d+) corp: (\d+)", done.stderr)[-1]
        names = ("edges", "features", "kept_inputs")
        return json.loads(out.read_text()) | dict(zip(names, map(int, features), strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--inputs", type=int, default=2_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=list(SHARES))
    parser.add_argument("--quick", action="store_true", help="20,000 inputs; writes no file")
    parser.add_argument("--child", choices=list(SHARES), help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("arguments", nargs="*", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        child(options.child, options.inputs, options.out, options.arguments)
        return 0

    inputs = 20_000 if options.quick else options.inputs
    targets: dict[str, Any] = {}
    for name, share in SHARES.items():
        if options.only in (None, name):
            targets[name] = run(name, inputs * share // 100, options.seed)
            print(json.dumps({name: targets[name]}, indent=1), flush=True)
    failed = [name for name, summary in targets.items() if "failed" in summary]
    done = sum(summary.get("inputs", 0) for summary in targets.values())
    print(f"{done:,} inputs; failed: {', '.join(failed) or 'none'}")
    if options.only is None and not options.quick and not failed:
        result = {"machine": machine(), "seed": options.seed, "inputs": done, "targets": targets}
        write("fuzz_coverage.json", result)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
