"""hh: a tree of histograms for ranges and quantiles; each report answers for one level.

Privacy:
    Provided by the level's randomized response; the level is drawn independently of the reading.

Utility:
    The levels' estimates are made consistent by least squares, which keeps them unbiased and linear.

Cost:
    The codes of all levels; decoding is one butterfly per hashed level and two passes over the tree.

Auto:
    ranges and quantiles.

Citation:
    Cormode, Kulkarni, Srivastava, "Answering Range Queries Under Local Differential Privacy", VLDB 2019,
    section 4; Hay, Rastogi, Miklau, Suciu, VLDB 2010, for consistency.
"""

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from ..choice import Choice
from ..support_mechanisms import SupportMechanism
from ..workload import Workload
from .choice import best_tree
from .least_squares import Tree, tree

_NUMBER = {"type": "number", "low": 0, "high": 1000, "mechanism": "hh"}


class Hierarchy(SupportMechanism):
    """The mechanism hh."""

    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {"type": "bool", "mechanism": "hh", "fanout": 2, "cells": [2]},
        _NUMBER | {"bins": 5, "fanout": 2, "cells": [2, 2, 5], "weights": [3, 0, 1]},
        _NUMBER | {"bins": 16, "fanout": 4, "cells": [4, 3]},
        _NUMBER | {"bins": 27, "fanout": 5, "cells": [2, 3, 7], "weights": [1, 2, 3]},
    )

    parameters: ClassVar[tuple[str, ...]] = ("fanout", "cells", "weights")

    @classmethod
    def designs(cls, domain: int, epsilon: int, workload: Workload) -> Iterable[Choice]:
        if workload.kind in ("ranges", "prefixes", "list", "mean") and domain > 2:
            with contextlib.suppress(ValueError):
                yield best_tree(domain, epsilon, workload)

    def tree(self, reports: Sequence[float]) -> Tree:
        # To keep least squares linear, the variances must not depend on the reported values.
        parts = zip(self.codes, reports, strict=True)
        variances = [code.channel.assumed / n if n else math.inf for code, n in parts]
        return _tree(self.domain, self.experiment.fanout, tuple(variances))

    def lacks(self, reports: Sequence[int]) -> str:
        if reports[-1]:
            return ""
        return "no report is about single values yet; wait for reports on the last level"

    def fields(self) -> dict[str, Any]:
        levels = self.experiment.levels
        cells, weights = [level.g for level in levels], [level.weight for level in levels]
        return super().fields() | {"fanout": self.experiment.fanout, "cells": cells, "weights": weights}

    def words(self) -> str:
        cells = " ".join(str(level.g) for level in self.experiment.levels)
        return f"hh, fanout {self.experiment.fanout}, cells {cells}"

    @property
    def plainly(self) -> str:
        return (
            "Each device answers one question about its reading: which half of the range contains it, or"
            " which quarter, and so on; now and then it gives a wrong answer."
        )


_tree = lru_cache(maxsize=16)(tree)
