"""The command-line entry point: `hushmote` and `python -m hushmote`."""

import os
import sys


def main() -> None:
    """Run the command line."""
    # NumPy's BLAS starts a thread per core, which costs a command more time than it saves.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        from hushmote.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
