"""The random generator: known answers, an independent implementation, uniformity and failing sources.

test_vectors.py tests the two primitives' draws from its bytes, including rejections and reseeds.
"""

import hashlib
import math
import os

import pytest
from enumeration import POLICY, memory
from experiments import experiment_json
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_board import ReferenceDRBG
from scipy import stats

from hushmote.device import ldp_client
from hushmote.device.ldp_client import DRBG, ONE, Client, EntropyError, provision

FALSE_ALARM = 1e-9
KNOWN_SECOND_OUTPUT = "5248ba9dfb2272f6d6e2f83d38d3daa528994915dddd73601577a8f52a4b243935c762b68c9bfc23"


class TestGenerator:
    def test_matches_known_answers(self):
        # Computed with sha256sum from the description: key = SHA-256(00, 32 zeros, "seed"), then SHA-256(02,
        # key).
        key = hashlib.sha256(bytes(33) + b"seed").digest()
        drbg = DRBG(b"seed")
        assert (
            drbg.generate(40)
            == hashlib.sha256(b"\x02" + key).digest() + hashlib.sha256(b"\x03" + key).digest()[:8]
        )
        assert drbg.generate(40).hex() == KNOWN_SECOND_OUTPUT

    def test_later_state_does_not_reveal_earlier_draws(self):
        # The state is a single key; its preimage is gone, and no drawn byte remains in the state.
        drbg = DRBG(b"seed")
        before = drbg._key
        outputs = [drbg.generate(32), drbg.generate(32)]
        assert drbg._key == hashlib.sha256(b"\x01" + hashlib.sha256(b"\x01" + before).digest()).digest()
        assert vars(drbg).keys() == {"_key", "_pool"}
        assert drbg._pool == b""
        drbg.below(2**24)
        assert len(drbg._pool) == 28, "the drawn word must have been erased"
        assert drbg._key not in outputs

    @settings(max_examples=60)
    @given(
        st.binary(max_size=600),
        st.lists(st.one_of(st.integers(0, 200), st.binary(min_size=1, max_size=99)), max_size=8),
    )
    def test_matches_independent_implementation(self, seed, steps):
        ours, reference = DRBG(seed), ReferenceDRBG(seed)
        for step in steps:
            if isinstance(step, bytes):
                ours.reseed(step)
                reference.update(step)
            else:
                assert ours.generate(step) == reference.generate(step)
        assert ours.generate(64) == reference.generate(64)


class TestBelow:
    @pytest.mark.parametrize("n", [0, -1, 2**24 + 1])
    def test_rejects_out_of_range_n(self, n):
        with pytest.raises(ValueError, match="1 to 16777216"):
            DRBG(b"").below(n)

    @pytest.mark.parametrize("n", [3, 64, 1000])
    def test_is_uniform(self, n):
        # 60,000 draws each from a seed of os.urandom, chi-square over n cells: false alarm 1e-9 per n.
        draws = 60_000
        drbg = DRBG(os.urandom(48))
        counts = [0] * n
        for _ in range(draws):
            counts[drbg.below(n)] += 1
        assert stats.chisquare(counts).pvalue > FALSE_ALARM


