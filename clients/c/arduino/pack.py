"""Create Hushmote.zip for Arduino's "Add .ZIP Library", which requires sources in src/ and no programs.

python3 pack.py [ZIP]
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
PROGRAMS = ("check.c", "fuzz.c")


def files() -> dict[str, Path]:
    """Return the library's files as {name in the archive: path}."""
    core = [path for kind in ("*.c", "*.h") for path in HERE.parent.glob(kind) if path.name not in PROGRAMS]
    source = [*core, *HERE.glob("*.h"), *HERE.glob("*.cpp")]
    packed = {f"src/{path.name}": path for path in sorted(source)}
    packed |= {"library.properties": HERE / "library.properties", "LICENSE": ROOT / "LICENSE"}
    return packed | {str(path.relative_to(HERE)): path for path in sorted(HERE.glob("examples/*/*.ino"))}


if __name__ == "__main__":
    sys.path.append(str(ROOT / "tools"))
    from release.archives import write_zip

    library = {f"Hushmote/{name}": path.read_bytes() for name, path in files().items()}
    write_zip(Path(sys.argv[1] if len(sys.argv) > 1 else "Hushmote.zip"), library)
