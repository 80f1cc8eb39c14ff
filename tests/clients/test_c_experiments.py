"""The C client's experiments: vectors, exact privacy, constant steps, same results as MicroPython."""

import os
import re
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import c_core
import c_experiments as c
import make_c_vectors
import make_vectors
import numpy as np
import pytest
from client_vectors import vectors
from enumeration import assert_private, distribution, exp_below
from epsilon_shapes import EPSILONS, SHAPES, SLOW_SHAPES
from experiments import experiment_json
from random_experiments import ONE_NAT, SOURCES, candidates, parse_in_python, published, readings

from hushmote.device import ldp_client
from hushmote.device.ldp_client import ONE

pytestmark = c_core.needs_gcc
LONG = bool(os.environ.get("LONG"))
MAX_CODES = 1 << 24
TRACED = ("-Os", "-fsanitize-coverage=trace-pc")
PLAIN = (*c.FILES, "sha256", "threshold")
PREFIX = {"type": "text", "salt": "s", "slots": 4, "mechanism": "prefix", "q": 3}
NAMES = ("e", "room_temp", "a" * 32)  # of the policy in c_draws.c
MANY_BRANCHES = ("grr-64", "olh-64-2", "sw-33-7")  # too slow to enumerate in Python


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> c.Core:
    return c.Core(tmp_path_factory.mktemp("traced"), *TRACED)


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> c.Core:
    flags = ("-fsanitize=undefined", "-fno-sanitize-recover=all")
    return c.Core(tmp_path_factory.mktemp("watched"), *flags)


def parsed(core: c.Core, payload: bytes) -> c.Experiment:
    code, experiment = core.parse(payload)
    assert code == 0, payload
    return experiment


