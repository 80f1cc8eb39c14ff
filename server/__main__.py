"""python -m hushmote.server: the command line."""

from .cli import main

main()
