"""Type aliases for the arrays that packages exchange."""

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Counts = npt.NDArray[np.int64]
"""The number of reports of each code, or of each class of codes."""

Bools = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]
