"""Small servers that behave as each host documents, one for each kind of source that has an API of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.sources.hosts.apivideo import ApiVideoServer
from tests.sources.hosts.base import Server
from tests.sources.hosts.brightcove import BrightcoveServer
from tests.sources.hosts.bunny import BunnyServer
from tests.sources.hosts.cloudflare import CloudflareServer
from tests.sources.hosts.jwplayer import JwPlayerServer
from tests.sources.hosts.mux import MuxServer
from tests.sources.hosts.vimeo import VimeoServer
from tests.sources.hosts.wistia import WistiaServer

SERVERS: Final[Mapping[str, type[Server]]] = {
    "vimeo": VimeoServer,
    "wistia": WistiaServer,
    "jwplayer": JwPlayerServer,
    "brightcove": BrightcoveServer,
    "mux": MuxServer,
    "cloudflare": CloudflareServer,
    "apivideo": ApiVideoServer,
    "bunny": BunnyServer,
}
