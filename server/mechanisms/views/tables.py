"""views: tables over a reading's parts (A, B, A with B); each report answers for one table.

Privacy:
    Provided by the view's randomized response; the view is drawn independently of the reading.

Utility:
    The views' estimates are combined by least squares (factors.py), which keeps them unbiased and linear. If
    no report answers for a view that contains two given parts, their interaction is unknown, and statistics
    that depend on it are rejected.

Cost:
    The codes of all views; decoding is one butterfly per hashed view.

Auto:
    two or more readings at once.

Citation:
    Yang, Wang, Li, Cheng, Su, "Answering Multi-Dimensional Range Queries under Local Differential Privacy",
    VLDB 2021; Wang, Blocki, Li, Jha, USENIX Security 2017, for one view.
"""

import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ....device.ldp_client import Experiment, Level
from ...arrays import Counts, Floats
from .. import draws
from ..channel import LevelCode
from ..choice import Choice
from ..decoded_histogram import Decoded
from ..mechanism import Weights
from ..support_mechanisms import SupportMechanism
from ..tree.covariance import LevelCounts
from ..workload import Workload
from . import factors
from .choice import best_views
from .factors import Parts

_PAIR = {
    "type": "pair",
    "of": [{"name": "a", "type": "choice", "labels": ["x", "y"]}, {"name": "b", "type": "bool"}],
    "mechanism": "views",
}
_THREE = {"type": "pair", "of": [*_PAIR["of"], {"name": "c", "type": "bool"}], "mechanism": "views"}


class ViewCode(LevelCode):
    """A view's level, whose nodes are the cells of the marginal over the view's parts."""

    def __init__(self, level: Level, shape: Sequence[int], parts: Parts):
        super().__init__(level)
        self.shape = shape
        self.parts = parts

    def node_sums(self, values: Floats) -> Floats:
        return factors.marginal(values, self.shape, self.parts)

    def spread_out(self, nodes: Floats, domain: int) -> Floats:
        return factors.spread_out(nodes, self.shape, self.parts)


