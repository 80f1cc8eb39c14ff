"""A MicroPython board's REPL on top of the unix port, as far as mpremote uses it.

    micropython repl.py STATUS_FD IMAGE friendly|raw|interrupted POWER|SLEEP|SOFT ACCESS_POINT VERSION

It supports the raw REPL, raw paste with flow control, Ctrl-C and soft reset, and runs boot.py and main.py as
a board does. board.py starts it, and restarts it according to its exit status: 42 soft reset, 43 soft reset
from the raw REPL, 44 machine.reset(), 45 deep sleep. It writes to STATUS_FD: B (busy) and I (idle), so that
Ctrl-C becomes a signal while a program runs, R when the REPL is reached, and S<ms> before it sleeps.
"""

# pyright: reportMissingImports=false, reportArgumentType=false, reportAttributeAccessIssue=false

import sys

import hardware

_SOFT_EXIT = 42
_SOFT_RAW_EXIT = 43
_WINDOW_BYTES = 512
_BANNER = b"MicroPython, a board in software\r\n>>> "
_RAW_BANNER = b"raw REPL; CTRL-B to exit\r\n>"

_in = sys.stdin.buffer
_out = sys.stdout.buffer
_status = open(int(sys.argv[1]), "wb")  # noqa: SIM115 - open as long as the board runs


class _Closed(Exception):
    """Raised when the other end of the line is closed."""


def _send_state(state):
    _status.write(state)


def _read(n):
    data = _in.read(n)
    if not data:
        raise _Closed
    return data


def _run(source, name, scope):
    """Execute source; return the exception that ended it, or None."""
    _send_state(b"B")
    error = None
    try:
        exec(compile(source, name, "exec"), scope)
    except hardware.Reset:
        raise
    except BaseException as e:
        error = e
    _send_state(b"I")
    return error


def _run_file(name, scope):
    try:
        with open(name) as f:
            source = f.read()
    except OSError:
        return
    error = _run(source, name, scope)
    if error is not None and not isinstance(error, SystemExit):
        sys.print_exception(error, sys.stdout)


def _raw_paste():
    """Receive a program in windows of bytes, as mpremote prefers; return it."""
    _out.write(b"R\x01" + _WINDOW_BYTES.to_bytes(2, "little") + b"\x01")
    source = bytearray()
    remaining = _WINDOW_BYTES
    while True:
        c = _read(1)
        if c == b"\x04":
            _out.write(b"\x04")
            return bytes(source)
        if c == b"\x03":
            _out.write(b"\x04")
            return None
        source.extend(c)
        remaining -= 1
        if not remaining:
            remaining = _WINDOW_BYTES
            _out.write(b"\x01")


def _execute(source, scope):
    error = _run(source, "<stdin>", scope)
    _out.write(b"\x04")
    if error is not None and not isinstance(error, SystemExit):
        sys.print_exception(error, sys.stdout)
    _out.write(b"\x04")
    if isinstance(error, SystemExit):
        sys.exit(_SOFT_RAW_EXIT)
    _out.write(b">")


def _serve(raw, scope):
    source = bytearray()
    while True:
        c = _read(1)
        if c == b"\x01":
            raw = True
            source = bytearray()
            _out.write(_RAW_BANNER)
        elif c == b"\x02":
            raw = False
            _out.write(b"\r\n" + _BANNER)
        elif c == b"\x03":
            source = bytearray()
            if not raw:
                _out.write(b"\r\n>>> ")
        elif c == b"\x05" and raw and not source:
            _read(2)
            pasted = _raw_paste()
            if pasted is not None:
                _execute(pasted, scope)
        elif c == b"\x04":
            if not raw:
                sys.exit(_SOFT_EXIT)
            _out.write(b"OK")
            if not source:
                _out.write(b"\r\n")
                sys.exit(_SOFT_RAW_EXIT)
            _execute(bytes(source), scope)
            source = bytearray()
        elif raw:
            source.extend(c)


def main():
    """Act as a board from power-up to power-off, as the arguments specify."""
    image, mode, cause, access_point = sys.argv[2:6]
    hardware.install(image, cause == "SLEEP", access_point)
    raw = mode == "raw"
    scope = {"__name__": "__main__"}
    if cause == "SOFT":
        _out.write(b"MPY: soft reboot\r\n")
    try:
        _run_file("boot.py", scope)
        if mode == "friendly":
            _run_file("main.py", scope)
    except KeyboardInterrupt:  # between two programs
        _send_state(b"I")
    _send_state(b"R")
    _out.write(_RAW_BANNER if raw else _BANNER)
    while True:
        try:
            _serve(raw, scope)
        except KeyboardInterrupt:  # just after a program had ended
            _send_state(b"I")


try:
    main()
except _Closed:
    sys.exit(0)
except hardware.Reset as e:
    if e.sleep_ms:
        _send_state(b"S%d\n" % e.sleep_ms)
    sys.exit(e.status)
