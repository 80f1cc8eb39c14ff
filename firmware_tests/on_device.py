"""The on-device tests' shared helpers: the loop over test functions, and the line that the runner reads.

A test file is a plain script of functions called test_*; its last line is on_device.run(globals()).
MicroPython's unittest exits with 0 on failure, and a board's exit status is not passed on, so the verdict
is a printed line. A file declares its requirements (see run.py):

    NEEDS = ("littlefs", "folder")
"""

import sys

try:
    from long_form import LONG  # run.py copies it next to this file
except ImportError:
    LONG = True


def run(names):
    """Call every test_* function among names; print a verdict."""
    passed = failed = 0
    for name in sorted(names):
        if not name.startswith("test_"):
            continue
        try:
            names[name]()
        except Exception as e:
            failed += 1
            print("FAILED", name)
            if hasattr(sys, "print_exception"):
                sys.print_exception(e)
            else:  # CPython, for a file that controls a board
                import traceback

                traceback.print_exc()
        else:
            passed += 1
    print(f"VERDICT passed={passed} failed={failed}")


def raises(error, call, *args):
    """Call a function that must raise `error`; return the error's text, or raise AssertionError."""
    try:
        call(*args)
    except error as e:
        return str(e)
    raise AssertionError("no " + error.__name__)


def budget(rule, cap):
    return '"budget":{"rule":"' + rule + f'","cap":{cap}}},"window":"day"}}'


EPSILON = 1000000
REPORTS = 6  # reports within each experiment's cap
DOOR = '{"v":1,"name":"door","type":"bool","mechanism":"rr","epsilon":1000000,' + budget(
    "sum", REPORTS * EPSILON
)
MODE = (
    '{"v":1,"name":"mode","type":"choice","labels":["eco","comfort","off"],"mechanism":"grr",'
    '"epsilon":1000000,' + budget("count", REPORTS)
)
TEMPERATURE = (
    '{"v":1,"name":"temperature","type":"number","low":-20000,"high":50000,"bins":256,"mechanism":"hh",'
    '"fanout":4,"cells":[4,3,3,3],"epsilon":1000000,' + budget("squares", REPORTS * EPSILON * EPSILON)
)
EXPERIMENTS = {"door": DOOR, "mode": MODE, "temperature": TEMPERATURE}
READINGS = {"door": True, "mode": "eco", "temperature": 21.4}
POLICY = {
    "sum": 100 * EPSILON,
    "squares": 0,
    "epsilon": 4 * EPSILON,
    "rules": ("sum", "squares", "count"),
    "experiments": ("door", "mode", "temperature"),
}
KEY = bytes(range(32))