class TestBernoulli:
    @pytest.mark.parametrize("threshold", [ONE // 1000, ONE // 3, ldp_client.truth_threshold(4_000_000, 2)])
    def test_has_its_probability(self, threshold):
        # 60,000 draws from a seed of os.urandom, exact two-sided binomial test: false alarm 1e-9 each.
        draws = 60_000
        drbg = DRBG(os.urandom(48))
        hits = sum(drbg.bernoulli(threshold) for _ in range(draws))
        assert stats.binomtest(hits, draws, threshold / ONE).pvalue > FALSE_ALARM

    def test_is_true_only_below_threshold(self):
        for seed in (b"a", b"b", b"c"):
            bits = DRBG(seed)._bits()
            assert not DRBG(seed).bernoulli(bits)
            assert DRBG(seed).bernoulli(bits + 1)

    def test_is_certain_at_both_ends(self):
        drbg = DRBG(b"any")
        assert all(drbg.bernoulli(ONE) and not drbg.bernoulli(0) for _ in range(1000))


class TestLedgerSeed:
    def test_clients_sharing_a_ledger_draw_differently(self):
        storage = memory()
        provision(storage, consent=True)
        first, second = (Client(POLICY, storage, device_id="d")._drbg for _ in range(2))
        assert [first.below(2**24) for _ in range(8)] != [second.below(2**24) for _ in range(8)]

    def test_changes_with_every_debit(self):
        storage = memory()
        provision(storage, consent=True)
        client = Client(POLICY, storage, device_id="d")
        client.enroll(experiment_json())
        seeds = {storage.slots[0][6:22]}
        for _ in range(4):
            before = dict(storage.slots)
            client.report("e", True)
            (changed,) = (slot for slot in (0, 1) if storage.slots[slot] != before[slot])
            seeds.add(storage.slots[changed][6:22])
        assert len(seeds) == 5

    def test_reaches_the_generator(self, monkeypatch):
        # With os.urandom pinned, only the ledger's seed and the id can tell two boards apart.
        fixed = hashlib.shake_256(b"fixed").digest(4096)
        monkeypatch.setattr(ldp_client.os, "urandom", lambda n: fixed[:n])
        storage, other = memory(), memory()
        provision(storage, consent=True)
        other.slots = dict(storage.slots)

        def first_draw(slots, device_id="d"):
            return Client(POLICY, slots, device_id=device_id)._drbg.below(2**24)

        assert first_draw(storage) == first_draw(other)
        assert first_draw(storage) != first_draw(other, device_id="d2")
        client = Client(POLICY, other, device_id="d")
        client.enroll(experiment_json())
        assert client.report("e", True)
        assert first_draw(storage) != first_draw(other)


def stuck_sources():
    def repeat(unit):
        return lambda n: (unit * n)[:n]

    def rp2040_stuck_at_1(n):
        # os.urandom of MicroPython 1.25: each byte has eight bits of the oscillator shifted into a register.
        out, r = bytearray(), 0
        for _ in range(n):
            for _ in range(8):
                r = (r << 1 | 1) & 0xFF ^ (0xD5 if r & 0x80 else 0)
            out.append(r)
        return bytes(out)

    def raises(error):
        def urandom(n):
            raise error

        return urandom

    return {
        "zeros": repeat(b"\x00"),
        "ones": repeat(b"\xff"),
        "from-the-middle-on": lambda n: hashlib.shake_256(b"g").digest(n)[: n // 4] + b"\x55" * (n - n // 4),
        "rp2040-with-its-bit-stuck": rp2040_stuck_at_1,
        "one-block-again-and-again": repeat(bytes(range(32))),
        "a-counter-of-16": repeat(bytes(range(16))),
        "too-short": lambda n: hashlib.shake_256(b"s").digest(n - 1),
        "empty": lambda n: b"",
        "not-implemented": raises(NotImplementedError()),
        "io-error": raises(OSError(5)),
        "missing-attribute": raises(AttributeError("urandom")),
    }


class TestEntropySource:
    @pytest.mark.parametrize("name", stuck_sources())
    def test_raises_and_spends_nothing_if_stuck(self, name, monkeypatch):
        source = stuck_sources()[name]
        storage = memory()
        with monkeypatch.context() as patch:
            patch.setattr(ldp_client.os, "urandom", source)
            with pytest.raises(EntropyError, match=r"os\.urandom"):
                provision(storage, consent=True)
            assert storage.slots == {}
        provision(storage, consent=True)
        client = Client(POLICY, storage, device_id="d")
        client.enroll(experiment_json())
        before = dict(storage.slots)
        with monkeypatch.context() as patch:
            patch.setattr(ldp_client.os, "urandom", source)
            with pytest.raises(EntropyError, match=r"os\.urandom"):
                client.report("e", True)
            with pytest.raises(EntropyError, match=r"os\.urandom"):
                Client(POLICY, storage, device_id="d")
        assert storage.slots == before
        assert client.status()["sum"] == 0
        assert client.outbox() == []
        assert client.report("e", True) is not None, "a source that recovers must be used again"

    def test_missing_urandom_gives_a_clear_line(self, monkeypatch):
        monkeypatch.delattr(ldp_client.os, "urandom")
        with pytest.raises(EntropyError, match=r"^this firmware has no os\.urandom$"):
            provision(memory(), consent=True)

    @pytest.mark.parametrize("period", [1, 2, 32, 93, 255, 352])
    def test_detects_cycle_at_any_offset(self, period, monkeypatch):
        unit = hashlib.shake_256(b"unit").digest(period)
        for start in (0, 1, 200):
            data = hashlib.shake_256(b"good").digest(start) + unit * 400
            if start + period + 32 > 384 and start:
                continue
            monkeypatch.setattr(ldp_client.os, "urandom", lambda n, data=data: data[:n])
            with pytest.raises(EntropyError, match="stuck"):
                provision(memory(), consent=True)

    def test_passes_for_years_if_healthy(self):
        # A uniform source has two equal pieces of 32 bytes once in 2^246 calls: 500 calls all pass.
        assert math.log2(500 * 2 * 384) - 8 * 32 < math.log2(FALSE_ALARM)
        for _ in range(500):
            ldp_client._entropy(384)
