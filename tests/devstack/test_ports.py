"""Ports for servers that may be started again."""

from __future__ import annotations

import socket
from contextlib import ExitStack

import pytest

from devstack import ports
from devstack.ports import LOOPBACK, free_ports, is_free


def test_they_are_different_and_free_and_no_outgoing_connection_gets_one() -> None:
    found = free_ports(50)
    assert len(set(found)) == 50
    assert all(is_free(port) for port in found)
    assert max(found) < ports._first_outgoing()


def test_one_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "ENOUGH", 1)
    [first, *_] = free_ports(1)
    monkeypatch.setattr(ports, "LOWEST", first)
    monkeypatch.setattr(ports, "_first_outgoing", lambda: first + 20)
    with ExitStack() as held:
        held.enter_context(socket.create_server((LOOPBACK, first)))
        assert first not in free_ports(5)


def test_where_every_port_may_be_an_outgoing_ones_the_system_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_first_outgoing", lambda: 1_024)
    assert len(set(free_ports(3))) == 3