def index_of(python: Any, at: int | None) -> c.Index:
    count = len(getattr(python, "prefixes", ()))
    slots = tuple((at or 0) // python.slots**i % python.slots for i in range(count)) if count else ()
    return c.index_of(at if at is None or python.domain <= MAX_CODES else 0, slots)


class TestVectors:
    @pytest.mark.slow
    def test_all_pass_under_the_sanitizers(self, tmp_path: Path):
        (tmp_path / "vectors.h").write_text(make_c_vectors.build())
        flags = (
            *c_core.SANITIZED,
            f"-DHUSHMOTE_ROOM_BYTES={c.ROOM_BYTES}",
            c_core.WITH_LOG,
            f"-I{tmp_path}",
            "-O1",
            "-lm",
        )
        sources = ("check", *PLAIN, "p256", "ledger", "client", "settings", "question", "log")
        program = c_core.compile_c(tmp_path / "check", sources, *flags)
        done = subprocess.run([program], capture_output=True, text=True, timeout=600, check=False)
        verdict = re.fullmatch(r"hushmote: (\d+) vectors, 0 wrong\n", done.stdout)
        assert verdict, done.stdout + done.stderr
        every = sum(map(len, vectors("C", *make_c_vectors.NAMES).values()))
        assert 0.97 * every < int(verdict[1]) <= every  # a few cannot be expressed in C


def check_privacy(core: c.Core, shape: dict[str, Any], epsilon: int) -> dict[int | None, dict[int, Fraction]]:
    """Check the ratios, and return each code's exact probability for each index and a missing reading."""
    payload = published(shape, epsilon)
    experiment, python = parsed(core, payload), ldp_client.Experiment.parse(payload)
    indices = (None, *range(python.domain))
    exact = {i: c.law(core.branches(experiment, index_of(python, i))) for i in indices}
    ratio = assert_private(exact, epsilon)
    # The ratio must also be close to e^epsilon: the only loss is rounding a threshold down by less than 1.
    levels = [level.threshold for level in core.levels(experiment)]
    assert ratio > exp_below(epsilon) * (1 - max(Fraction(1, t) + Fraction(1, ONE - t) for t in levels))
    for code, chance in exact[None].items():  # a missing reading is a uniformly drawn index
        assert 0 <= code < experiment.code_count
        assert chance * python.domain == sum(exact[i][code] for i in range(python.domain))
    return exact


class TestPrivacy:
    @pytest.mark.slow
    @pytest.mark.parametrize("name", SHAPES)
    def test_likelihood_ratio_of_codes_is_at_most_e_to_epsilon(self, name: str, core: c.Core):
        """At one ε, every code also has the MicroPython client's probability."""
        for epsilon in EPSILONS if LONG else (EPSILONS[0], ONE_NAT, EPSILONS[-1]):
            exact = check_privacy(core, SHAPES[name], epsilon)
            if epsilon == ONE_NAT and name not in MANY_BRANCHES:
                python: Any = ldp_client.Experiment.parse(published(SHAPES[name]))
                for i, law in exact.items():
                    assert law == distribution(lambda rng, i=i, python=python: python.randomize(i, rng))

    @pytest.mark.long
    @pytest.mark.parametrize("name", SLOW_SHAPES)
    def test_holds_with_many_seeds_or_values(self, name: str, core: c.Core):
        for epsilon in EPSILONS:
            check_privacy(core, SLOW_SHAPES[name], epsilon)

    @pytest.mark.slow
    @pytest.mark.parametrize("name", SHAPES)
    def test_runs_same_blocks_for_truth_lie_and_every_index(self, name: str, core: c.Core):
        """The sequence of compiled basic blocks depends only on the level, which the report shows."""
        payload = published(SHAPES[name])
        experiment, python = parsed(core, payload), ldp_client.Experiment.parse(payload)
        levels = [level for level in core.levels(experiment) if level.weight or experiment.level_count == 1]
        for indices in ((None,), range(python.domain)):
            rows = np.concatenate([core.branches(experiment, index_of(python, i)) for i in indices])
            assert set(np.unique(rows["truthful"])) == {0, 1}
            assert rows["steps"].min() > 5
            assert len(np.unique(rows[["level", "path", "steps"]])) == len(levels)


def part_of(core: c.Core, experiment: c.Experiment, part: c.Part) -> dict[str, Any]:
    kind = c.TYPES[part.type]
    labels = core.words(experiment, part.words, part.domain - part.missing - 1) if kind == "choice" else []
    fields = {
        "type": kind,
        "domain": part.domain,
        "labels": tuple(label.decode() for label in reversed(labels)),
    }
    return fields | {"low": part.low, "high": part.high, "missing": part.domain - 1 if part.missing else None}


def python_part(part: Any) -> dict[str, Any]:
    fields = {name: getattr(part, name) for name in ("type", "labels", "low", "high", "missing")}
    return fields | {"domain": min(part.domain, MAX_CODES + 1)}


def python_levels(python: Any) -> list[tuple[int, ...]]:
    """Return (threshold, offset, g, width, t, weight, view) of each level, as in the C client."""
    if python.mechanism == "sw":
        return [(python.threshold, 0, python.domain, 2 * python.reach + 1, 0, 0, 0)]
    if python.mechanism in ("pgr", "prefix"):
        points = python.levels or [python.points]
        return [(p.threshold, p.offset, p.q, p.outside, p.t, p.weight, 0) for p in points]
    views = [sum(1 << part for part in view) for view in getattr(python, "views", ())] or [0] * 24
    return [
        (level.threshold, level.offset, level.g, level.width, level.t, level.weight, view)
        for level, view in zip(python.levels, views, strict=False)
    ]


def check_same(core: c.Core, experiment: c.Experiment, python: Any) -> None:
    """Check that every derived field matches the MicroPython client's."""
    for name in ("epsilon", "every", "cap", "code_count", "code_bytes", "weight_sum"):
        assert getattr(experiment, name) == getattr(python, name), name
    assert experiment.domain == min(python.domain, MAX_CODES + 1)
    count = len(python.groups)
    assert experiment.group_count == count
    assert bool(experiment.group) == (python.group == "firmware")  # the policy's only group
    if count:
        every, *values = core.words(experiment, experiment.group_at, 1 + count)
        assert tuple(value.decode() for value in reversed(values)) == python.groups
        assert np.frombuffer(every, np.uint32).tolist() == [python.every_of(i) for i in range(count + 1)]
    assert bytes(experiment.sha256) == python.sha256
    assert c.TYPES[experiment.type] == python.type
    assert c.MECHANISMS[experiment.mechanism] == python.mechanism
    assert c.RULES[experiment.rule] == python.rule
    parts = core.parts(experiment)
    actual = [part_of(core, experiment, part) for part in parts]
    assert actual == [python_part(part) for part in (python.parts if python.type == "pair" else [python])]
    if python.type == "text":
        salt, prefixes = core.words(experiment, parts[0].words, 2)
        assert (salt, tuple(prefixes), experiment.slots) == (python.salt, python.prefixes, python.slots)
    names = ("threshold", "offset", "g", "width", "t", "weight", "view")
    levels = [tuple(getattr(level, name) for name in names) for level in core.levels(experiment)]
    assert levels == python_levels(python)


def check_codes(core: c.Core, experiment: c.Experiment, python: Any, rng: np.random.Generator) -> None:
    """Check that codes for a few indices and draws match the MicroPython client's."""
    below = min(python.domain, 2**62)
    for at in (None, 0, python.domain - 1, int(rng.integers(below)), int(rng.integers(below))):
        seed = int(rng.integers(2**63))
        code = core.draw(experiment, index_of(python, at), seed)
        assert code == python.randomize(at, c.Draws(seed)), (at, seed)


def check_readings(core: c.Core, experiment: c.Experiment, python: Any, rng: np.random.Generator) -> None:
    """Check that indices match the MicroPython client's, and for thousandths, the documented formula."""
    for value in readings(python, rng):
        index = core.bucket(experiment, value)
        some = value if isinstance(value, list) else [value]
        if python.type != "text" and any(isinstance(x, (bytes, bytearray)) for x in some):
            continue  # C texts are bytes, so a choice accepts bytes in C
        try:
            at = python.bucket(value)
        except TypeError:
            assert index is None, value
            continue
        assert index is not None, value
        assert bool(index.missing) == (at is None), value
        if at is not None and python.domain <= MAX_CODES:
            assert index.at == at, value
        for i in range(len(getattr(python, "prefixes", ())) if at is not None else 0):
            assert index.slots[i] == at // python.slots**i % python.slots
    if python.type == "number":
        low, high = python.low, python.high
        for milli in (low - 1, low, high - 1, high, *map(int, rng.integers(low, high, 8))):
            index = core.bucket(experiment, Fraction(milli, 1000))
            bins = python.missing or python.domain
            at = (min(max(milli, low), high) - low) * bins // (high - low)
            if edges := getattr(python, "edges", ()):
                at = sum(milli >= edge for edge in edges[1:-1])
            assert index is not None
            assert index.at == min(at, bins - 1)


class TestParse:
    @pytest.mark.slow
    def test_matches_micropython_client(self, watched: c.Core):
        rng = np.random.default_rng(1)
        accepted_count = 0
        seen: set[bytes] = set()
        for payload in candidates(rng, 640_000 if LONG else 10_000):
            python = parse_in_python(payload)
            if python and python.name not in NAMES:
                python = None
            code, experiment = watched.parse(payload)
            assert (code == 0) == (python is not None), (code, payload)
            if python is None or payload in seen:
                continue
            seen.add(payload)
            accepted_count += 1
            check_same(watched, experiment, python)
            check_codes(watched, experiment, python, rng)
            check_readings(watched, experiment, python, rng)
        assert accepted_count > 1_000

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("payload", "code"),
        [
            (published({"type": "bool", "mechanism": "sr"}), c.REFUSED_MISSING),
            (published({"type": "color", "mechanism": "rr"}), c.REFUSED_MISSING),
            (experiment_json(window="week"), c.REFUSED),
            (make_vectors.number(2**24, "grr", epsilon=1_000).encode(), c.REFUSED_SMALL_EPSILON),
            (make_vectors.number(2**24, "sw", reach=0, epsilon=1_000).encode(), c.REFUSED_SMALL_EPSILON),
            (experiment_json(every=1)[:-1] + b', "every": NaN, "every": 1}', c.REFUSED),
            (b"  " + experiment_json(), 0),
            (b'{"a":' + b"[" * 512 + b"}", c.REFUSED),
            (make_vectors.number(2**24, "olh", g=65_537).encode(), c.REFUSED),  # prime, but too large
            (published({"type": "pair", "of": [{"type": "bool", "name": x} for x in "abcd"]}), c.REFUSED),
            (
                published({"type": "pair", "of": [{"type": "bool", "name": x, "g": 2} for x in "ab"]}),
                c.REFUSED,
            ),
            (published({"type": "text", "salt": "s", "slots": 2, "prefixes": [1] * 17}), c.REFUSED),
            (published(PREFIX), c.REFUSED),  # prefixes missing
            (published(PREFIX | {"prefixes": [1], "weights": [1, 1]}), c.REFUSED),
        ],
        ids=[
            "unknown mechanism",
            "unknown type",
            "window",
            "small epsilon of grr",
            "small epsilon of sw",
            "nan",
            "spaces",
            "512 brackets",
            "prime above the limit",
            "four parts",
            "unknown field of part",
            "17 prefixes",
            "prefixes missing",
            "too many weights",
        ],
    )
    def test_refusal_has_specific_code(self, payload: bytes, code: int, watched: c.Core):
        assert watched.parse(payload)[0] == code

    @pytest.mark.slow
    def test_null_parts_are_a_missing_reading(self, watched: c.Core):
        pair = next(shape for shape in SHAPES.values() if shape["type"] == "pair")
        assert watched.bucket(parsed(watched, published(pair)), c_core.Reading(5, 0, None, 2)) is None

    @pytest.mark.slow
    def test_accepts_the_same_bytes_and_characters_as_python(self, watched: c.Core):
        points = (*range(0x2100), *range(0xD700, 0xE100), *range(0xFE00, 0x10100), 0x1F600, 0x10FFFF)
        texts = [chr(point).encode(errors="surrogatepass") for point in points]
        rng = np.random.default_rng(1)
        lead, more = (
            [0x41, 0xC2, 0xE0, 0xE2, 0xED, 0xEF, 0xF0, 0xF4, 0xF5],
            [0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF],
        )
        texts += [
            bytes([*rng.choice(lead, 1), *rng.choice(more, size), *rng.choice(lead + more, 1)])
            for size in (0, 1, 2, 3, 4)
            for _ in range(400)
        ]
        for text in texts:
            payload = b'{"a":"' + text + b'"}'
            if b'"' not in text:
                assert bool(watched.library.hm_json_check(payload, len(payload)) & 1) == ldp_client.is_plain(
                    payload
                ), text

    @pytest.mark.slow
    def test_accepts_only_printable_bytes_without_backslash(self, watched: c.Core):
        choice = published({"type": "choice", "labels": ["a?"], "mechanism": "grr"})
        for byte in range(256):
            code, _ = watched.parse(choice.replace(b"?", bytes((byte,))))
            assert (code == 0) == (32 <= byte < 127 and byte not in b'"\\'), byte

    @pytest.mark.slow
    def test_refuses_experiments_that_build_options_exclude(
        self,
        tmp_path: Path,
    ):
        without = [f"-DHUSHMOTE_WITH_{word}=0" for word in ("SW", "SCALE", "PGR", "TEXT", "PREFIX", "PAIRS")]
        bare = c.Core(tmp_path, *without, room_bytes=128)
        for name, shape in SHAPES.items():
            further = shape["type"] in ("text", "pair") or shape["mechanism"] in ("sw", "pgr")
            assert bare.parse(published(shape))[0] == (c.REFUSED_MISSING if further else 0), name
        for mechanism in ("prefix", "views"):
            assert bare.parse(published({"type": "bool", "mechanism": mechanism}))[0] == c.REFUSED_MISSING
        assert bare.parse(make_vectors.SCALED[0].encode())[0] == c.REFUSED_MISSING
        (tmp_path / "tight").mkdir()  # a separate folder, because both libraries have the same name
        tight = c.Core(tmp_path / "tight", room_bytes=128)
        choice = {"type": "choice", "labels": ["x" * 63, "y" * 20], "mechanism": "pgr", "q": 2}
        assert tight.parse(published(choice))[0] == c.REFUSED_ROOM
        # A part takes 24 bytes, a level 20, and a label one byte more than its length.
        for count, code in ((5, 0), (6, c.REFUSED_ROOM)):
            tree = make_vectors.hh(2**count, 2, [2] * count).encode()
            assert bare.parse(tree)[0] == code
        for letters, code in ((19, 0), (20, c.REFUSED_ROOM), (63, c.REFUSED_ROOM)):
            choice = {"type": "choice", "labels": ["x" * 63, "y" * letters], "mechanism": "grr"}
            assert bare.parse(published(choice))[0] == code


