"""The entry of the command line: `hushmote` and `python -m hushmote`."""

import os
import sys


def main() -> None:
    """Run the command line."""
    # numpy's library starts a thread for each core, which costs a command more than it ever gains it.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        from hushmote.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
