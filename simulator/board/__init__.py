"""A software board: MicroPython behind a pseudo-terminal, with its flash in a file.

repl.py and hardware.py run on MicroPython, the other modules on the computer.
"""
