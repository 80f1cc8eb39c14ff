"""Telling systemd how the service is: sd_notify(3) by its socket, nothing where there is none."""

from __future__ import annotations

import contextlib
import os
import socket


def notify(**fields: str | int) -> None:
    """Send fields such as READY=1, STATUS=..., WATCHDOG=1 or STOPPING=1; never raises."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    text = "\n".join(f"{name}={value}" for name, value in fields.items())
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
        s.settimeout(1.0)
        s.sendto(text.encode(), address.replace("@", "\0", 1))
