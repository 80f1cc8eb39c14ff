"""Build everything that the registries take into dist/, validate it, and write the manifest.

    python tools/make_release.py [--dist FOLDER] [--no-validation]
    python tools/make_release.py --verify

--verify builds once more in another folder, and compares every byte with dist/. docs/release.md explains
what to do with the files.
"""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from release import embedded, licenses, manifest, mip, npm, python, server, validators
from release.source import ReleaseError, Source, commit_time, copy_source

ROOT = Path(__file__).resolve().parents[1]
# In this order: the container and the modules for boards take the wheel.
BUILDERS = (
    python.build,
    npm.build,
    embedded.build,
    mip.build,
    server.build_container,
    server.build_app,
    licenses.build,
    manifest.write,
)


def build(folder: Path, dist: Path) -> Source:
    """Copy the sources into a folder, and build dist/ from them.

    Raises:
        ReleaseError: If something cannot be built.
    """
    python.fetch_board(ROOT)
    source = copy_source(ROOT, folder)
    dist.mkdir(parents=True)
    for builder in BUILDERS:
        builder(source, dist)
    return source


def _check_replaceable(dist: Path) -> None:
    """Raise a ReleaseError if a folder exists and is not an earlier build."""
    if dist.exists() and not (dist / manifest.SUMS).exists() and any(dist.iterdir()):
        raise ReleaseError(f"{dist} is not an earlier build: delete it, or name another folder with --dist")


def _print_files(dist: Path) -> None:
    for path in sorted(dist.iterdir()):
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        count = "" if path.is_file() else f", {len(files)} files"
        print(f"{path.name:42} {sum(file.stat().st_size for file in files):>10,} bytes{count}")


def _verify(dist: Path) -> None:
    if not (dist / manifest.SUMS).exists():
        raise ReleaseError(f"{dist} has no {manifest.SUMS}: run make release first")
    with tempfile.TemporaryDirectory() as scratch:
        other = Path(scratch) / "dist"
        build(Path(scratch) / "source", other)
        built, rebuilt = manifest.sums(dist), manifest.sums(other)
        built |= {manifest.PROVENANCE: (dist / manifest.PROVENANCE).read_text()}
        rebuilt |= {manifest.PROVENANCE: (other / manifest.PROVENANCE).read_text()}
    if different := sorted(
        name for name in built.keys() | rebuilt.keys() if built.get(name) != rebuilt.get(name)
    ):
        raise ReleaseError(f"a second build differs in {', '.join(different)}")
    print(f"A second build in another folder gives the same {len(built)} files.")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--dist",
        type=Path,
        default=ROOT / "dist",
        help="the folder to write, which replaces an earlier build",
    )
    parser.add_argument("--no-validation", action="store_true", help="only build")
    parser.add_argument("--verify", action="store_true", help="build again, and compare with dist/")
    options = parser.parse_args()
    os.environ.setdefault("SOURCE_DATE_EPOCH", commit_time(ROOT))
    if options.verify:
        _verify(options.dist)
        return
    _check_replaceable(options.dist)
    with tempfile.TemporaryDirectory() as scratch:
        source = build(Path(scratch) / "source", Path(scratch) / "dist")
        shutil.rmtree(options.dist, ignore_errors=True)
        shutil.move(Path(scratch) / "dist", options.dist)
    _print_files(options.dist)
    if not options.no_validation and not validators.report(options.dist, ROOT):
        raise ReleaseError("a validator failed; do not publish this build")
    if not source.is_clean:
        print("Do not publish this build: it contains changes that are not committed.", file=sys.stderr)


if __name__ == "__main__":
    try:
        main()
    except ReleaseError as e:
        sys.exit(f"make_release: {e}")
