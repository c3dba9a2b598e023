"""Free loopback ports."""

from __future__ import annotations

import contextlib
import random
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

LOOPBACK: Final = "127.0.0.1"
LOWEST: Final = 10_240
"""Below are the ports that well-known servers listen on."""
ENOUGH: Final = 1_000
"""Ports between that one and those of outgoing connections that are worth choosing among."""


def free_ports(count: int) -> list[int]:
    """`count` different TCP ports that nothing listens on at 127.0.0.1 now.

    They are none that the system gives to outgoing connections: one that lasts would keep a server that is started
    again from its port.
    """
    own = range(LOWEST, _first_outgoing())
    with ExitStack() as held:
        ports: list[int] = []
        for port in random.SystemRandom().sample(own, len(own)) if len(own) >= ENOUGH else [0] * count:
            if len(ports) == count:
                break
            listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            with contextlib.suppress(OSError):
                listener.bind((LOOPBACK, port))
                ports.append(int(listener.getsockname()[1]))
        return ports


def _first_outgoing() -> int:
    """The lowest port of outgoing connections: Linux says so; elsewhere it is 49152 (RFC 6335) or, on older systems,
    32768."""
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768


def is_free(port: int) -> bool:
    """Whether a server could listen on the port at 127.0.0.1 now.

    As servers do, it looks past connections of an earlier server that are still winding down.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
            listener.listen(1)
        except OSError:
            return False
        return True


def answers(port: int) -> bool:
    """Whether something accepts connections on the port at 127.0.0.1 now."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1.0):
            return True
    except OSError:
        return False
