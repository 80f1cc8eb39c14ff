"""SciPy's special functions, by name: the compiled ones alone, and all of scipy.special for any other.

scipy.special takes a tenth of a second of CPU time to load, nearly all of it for arrays that are not NumPy's.
Its compiled functions take a few milliseconds.
"""

import sys
from importlib.util import find_spec, module_from_spec
from typing import Any

_spec = find_spec("scipy.special")
assert _spec is not None
_bare = module_from_spec(_spec)  # a package whose own code does not run
_package = sys.modules.setdefault(_spec.name, _bare)
try:
    from scipy.special import _ufuncs
except ImportError:  # a SciPy that is built otherwise: all of it, then
    _ufuncs = None
finally:
    if _package is _bare:
        del sys.modules[_spec.name]


def __getattr__(name: str) -> Any:
    if hasattr(_ufuncs, name):
        return getattr(_ufuncs, name)
    from scipy import special

    return getattr(special, name)
