"""SciPy's special functions; scipy.special itself is imported only for functions that are not compiled.

Importing scipy.special takes a tenth of a second of CPU time, nearly all of it for other libraries' arrays.
Importing only its compiled functions takes a few milliseconds.
"""

import sys
from importlib.util import find_spec, module_from_spec
from typing import Any

_spec = find_spec("scipy.special")
assert _spec is not None
_bare = module_from_spec(_spec)  # the package without running its __init__
_package = sys.modules.setdefault(_spec.name, _bare)
try:
    from scipy.special import _ufuncs
except ImportError:  # a different build of SciPy: use all of scipy.special
    _ufuncs = None
finally:
    if _package is _bare:
        del sys.modules[_spec.name]


def __getattr__(name: str) -> Any:
    if hasattr(_ufuncs, name):
        return getattr(_ufuncs, name)
    from scipy import special

    return getattr(special, name)
