"""Run `hushmote` without its startup time by forking a process with all commands loaded for each call.

    with commands(folder) as bin_folder:        # put this folder first in PATH

The executable there is a small program that passes on its arguments, folder, environment, open files and
signals to the fork; if it dies, so does the fork. A call is otherwise identical to the installed command's.
"""

import contextlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

_CALL = """#!{python} -ISE
import json, os, signal, socket, sys
line = socket.socket(socket.AF_UNIX)
line.connect({at!r})
call = json.dumps([sys.argv, os.getcwd(), dict(os.environ)]).encode()
socket.send_fds(line, [b"%10d" % len(call)], [0, 1, 2])
line.sendall(call)
pid = int(line.recv(10))
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(pid, number))
status = int(line.recv(10))
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
os._exit(status)
"""


@contextlib.contextmanager
def commands(folder: Path) -> Iterator[Path]:
    """Yield a folder with an executable `hushmote`, and a file `cpu` with each call's CPU seconds."""
    at = folder / "line"
    program = folder / "bin" / "hushmote"
    program.parent.mkdir()
    program.write_text(_CALL.format(python=sys.executable, at=str(at)))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(at))
        line.listen()
        ours = [sys.executable, __file__, str(line.fileno()), str(folder / "bin" / "cpu")]
        with subprocess.Popen(ours, pass_fds=[line.fileno()], stdin=subprocess.DEVNULL) as process:
            try:
                yield program.parent
            finally:
                process.kill()


def _serve(line: socket.socket, cpu: Path) -> None:
    sys.path[0] = str(Path(sys.executable).parent)  # as in an installed program
    from hushmote.cli import main

    for place in map(main.module_name, main.COMMANDS):
        import_module(place)
    for late in ("hushmote.server.answers.figure", "hushmote.simulator.days", "sqlalchemy.dialects.sqlite"):
        import_module(late)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # reap the processes that wait for a call
    while True:
        call, _ = line.accept()
        if os.fork():
            call.close()
            continue
        line.close()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        status = _answer(call)
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        with open(cpu, "a") as file:
            file.write(f"{used.ru_utime + used.ru_stime}\n")
        with contextlib.suppress(OSError):
            call.sendall(b"%10d" % status)
        os._exit(0)


def _answer(call: socket.socket) -> int:
    """Run a call in a fork; return its exit status, or the negated number of the signal that killed it."""
    size, files, _, _ = socket.recv_fds(call, 10, 3)
    text = b""
    while len(text) < int(size):
        text += call.recv(1 << 20)
    arguments, folder, environment = json.loads(text)
    pid = os.fork()
    if not pid:
        os.setsid()
        for number, file in enumerate(files):
            os.dup2(file, number)
            os.close(file)
        call.close()
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = arguments
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from hushmote.cli.main import main

        main()  # main() exits the process
    for file in files:
        os.close(file)
    call.sendall(b"%10d" % pid)
    ended = os.pidfd_open(pid)
    if call in select.select([ended, call], [], [])[0]:  # the caller is gone
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]))
