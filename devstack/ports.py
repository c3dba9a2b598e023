"""Free loopback ports."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from typing import Final

LOOPBACK: Final = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """`count` different TCP ports that nothing listens on at 127.0.0.1 now."""
    with ExitStack() as held:
        ports = []
        for _ in range(count):
            listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            listener.bind((LOOPBACK, 0))
            ports.append(int(listener.getsockname()[1]))
        return ports


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
