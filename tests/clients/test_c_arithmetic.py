"""The C client's hashes, random draws, thresholds and signatures, compared with the MicroPython client."""

import ctypes
import hashlib
import hmac
import itertools
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import c_core
import make_c_vectors
import numpy as np
import pytest
from c_core import Config, Entropy, Piece, Random, Sha256, pieces
from cryptography.hazmat.primitives.asymmetric import ec
from p256_cases import ORDER, P, crafted, judged_by_another_library, lowered, signed_for, vectors
from reference_board import ReferenceDRBG

from hushmote.device import ldp_p256
from hushmote.device.ldp_client import ONE, truth_threshold
from hushmote.server.wire import keys

pytestmark = c_core.needs_gcc
KEY = bytes(range(32))
MANY = 100 if os.environ.get("LONG") else 1


def between(draw: np.random.Generator, low: int, high: int) -> int:
    """Return an integer from low to high, of any size."""
    return low + int.from_bytes(draw.bytes(40), "big") % (high - low + 1)


def one_of(draw: np.random.Generator, options: Sequence[int]) -> int:
    return options[between(draw, 0, len(options) - 1)]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    files = ("sha256", "drbg", "threshold", "p256", "settings")
    found = c_core.library(tmp_path_factory.mktemp("core"), files)
    for name in ("hm_threshold", "hm_below"):
        getattr(found, name).restype = ctypes.c_uint32
    for name in ("hm_bernoulli", "hm_p256_verify"):
        getattr(found, name).restype = ctypes.c_bool
    return found


def hashed(core: ctypes.CDLL, config: Config, *parts: bytes) -> tuple[bytes, bytes]:
    """SHA-256 and tag of parts in a row."""
    digest, tag = ctypes.create_string_buffer(32), ctypes.create_string_buffer(8)
    given = pieces(*parts)
    core.hm_sha256(ctypes.byref(config), given, ctypes.c_size_t(len(parts)), digest)
    core.hm_tag(ctypes.byref(config), given, ctypes.c_size_t(len(parts)), tag)
    return digest.raw, tag.raw


def generator(core: ctypes.CDLL, config: Config, seed: bytes) -> Random:
    made = Random(config=ctypes.pointer(config))
    core.hm_reseed(ctypes.byref(made), pieces(seed), ctypes.c_size_t(1))
    return made


def generated(core: ctypes.CDLL, rng: Random, size: int) -> bytes:
    out = ctypes.create_string_buffer(size)
    core.hm_generate(ctypes.byref(rng), out, ctypes.c_size_t(size))
    return out.raw[:size]


class TestHash:
    @pytest.mark.slow
    def test_and_tag_are_right_wherever_the_message_is_cut(self, core: ctypes.CDLL):
        config = Config(key=KEY)
        draw = np.random.default_rng(1)
        for size in (*range(200), 384, 1093, 8096):
            message = draw.bytes(size)
            cuts = sorted(between(draw, 0, size) for _ in range(3))
            parts = [message[a:b] for a, b in itertools.pairwise([0, *cuts, size])]
            expected = hashlib.sha256(message).digest(), hmac.digest(KEY, message, "sha256")[:8]
            assert hashed(core, config, *parts) == expected
            assert hashed(core, config, message) == expected

    @pytest.mark.slow
    def test_is_computed_by_hardware_engine_if_present(self, core: ctypes.CDLL, tmp_path: Path):
        calls = []

        @Sha256
        def engine(_context, given, count, digest):
            found = ctypes.cast(given, ctypes.POINTER(Piece))
            ctypes.memset(digest, 0, 32)  # an engine may write before it has read all
            data = b"".join(ctypes.string_at(found[i].data, found[i].bytes) for i in range(count))
            calls.append(data)
            ctypes.memmove(digest, hashlib.sha256(data).digest(), 32)

        without = c_core.library(tmp_path, ("sha256", "drbg", "settings"), "-DHUSHMOTE_WITH_SHA256=0")
        for library in (core, without):
            calls.clear()
            config = Config(key=KEY, sha256=engine)
            assert hashed(library, config, b"ab", b"c") == hashed(core, Config(key=KEY), b"abc")
            assert len(calls) == 3
            ours, plain = generator(library, config, b"seed"), generator(core, Config(), b"seed")
            for _ in range(2):
                assert generated(library, ours, 40) == generated(core, plain, 40)


def repeated(unit: bytes, start: int = 0) -> bytes:
    return hashlib.shake_256(b"start").digest(start) + unit * 400


STUCK = {
    "silent": b"",
    "zeros": bytes(400),
    "ones": b"\xff" * 400,
    "from-the-middle-on": repeated(b"\x55", 96),
    "its-first-piece-again-at-the-end": (KEY + hashlib.shake_256(b"g").digest(320) + KEY),
    "its-first-byte-33-times": b"g" * 33 + hashlib.shake_256(b"i").digest(351),
    "its-last-byte-33-times": hashlib.shake_256(b"j").digest(351) + b"j" * 33,
    "its-first-piece-again": KEY + b"x" + KEY + hashlib.shake_256(b"h").digest(400),
    **{
        f"a-cycle-of-{period}-from-{start}": repeated(hashlib.shake_256(b"unit").digest(period), start)
        for period in (1, 2, 16, 32, 93, 255, 352)
        for start in (0, 1, 100)
        if period + 32 + start <= 384 or not start
    },
}


