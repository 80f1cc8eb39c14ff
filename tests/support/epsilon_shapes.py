"""Small experiments for every mechanism, whose branches can all be enumerated, and the ε to prove."""

from typing import Any

EPSILONS = (1_000, 100_000, 500_000, 1_000_000, 2_000_000, 4_000_000, 8_000_000)


def numbers(domain: int, mechanism: str, **fields: Any) -> dict[str, Any]:
    number = {"type": "number", "low": -20_000, "high": 50_000, "bins": domain}
    return number | {"mechanism": mechanism} | fields


def labels(count: int, mechanism: str, **fields: Any) -> dict[str, Any]:
    return {"type": "choice", "labels": [f"l{i}" for i in range(count)], "mechanism": mechanism, **fields}


def hh(domain: int, fanout: int, cells: list[int], **fields: Any) -> dict[str, Any]:
    return numbers(domain, "hh", fanout=fanout, cells=cells, **fields)


def prefix(**fields: Any) -> dict[str, Any]:
    return {"type": "text", "salt": "pepper", "mechanism": "prefix", **fields}


VERSION = {"name": "version", "type": "choice", "labels": ["1.2", "1.3"]}
CRASHED = {"name": "crashed", "type": "bool"}
DELAY = {"name": "delay", "type": "number", "low": 0, "high": 8_000, "bins": 2}
PAIR: dict[str, Any] = {"type": "pair", "of": [VERSION, CRASHED]}
VIEWS = PAIR | {"mechanism": "views"}

# Complete and partial spaces with one or more dimensions, and one value on the top level, or all but one.
POINTS = {2: (3, 4, 7, 16), 3: (4, 5, 12, 13), 5: (6, 20, 31), 7: (9,)}
SHAPES: dict[str, dict[str, Any]] = {
    "rr": {"type": "bool", "mechanism": "rr"},
    "rr-number": numbers(2, "rr"),
    "rr-one-label": labels(1, "rr"),
    "grr-2": {"type": "bool", "mechanism": "grr"},
    "grr-3": labels(2, "grr"),
    "grr-16": numbers(16, "grr"),
    "grr-64": numbers(64, "grr"),
    "olh-3-2": labels(2, "olh", g=2),
    **{f"olh-{d}-{g}": numbers(d, "olh", g=g) for d, g in ((5, 3), (9, 3), (10, 3), (64, 2))},
    "hh-2": hh(2, 2, [2]),
    "hh-5-2": hh(5, 2, [2, 3, 3]),
    "hh-5-2-weights": hh(5, 2, [2, 2, 5], weights=[3, 0, 1]),
    "hh-9-3-hash": hh(9, 3, [2, 5], weights=[1, 4]),
    "hh-27-5-incomplete": hh(27, 5, [2, 3, 7]),
    **{f"pgr-{d}-{q}": numbers(d, "pgr", q=q) for q in POINTS for d in POINTS[q]},
    **{f"sw-{d}-{r}": numbers(d, "sw", reach=r) for d, r in ((2, 0), (2, 5), (3, 1), (5, 0), (5, 2), (9, 9))},
    **{f"sw-{d}-{r}": numbers(d, "sw", reach=r) for d, r in ((16, 4), (33, 7))},
    "prefix-2": prefix(slots=4, prefixes=[2, 3], q=3),
    "pair-grr": PAIR | {"mechanism": "grr"},
    "pair-olh": PAIR | {"mechanism": "olh", "g": 3},
    "views": VIEWS | {"views": [[0], [1]], "cells": [3, 2]},
    "views-weights": VIEWS | {"views": [[0], [1], [0, 1]], "cells": [2, 2, 5], "weights": [1, 0, 3]},
    "views-3": VIEWS
    | {"of": [VERSION, DELAY, CRASHED], "views": [[1], [0, 2], [0, 1, 2]], "cells": [2, 5, 3]},
    "missing-bool": {"type": "bool", "missing": 1, "mechanism": "grr"},
    "missing-olh": labels(2, "olh", g=3, missing=1),
    "missing-hh": hh(8, 3, [2, 5], missing=1),
    "missing-pgr": numbers(11, "pgr", q=3, missing=1),
    "missing-views": VIEWS
    | {"of": [VERSION, CRASHED | {"missing": 1}], "views": [[0], [1]], "cells": [2, 3]},
    "missing-pair": PAIR | {"of": [CRASHED | {"missing": 1}, DELAY | {"missing": 1}], "mechanism": "grr"},
}
SLOW_SHAPES: dict[str, dict[str, Any]] = {
    "olh-16-13": numbers(16, "olh", g=13),
    "olh-33-5": labels(32, "olh", g=5),
    "hh-64-4": hh(64, 4, [4, 3, 3]),
    "olh-64-3": labels(63, "olh", g=3),
    "olh-64-7": numbers(64, "olh", g=7),
    "olh-64-11": numbers(64, "olh", g=11),
    "hh-64-2-weights": hh(64, 2, [2, 4, 7, 3, 2, 3], weights=[1, 0, 2, 1, 1, 2]),
    "hh-64-9": hh(64, 9, [7, 3]),
    "sw-64-15": numbers(64, "sw", reach=15),
    "sw-64-31": numbers(64, "sw", reach=31),
    "prefix-two-alike": prefix(slots=8, prefixes=[1, 1], q=3, weights=[3, 1]),
    "prefix-3": prefix(slots=4, prefixes=[1, 2, 2], q=2, weights=[1, 2, 3]),
}
