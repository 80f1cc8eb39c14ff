"""Readings of several parts, `report("crash_by_version", (version, crashed))`, and a mechanism over tables.

A file beside ldp_client.py, for boards whose experiments need it. The parts become one index, so that grr, olh
and pgr ask for the joint table as it is; views asks for tables of some of the parts as well.
"""

if "." in __name__:  # the package on CPython; on a board the files lie side by side
    from . import ldp_client as core
else:
    import ldp_client as core


def _take_pair(reading, fields):
    of = core.take(fields, "of")
    if type(of) is not list or not 2 <= len(of) <= 3:
        raise core.ExperimentRefused("of must be a list of 2 or 3 readings")
    parts = []
    names = []
    reading.domain = 1
    for own in of:
        if type(own) is not dict:
            raise core.ExperimentRefused("of must be a list of objects")
        name = core.take(own, "name")
        if not core.valid_name(name, core.NAME_CHARS) or name in names:
            raise core.ExperimentRefused("names in of must be different, of a-z, 0-9, _ and -")
        if own.get("type") not in ("bool", "choice", "number"):
            raise core.ExperimentRefused("types in of must be bool, choice or number")
        part = core.Reading(own, name)
        core.take_no_more(own, " in of")
        names.append(name)
        parts.append(part)
        reading.domain *= part.domain
    reading.parts = tuple(parts)


def _bucket_pair(reading, value):
    parts = reading.parts
    if not isinstance(value, (tuple, list)) or len(value) != len(parts):
        raise TypeError("%s takes a tuple of %d or None" % (reading.name, len(parts)))
    index = 0
    missing = False
    for part, own in zip(parts, value):
        i = part.bucket(own)
        missing = missing or i is None
        index = index * part.domain + (i or 0)
    return None if missing else index


def _take_views(exp, fields):
    if exp.type != "pair":
        raise core.ExperimentRefused("views is for a pair")
    parts = exp.parts
    views = core.take(fields, "views")
    seen = []
    for view in views if type(views) is list else ():
        # Rising numbers of parts, and no view twice.
        good = type(view) is list and view and view not in seen
        last = -1
        for n in view if good else ():
            good = good and type(n) is int and last < n < len(parts)
            last = n
        if not good:
            seen = []
            break
        seen.append(view)
    if not seen:
        raise core.ExperimentRefused("views must be different lists of parts")
    cells = core.take_ints(fields, "cells", len(seen), 2, core.MAX_CODES)
    weights = core.take_ints(fields, "weights", len(seen), 0, 65535, [1] * len(seen))
    if not sum(weights):
        raise core.ExperimentRefused("weights must not all be 0")
    levels = []
    offset = 0
    for view, g, weight in zip(seen, cells, weights):
        nodes = 1
        steps = []
        stride = exp.domain
        for n in range(len(parts)):
            stride //= parts[n].domain
            size = parts[n].domain if n in view else 1
            steps.append((stride, size))
            nodes *= size
        core.check_cells(g, nodes)
        level = core.Level(exp.epsilon, nodes, g, 1, offset, weight)
        level.steps = tuple(steps)
        levels.append(level)
        offset += level.code_count
    exp.views = tuple(seen)
    exp.levels = tuple(levels)
    exp.weight_sum = sum(weights)
    exp.code_count = offset


def _randomize_views(exp, index, rng):
    """Return the code of one of the views of an index.

    Privacy: every view is a randomized response at e^epsilon on its cell of the table, and which one is
    drawn does not depend on the index. Utility: docs/pairs.md. Cost: at most 5 draws; as many steps as there
    are parts, and a view's t for its hash, whatever the index. Citation: Yang et al., "Answering
    Multi-Dimensional Range Queries under Local Differential Privacy", VLDB 2021.
    """
    level = core.pick(exp, rng)
    node = 0
    for stride, size in level.steps:  # a part that the view leaves out has size 1 and adds nothing
        node = node * size + index // stride % size
    return level.respond(node, rng)


core.TYPES["pair"] = (_take_pair, _bucket_pair)
core.MECHANISMS["views"] = (_take_views, _randomize_views)