class TestDraws:
    def test_match_reference_generator_and_leave_no_traces(self, core: ctypes.CDLL):
        draw = np.random.default_rng(2)
        for seed in range(40):
            rng, reference = generator(core, Config(), b"%d" % seed), ReferenceDRBG(b"%d" % seed)
            for _ in range(60):
                edges = (1, 2, 3, 2**24, 2**24 - 1, 2**23 + 1)
                n = one_of(draw, (*edges, between(draw, 1, 2**24), between(draw, 1, 300)))
                mask = (1 << (n - 1).bit_length()) - 1
                expected = reference.word() & mask
                while expected >= n:
                    expected = reference.word() & mask
                assert core.hm_below(ctypes.byref(rng), n) == expected
                word = reference.word()
                threshold = one_of(draw, (word, word + 1, between(draw, 0, ONE - 1), 0, ONE))
                assert core.hm_bernoulli(ctypes.byref(rng), threshold) == (word < threshold)
                assert bytes(rng.key) == reference.k
                left = b"".join(w.to_bytes(4, "big") for w in reference.words)
                kept = bytes(rng.pool)[32 - rng.left :]
                assert bytes(b & 63 if i % 4 == 0 else b for i, b in enumerate(kept)) == left
                assert not any(bytes(rng.pool)[: 32 - rng.left]), "what was drawn is still there"
            core.hm_reseed(ctypes.byref(rng), pieces(b"m", b"ore"), ctypes.c_size_t(2))
            reference.update(b"more")
            assert not any(rng.pool)
            assert generated(core, rng, 70) == reference.generate(70)

    def test_take_entropy_only_from_non_repeating_source(self, core: ctypes.CDLL):
        good = hashlib.shake_256(b"good").digest(384)
        out = ctypes.create_string_buffer(384)

        def taken(data: bytes, size: int = 384, answer: int = 0) -> int:
            @Entropy
            def source(_context, target, count):
                assert count == size
                ctypes.memmove(target, data[:size], min(size, len(data)))
                return answer

            return core.hm_entropy(ctypes.byref(Config(entropy=source)), out, ctypes.c_size_t(size))

        for size in (384, 128, 64, 33):
            assert taken(good, size) == 0
            assert out.raw[:size] == good[:size]
        assert taken(good, answer=-1) == -2
        assert core.hm_entropy(ctypes.byref(Config()), out, ctypes.c_size_t(384)) == -2
        for name, data in STUCK.items():
            assert taken(data) == -2, name

    @pytest.mark.slow
    def test_have_exactly_the_thresholds_of_other_clients(self, core: ctypes.CDLL):
        edges = itertools.product(
            (1_000, 1_001, 62_500, 999_999, 16_000_000), (2, 3, 2**24 - 1, 2**24), (1, 2, 2**24)
        )
        draw = np.random.default_rng(3)

        def drawn() -> tuple[int, int, int]:
            any_epsilon, small = between(draw, 1_000, 16_000_000), between(draw, 1_000, 20_000)
            epsilon = one_of(draw, (any_epsilon, small, between(draw, 1, 16) * 10**6))
            g = one_of(draw, (between(draw, 2, 64), int(2 ** draw.uniform(1, 24))))
            return epsilon, g, one_of(draw, (1, int(2 ** draw.uniform(0, 24))))

        for case in itertools.chain(edges, (drawn() for _ in range(5_000 * MANY))):
            assert core.hm_threshold(*case) == truth_threshold(*case), case
        for epsilon, g, inside in (
            *((e, 2, 1) for e in (0, 999, 16_000_001, 2**32 - 1)),
            *((1_000_000, g, 1) for g in (0, 1, 2**24 + 1, 2**32 - 1)),
            (1_000_000, 2, 0),
        ):
            assert core.hm_threshold(epsilon, g, inside) == 0


def number(n: int) -> bytes:
    return n.to_bytes(32, "big")


