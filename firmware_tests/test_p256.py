"""Test ldp_p256.verify against Wycheproof's vectors, which target mistakes in ECDSA verification."""

import binascii
import hashlib
import sys

import ldp_p256
import on_device

NEEDS = ("fast",)

# Wycheproof follows FIPS 186, which allows both s and ORDER - s; ours accepts only the lower one.
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

# A chip takes about a second per verification. CPython checks all in every run of the tests.
EVERY = 8 if sys.platform in ("rp2", "esp32") or not on_device.LONG else 1


def unhex(text):
    return b"" if text == "-" else binascii.unhexlify(text)


def cases():
    """Yield number, key, digest, signature and whether it is valid, line by line to need little memory."""
    key = b""
    with open("p256_wycheproof.txt") as lines:
        for line in lines:
            words = line.split()
            if words[0] == "#":
                continue
            if words[0] == "key":
                key = unhex(words[1]) + unhex(words[2])
                continue
            number, result, _flags, message, signature = words
            digest = hashlib.sha256(unhex(message)).digest()
            yield int(number), key, digest, unhex(signature), result == "valid"


def lowered(signature):
    """Return the signature with ORDER - s if s is in the upper half, otherwise None."""
    s = int.from_bytes(signature[32:], "big")
    if len(signature) != 64 or not ORDER // 2 < s < ORDER:
        return None
    return signature[:32] + (ORDER - s).to_bytes(32, "big")


def test_verdicts_match_every_vector_except_high_s():
    judged = accepted = upper = 0
    for number, key, digest, signature, valid in cases():
        if number % EVERY:
            continue
        low = lowered(signature)
        if low is not None:
            assert ldp_p256.verify(key, digest, signature) is False, number
            signature = low
            upper += 1
        assert ldp_p256.verify(key, digest, signature) is valid, number
        judged += 1
        accepted += valid
    print(judged, "vectors,", accepted, "valid,", upper, "with an upper s")
    assert judged >= 30
    assert accepted >= 15
    assert upper >= 5


def test_verify_rejects_bad_lengths_and_ranges_without_raising():
    number, key, digest, signature, valid = next(cases())
    signature = lowered(signature) or signature
    assert valid
    assert ldp_p256.verify(key, digest, signature) is True
    for size in (0, 1, 31, 32, 33, 63, 65, 128):
        assert ldp_p256.verify(bytes(size), digest, signature) is False
        assert ldp_p256.verify(key, digest, bytes(size)) is False
        if size != 32:
            assert ldp_p256.verify(key, bytes(size), signature) is False
    for number in (0, ORDER, ORDER + 1, (1 << 256) - 1):
        text = number.to_bytes(32, "big")
        assert ldp_p256.verify(key, digest, text + signature[32:]) is False
        assert ldp_p256.verify(key, digest, signature[:32] + text) is False
        assert ldp_p256.verify(text + key[32:], digest, signature) is False
        assert ldp_p256.verify(key[:32] + text, digest, signature) is False
        assert ldp_p256.verify(text + text, digest, signature) is False


on_device.run(globals())