def seeds() -> list[bytes]:
    """Return inputs for fuzz.c: experiments, signed messages, proofs and pairs of slots, some damaged."""
    inputs = [b"\x00" + payload for payload in SOURCES]
    inputs += [b"\x80" + SOURCES[0] + b"\0\xff\xff\xff" + bytes((last,)) + bytes(64) for last in (254, 255)]
    inputs += [b"\x80" + bytes.fromhex(case["payload"]) for case in make_vectors.signatures()]
    four = {"type": "pair", "of": [{"name": x, "type": "bool"} for x in "abcd"], "mechanism": "grr"}
    inputs += [b"\x00" + published(four), b'\x00{"a":' + b"[" * 990 + b"}"]
    inputs += [b"\x70" + bytes.fromhex(case["proof"]) for case in make_vectors.proofs()]
    for case in (*make_vectors.ledgers(), *({"slots": x["before"]} for x in make_vectors.reports())):
        first, second = (bytes.fromhex(slot or "") for slot in case["slots"])
        if len(first) < 256:
            inputs += [bytes((kind, len(first))) + first + second for kind in (0x90, 0x9F, 0xAC)]
    return inputs


class TestFuzz:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "hashes", ["-DQUICK", pytest.param("threshold.c sha256.c drbg.c p256.c", marks=pytest.mark.long)]
    )
    @pytest.mark.skipif(
        shutil.which("clang") is None, reason="no clang: apt-get install clang libclang-rt-dev"
    )
    def test_no_input_from_network_or_flash_breaks_a_guarantee(self, hashes: str, tmp_path: Path):
        runs = (2_000_000 if hashes == "-DQUICK" else 160_000) if LONG else 20_000
        (tmp_path / "seeds").mkdir()
        for number, seed in enumerate(seeds()):
            (tmp_path / "seeds" / str(number)).write_bytes(seed)
        command = (c_core.CORE / "fuzz.c").read_text().split("\n\n")[1]  # the documented command
        command = command.replace("clang", f"clang {' '.join(c_core.STRICT)}").replace("-DQUICK", hashes)
        command = f"cp {c_core.CORE}/*.[ch] .\n{command.replace('100000000 CORPUS', f'{runs} -seed=1 seeds')}"
        done = subprocess.run(
            ["sh", "-ec", command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-2_000:]
        kinds = re.findall(r"^(\d+) [a-z ]+, (\d+) accepted$", done.stderr, re.MULTILINE)
        assert sum(int(ran) for ran, _ in kinds) >= 0.99 * runs
        # No signed input can be valid without the key.
        assert [int(ran) > runs // 20 and int(accepted) > 0 for ran, accepted in kinds] == [
            True,
            "-D" in hashes,
            "-D" in hashes,
            True,
        ]
