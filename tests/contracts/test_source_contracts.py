"""What sources ask of each host, and what its test server answers, against the vendor's own description of its API."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from sources import apivideo, mux
from sources.base import Item
from tests.contracts.describing import Description, Exchange, needs_descriptions
from tests.sources.host_rig import BY_KIND, once_made, placed
from tests.sources.hosts import SERVERS

pytestmark = needs_descriptions


@dataclass(frozen=True)
class Contract:
    """One description. `asked` and `answered` are what it lacks, or is wrong in, and why we are right; the keys are
    the last words of what is held against a request or an answer."""

    kind: str
    file: str
    server: str
    asked: Mapping[str, str] = field(default_factory=dict)
    answered: Mapping[str, str] = field(default_factory=dict)
    bare: Callable[[Any], Any] = lambda answer: answer
    """An answer as the description has it."""
    how: Mapping[str, bool] = field(default_factory=dict)
    """How it is to be read."""


def unwrapped(answer: Any) -> Any:
    """The description has the bare list that the API wraps together with its total."""
    return answer["data"] if isinstance(answer, dict) and "data" in answer else answer


CONTRACTS = [
    Contract(
        "vimeo",
        "vimeo.json",
        "https://api.vimeo.com",
        asked={
            "?fields": "described once for all calls, in prose",
            "?per_page": "described for lists of videos; UNVERIFIED for text tracks, where it can do no harm",
        },
        answered={"download": "described beside the description: only with the scope video_files"},
        bare=unwrapped,
        how={"sparse": True},
    ),
    Contract(
        "wistia",
        "wistia-2026-01.json",
        "https://api.wistia.com/modern",
        asked={"cursor": "optional, and not sent; openapi-core does not read this style of parameter (deepObject)"},
    ),
    Contract(
        "mux",
        "mux-2022.json",
        "https://api.mux.com",
        answered={
            "next_cursor": "lists were walked by page alone",
            "meta": "title, creator and external id came in 2024",
            "status": "of a track: came in 2022, after the description",
        },
    ),
    Contract(
        "cloudflare",
        "cloudflare-stream.json",
        "https://api.cloudflare.com/client/v4",
        asked={
            "?limit": "came after the description of 2024",
            "api_token']]": "it wants a token and also the older key and e-mail address; one of them is enough",
        },
        answered={"errReasonText": "the second spelling, which the API uses all the same"},
        how={"sound": False},
    ),
    Contract("apivideo", "apivideo.yaml", "https://ws.api.video"),
    Contract("bunny", "bunny-stream.json", "https://video.bunnycdn.com"),
]


def last(words: str) -> str:
    """The place or name at the end of what a description holds against something."""
    return words.rsplit(" ", 1)[-1].rpartition(".")[2].strip("'")


@pytest.fixture(scope="module", params=CONTRACTS, ids=lambda contract: contract.kind)
def contract(request: pytest.FixtureRequest) -> Contract:
    found: Contract = request.param
    return found


@pytest.fixture(scope="module")
def described(contract: Contract) -> Description:
    return Description(contract.file, contract.server, **contract.how)


@pytest.fixture
async def exchanges(contract: Contract) -> list[Exchange]:
    """Each call that the source can make, once at least."""
    async with AsyncExitStack() as stack:
        place = await placed(BY_KIND[contract.kind], stack)
        items = await place.items()
        for number in (1, 4, 7):
            source, item = await place.source(), items[number]
            await once_made(source, item)
            await source.locate_poster(item)
            for caption in item.about.captions:
                await source.locate_caption(item, caption)
        return [seen for seen in place.server.exchanges if seen.status in range(200, 300)]


def answers(contract: Contract, exchanges: list[Any]) -> list[Exchange]:
    return [replace(seen, answer=json.dumps(contract.bare(json.loads(seen.answer))).encode()) for seen in exchanges]


def held_against(contract: Contract, described: Description, exchanges: list[Exchange]) -> tuple[set[str], set[str]]:
    asked = {words for seen in exchanges for words in described.wrong(seen)}
    answered = {words for seen in answers(contract, exchanges) for words in described.wrong_answer(seen)}
    return asked, answered


async def test_every_request_is_as_the_vendor_describes_it(
    contract: Contract, described: Description, exchanges: list[Exchange]
) -> None:
    asked, _ = held_against(contract, described, exchanges)

    assert {words for words in asked if last(words) not in contract.asked} == set()
    assert {seen.method for seen in exchanges} >= {"GET"}


async def test_every_answer_of_the_test_server_is_as_the_vendor_describes_it(
    contract: Contract, described: Description, exchanges: list[Exchange]
) -> None:
    _, answered = held_against(contract, described, exchanges)

    assert {words for words in answered if last(words) not in contract.answered} == set()


async def test_nothing_is_excused_that_is_not_said(
    contract: Contract, described: Description, exchanges: list[Exchange]
) -> None:
    asked, answered = held_against(contract, described, exchanges)

    assert {last(words) for words in asked} == set(contract.asked)
    assert {last(words) for words in answered} == set(contract.answered)


def test_every_host_with_a_description_has_a_contract() -> None:
    # JW Player and Brightcove publish theirs on their sites only.
    assert {contract.kind for contract in CONTRACTS} == set(SERVERS) - {"jwplayer", "brightcove"}


# ------------------------------------------------------------------------------------------------- documented answers


def read_all(described: Description, path: str, read: Callable[[Any, int], Any], field: str) -> list[Any]:
    entries = [entry for example in described.examples("GET", path) for entry in example[field]]
    assert entries
    return [read(entry, position) for position, entry in enumerate(entries, start=1)]


def test_every_documented_asset_of_mux_is_read() -> None:
    described = Description("mux-2022.json", "https://api.mux.com")
    items = read_all(
        described, "/video/v1/assets", lambda e, n: mux.asset(e, n, "https://stream.mux.com", "https://image.mux.com"),
        "data",
    )  # fmt: skip

    assert all(isinstance(item, Item) for item in items)
    assert all(item.duration_ms and item.about.privacy for item in items)
    for example in described.examples("GET", "/video/v1/assets/{ASSET_ID}"):
        assert example["data"]["status"] in ("preparing", "ready", "errored")
    for example in described.examples("PUT", "/video/v1/assets/{ASSET_ID}/master-access"):
        assert example["data"]["master"]["status"] in ("preparing", "ready", "errored")


def test_every_documented_video_of_api_video_is_read() -> None:
    described = Description("apivideo.yaml", "https://ws.api.video")
    items = read_all(described, "/videos", apivideo.video, "data")

    assert all(isinstance(item, Item) and item.about.poster and item.title for item in items)
    assert {item.about.privacy for item in items} <= {"public", "private"}
    (tracks,) = [
        apivideo.tracks(example["data"]) for example in described.examples("GET", "/videos/{videoId}/captions")
    ]
    assert tracks
    assert all(track.address for track in tracks)
    for example in described.examples("GET", "/videos/{videoId}/status"):
        assert isinstance(example["encoding"]["playable"], bool)
