"""A board in software: MicroPython behind a pseudo-terminal, with a flash in a file.

repl.py and hardware.py run on MicroPython, the other modules on the computer.
"""
