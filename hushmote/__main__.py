"""The entry of the command line: `hushmote` and `python -m hushmote`."""

from hushmote.cli.main import main

if __name__ == "__main__":
    main()
