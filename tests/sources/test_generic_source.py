from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse

from faults import REASONS, Fault, Scope
from sources.base import Item, ListedPage
from sources.generic import GenericSource, Options

Answer = Callable[[Request], Response | Awaitable[Response]]
Serve = Callable[[Answer], Awaitable[Any]]

TOKEN = "s3cret/t0ken"
LIBRARY = [{"id": n, "url": f"https://files.example/{n}.mp4"} for n in range(23)]


def options(style: str = "offset", **more: Any) -> Options:
    defaults = {"host_page_size": 5, "items": "data", "retry_wait_s": 0.001}
    if style == "cursor":
        defaults["next_cursor"] = "next"
    return Options.model_validate({"style": style, **defaults, **more})


def source(
    host: Any, style: str = "offset", *, page_size: int = 10, token: str | None = None, **more: Any
) -> GenericSource:
    return GenericSource(host.url, options(style, **more), token=token, page_size=page_size)


async def walk(
    host: Any, style: str = "offset", *, stripes: int = 1, page_size: int = 10, **more: Any
) -> list[list[ListedPage]]:
    """The pages of each stripe, each page asked for by a source of its own, as another worker would."""
    return [await walk_stripe(host, style, stripe, stripes, page_size=page_size, **more) for stripe in range(stripes)]


async def walk_stripe(host: Any, style: str, stripe: int, stripes: int, **more: Any) -> list[ListedPage]:
    pages: list[ListedPage] = []
    cursor = None
    while True:
        async with source(host, style, **more) as opened:
            pages.append(await opened.list_page(cursor, stripe=stripe, stripes=stripes))
        cursor = pages[-1].next_cursor
        if cursor is None:
            return pages


def ids(walks: list[list[ListedPage]]) -> list[int]:
    return [int(item.source_id) for pages in walks for page in pages for item in page.items]


def window(request: Request, library: list[Any] = LIBRARY, *, cap: int = 1000, first_page: int = 1) -> list[Any]:
    """What a host that pages as it should gives for this request."""
    query = request.query_params
    limit = min(int(query["limit"]), cap)
    start = int(query["offset"]) if "offset" in query else (int(query["page"]) - first_page) * limit
    return library[start : start + limit]


def listing(library: list[Any] = LIBRARY, **how: Any) -> Answer:
    return lambda request: JSONResponse({"data": window(request, library, **how), "total": len(library)})


async def refusal(host: Any, style: str = "offset", **more: Any) -> Fault:
    with pytest.raises(Fault) as raised:
        await walk(host, style, **more)
    return raised.value


# --------------------------------------------------------------------------------------------------------- what is read


async def test_fields_are_found_where_the_settings_say(serve: Serve) -> None:
    entries = [
        {
            "uuid": "a",
            "files": [{"link": "HTTPS://files.example/a b.mp4?sig=a%2Fb"}],
            "meta": {"name": " A ", "bytes": "1024", "length": 1500, "tags": ["x"]},
        },
        {"uuid": "b", "files": [{"link": "/b.mp4"}], "meta": {"name": None, "bytes": -1, "length": "-1"}},
        {"uuid": " ", "files": [{"link": "/c.mp4"}]},
        {"uuid": "d", "files": []},
        {"uuid": "e", "files": [{"link": "file:///etc/passwd"}]},
        {"uuid": "f", "files": [{"link": "/f.mp4"}], "meta": {"length": "00:04:10"}},
        "g",
    ]
    host = await serve(lambda request: JSONResponse({"result": {"videos": window(request, entries), "n": "7"}}))
    async with source(
        host,
        items="result.videos",
        total="result.n",
        id="uuid",
        url="files.0.link",
        title="meta.name",
        size="meta.bytes",
        duration="meta.length",
        duration_unit="ms",
        metadata={"labels": "meta.tags"},
    ) as opened:
        await opened.check()
        page = await opened.list_page(None)
        located = await opened.locate(page.items[0])

    assert page.items == [
        Item("a", "HTTPS://files.example/a b.mp4?sig=a%2Fb", 1, "A", 1024, 1500, {"labels": ["x"]}),
        Item("b", f"{host.url}/b.mp4", 2),
    ]
    assert [(problem.position, problem.column) for problem in page.problems] == [
        (3, "uuid"),
        (4, "files.0.link"),
        (5, "files.0.link"),
        (6, "meta.length"),
        (7, None),
    ]
    assert (page.total, page.next_cursor) == (7, None)
    assert (located.address, located.size) == ("HTTPS://files.example/a%20b.mp4?sig=a%2Fb", 1024)