def _nodes(level: Any, indices: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return the indices' nodes in a view, as boards compute them."""
    nodes = np.zeros_like(indices)
    for stride, count in level.steps:
        nodes *= np.uint32(count)
        nodes += indices // np.uint32(stride) % np.uint32(count)
    return nodes


class Views(SupportMechanism):
    """The mechanism views."""

    examples: ClassVar[tuple[Mapping[str, Any], ...]] = (
        _PAIR | {"views": [[0, 1]], "cells": [6]},
        _PAIR | {"views": [[0], [1], [0, 1]], "cells": [3, 2, 5], "weights": [2, 1, 3]},
        _PAIR | {"views": [[0, 1], [1]], "cells": [3, 2], "weights": [3, 0]},
        _THREE | {"views": [[0], [1, 2], [0, 1, 2]], "cells": [2, 4, 3], "weights": [1, 1, 2]},
    )
    parameters: ClassVar[tuple[str, ...]] = ("views", "cells", "weights")
    reads: ClassVar[Literal["", "pair", "prefixes"]] = "pair"

    @classmethod
    def designs(cls, domain: int, epsilon: int, workload: Workload) -> Iterable[Choice]:
        with contextlib.suppress(ValueError):
            yield from best_views(domain, epsilon, workload)

    def __init__(self, experiment: Experiment):
        super().__init__(experiment)
        self._names = [part.name for part in factors.parts_of(experiment)]
        self.shape = tuple(part.domain for part in factors.parts_of(experiment))
        self.views: tuple[Parts, ...] = tuple(map(tuple, experiment.views))  # type: ignore[attr-defined]
        levels = zip(experiment.levels, self.views, strict=True)
        self.codes = tuple(ViewCode(level, self.shape, view) for level, view in levels)

    def precision(self, reports: Sequence[float]) -> dict[Parts, dict[int, float]]:
        """Return each component's precision in each view for these numbers of reports."""
        # As with a tree, the variances must not depend on the reported values to keep least squares linear.
        parts = zip(self.codes, reports, strict=True)
        variances = [code.channel.assumed / n if n else math.inf for code, n in parts]
        return factors.precision(self.shape, self.views, variances)

    def weights(self, statistic: Floats, reports: Sequence[float]) -> Weights:
        precisions = self.precision(reports)
        components = factors.components(statistic, self.shape)
        weights: list[Floats | None] = [None] * len(self.codes)
        constant = components[()][0]
        for number, (code, n) in enumerate(zip(self.codes, reports, strict=True)):
            if not n:
                continue
            nodes = np.zeros((code.level.domain, statistic.shape[1]))
            shape = [self.shape[part] for part in code.parts]
            for parts, by_view in precisions.items():
                if number in by_view:
                    share = by_view[number] / sum(by_view.values())
                    within = tuple(code.parts.index(part) for part in parts)
                    nodes += share * factors.spread_out(components[parts], shape, within)
            weights[number] = code.weights(nodes)
            constant = constant + code.constant(nodes)
        return weights, constant

    def unknown(self, statistic: Floats, reports: Sequence[float]) -> str:
        precisions, scale = self.precision(reports), np.abs(statistic).max(initial=0)
        for parts, part in factors.components(statistic, self.shape).items():
            if parts and not precisions[parts] and np.abs(part).max(initial=0) > 1e-9 * scale:
                names = [self._names[number] for number in parts]
                names_text = f"{' and '.join(names)} together" if len(names) > 1 else names[0]
                return f"no report contains information about {names_text}: {self._remedy(parts)}"
        return ""

    def _remedy(self, parts: Parts) -> str:
        levels = zip(self.views, self.experiment.levels, strict=True)
        if any(set(parts) <= set(view) and level.weight for view, level in levels):
            return "wait for more reports"
        return (
            "each part is reported separately; to report all parts together, create a new version with"
            ' statistics = "joint"'
        )

    def draw(self, indices: npt.NDArray[np.uint32], rng: np.random.Generator) -> npt.NDArray[np.uint32]:
        return draws.codes(self.experiment, indices, rng, _nodes)

    def decode(self, counts: Counts) -> "ViewsDecoded":
        return ViewsDecoded(self, self.collapse(counts))

    def fields(self) -> dict[str, Any]:
        cells = [level.g for level in self.experiment.levels]
        weights = [level.weight for level in self.experiment.levels]
        views = [list(view) for view in self.views]
        return super().fields() | {"views": views, "cells": cells, "weights": weights}

    def words(self) -> str:
        names = self._names
        total = self.experiment.weight_sum
        shares = (
            f"{' x '.join(names[part] for part in view)} {100 * level.weight / total:.3g}%"
            for view, level in zip(self.views, self.experiment.levels, strict=True)
        )
        return f"views, {', '.join(shares)}"

    @property
    def plainly(self) -> str:
        return (
            "Each device answers for one part of its reading, or for several together, chosen at random; now"
            " and then it gives a wrong answer."
        )


class ViewsDecoded(Decoded):
    """A histogram from views; estimates come from the views, errors from the codes' weights."""

    def __init__(self, mechanism: Views, counts: Sequence[Counts]):
        super().__init__(mechanism, counts)
        self.views = mechanism

    @cached_property
    def frequencies(self) -> Floats:
        shape, precisions = self.views.shape, self.views.precision(self.reports)
        result = np.full(self.views.domain, 1 / self.views.domain)
        for number, (code, part, n) in enumerate(
            zip(self.views.codes, self.counts, self.reports, strict=True)
        ):
            if not n:
                continue
            estimates = LevelCounts(code, n, part).estimates[:, None]
            view_shape = [shape[p] for p in code.parts]
            cells_outside = factors.size(shape, factors.outside(shape, code.parts))
            for within, component in factors.components(estimates, view_shape).items():
                parts = tuple(code.parts[p] for p in within)
                if parts:
                    by_view = precisions[parts]
                    share = by_view[number] / sum(by_view.values()) / cells_outside
                    result += share * factors.spread_out(component[:, 0], shape, parts)
        return result

    def value(self, statistic: Floats) -> Floats:
        return self.frequencies @ statistic
