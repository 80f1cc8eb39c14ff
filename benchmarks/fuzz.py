"""Feed malformed and unexpected input to all parsers of external data.

    python benchmarks/fuzz.py [--inputs 10000000] [--seed 1] [--quick]

The long form of tests/device/test_fuzz.py and tests/fleet/door/test_fuzz.py. It uses the inputs and checks of
tests/support/fuzz_inputs.py and fuzz_requests.py with a seeded random generator. One input in twenty is a
request to the HTTP door. Prints outcomes, exceptions and memory growth, writes benchmarks/results/fuzz.json,
and exits with status 1 after an undocumented exception.
"""

import asyncio
import sys
import tempfile
import time
from collections import Counter
from random import Random

from results_file import Options, memory_mib, run

from hushmote.server.store import Store

# isort: split
import fuzz_inputs as fuzz
import fuzz_requests


def fuzzed(options: Options) -> dict:
    """Make and check inputs for each target in turn; every message to the ingest path counts as an input."""
    inputs, door = 20_000 if options.quick else options.inputs, fuzz_requests.Asked()
    rng = Random(options.seed)  # noqa: S311

    def request_outcome(request: fuzz_requests.Request) -> str:
        asyncio.run(door.check(request))
        return "answered"

    outcomes: dict[str, Counter[str]] = {}
    failures, memory, done = {}, [], 0
    slowest: dict[str, float] = {}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, Store(f"sqlite:///{folder}/fuzz.sqlite") as store:
        path = fuzz.Ingest(store)
        targets = [*fuzz.PURE, fuzz.Target("ingest", fuzz.make_messages, path.check, 1)]
        targets.append(fuzz.Target("door", fuzz_requests.make_request, request_outcome, 5))
        while done < inputs:
            for target in (t for t in targets for _ in range(t.share)):
                item, start_s = target.make(rng), time.perf_counter()
                try:
                    with fuzz.no_hang():
                        outcome = target.check(item)
                except Exception as e:
                    outcome = f"FAILED {type(e).__name__}: {str(e)[:80]}"
                    failures.setdefault(f"{target.name} {type(e).__name__}", f"{e!s:.200} <- {item!r:.600}")
                took = round(1e3 * (time.perf_counter() - start_s), 1)
                slowest[target.name] = max(slowest.get(target.name, 0.0), took)
                count = len(item) if target.name == "ingest" else 1
                outcomes.setdefault(target.name, Counter())[outcome] += count
                done += count
            if done * 20 // inputs > len(memory):
                memory.append(round(memory_mib(), 1))
        path.check_store()
    took = time.perf_counter() - start
    parts = {"first_20th": memory[0], "half": memory[len(memory) // 2], "end": memory[-1]}
    return {
        "inputs": done,
        "seed": options.seed,
        "seconds": round(took, 1),
        "inputs_per_second": round(done / took),
        "memory_mib": parts,
        "targets": {n: {"outcomes": dict(c), "slowest_ms": slowest[n]} for n, c in outcomes.items()},
        "door": {str(status): count for status, count in sorted(door.answers.items())},
        "failures": failures,
    }


if __name__ == "__main__":
    inputs, seed = {"type": int, "default": 1_000_000}, {"type": int, "default": 1}
    results = run(__doc__, "fuzz.json", {"": fuzzed}, inputs=inputs, seed=seed)
    sys.exit(bool(results[""]["failures"]))
