"""Verification of ECDSA signatures (P-256, SHA-256) on a board, to authenticate a fleet's experiments.

All numbers here are public, so the timing need not be constant. A point is (x, y, z), which represents
(x / z**2, y / z**3); z is 0 for the point at infinity. References: FIPS 186-5, 6.4.2, and SEC 1, 4.1.4, for
the scheme; hyperelliptic.org/EFD, "Jacobian coordinates with a4=-3 for short Weierstrass curves", for the
formulas.
"""

# The curve is y**2 = x**3 - 3*x + _B modulo the prime _P; its base point _G has prime order _N.
_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_B = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_INFINITY = (1, 1, 0)


def verify(key, digest, signature):
    """Return whether the signature of a digest is valid under a key; never raises if given bytes.

    All numbers are big-endian. s must be in the lower half of its range, so that nobody can derive a second
    valid signature from an existing one.

    Args:
        key: x and y, 64 bytes.
        digest: SHA-256, 32 bytes.
        signature: r and s, 64 bytes.
    """
    if len(key) != 64 or len(digest) != 32 or len(signature) != 64:
        return False
    x, y = _two_numbers(key)
    r, s = _two_numbers(signature)
    if x >= _P or y >= _P or ((x * x - 3) % _P * x + _B - y * y) % _P:
        return False
    if not 0 < r < _N or not 0 < s <= _N // 2:
        return False
    inverse = pow(s, _N - 2, _N)  # by Fermat's little theorem, as _N is prime
    u = int.from_bytes(digest, "big") * inverse % _N
    v = r * inverse % _N
    # u * _G + v * public in one pass over the bits of both.
    public = (x, y)
    terms = (None, _G, public, _affine(_add(_G + (1,), public)))
    point = _INFINITY
    for i in range(255, -1, -1):
        point = _double(point)
        term = terms[(u >> i & 1) + 2 * (v >> i & 1)]
        if term:
            point = _add(point, term)
    x, y, z = point
    # The point's x, which is below _P, must be r modulo _N.
    zz = z * z
    return z != 0 and ((r * zz - x) % _P == 0 or (r + _N < _P and ((r + _N) * zz - x) % _P == 0))


def _two_numbers(data):
    return int.from_bytes(data[:32], "big"), int.from_bytes(data[32:], "big")


def _affine(point):
    """Return (x, y) of a point, or None for infinity."""
    x, y, z = point
    inverse = pow(z, _P - 2, _P)
    square = inverse * inverse % _P
    return (x * square % _P, y * inverse % _P * square % _P) if z else None


def _double(point):
    x, y, z = point
    # Reduce after each product: on a board with fragmented memory, products of three factors did not fit.
    # No point on this curve has y = 0; infinity remains infinity because its z is 0.
    zz = z * z % _P
    slope = 3 * (x - zz) * (x + zz) % _P
    yy = y * y % _P
    beta = 4 * (x * yy % _P)
    new_x = (slope * slope - 2 * beta) % _P
    return new_x, (slope * (beta - new_x) - 8 * yy * yy) % _P, 2 * y * z % _P


def _add(point, other):
    """Return the sum of a point and an affine point, (x, y)."""
    x, y, z = point
    if not z:
        return other + (1,)
    zz = z * z % _P
    dx = (other[0] * zz - x) % _P
    dy = (other[1] * z % _P * zz - y) % _P
    if not dx:
        # Either the same point, for which the formula below is wrong, or its negative.
        return _INFINITY if dy else _double(point)
    square = dx * dx % _P
    cube = square * dx % _P
    middle = x * square % _P
    new_x = (dy * dy - cube - 2 * middle) % _P
    return new_x, (dy * (middle - new_x) - y * cube) % _P, z * dx % _P
