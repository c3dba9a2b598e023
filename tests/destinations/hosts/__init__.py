"""A small real server for each hosted video API, which behaves as that host documents: one row each of the conformance
suite."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.destinations.hosts.apivideo import ApiVideoServer
from tests.destinations.hosts.base import HostServer
from tests.destinations.hosts.bunny import BunnyServer
from tests.destinations.hosts.cloudflare import CloudflareServer
from tests.destinations.hosts.fastpix import FastPixServer
from tests.destinations.hosts.mux import MuxServer

ROWS: Final[Mapping[str, type[HostServer]]] = {
    server.kind: server for server in (ApiVideoServer, BunnyServer, CloudflareServer, FastPixServer, MuxServer)
}
"""By the account's kind."""
