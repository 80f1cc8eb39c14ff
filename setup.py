"""Each top-level folder is a sub-package of `hushmote`; everything else is in pyproject.toml."""

from setuptools import find_packages, setup

FOLDERS = ("device", "server", "simulator", "web", "cli")

packages = ["hushmote"]
for folder in FOLDERS:
    packages += [f"hushmote.{folder}", *(f"hushmote.{folder}.{name}" for name in find_packages(folder))]

setup(packages=packages, package_dir={"hushmote": "hushmote"} | {f"hushmote.{f}": f for f in FOLDERS})
