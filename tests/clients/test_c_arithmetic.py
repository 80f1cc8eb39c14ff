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
from p256_cases import ORDER, P, craft_signature, judged_by_another_library, signed_for, vectors, with_low_s
from reference_board import ReferenceDRBG

from hushmote.device import ldp_p256
from hushmote.device.ldp_client import ONE, truth_threshold
from hushmote.server.wire import keys

pytestmark = c_core.needs_gcc
KEY = bytes(range(32))
MANY = 100 if os.environ.get("LONG") else 1


def random_integer(draw: np.random.Generator, low: int, high: int) -> int:
    """Return a random integer from low to high, which may have any size."""
    return low + int.from_bytes(draw.bytes(40), "big") % (high - low + 1)


def choose(draw: np.random.Generator, options: Sequence[int]) -> int:
    return options[random_integer(draw, 0, len(options) - 1)]


@pytest.fixture(scope="module")
def core(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    files = ("sha256", "drbg", "threshold", "p256", "settings")
    library = c_core.library(tmp_path_factory.mktemp("core"), files)
    for name in ("hm_threshold", "hm_below"):
        getattr(library, name).restype = ctypes.c_uint32
    for name in ("hm_bernoulli", "hm_p256_verify"):
        getattr(library, name).restype = ctypes.c_bool
    return library


def digest_and_tag(core: ctypes.CDLL, config: Config, *parts: bytes) -> tuple[bytes, bytes]:
    """Return the SHA-256 and the tag of the concatenated parts."""
    digest, tag = ctypes.create_string_buffer(32), ctypes.create_string_buffer(8)
    array = pieces(*parts)
    core.hm_sha256(ctypes.byref(config), array, ctypes.c_size_t(len(parts)), digest)
    core.hm_tag(ctypes.byref(config), array, ctypes.c_size_t(len(parts)), tag)
    return digest.raw, tag.raw


def generator(core: ctypes.CDLL, config: Config, seed: bytes) -> Random:
    rng = Random(config=ctypes.pointer(config))
    core.hm_reseed(ctypes.byref(rng), pieces(seed), ctypes.c_size_t(1))
    return rng


def generate(core: ctypes.CDLL, rng: Random, size: int) -> bytes:
    out = ctypes.create_string_buffer(size)
    core.hm_generate(ctypes.byref(rng), out, ctypes.c_size_t(size))
    return out.raw[:size]


class TestHash:
    @pytest.mark.slow
    def test_does_not_depend_on_piece_boundaries(self, core: ctypes.CDLL):
        config = Config(key=KEY)
        draw = np.random.default_rng(1)
        for size in (*range(200), 384, 1093, 8096):
            message = draw.bytes(size)
            cuts = sorted(random_integer(draw, 0, size) for _ in range(3))
            parts = [message[a:b] for a, b in itertools.pairwise([0, *cuts, size])]
            expected = hashlib.sha256(message).digest(), hmac.digest(KEY, message, "sha256")[:8]
            assert digest_and_tag(core, config, *parts) == expected
            assert digest_and_tag(core, config, message) == expected

    @pytest.mark.slow
    def test_uses_hardware_engine_if_configured(self, core: ctypes.CDLL, tmp_path: Path):
        calls = []

        @Sha256
        def engine(_context, array, count, digest):
            parts = ctypes.cast(array, ctypes.POINTER(Piece))
            ctypes.memset(digest, 0, 32)  # an engine may write its output before it has read all input
            data = b"".join(ctypes.string_at(parts[i].data, parts[i].bytes) for i in range(count))
            calls.append(data)
            ctypes.memmove(digest, hashlib.sha256(data).digest(), 32)

        without = c_core.library(tmp_path, ("sha256", "drbg", "settings"), "-DHUSHMOTE_WITH_SHA256=0")
        for library in (core, without):
            calls.clear()
            config = Config(key=KEY, sha256=engine)
            assert digest_and_tag(library, config, b"ab", b"c") == digest_and_tag(
                core, Config(key=KEY), b"abc"
            )
            assert len(calls) == 3
            ours, plain = generator(library, config, b"seed"), generator(core, Config(), b"seed")
            for _ in range(2):
                assert generate(library, ours, 40) == generate(core, plain, 40)


def repeat(unit: bytes, start: int = 0) -> bytes:
    return hashlib.shake_256(b"start").digest(start) + unit * 400


STUCK = {
    "silent": b"",
    "zeros": bytes(400),
    "ones": b"\xff" * 400,
    "from-the-middle": repeat(b"\x55", 96),
    "first-piece-repeated-at-end": (KEY + hashlib.shake_256(b"g").digest(320) + KEY),
    "33-equal-bytes-at-start": b"g" * 33 + hashlib.shake_256(b"i").digest(351),
    "33-equal-bytes-at-end": hashlib.shake_256(b"j").digest(351) + b"j" * 33,
    "first-piece-repeated": KEY + b"x" + KEY + hashlib.shake_256(b"h").digest(400),
    **{
        f"a-cycle-of-{period}-from-{start}": repeat(hashlib.shake_256(b"unit").digest(period), start)
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
                n = choose(draw, (*edges, random_integer(draw, 1, 2**24), random_integer(draw, 1, 300)))
                mask = (1 << (n - 1).bit_length()) - 1
                expected = reference.word() & mask
                while expected >= n:
                    expected = reference.word() & mask
                assert core.hm_below(ctypes.byref(rng), n) == expected
                word = reference.word()
                threshold = choose(draw, (word, word + 1, random_integer(draw, 0, ONE - 1), 0, ONE))
                assert core.hm_bernoulli(ctypes.byref(rng), threshold) == (word < threshold)
                assert bytes(rng.key) == reference.k
                unused = b"".join(w.to_bytes(4, "big") for w in reference.words)
                kept = bytes(rng.pool)[32 - rng.left :]
                assert bytes(b & 63 if i % 4 == 0 else b for i, b in enumerate(kept)) == unused
                assert not any(bytes(rng.pool)[: 32 - rng.left]), "used bytes remain in the pool"
            core.hm_reseed(ctypes.byref(rng), pieces(b"m", b"ore"), ctypes.c_size_t(2))
            reference.update(b"more")
            assert not any(rng.pool)
            assert generate(core, rng, 70) == reference.generate(70)

    def test_accept_entropy_only_from_non_repeating_source(self, core: ctypes.CDLL):
        good = hashlib.shake_256(b"good").digest(384)
        out = ctypes.create_string_buffer(384)

        def entropy_code(data: bytes, size: int = 384, answer: int = 0) -> int:
            @Entropy
            def source(_context, target, count):
                assert count == size
                ctypes.memmove(target, data[:size], min(size, len(data)))
                return answer

            return core.hm_entropy(ctypes.byref(Config(entropy=source)), out, ctypes.c_size_t(size))

        for size in (384, 128, 64, 33):
            assert entropy_code(good, size) == 0
            assert out.raw[:size] == good[:size]
        assert entropy_code(good, answer=-1) == -2
        assert core.hm_entropy(ctypes.byref(Config()), out, ctypes.c_size_t(384)) == -2
        for name, data in STUCK.items():
            assert entropy_code(data) == -2, name

    @pytest.mark.slow
    def test_use_the_same_thresholds_as_other_clients(self, core: ctypes.CDLL):
        edges = itertools.product(
            (1_000, 1_001, 62_500, 999_999, 16_000_000), (2, 3, 2**24 - 1, 2**24), (1, 2, 2**24)
        )
        draw = np.random.default_rng(3)

        def drawn() -> tuple[int, int, int]:
            any_epsilon, small = random_integer(draw, 1_000, 16_000_000), random_integer(draw, 1_000, 20_000)
            epsilon = choose(draw, (any_epsilon, small, random_integer(draw, 1, 16) * 10**6))
            g = choose(draw, (random_integer(draw, 2, 64), int(2 ** draw.uniform(1, 24))))
            return epsilon, g, choose(draw, (1, int(2 ** draw.uniform(0, 24))))

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
        judged, above_prime = [], 0
        for key, digest, signature, valid, _ in vectors():
            if len(signature) == 64:
                low = with_low_s(signature)
                if low is not None:
                    assert not core.hm_p256_verify(key, digest, signature)
                assert core.hm_p256_verify(key, digest, low or signature) is valid
                judged.append(valid)
                y = int.from_bytes(key[32:], "big") + P
                if valid and y < 2**256:
                    assert not core.hm_p256_verify(key[:32] + number(y), digest, low or signature)
                    above_prime += 1
        assert (len(judged), sum(judged)) == (241, 173)
        assert above_prime > 0, "no y is small enough for y + P to fit in 256 bits"

    @pytest.mark.slow
    def test_verdicts_match_another_library(self, core: ctypes.CDLL):
        draw = np.random.default_rng(4)
        verdicts = []
        for _ in range(40 * min(MANY, 30)):
            secret, message = random_integer(draw, 1, ORDER - 1), draw.bytes(32)
            key, digest, good = craft_signature(
                secret, random_integer(draw, 0, ORDER - 1), random_integer(draw, 1, ORDER - 1)
            )
            low = with_low_s(good) or good
            flipped = bytearray(key + digest + low)
            flipped[random_integer(draw, 0, 159)] ^= 1 << random_integer(draw, 0, 7)
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
            edge = choose(draw, edges)
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
        above_prime = off_curve = 0
        for x in range(100):
            square = x**3 - 3 * x + ldp_p256._B
            y = pow(square, (P + 1) // 4, P)
            on_curve = (square - y * y) % P == 0
            signature = signed_for(x, y)
            if signature is not None:
                assert core.hm_p256_verify(number(x) + number(y), *signature) is on_curve
                assert not core.hm_p256_verify(number(x + P) + number(y), *signature)
                above_prime += on_curve
                off_curve += not on_curve
        assert min(above_prime, off_curve) >= 10

    @pytest.mark.slow
    def test_handles_equal_opposite_and_infinite_points(self, core: ctypes.CDLL):
        """Use small keys, which lead to these cases: with key 2 * G, for instance, G doubled is the key."""
        draw = np.random.default_rng(5)
        for secret in [n for k in (1, 2, 3, 4, 5, 7) for n in (k, ORDER - k)]:
            for first in range(64):  # the leading bits of u and v
                u, v = ((bits << 253) + random_integer(draw, 0, 2**252) for bits in (first & 7, first >> 3))
                if 0 < u < ORDER and 0 < v < ORDER and (u + v * secret) % ORDER:
                    key, digest, signature = craft_signature(secret, u, v)
                    expected = with_low_s(signature) is None
                    assert core.hm_p256_verify(key, digest, signature) is expected, (secret, u, v)
            key = keys.public_key_bytes(number(secret))
            for r in (1, 2, 12345, ORDER - 1):  # u * G + v * key = 0, which has no x
                for s in (1, 2, ORDER // 2):
                    assert not core.hm_p256_verify(key, number(-r * secret % ORDER), number(r) + number(s))

    def test_accepts_largest_low_s_but_not_next(self, core: ctypes.CDLL):
        # r and s determine the key and the digest, given the point 2 * G, v = r / s and u = 0.
        r = ec.derive_private_key(2, ec.SECP256R1()).public_key().public_numbers().x
        for s, accepted in ((ORDER // 2, True), (ORDER // 2 + 1, False), (1, True), (ORDER - 1, False)):
            key = keys.public_key_bytes(number(2 * s * pow(r, -1, ORDER) % ORDER))
            assert core.hm_p256_verify(key, bytes(32), number(r) + number(s)) is accepted


class TestStaticAnalysis:
    @pytest.mark.slow
    def test_gcc_analyzer_reports_no_warnings(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        # Coverage disables optimization, which causes false positives.
        monkeypatch.delenv(c_core.COVERAGE, raising=False)
        probe = subprocess.run(["gcc", "-fanalyzer", "-E", os.devnull], capture_output=True, check=False)
        if probe.returncode:
            pytest.skip("-fanalyzer requires gcc 10 or later")
        # Exclude check.c, whose tables make the analyzer slow.
        names = {path.stem for path in c_core.CORE.glob("*.c")} - {"check"}
        for name in sorted(names):
            c_core.compile_c(tmp_path / f"{name}.o", [name], "-c", "-fanalyzer", c_core.WITH_LOG)
        assert len(names) >= 16

    @pytest.mark.long
    @pytest.mark.skipif(shutil.which("clang-tidy") is None, reason="apt-get install clang-tidy")
    def test_clang_tidy_reports_no_warnings(self, tmp_path: Path):
        (tmp_path / "vectors.h").write_text(make_c_vectors.build())
        command = ["clang-tidy", "--quiet", "--warnings-as-errors=*", *c_core.CORE.glob("*.c")]
        done = subprocess.run(
            [*command, "--", "-std=c99", c_core.WITH_LOG, f"-I{tmp_path}"], capture_output=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, b"")
