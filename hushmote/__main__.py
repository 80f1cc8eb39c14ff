"""The entry of the command line: `hushmote` and `python -m hushmote`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command; `serve`, which is restarted most and waited for, loads nothing of the others."""
    if sys.argv[1:2] == ["serve"]:
        from hushmote.cli.serve import main as run
    else:
        from hushmote.cli.main import main as run
    run()


if __name__ == "__main__":
    main()