async def test_requests_carry_what_the_settings_say(serve: Serve) -> None:
    host = await serve(lambda request: JSONResponse([]))
    async with source(
        host,
        "page",
        token=TOKEN,
        items=None,
        path="/v1/videos?fixed=1",
        page_param="p",
        size_param="per",
        first_page=0,
        auth_header="AccessKey",
        auth_scheme="",
        params={"order": "asc"},
    ) as opened:
        page = await opened.list_page(None)

    (request,) = host.requests
    assert page == ListedPage([], None, [])
    assert request.url.path == "/v1/videos"
    assert dict(request.query_params) == {"fixed": "1", "order": "asc", "p": "0", "per": "5"}
    assert request.headers["AccessKey"] == TOKEN


async def test_a_file_gets_the_token_only_at_the_hosts_own_address(serve: Serve) -> None:
    entries = [{"id": 1, "url": "/own.mp4"}, {"id": 2, "url": "https://cdn.example/other.mp4"}]
    host = await serve(listing(entries))
    async with source(host, token=TOKEN, files_need_auth=True) as opened:
        own, other = (await opened.list_page(None)).items

        assert (await opened.locate(own)).headers == {"Authorization": f"Bearer {TOKEN}"}
        assert (await opened.locate(other)).headers == {}


# --------------------------------------------------------------------------------------------------------------- paging


