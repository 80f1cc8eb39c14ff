"""Signature verification on boards, compared with Wycheproof's vectors and another library."""

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from p256_cases import ORDER, P, craft_signature, judged_by_another_library, signed_for, vectors, with_low_s

from hushmote.device import ldp_p256
from hushmote.server.wire import keys

FLAGS = {
    "ArithmeticError",
    "EdgeCasePublicKey",
    "EdgeCaseShamirMultiplication",
    "IntegerOverflow",
    "InvalidSignature",
    "ModifiedInteger",
    "ModularInverse",
    "PointDuplication",
    "RangeCheck",
    "SignatureSize",
    "SmallRandS",
    "SpecialCaseHash",
    "ValidSignature",
}


class TestKey:
    def test_rejects_coordinate_at_or_above_prime(self):
        tried = set()
        for small in range(100):
            square = small**3 - 3 * small + ldp_p256._B
            y = pow(square, (P + 1) // 4, P)
            bad_signature = signed_for(small, y)
            if bad_signature is not None and (square - y**2) % P == 0:
                key, beyond = (n.to_bytes(32, "big") + y.to_bytes(32, "big") for n in (small, small + P))
                assert ldp_p256.verify(key, *bad_signature)
                assert judged_by_another_library(key, *bad_signature)
                assert not ldp_p256.verify(beyond, *bad_signature)
                tried.add("x")
        for key, digest, signature, valid, _ in vectors():
            y = int.from_bytes(key[32:], "big") + P
            if valid and y < 2**256:
                assert ldp_p256.verify(key, digest, with_low_s(signature) or signature)
                beyond = key[:32] + y.to_bytes(32, "big")
                assert not ldp_p256.verify(beyond, digest, with_low_s(signature) or signature)
                tried.add("y")
        assert tried == {"x", "y"}

    def test_rejects_point_off_curve(self):
        tried = 0
        for y in range(1, 20):
            signature = signed_for(2, y)
            if signature is not None:
                assert not ldp_p256.verify((2).to_bytes(32, "big") + y.to_bytes(32, "big"), *signature)
                tried += 1
        assert tried >= 3


class TestAddition:
    @pytest.mark.slow
    def test_handles_equal_opposite_and_infinite_points(self, monkeypatch: pytest.MonkeyPatch):
        """Small keys trigger these cases; for example, G doubled is the key 2 * G."""
        kinds = set()
        add = ldp_p256._add

        def watched(point, other):
            x, y, z = point
            if not z:
                kinds.add("no point yet")
            else:
                inverse = pow(z, -1, P)
                affine = (x * inverse**2 % P, y * inverse**3 % P)
                same_x = affine[0] == other[0]
                kinds.add("equal" if affine == other else "opposite" if same_x else "different")
            return add(point, other)

        monkeypatch.setattr(ldp_p256, "_add", watched)
        small = [1, 2, 3]
        verified = set()
        for secret in [n for k in small for n in (k, ORDER - k)]:
            for first in range(1, 64):  # the leading bits of u and v, which determine small keys' points
                u = (first & 7) << 253 | int.from_bytes(hashlib.sha256(b"%d" % first).digest(), "big") >> 3
                v = (first >> 3) << 253 | int.from_bytes(hashlib.sha256(b"v%d" % first).digest(), "big") >> 3
                if not (0 < u < ORDER and 0 < v < ORDER) or (u + v * secret) % ORDER == 0:
                    continue
                key, digest, signature = craft_signature(secret, u, v)
                if with_low_s(signature) is None:
                    assert ldp_p256.verify(key, digest, signature), (secret, u, v)
                    verified.add(secret)
                else:
                    assert not ldp_p256.verify(key, digest, signature)
        assert kinds == {"no point yet", "equal", "opposite", "different"}
        assert len(verified) == 6

    @pytest.mark.parametrize(
        "secret",
        [1, 2, 5, ORDER - 1, ORDER - 2, ORDER // 2, ORDER // 2 + 1],
        ids=["1", "2", "5", "order - 1", "order - 2", "half order", "half order + 1"],
    )
    def test_rejects_signature_with_infinite_sum(self, secret: int):
        """If u * G + v * key = 0, no x exists to compare with r."""
        key = keys.public_key_bytes(secret.to_bytes(32, "big"))
        for r in (1, 2, 12345, ORDER - 1):
            digest = -r * secret % ORDER
            for s in (1, 2, r if r <= ORDER // 2 else 7, ORDER // 2):
                signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
                assert ldp_p256.verify(key, digest.to_bytes(32, "big"), signature) is False


class TestVerdicts:
    @pytest.mark.slow
    def test_match_wycheproof_except_high_s(self):
        cases = list(vectors())
        flags = set().union(*(case[4] for case in cases))
        uppers = 0
        for key, digest, signature, valid, _ in cases:
            low = with_low_s(signature)
            if low is not None:
                assert ldp_p256.verify(key, digest, signature) is False
                uppers += valid
            assert ldp_p256.verify(key, digest, low or signature) is valid
        assert flags == FLAGS
        assert (len(cases), sum(valid for *_, valid, _ in cases), uppers) == (262, 173, 70)

    @pytest.mark.slow
    def test_match_reference_library_on_good_and_flipped_bits(self):
        for i in range(200):
            secret = hashlib.sha256(b"key %d" % i).digest()
            key = keys.public_key_bytes(secret)
            signed = keys.sign_experiment(secret, "t", b"message %d" % i, i)
            digest = hashlib.sha256(b"t\0" + signed[:-64]).digest()
            parts = [key, digest, signed[-64:]]
            assert ldp_p256.verify(*parts)
            assert judged_by_another_library(*parts)
            case = i % 3
            bit = int.from_bytes(hashlib.sha256(b"bit %d" % i).digest(), "big") % (8 * len(parts[case]))
            spoilt = bytearray(parts[case])
            spoilt[bit // 8] ^= 1 << bit % 8
            parts[case] = bytes(spoilt)
            assert not ldp_p256.verify(*parts)
            assert not judged_by_another_library(*parts)

    def test_accept_largest_low_s_but_not_the_next(self):
        half = ORDER // 2
        # r and s determine key and digest: the point is 2 * G, v = r / s and u = 0.
        r = ec.derive_private_key(2, ec.SECP256R1()).public_key().public_numbers().x
        for s, is_accepted in ((half, True), (half + 1, False), (1, True), (ORDER - 1, False)):
            secret = 2 * s * pow(r, -1, ORDER) % ORDER
            key = keys.public_key_bytes(secret.to_bytes(32, "big"))
            signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
            assert ldp_p256.verify(key, bytes(32), signature) is is_accepted

    @pytest.mark.slow
    def test_reject_any_bytes_without_an_error(self):
        key, digest, signature = craft_signature(5, 3 << 200, 1)
        if with_low_s(signature):
            key, digest, signature = craft_signature(5, 5 << 200, 1)
        good = [key, digest, signature]
        for which in range(3):
            for size in (*range(140), 1000):
                if size == len(good[which]):
                    continue
                for fill in (b"\0", b"\xff", good[which][:1]):
                    other = [*good[:which], fill * size, *good[which + 1 :]]
                    assert ldp_p256.verify(*other) is False
        for which, zero in ((0, 32), (1, 0), (2, 32)):  # the same numbers with an additional byte
            longer = good[which][:zero] + b"\0" + good[which][zero:]
            other = [*good[:which], longer, *good[which + 1 :]]
            assert ldp_p256.verify(*other) is False
        for fill in range(256):
            for which in range(3):
                other = [*good[:which], bytes([fill]) * len(good[which]), *good[which + 1 :]]
                assert ldp_p256.verify(*other) is False
        for number in (0, ORDER, ORDER + 1, P, P + 1, 2**256 - 1):
            text = number.to_bytes(32, "big")
            for signature in (text + good[2][32:], good[2][:32] + text, text + text):
                assert ldp_p256.verify(key, digest, signature) is False
            for other in (text + key[32:], key[:32] + text, text + text):
                assert ldp_p256.verify(other, digest, good[2]) is False
