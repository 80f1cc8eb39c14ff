"""Custom post-processing functions: results are checked, and errors are one line."""

from collections.abc import Callable

import numpy as np
import pytest
from designs import bell, draw, number

from hushmote.server.errors import HushmoteError
from hushmote.server.estimate import Estimate
from hushmote.server.estimate.custom_post import method_of
from hushmote.server.estimate.postprocess import METHODS

Write = Callable[[str, str], str]


@pytest.fixture(scope="module")
def estimate() -> Estimate:
    experiment = number(16, 2.0)
    return draw(experiment, bell(16, 8, 3), 2000, np.random.default_rng(1))


CLIP = '''
import numpy as np

def clip(estimates):
    """Cut off below zero.

    More about it."""
    return np.maximum(estimates.frequencies, 0)
'''


def test_custom_function_returns_shares(own_folder: Write, estimate: Estimate):
    own_folder("my_post", CLIP)
    shares = method_of("my_post:clip")(estimate)
    np.testing.assert_array_equal(shares.frequencies, np.maximum(estimate.frequencies, 0))
    assert (shares.method, shares.reports) == ("my_post:clip", 2000)
    assert shares.notes[0] == "Cut off below zero."
    assert "no intervals" in shares.notes[1]
    assert not shares.frequencies.flags.writeable


def test_shipped_methods_keep_their_names():
    assert {name: method_of(name) for name in METHODS} == METHODS


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        ("", "flat", "unknown post-processing flat; choose from raw, nonnegative, smooth, or "),
        ("x = 3", "bad_post_0:nothing", "post-processing bad_post_0:nothing: bad_post_0 has no"),
        ("", "no_such_post:x", "cannot find module no_such_post"),
        ("x = 3", "bad_post_1:x", "bad_post_1:x must be a function with one argument"),
        ("def x(): pass", "bad_post_2:x", "bad_post_2:x must be a function with one argument"),
        ("def x(a, b): pass", "bad_post_3:x", "bad_post_3:x must be a function with one argument"),
        ("def x(e): return e.frequencies[1:]", "bad_post_4:x", "one share per value, shape (16,), not (15,)"),
        ("def x(e): return e.frequencies / 0 * 0", "bad_post_5:x", "must return finite shares"),
        ("def x(e): return {'a': 1}", "bad_post_6:x", "must return an array of integers or floats, not dict"),
        ("def x(e): return None", "bad_post_7:x", "not NoneType"),
        ("def x(e): raise SystemExit(0)", "bad_post_9:x", "bad_post_9:x raised SystemExit: 0"),
        ("def x(e): return e.frequencies + 1j", "bad_post_10:x", "integers or floats, not complex128"),
        ("def x(e): return ['0.1'] * 16", "bad_post_11:x", "array of integers or floats, not <U3"),
        ("def x(e): return e.frequencies > 0", "bad_post_12:x", "array of integers or floats, not bool"),
        ("def x(e): raise KeyError('two\\nlines')", "bad_post_8:x", "bad_post_8:x raised KeyError: "),
    ],
)  # fmt: skip
def test_error_is_one_line(own_folder: Write, estimate: Estimate, text: str, name: str, message: str):
    if text:
        own_folder(name.partition(":")[0], text)
    with np.errstate(all="ignore"), pytest.raises(HushmoteError) as caught:
        method_of(name)(estimate)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_custom_function_cannot_modify_estimates(own_folder: Write):
    text = """
def x(e):
    e.frequencies.flags.writeable = True
    e.frequencies[:] = 9
    e.spread.variance[:] = 0
    e.reports = 1
    return [0] * 16
"""
    own_folder("moving_post", text)
    estimate = draw(number(16, 2.0), bell(16, 8, 3), 2000, np.random.default_rng(2))
    second = draw(number(16, 2.0), bell(16, 8, 3), 2000, np.random.default_rng(2))
    assert estimate.frequencies.max() < 9
    shares = method_of("moving_post:x")(estimate)
    assert (shares.frequencies.sum(), shares.reports) == (0, 2000)
    np.testing.assert_array_equal(estimate.frequency_intervals(), second.frequency_intervals())