@pytest.mark.parametrize("style", ["offset", "page"])
@pytest.mark.parametrize("stripes", [1, 2, 3, 7])
@pytest.mark.parametrize("page_size", [3, 5, 12, 500])
async def test_stripes_together_list_everything_once(serve: Serve, style: str, stripes: int, page_size: int) -> None:
    host = await serve(listing())
    walks = await walk(host, style, stripes=stripes, page_size=page_size)

    assert sorted(ids(walks)) == list(range(23))
    assert [item.position for walked in walks for page in walked for item in page.items] == [n + 1 for n in ids(walks)]
    span = min(5, page_size) * max(1, page_size // 5)
    for stripe, walked in enumerate(walks):
        for page in walked:
            assert {(int(item.source_id) // span) % stripes for item in page.items} <= {stripe}
            assert len(page.items) <= page_size


@pytest.mark.parametrize("style", ["offset", "page"])
@pytest.mark.parametrize("count", [0, 4, 5, 10, 11])
async def test_without_any_pagination_block_a_short_or_empty_page_is_the_end(
    serve: Serve, style: str, count: int
) -> None:
    host = await serve(lambda request: JSONResponse(window(request, LIBRARY[:count])))

    assert ids(await walk(host, style, items=None)) == list(range(count))
    assert len(host.requests) <= count // 5 + 2


@pytest.mark.parametrize("style", ["offset", "page"])
@pytest.mark.parametrize("stripes", [1, 3])
async def test_a_host_that_silently_caps_its_pages_loses_nothing(serve: Serve, style: str, stripes: int) -> None:
    pages = {n: LIBRARY[3 * (n - 1) : 3 * n] for n in range(1, 100)}

    def answer(request: Request) -> Response:
        if style == "page":
            return JSONResponse({"data": pages[int(request.query_params["page"])]})
        return JSONResponse({"data": window(request, cap=3)})

    assert sorted(ids(await walk(await serve(answer), style, stripes=stripes))) == list(range(23))


async def test_a_short_page_that_agrees_with_the_total_needs_no_further_question(serve: Serve) -> None:
    host = await serve(listing(LIBRARY[:8]))
    await walk(host, total="total")

    assert host.asked("offset") == ["0", "5"]


async def test_a_page_size_that_cannot_be_asked_for_is_not(serve: Serve) -> None:
    pages = {n: LIBRARY[5 * (n - 1) : 5 * n] for n in range(1, 100)}
    host = await serve(lambda request: JSONResponse({"data": pages[int(request.query_params["page"])]}))

    assert ids(await walk(host, "page", size_param="")) == list(range(23))
    assert dict(host.requests[0].query_params) == {"page": "1"}


async def test_a_total_that_does_not_match_is_reported_and_not_believed(serve: Serve) -> None:
    for total in (3, 1000, "23", None, -1, {}):

        def answer(request: Request, total: Any = total) -> Response:
            return JSONResponse({"data": window(request), "total": total})

        walks = await walk(await serve(answer), total="total")
        assert ids(walks) == list(range(23))
        expected = {3: 3, 1000: 1000, "23": 23}.get(total) if isinstance(total, int | str) else None
        assert {page.total for page in walks[0]} == {expected}


async def test_a_status_can_mean_past_the_end_where_the_settings_say_so(serve: Serve) -> None:
    def answer(request: Request) -> Response:
        found = window(request, LIBRARY[:10])
        return JSONResponse({"data": found}) if found else JSONResponse({"detail": "Invalid page."}, 404)

    host = await serve(answer)
    assert ids(await walk(host, "page", past_end_statuses=[404])) == list(range(10))
    assert (await refusal(host, "page")).code == "listing-malformed"
    empty = await serve(lambda request: JSONResponse({}, 404))
    assert (await refusal(empty, "page", past_end_statuses=[404])).code == "listing-malformed"


@pytest.mark.parametrize("change", ["inserted", "removed"])
async def test_items_that_shift_while_listing_end_in_overlaps_or_in_a_total_that_tells(
    serve: Serve, change: str
) -> None:
    library = list(LIBRARY)

    def answer(request: Request) -> Response:
        found = {"data": window(request, library), "total": len(library)}
        if len(host.requests) == 2:
            if change == "inserted":
                library[:0] = [{"id": 100 + n, "url": "/new.mp4"} for n in range(5)]
            else:
                del library[:2]
        return JSONResponse(found)

    host = await serve(answer)
    walks = await walk(host, total="total", page_size=5)

    seen, total = set(ids(walks)), walks[0][-2].total
    assert total is not None
    if change == "inserted":
        assert seen == set(range(23))  # the page read before comes again, once, and is no endless repetition
        assert ids(walks).count(7) == 2
        assert total > len(seen)
    else:
        assert set(range(23)) - seen == {10, 11}
        assert [page.total for page in walks[0]].count(21) > 0


# -------------------------------------------------------------------------------------------------- listings in circles


@pytest.mark.parametrize("style", ["offset", "page"])
@pytest.mark.parametrize("stripes", [1, 2, 4])
@pytest.mark.parametrize("page_size", [5, 10])
async def test_the_first_page_for_ever_is_noticed_on_every_stripe_and_across_calls(
    serve: Serve, style: str, stripes: int, page_size: int
) -> None:
    host = await serve(lambda request: JSONResponse({"data": LIBRARY[:5]}))
    for stripe in range(stripes):
        with pytest.raises(Fault, match="listing-repeats"):
            await walk_stripe(host, style, stripe, stripes, page_size=page_size)
    assert len(host.requests) <= 3 * stripes


async def test_the_first_page_in_another_order_each_time_is_still_the_first_page(serve: Serve) -> None:
    def answer(request: Request) -> Response:
        turn = len(host.requests) % 5
        return JSONResponse({"data": LIBRARY[turn:5] + LIBRARY[:turn]})

    host = await serve(answer)
    assert (await refusal(host, page_size=5)).code == "listing-repeats"


async def test_a_short_first_page_for_ever_is_noticed_too(serve: Serve) -> None:
    host = await serve(lambda request: JSONResponse({"data": LIBRARY[:3]}))

    assert (await refusal(host)).code == "listing-repeats"


@pytest.mark.parametrize("lead", [0, 1, 6])
@pytest.mark.parametrize("length", [2, 3, 7])
async def test_pages_that_come_again_after_others_are_a_cycle(serve: Serve, lead: int, length: int) -> None:
    def answer(request: Request) -> Response:
        n = int(request.query_params["offset"]) // 5
        n = n if n < lead else lead + (n - lead) % length
        return JSONResponse({"data": [{"id": 5 * n + i, "url": "/x"} for i in range(5)]})

    host = await serve(answer)
    assert (await refusal(host, page_size=5)).code == "listing-cycles"
    assert len(host.requests) <= 2 * max(lead + 1, length) + length + 1


async def test_a_listing_without_end_is_stopped_at_the_cap(serve: Serve) -> None:
    def answer(request: Request) -> Response:
        at = int(request.query_params.get("offset") or request.query_params.get("cursor") or 0)
        return JSONResponse({"data": [{"id": at + i, "url": "/x"} for i in range(5)], "next": at + 5})

    for style in ("offset", "cursor"):
        host = await serve(answer)
        fault = await refusal(host, style, max_pages=7)
        assert (fault.code, fault.permanent) == ("listing-too-long", True)
        assert "max_pages = 7" in fault.detail
        assert 7 <= len(host.requests) <= 8


@pytest.mark.parametrize("style", ["offset", "page"])
async def test_a_library_of_exactly_the_cap_is_listed(serve: Serve, style: str) -> None:
    host = await serve(listing(LIBRARY[:20]))

    assert ids(await walk(host, style, max_pages=4)) == list(range(20))


# ------------------------------------------------------------------------------------------------------------ by cursor


def chain(pages: list[list[Any]], *, end: dict[str, Any] | None = None) -> Answer:
    """A host whose cursors are "c1", "c2", …"""

    def answer(request: Request) -> Response:
        cursor = request.query_params.get("cursor")
        n = int(cursor[1:]) if cursor else 0
        following = {"next": f"c{n + 1}"} if n + 1 < len(pages) else ({"next": None} if end is None else end)
        return JSONResponse({"data": pages[n], **following, "total": 99})

    return answer


@pytest.mark.parametrize("end", [{"next": None}, {"next": ""}, {"next": False}, {}])
async def test_a_cursor_is_followed_until_none_is_given(serve: Serve, end: dict[str, Any]) -> None:
    host = await serve(chain([LIBRARY[:5], LIBRARY[5:10], LIBRARY[10:15], LIBRARY[15:20], LIBRARY[20:]], end=end))
    walks = await walk(host, "cursor", total="total")

    assert ids(walks) == list(range(23))
    assert [len(page.items) for page in walks[0]] == [10, 10, 3]
    assert [item.position for page in walks[0] for item in page.items] == list(range(1, 24))
    assert host.asked("cursor") == [None, "c1", "c2", "c3", "c4"]


async def test_empty_pages_between_are_alike_and_are_not_the_end(serve: Serve) -> None:
    host = await serve(chain([LIBRARY[:5], [], [], [], [], [], LIBRARY[5:10]]))

    assert ids(await walk(host, "cursor", page_size=5)) == list(range(10))


async def test_a_cursor_walk_belongs_to_the_first_stripe(serve: Serve) -> None:
    host = await serve(chain([LIBRARY[:5], LIBRARY[5:8]]))
    async with source(host, "cursor") as opened:
        assert not opened.stripeable

    assert [len(pages[0].items) for pages in await walk(host, "cursor", stripes=3)] == [8, 0, 0]


@pytest.mark.parametrize("status", [400, 404, 410])
@pytest.mark.parametrize("page_size", [5, 10])
async def test_a_cursor_that_the_host_no_longer_knows_is_stale(serve: Serve, status: int, page_size: int) -> None:
    def answer(request: Request) -> Response:
        if request.query_params.get("cursor") == "c2":
            return JSONResponse({"error": "unknown cursor"}, status)
        return chain([LIBRARY[:5], LIBRARY[5:10], LIBRARY[10:15]])(request)  # type: ignore[return-value]

    fault = await refusal(await serve(answer), "cursor", page_size=page_size)
    assert (fault.code, fault.permanent) == ("cursor-stale", False)


async def test_a_cursor_parameter_that_the_host_does_not_know_repeats_the_first_page(serve: Serve) -> None:
    host = await serve(chain([LIBRARY[:5], LIBRARY[5:10]]))
    fault = await refusal(host, "cursor", cursor_param="after")

    assert fault.code == "listing-repeats"
    assert "cursor_param = 'after'" in fault.detail


@pytest.mark.parametrize(("lead", "length"), [(0, 1), (1, 1), (2, 1), (1, 2), (0, 5), (4, 3)])
@pytest.mark.parametrize("empty", [False, True])
async def test_cursors_that_lead_back_are_a_cycle(serve: Serve, lead: int, length: int, empty: bool) -> None:
    def answer(request: Request) -> Response:
        n = int(request.query_params.get("cursor", 0))
        fresh = [{"id": 5 * len(host.requests) + i, "url": "/x"} for i in range(5)]
        following = n + 1 if n + 1 < lead + length + 1 else lead + 1
        return JSONResponse({"data": [] if empty else fresh, "next": following})

    host = await serve(answer)
    assert (await refusal(host, "cursor", page_size=5)).code == "listing-cycles"
    assert len(host.requests) <= 2 * max(lead + 2, length) + length + 1


async def test_pages_that_come_again_under_new_cursors_are_a_cycle(serve: Serve) -> None:
    def answer(request: Request) -> Response:
        n = len(host.requests)
        return JSONResponse({"data": LIBRARY[5 * (n % 3) : 5 * (n % 3) + 5], "next": f"c{n}"})

    host = await serve(answer)
    assert (await refusal(host, "cursor")).code == "listing-cycles"


async def test_a_full_first_page_without_the_cursors_field_is_the_end_only_if_that_is_so(serve: Serve) -> None:
    def answer(library: list[Any], **more: Any) -> Answer:
        def page(request: Request) -> Response:
            limit = int(request.query_params["limit"])
            following = {"after": "x"} if limit < len(library) else {}
            return JSONResponse({"data": library[:limit], **following, **more})

        return page

    whole = await serve(answer(LIBRARY[:5]))
    assert ids(await walk(whole, "cursor", next_cursor="after")) == list(range(5))
    for host, total in [(await serve(answer(LIBRARY)), None), (await serve(answer(LIBRARY, total=23)), "total")]:
        fault = await refusal(host, "cursor", next_cursor="nxet", total=total)
        assert fault.code == "listing-malformed"
        assert "'nxet'" in fault.detail


# ------------------------------------------------------------------------------------------ answers that are no listing


@pytest.mark.parametrize("style", ["offset", "page", "cursor"])
@pytest.mark.parametrize(
    ("response", "words"),
    [
        (lambda: HTMLResponse("<html>Log in</html>"), "a web page"),
        (lambda: Response("oops"), "not JSON"),
        (lambda: Response(b"\xff\xfe"), "not JSON"),
        (lambda: Response(b""), "not JSON"),
        (lambda: Response(b"[" * 100_000), "not JSON"),
        (lambda: JSONResponse({"videos": []}), "'data'"),
        (lambda: JSONResponse({"data": None}), "'data'"),
        (lambda: JSONResponse({"data": {"0": {}}}), "'data'"),
        (lambda: JSONResponse([]), "'data'"),
        (lambda: JSONResponse(None), "'data'"),
        (lambda: JSONResponse({"success": False, "errors": [{"code": 7003}], "data": []}), "7003"),
        (lambda: JSONResponse({"errors": ["no right"], "data": []}), "no right"),
        (lambda: JSONResponse({"data": LIBRARY}), "23 items came where at most 5"),
        (lambda: JSONResponse({"error": "what?"}, 400), "status 400"),
        (lambda: JSONResponse({"error": "gone"}, 404), "status 404"),
        (
            lambda: Response(status_code=302, headers={"location": "https://u:p@login.example/?t=x"}),
            "login.example/?t=…",
        ),
    ],
)
async def test_what_is_no_listing_is_never_an_empty_one(
    serve: Serve, style: str, response: Callable[[], Response], words: str
) -> None:
    host = await serve(lambda request: response())
    fault = await refusal(host, style)

    assert (fault.code, fault.permanent) == ("listing-malformed", True)
    assert words in fault.detail
    assert len(host.requests) == 1
    async with source(host, style) as opened:
        with pytest.raises(Fault, match="listing-malformed"):
            await opened.check()


async def test_a_check_refuses_field_names_under_which_no_entry_can_be_read(serve: Serve) -> None:
    host = await serve(listing())
    async with source(host, url="link") as opened:
        with pytest.raises(Fault, match=r"listing-malformed.*link is missing"):
            await opened.check()


@pytest.mark.parametrize("status", [401, 403])
async def test_refused_credentials_are_said_to_be_that(serve: Serve, status: int) -> None:
    host = await serve(lambda request: JSONResponse({"success": False, "data": []}, status))
    fault = await refusal(host)

    assert (fault.code, fault.scope) == ("source-credentials-refused", Scope.RUN)
    assert len(host.requests) == 1


# ---------------------------------------------------------------------------------------------------- a host in trouble


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_a_host_in_passing_trouble_is_asked_again(serve: Serve, status: int) -> None:
    def answer(request: Request) -> Response:
        if len(host.requests) <= 2:
            return Response(status_code=status, headers={"retry-after": "0"})
        return listing()(request)  # type: ignore[return-value]

    host = await serve(answer)
    assert ids(await walk(host)) == list(range(23))


@pytest.mark.parametrize("status", [429, 500, 503])
async def test_a_host_in_lasting_trouble_is_down(serve: Serve, status: int) -> None:
    host = await serve(lambda request: Response("busy", status_code=status))
    fault = await refusal(host, retries=2)

    assert (fault.code, fault.permanent) == ("source-down", False)
    assert f"status {status}" in fault.detail
    assert len(host.requests) == 3


async def test_a_wish_to_wait_is_heeded(serve: Serve) -> None:
    asked: list[float] = []

    def answer(request: Request) -> Response:
        asked.append(time.monotonic())
        if len(asked) == 1:
            return Response(status_code=429, headers={"retry-after": "0.2"})
        return JSONResponse({"data": []})

    await walk(await serve(answer))
    assert asked[1] - asked[0] >= 0.2


async def test_a_wish_to_wait_longer_than_a_call_may_take_is_handed_on(serve: Serve) -> None:
    host = await serve(lambda request: Response(status_code=429, headers={"retry-after": "300"}))
    fault = await refusal(host)

    assert (fault.code, fault.retry_after) == ("source-down", 300.0)
    assert len(host.requests) == 1


@pytest.mark.parametrize("wish", ["-5", "inf", "nan", "", "soon", "Wed, 21 Oct 2015 07:28:00 -0000"])
async def test_an_odd_wish_to_wait_breaks_nothing(serve: Serve, wish: str) -> None:
    host = await serve(lambda request: Response(status_code=503, headers={"retry-after": wish}))

    assert (await refusal(host, retries=1)).code == "source-down"


async def dripping() -> AsyncIterator[bytes]:
    yield b"["
    while True:
        await asyncio.sleep(0.02)
        yield b" "


@pytest.mark.parametrize("style", ["offset", "cursor"])
async def test_an_answer_that_drips_is_ended_by_the_clock(serve: Serve, style: str) -> None:
    host = await serve(lambda request: StreamingResponse(dripping()))
    fault = await refusal(host, style, timeout_s=0.2, retries=1)

    assert fault.code == "source-down"
    assert "no whole answer in 0.2 s" in fault.detail
    assert len(host.requests) == 2


async def test_an_answer_too_long_for_a_listing_is_not_kept(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    async def flood() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield b"[" * 65_536
            await asyncio.sleep(0)

    monkeypatch.setattr("sources.generic.BODY_LIMIT", 1_000_000)
    fault = await refusal(await serve(lambda request: StreamingResponse(flood())))

    assert fault.code == "listing-malformed"
    assert "longer than 1000000 bytes" in fault.detail


async def test_a_host_that_is_not_there_is_down(unused_port: int) -> None:
    async with GenericSource(f"http://127.0.0.1:{unused_port}", options(retries=1)) as opened:
        with pytest.raises(Fault, match="source-down"):
            await opened.check()


# -------------------------------------------------------------------------------------------------------------- secrets


@pytest.mark.parametrize("style", ["offset", "cursor"])
@pytest.mark.parametrize("status", [200, 302, 400, 401, 500])
async def test_no_secret_stands_in_any_error(serve: Serve, style: str, status: int) -> None:
    def answer(request: Request) -> Response:
        told = f"{request.url} {request.headers.get('x-key')} {request.headers.get('authorization')}"
        return Response(told, status_code=status, headers={"location": f"https://u:{TOKEN}@h/?k=QQQQ"})

    host = await serve(answer)
    login = host.url.replace("http://", "http://user:passw0rd@")
    opts = options(style, params={"api_key": "QQQQ"}, auth_header="X-Key", auth_scheme="", retries=0)
    async with GenericSource(login, opts, token=TOKEN) as opened:
        with pytest.raises(Fault) as raised:
            await opened.list_page(None)
    text = f"{raised.value} {raised.value.detail}"

    assert TOKEN in (host.requests[0].headers["x-key"])
    for secret in (TOKEN, "QQQQ", "passw0rd"):
        assert secret not in text
    assert raised.value.__cause__ is None


@pytest.mark.parametrize("token", ["line\nbreak", "naïve"])
def test_a_token_that_no_header_can_carry_is_refused_without_being_named(token: str) -> None:
    with pytest.raises(Fault, match="settings-refused") as raised:
        GenericSource("http://host", options(), token=token)

    assert token not in str(raised.value)


def test_a_page_that_the_host_cannot_be_asked_to_shorten_must_fit() -> None:
    with pytest.raises(Fault, match="settings-refused"):
        GenericSource("http://host", options(size_param="", host_page_size=50), page_size=20)


# -------------------------------------------------------------------------------------------------------------- cursors


@pytest.mark.parametrize("style", ["offset", "page", "cursor"])
@pytest.mark.parametrize(
    "cursor", ["", "[]", "{}", '{"span":10,"page":1,"seen":[]}', '{"host":"c1","listed":true,"pages":1,"seen":[]}']
)
async def test_what_is_no_cursor_of_this_listing_is_stale(serve: Serve, style: str, cursor: str) -> None:
    host = await serve(listing())
    async with source(host, style) as opened:
        with pytest.raises(Fault, match="cursor-stale"):
            await opened.list_page(cursor)
    assert host.requests == []


async def test_a_cursor_made_with_other_page_sizes_is_stale(serve: Serve) -> None:
    host = await serve(listing())
    async with source(host, page_size=10) as opened:
        cursor = (await opened.list_page(None)).next_cursor
    async with source(host, page_size=15) as opened:
        with pytest.raises(Fault, match="cursor-stale"):
            await opened.list_page(cursor)


async def test_a_cursor_stays_small_however_long_the_listing(serve: Serve) -> None:
    def answer(request: Request) -> Response:
        n = int(request.query_params.get("cursor", 0))
        return JSONResponse({"data": [{"id": n, "url": "/x"}], "next": n + 1 if n < 300 else None})

    (pages,) = await walk(await serve(answer), "cursor", page_size=25)
    lengths = [len(page.next_cursor) for page in pages if page.next_cursor]
    assert len(lengths) > 50
    assert max(lengths) < 250
    assert json.loads(pages[0].next_cursor or "")["pages"] == 5


# ------------------------------------------------------------------------------------------------------ fresh addresses

ITEM = Item("a/b c", "https://files.example/expired.mp4", 1, size=7)


async def test_an_address_that_expires_is_asked_for_at_the_moment_of_use(serve: Serve) -> None:
    host = await serve(
        lambda request: JSONResponse({"file": {"link": f"https://files.example/{len(host.requests)}.mp4"}})
    )
    async with source(host, token=TOKEN, address="item", item_path="/videos/{id}", item_url="file.link") as opened:
        first, second = await opened.locate(ITEM), await opened.locate(ITEM)

    assert first.address == "https://files.example/1.mp4"
    assert second.address == "https://files.example/2.mp4"
    assert first.size == 7
    assert host.requests[0].scope["raw_path"] == b"/videos/a%2Fb%20c"
    assert host.requests[0].headers["authorization"] == f"Bearer {TOKEN}"


async def test_a_listing_without_addresses_is_enough_where_each_item_is_asked(serve: Serve) -> None:
    host = await serve(listing([{"id": 1}]))
    async with source(host, address="item", item_path="/videos/{id}", item_url="link", url=None) as opened:
        page = await opened.list_page(None)

    assert page.items == [Item("1", None, 1)]


@pytest.mark.parametrize(
    ("response", "reason", "wish"),
    [
        (lambda: Response(status_code=401), "source-forbidden", None),
        (lambda: Response(status_code=403), "source-forbidden", None),
        (lambda: Response(status_code=404), "source-not-found", None),
        (lambda: Response(status_code=410), "source-not-found", None),
        (lambda: Response(status_code=302, headers={"location": "/login"}), "source-not-found", None),
        (lambda: Response(status_code=429, headers={"retry-after": "7"}), "source-busy", 7.0),
        (lambda: Response(status_code=500), "source-busy", None),
        (lambda: HTMLResponse("<!doctype html>"), "source-returned-html", None),
        (lambda: Response(b""), "source-busy", None),
        (lambda: JSONResponse({}), "source-not-found", None),
        (lambda: JSONResponse({"link": None}), "source-not-found", None),
        (lambda: JSONResponse({"link": "ftp://host/x"}), "source-not-found", None),
        (lambda: StreamingResponse(dripping()), "source-timeout", None),
    ],
)
async def test_an_item_that_gives_no_address_is_the_rows_fault_only(
    serve: Serve, response: Callable[[], Response], reason: str, wish: float | None
) -> None:
    host = await serve(lambda request: response())
    async with source(host, address="item", item_path="/videos/{id}", item_url="link", timeout_s=0.2) as opened:
        with pytest.raises(Fault) as raised:
            await opened.locate(ITEM)

    assert raised.value.code == reason
    assert REASONS[reason].scope is Scope.ROW
    assert raised.value.retry_after == wish
    assert len(host.requests) == 1


async def test_an_item_at_a_host_that_is_not_there_is_tried_again_later(unused_port: int) -> None:
    opts = options(address="item", item_path="/{id}", item_url="link")
    async with GenericSource(f"http://127.0.0.1:{unused_port}", opts) as opened:
        with pytest.raises(Fault, match="source-unreachable"):
            await opened.locate(ITEM)
