"""The entry of the command line: `hushmote` and `python -m hushmote`."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from hushmote.cli.main import main as run
    except KeyboardInterrupt:
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