class TestSignature:
    @pytest.mark.slow
    def test_verdicts_match_wycheproof_except_high_s(self, core: ctypes.CDLL):
        judged, beyond = [], 0
        for key, digest, signature, valid, _ in vectors():
            if len(signature) == 64:
                low = lowered(signature)
                if low is not None:
                    assert not core.hm_p256_verify(key, digest, signature)
                assert core.hm_p256_verify(key, digest, low or signature) is valid
                judged.append(valid)
                y = int.from_bytes(key[32:], "big") + P
                if valid and y < 2**256:
                    assert not core.hm_p256_verify(key[:32] + number(y), digest, low or signature)
                    beyond += 1
        assert (len(judged), sum(judged)) == (241, 173)
        assert beyond > 0, "no y below the prime is small enough"

    @pytest.mark.slow
    def test_verdicts_match_another_library(self, core: ctypes.CDLL):
        draw = np.random.default_rng(4)
        verdicts = []
        for _ in range(40 * min(MANY, 30)):
            secret, message = between(draw, 1, ORDER - 1), draw.bytes(32)
            key, digest, good = crafted(secret, between(draw, 0, ORDER - 1), between(draw, 1, ORDER - 1))
            low = lowered(good) or good
            flipped = bytearray(key + digest + low)
            flipped[between(draw, 0, 159)] ^= 1 << between(draw, 0, 7)
            cases = [
                (key, digest, low),
                (key, digest, low[:32] + number(ORDER - int.from_bytes(low[32:], "big"))),
                (key, message, low),
                (keys.public_key_bytes(number(ORDER - secret)), digest, low),
                (bytes(flipped[:64]), bytes(flipped[64:96]), bytes(flipped[96:])),
            ]
            edges = (
                0,
                1,
                ORDER // 2,
                ORDER // 2 + 1,
                ORDER - 1,
                ORDER,
                ORDER + 1,
                P - 1,
                P,
                P + 1,
                2**256 - 1,
            )
            edge = one_of(draw, edges)
            cases += [
                (key, digest, number(edge) + low[32:]),
                (key, digest, low[:32] + number(edge)),
                (number(edge) + key[32:], digest, low),
                (key[:32] + number(edge), digest, low),
                (key, number(edge), low),
            ]
            for case in cases:
                expected = judged_by_another_library(*case)
                assert core.hm_p256_verify(*case) is expected, case
                verdicts.append(expected)
        assert len(verdicts) / 10 <= sum(verdicts) < len(verdicts) / 2

    def test_rejects_points_off_curve_and_coordinates_above_prime(self, core: ctypes.CDLL):
        beyond = off = 0
        for x in range(100):
            square = x**3 - 3 * x + ldp_p256._B
            y = pow(square, (P + 1) // 4, P)
            on_curve = (square - y * y) % P == 0
            made = signed_for(x, y)
            if made is not None:
                assert core.hm_p256_verify(number(x) + number(y), *made) is on_curve
                assert not core.hm_p256_verify(number(x + P) + number(y), *made)
                beyond += on_curve
                off += not on_curve
        assert min(beyond, off) >= 10

    @pytest.mark.slow
    def test_adds_equal_opposite_and_infinite_points(self, core: ctypes.CDLL):
        """Small keys meet them: with key 2 * G, for one, G doubled is the key."""
        draw = np.random.default_rng(5)
        for secret in [n for k in (1, 2, 3, 4, 5, 7) for n in (k, ORDER - k)]:
            for first in range(64):  # the leading bits of u and v, which the small keys' points follow
                u, v = ((bits << 253) + between(draw, 0, 2**252) for bits in (first & 7, first >> 3))
                if 0 < u < ORDER and 0 < v < ORDER and (u + v * secret) % ORDER:
                    key, digest, signature = crafted(secret, u, v)
                    expected = lowered(signature) is None
                    assert core.hm_p256_verify(key, digest, signature) is expected, (secret, u, v)
            key = keys.public_key_bytes(number(secret))
            for r in (1, 2, 12345, ORDER - 1):  # u * G + v * key = 0: there is no x
                for s in (1, 2, ORDER // 2):
                    assert not core.hm_p256_verify(key, number(-r * secret % ORDER), number(r) + number(s))

    def test_accepts_largest_low_s_but_not_the_next(self, core: ctypes.CDLL):
        # Key and digest follow from r and s: 2 * G is the point, v = r / s, u = 0.
        r = ec.derive_private_key(2, ec.SECP256R1()).public_key().public_numbers().x
        for s, taken in ((ORDER // 2, True), (ORDER // 2 + 1, False), (1, True), (ORDER - 1, False)):
            key = keys.public_key_bytes(number(2 * s * pow(r, -1, ORDER) % ORDER))
            assert core.hm_p256_verify(key, bytes(32), number(r) + number(s)) is taken


class TestStaticAnalysis:
    @pytest.mark.slow
    def test_gcc_analyzer_reports_no_warnings(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.delenv(c_core.COVERAGE, raising=False)  # without optimization it reports false positives
        tried = subprocess.run(["gcc", "-fanalyzer", "-E", os.devnull], capture_output=True, check=False)
        if tried.returncode:
            pytest.skip("this gcc has no -fanalyzer: 10 or later has")
        names = {path.stem for path in c_core.CORE.glob("*.c")} - {"check"}  # whose tables take it long
        for name in sorted(names):
            c_core.compiled(tmp_path / f"{name}.o", [name], "-c", "-fanalyzer")
        assert len(names) >= 16

    @pytest.mark.long
    @pytest.mark.skipif(shutil.which("clang-tidy") is None, reason="apt-get install clang-tidy")
    def test_clang_tidy_reports_no_warnings(self, tmp_path: Path):
        (tmp_path / "vectors.h").write_text(make_c_vectors.build())
        command = ["clang-tidy", "--quiet", "--warnings-as-errors=*", *c_core.CORE.glob("*.c")]
        done = subprocess.run([*command, "--", "-std=c99", f"-I{tmp_path}"], capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (0, b"")
