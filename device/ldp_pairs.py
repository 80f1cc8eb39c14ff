"""Readings with several parts, `report("heating_by_window", (window, heating))`, and the views mechanism.

Copy this file next to ldp_client.py. The type "pair" has 2 or 3 parts, each a bool, a choice or a number;
the index of a tuple or list of their readings is (a * D_B + b) * D_C + c. grr, olh and pgr report this joint
table as it is; "views" also reports tables over some of the parts. A part that sets `missing` has one extra
value for "no reading"; if a part without it has no reading, the whole pair counts as no reading.
"""

# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

if "." in __name__:  # the package on CPython; on a board, all files are in one folder
    from . import ldp_client
else:
    import ldp_client


def _check(good, text):
    if not good:
        raise ldp_client.ExperimentRefused(text)


class Part:
    """One of a pair's readings, with the fields of an Experiment.

    Attributes:
        name, type, labels, low, high, domain, missing: See Experiment.
    """

    labels = ()  # type: tuple[str, ...]
    low = high = 0
    domain = 2  # type: int
    missing = None  # type: int | None
    bucket = ldp_client.Experiment.bucket

    def __init__(self, fields):
        self.name = ldp_client.take(fields, "name")  # type: str
        self.type = ldp_client.take_choice(fields, "type", ("bool", "choice", "number"))  # type: str
        setup, self._bucket = ldp_client.TYPES[self.type]
        setup(self, fields)
        ldp_client.take_no_more(fields, " in of")


def take(reading, fields):
    """Set parts (a tuple of Part), domain and missing, or raise ExperimentRefused."""
    definitions = ldp_client.take(fields, "of")
    _check(type(definitions) is list and 2 <= len(definitions) <= 3, "of must be 2 or 3 objects")
    parts = ()
    names = []
    domain = 1
    for definition in definitions:
        _check(type(definition) is dict, "of must be 2 or 3 objects")
        part = Part(definition)
        good = ldp_client._valid_name(part.name, ldp_client._NAME_CHARS) and part.name not in names
        domain *= part.domain
        _check(good and domain <= 1 << 24, "of has a wrong name or too many values")
        names.append(part.name)
        parts += (part,)
    reading.parts = parts
    reading.domain = domain
    reading.missing = bucket(reading, [None] * len(parts))  # None for the pair means None for every part


def bucket(reading, value):
    """Return a tuple's or list's index: None if a part has no reading, -1 for the wrong type or length."""
    parts = reading.parts
    if not isinstance(value, (tuple, list)) or len(value) != len(parts):
        return -1
    index = 0
    missing = False
    for part, part_value in zip(parts, value):
        i = part.bucket(part_value)
        missing |= i is None
        index = index * part.domain + (i or 0)
    return None if missing else index


def take_views(exp, fields):
    """Set views, levels, weight_sum and code_count, or raise ExperimentRefused."""
    views = ldp_client.take(fields, "views")
    _check(exp.type == "pair" and type(views) is list, "views must be lists of a pair's parts")
    n = len(views)
    cells = ldp_client.take_ints(fields, "cells", n, 2, 1 << 24)
    weights = ldp_client.take_ints(fields, "weights", n, 0, 65535, [1] * n)
    earlier = []
    for view, g, weight in zip(views, cells, weights):
        steps = []
        nodes = 1
        stride = exp.domain
        numbers = []
        for i, part in enumerate(exp.parts):
            stride //= part.domain
            size = 1
            if type(view) is list and i in view:
                size = part.domain
                numbers.append(i)
            steps.append((stride, size))
            nodes *= size
        # Part indices must be ascending; "true" equals 1 in Python, but is not an index here.
        # Compare before calling repr(), which would raise RuntimeError for deeply nested values.
        good = numbers and view == numbers and repr(view) == repr(numbers) and view not in earlier
        _check(good, "views must differ and ascend")
        earlier.append(view)
        level = ldp_client.Level(exp.epsilon, nodes, g, 1, exp.code_count, weight)
        level.steps = steps
        exp.levels += (level,)
        exp.code_count += level.code_count
    exp.views = views
    exp.weight_sum = sum(weights)
    _check(exp.weight_sum, "weights must not all be 0")


def randomize_views(exp, index, rng):
    """Draw a view and return a randomized code for the index's cell in it.

    Privacy: each view is randomized response at e^epsilon over its cells, and the view is drawn
    independently of the index. Utility: docs/estimates.md. Cost: at most 5 draws, one step per part and one
    per digit of the hash, whatever the index. Citation: Yang, Wang, Li, Cheng, Su, "Answering
    Multi-Dimensional Range Queries under Local Differential Privacy", VLDB 2021.
    """
    level = ldp_client.pick(exp, rng)
    node = 0
    for stride, size in level.steps:  # a part outside the view has size 1, which adds 0
        node = node * size + index // stride % size
    return level.respond(node, rng)


ldp_client.TYPES["pair"] = (take, bucket)
ldp_client.MECHANISMS["views"] = (take_views, randomize_views)
