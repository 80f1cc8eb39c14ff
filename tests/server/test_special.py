"""SciPy's special functions, of which only those that are not compiled need scipy.special."""

import subprocess
import sys

SCRIPT = """
import sys
from hushmote.server import special
print("scipy.special" in sys.modules, special.ndtr(0.0), round(special.logsumexp([0.0, 0.0]), 6))
"""


def test_leaves_scipy_special_importable():
    run = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert (run.stdout, run.stderr) == ("False 0.5 0.693147\n", "")
