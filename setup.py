"""Maps each top-level folder to a sub-package of `hushmote`, and adds the browser board to wheels.

Everything else is in pyproject.toml.
"""

import runpy
import shutil
import sys
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
FOLDERS = ("device", "server", "planning", "fleet", "simulator", "studies", "web", "cli")
# Files that the browser board runs to check itself; in a clone, it loads them from here.
CHECKS = ("tests/vectors.json", "tests/vectors_further.json", "firmware_tests/check_vectors.py")


class BuildWithBoard(build_py):
    """Fetches MicroPython for browsers if it is missing.

    A server that installs from a clone may not have npm, and does not need a board in the browser: the build
    prints what it leaves out, and continues.
    """

    def run(self) -> None:
        if not self.editable_mode:
            try:
                runpy.run_path(str(ROOT / "web/board/fetch.py"))["main"]()
            except SystemExit as e:
                print(f"warning: {e} This build leaves it out.", file=sys.stderr)
        super().run()
        if not self.editable_mode:
            for file in CHECKS:
                shutil.copy(ROOT / file, Path(self.build_lib, "hushmote/web/board/static"))


packages = ["hushmote"]
for folder in FOLDERS:
    packages += [f"hushmote.{folder}", *(f"hushmote.{folder}.{name}" for name in find_packages(folder))]

setup(
    packages=packages,
    package_dir={"hushmote": "hushmote"} | {f"hushmote.{f}": f for f in FOLDERS},
    cmdclass={"build_py": BuildWithBoard},
)
