"""What becomes of remote files, whatever their server does: the same outcome on every ffprobe that this machine has."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from pathlib import Path

import psutil
import pytest
from misbehaving import Reply, Request, misbehaving

import media.addresses
import media.relay
from devstack.fileserver import serving
from devstack.ports import free_ports
from faults import Fault
from media import Inspection, Limits, inspect
from media.probe import probe
from settings import MediaSettings
from sources.base import Location

PEM = Path(__file__).with_name("localhost.pem")
"""A certificate for "localhost" and its key, made for these tests and trusted by nobody."""


async def look(address: str, settings: MediaSettings, *, size: int | None = None, **headers: str) -> Inspection:
    location = Location(address, headers=headers, size=size)
    return await inspect(location, settings=settings, limits=Limits())


async def refused(address: str, settings: MediaSettings, *, size: int | None = None, **headers: str) -> Fault:
    with pytest.raises(Fault) as caught:
        await look(address, settings, size=size, **headers)
    return caught.value


def ranged(data: bytes):
    async def handler(request: Request, reply: Reply) -> None:
        await reply.ranged(data, request)

    return handler


# ------------------------------------------------------------------------------------- what servers do, and still work


async def test_a_good_server_is_read_as_plain_ffprobe_reads_it(good, settings):
    """The same ranges in the same order: not one request more."""
    async with misbehaving(ranged(good.read_bytes())) as server:
        found = await look(f"{server.base}/good.mp4", settings)
        ours = [(request.method, request.range) for request in server.requests]
        server.requests.clear()
        plain = await asyncio.create_subprocess_exec(str(settings.ffprobe), "-v", "quiet", f"{server.base}/good.mp4")
        assert await plain.wait() == 0
        theirs = [(request.method, request.range) for request in server.requests]
    assert (found.facts.duration_ms, found.facts.size_bytes) == (4000, good.stat().st_size)
    assert ours == theirs


async def test_a_large_file_is_read_in_small_part(fast, tmp_path, settings):
    whole = bytearray(fast.read_bytes())
    at = whole.find(b"mdat") - 4
    large = 200_000_000
    whole[at : at + 4] = (len(whole) - at + large).to_bytes(4, "big")
    path = tmp_path / "large.mp4"
    with path.open("wb") as file:
        file.write(whole)
        file.truncate(len(whole) + large)
    async with serving(tmp_path) as base:
        found = await look(f"{base}/large.mp4", settings)
    assert found.facts.size_bytes == path.stat().st_size
    assert found.bytes_read < 2_000_000


@pytest.mark.parametrize("name", ["good", "fast"])
async def test_a_server_without_ranges_is_probed(good, fast, settings, name):
    data = {"good": good, "fast": fast}[name].read_bytes()

    async def handler(_: Request, reply: Reply) -> None:
        await reply.whole(data)

    async with misbehaving(handler) as server:
        found = await look(f"{server.base}/x.mp4", settings)
    assert (found.facts.duration_ms, found.facts.size_bytes) == (4000, len(data))


@pytest.mark.parametrize("status", ["406 Not Acceptable", "416 Range Not Satisfiable", "501 Not Implemented"])
async def test_a_server_that_refuses_a_range_header_is_asked_without_one(fast, settings, status):
    async def handler(request: Request, reply: Reply) -> None:
        if request.range is not None:
            await reply.whole(b"", status)
        else:
            await reply.whole(fast.read_bytes())

    async with misbehaving(handler) as server:
        assert (await look(f"{server.base}/x.mp4", settings)).facts.duration_ms == 4000


async def test_a_server_that_announces_ranges_and_ignores_them_is_read_from_the_start(good, settings):
    async def handler(_: Request, reply: Reply) -> None:
        await reply.whole(good.read_bytes(), Accept_Ranges="bytes")

    async with misbehaving(handler) as server:
        assert (await look(f"{server.base}/x.mp4", settings)).facts.duration_ms == 4000


async def test_a_signed_address_that_allows_only_ranged_gets_is_probed(good, settings):
    async def handler(request: Request, reply: Reply) -> None:
        if request.method != "GET" or request.range is None:
            await reply.whole(b"<Error>SignatureDoesNotMatch</Error>", "403 Forbidden")
        else:
            await reply.ranged(good.read_bytes(), request)

    async with misbehaving(handler) as server:
        assert (await look(f"{server.base}/x.mp4", settings)).facts.duration_ms == 4000
        assert server.methods == {"GET"}


async def test_a_body_of_unknown_length_is_probed(fast, settings):
    async def handler(_: Request, reply: Reply) -> None:
        reply.head()
        await reply.body(fast.read_bytes())

    async with misbehaving(handler) as server:
        found = await look(f"{server.base}/x.mp4", settings)
    assert found.facts.duration_ms == 4000


@pytest.mark.parametrize(
    "target",
    [
        "/a%20b+c%2B%2541/caf%C3%A9.mp4?X-Amz-Signature=a%2Fb%3D&x=%5B1%5D&empty=&flag",
        "/a//b/../c/./d.mp4?q='(1)'!*",
        "/x.mp4?list[]=1&t=2026-01-01T00:00:00Z",
    ],
)
async def test_a_ready_made_address_is_left_untouched(fast, quick, target):
    async with misbehaving(ranged(fast.read_bytes())) as server:
        await look(server.base + target, quick)
    assert {request.target for request in server.requests} == {target}


async def test_what_no_address_may_hold_is_encoded_once(fast, quick):
    async with misbehaving(ranged(fast.read_bytes())) as server:
        await look(f"{server.base}/naïve 日本.mp4", quick)
    assert {request.target for request in server.requests} == {"/na%C3%AFve%20%E6%97%A5%E6%9C%AC.mp4"}


async def test_a_scheme_in_capitals_is_a_scheme(fast, settings):
    async with misbehaving(ranged(fast.read_bytes())) as server:
        found = await look(server.base.replace("http://", "HTTP://") + "/x.mp4", settings)
    assert found.facts.duration_ms == 4000


async def test_the_headers_of_a_location_are_sent(fast, quick):
    async with misbehaving(ranged(fast.read_bytes())) as server:
        await look(f"{server.base}/x.mp4", quick, Authorization="Bearer abc", Referer="https://example.com/")
    for request in server.requests:
        assert request.headers["authorization"] == "Bearer abc"
        assert request.headers["referer"] == "https://example.com/"


async def test_user_and_password_are_sent_as_basic_authorization(fast, quick):
    async with misbehaving(ranged(fast.read_bytes())) as server:
        await look(f"http://us%40er:p%3Aw@127.0.0.1:{server.port}/x.mp4", quick)
    assert server.requests[0].headers["authorization"] == "Basic dXNAZXI6cDp3"  # us@er:p:w


# ---------------------------------------------------------------------------------------------------------- redirects


async def test_a_redirect_is_followed_and_asked_once(good, quick):
    async def handler(request: Request, reply: Reply) -> None:
        if request.target == "/start":
            await reply.whole(b"", "302 Found", Location="/on/x.mp4")
        else:
            await reply.ranged(good.read_bytes(), request)

    async with misbehaving(handler) as server:
        assert (await look(f"{server.base}/start", quick)).facts.duration_ms == 4000
    assert [request.target for request in server.requests].count("/start") == 1


async def test_credentials_stay_with_the_origin_they_were_given_for(fast, quick):
    async with misbehaving(ranged(fast.read_bytes())) as elsewhere:

        async def handler(_: Request, reply: Reply) -> None:
            await reply.whole(b"", "307 Temporary Redirect", Location=f"{elsewhere.base}/x.mp4")

        async with misbehaving(handler) as server:
            await look(f"http://user:pw@127.0.0.1:{server.port}/", quick, Cookie="session=1")
            assert {"authorization", "cookie"} <= server.requests[0].headers.keys()
        for request in elsewhere.requests:
            assert not {"authorization", "cookie"} & request.headers.keys()


async def test_redirects_without_end_are_given_up(quick):
    async def handler(request: Request, reply: Reply) -> None:
        await reply.whole(b"", "302 Found", Location=request.target + "x")

    async with misbehaving(handler) as server:
        fault = await refused(f"{server.base}/", quick)
    assert fault.code == "source-unreachable"
    assert len(server.requests) < 12


@pytest.mark.parametrize("status", ["302 Found", "304 Not Modified"])
async def test_a_redirect_that_names_no_place_is_no_empty_file(quick, status):
    async def handler(_: Request, reply: Reply) -> None:
        await reply.whole(b"", status)

    async with misbehaving(handler) as server:
        assert (await refused(f"{server.base}/", quick)).code == "source-unreachable"


async def test_a_redirect_to_another_scheme_is_refused(quick):
    async def handler(_: Request, reply: Reply) -> None:
        await reply.whole(b"", "302 Found", Location="file:///etc/passwd")

    async with misbehaving(handler) as server:
        assert (await refused(f"{server.base}/", quick)).code == "source-address-refused"


# -------------------------------------------------------------------------------------------------- private addresses


async def test_private_addresses_get_no_request_unless_allowed(fast, ffprobe):
    strict = MediaSettings(ffprobe=ffprobe)
    async with misbehaving(ranged(fast.read_bytes())) as server:
        for host in ("127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"):
            fault = await refused(f"http://{host}:{server.port}/x.mp4", strict)
            assert fault.code == "source-address-refused", host
        assert server.requests == []


async def test_a_redirect_to_a_private_address_is_refused_before_it_is_asked(fast, quick, monkeypatch):
    """127.0.0.1 plays a public address here, 127.0.0.2 a private one."""
    monkeypatch.setattr(media.addresses, "_is_public", lambda address: str(address) == "127.0.0.1")
    strict = quick.model_copy(update={"allow_private_addresses": False})
    async with misbehaving(ranged(fast.read_bytes()), host="127.0.0.2") as inside:

        async def handler(_: Request, reply: Reply) -> None:
            await reply.whole(b"", "302 Found", Location=f"{inside.base}/x.mp4")

        async with misbehaving(handler) as server:
            fault = await refused(f"{server.base}/x.mp4", strict)
            assert len(server.requests) == 1
        assert fault.code == "source-address-refused"
        assert inside.requests == []


async def test_a_redirect_that_only_comes_with_the_second_request_is_refused_too(good, quick, monkeypatch):
    monkeypatch.setattr(media.addresses, "_is_public", lambda address: str(address) == "127.0.0.1")
    strict = quick.model_copy(update={"allow_private_addresses": False})
    async with misbehaving(ranged(good.read_bytes()), host="127.0.0.2") as inside:

        async def handler(request: Request, reply: Reply) -> None:
            if request.range == "bytes=0-":
                await reply.ranged(good.read_bytes(), request)
            else:
                await reply.whole(b"", "302 Found", Location=f"{inside.base}/x.mp4")

        async with misbehaving(handler) as server:
            assert (await refused(f"{server.base}/x.mp4", strict)).code == "source-address-refused"
        assert inside.requests == []


async def test_a_name_that_resolves_differently_a_moment_later_gains_nothing(good, quick, monkeypatch):
    answers = iter(["127.0.0.1", "127.0.0.2", "127.0.0.2", "127.0.0.2"])

    async def resolve(host: str, port: int) -> list[object]:
        return [media.addresses.ipaddress.ip_address(next(answers))]

    monkeypatch.setattr(media.addresses, "_is_public", lambda address: str(address) == "127.0.0.1")
    monkeypatch.setattr(media.addresses, "_resolve", resolve)
    strict = quick.model_copy(update={"allow_private_addresses": False})
    async with misbehaving(ranged(good.read_bytes())) as server:
        async with misbehaving(ranged(good.read_bytes()), host="127.0.0.2", port=server.port) as inside:
            fault = await refused(f"http://rebinding.example:{server.port}/x.mp4", strict)
        assert fault.code == "source-address-refused"
        assert inside.requests == []
        assert server.requests[0].headers["host"] == f"rebinding.example:{server.port}"


@pytest.mark.parametrize(
    "playlist",
    [
        "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\n{inner}/x.ts\n#EXT-X-ENDLIST\n",
        "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\n{inner}/x.m3u8\n",
        "<?xml version='1.0'?><MPD xmlns='urn:mpeg:dash:schema:mpd:2011'><BaseURL>{inner}/</BaseURL></MPD>",
        "ffconcat version 1.0\nfile '{inner}/x.mp4'\n",
    ],
)
@pytest.mark.parametrize("content_type", ["video/mp4", "application/vnd.apple.mpegurl"])
async def test_a_playlist_named_mp4_leads_nowhere(fast, settings, playlist, content_type):
    async with misbehaving(ranged(fast.read_bytes())) as inner:

        async def handler(_: Request, reply: Reply) -> None:
            await reply.whole(playlist.format(inner=inner.base).encode(), Content_Type=content_type)

        async with misbehaving(handler) as server:
            fault = await refused(f"{server.base}/movie.mp4", settings)
        assert inner.requests == []
    assert fault.code == "not-a-video"


# -------------------------------------------------------------------------------------------------- what servers answer


@pytest.mark.parametrize(
    ("status", "reason", "permanent"),
    [
        (401, "source-forbidden", True),
        (403, "source-forbidden", True),
        (404, "source-not-found", True),
        (410, "source-not-found", True),
        (429, "source-busy", False),
        (500, "source-busy", False),
        (502, "source-busy", False),
        (503, "source-busy", False),
        (504, "source-timeout", False),
    ],
)
async def test_a_status_is_classified_alike_on_every_ffprobe(settings, status, reason, permanent):
    async def handler(_: Request, reply: Reply) -> None:
        await reply.whole(
            b"<html><body>sorry</body></html>", f"{status} Sorry", Content_Type="text/html", Retry_After=7
        )

    async with misbehaving(handler) as server:
        fault = await refused(f"{server.base}/x.mp4", settings)
    assert (fault.code, fault.permanent) == (reason, permanent)
    assert str(status) in fault.detail
    assert fault.retry_after == 7
    assert len(server.requests) == 1


async def test_a_failure_in_the_middle_of_the_file_is_the_sources_not_the_files(good, settings):
    async def handler(request: Request, reply: Reply) -> None:
        if request.range == "bytes=0-":
            await reply.ranged(good.read_bytes(), request)
        else:
            await reply.whole(b"", "503 Busy")

    async with misbehaving(handler) as server:
        assert (await refused(f"{server.base}/x.mp4", settings)).code == "source-busy"


@pytest.mark.parametrize("content_type", ["text/html; charset=utf-8", "video/mp4"])
async def test_a_web_page_answered_with_200_is_called_a_web_page(settings, content_type):
    async def handler(_: Request, reply: Reply) -> None:
        await reply.whole(b"<!doctype html><title>Sign in</title>", Content_Type=content_type)

    async with misbehaving(handler) as server:
        assert (await refused(f"{server.base}/x.mp4", settings)).code == "source-returned-html"


async def test_a_video_sent_as_text_html_is_still_a_video(fast, quick):
    async def handler(request: Request, reply: Reply) -> None:
        await reply.ranged(fast.read_bytes(), request, Content_Type="text/html")

    async with misbehaving(handler) as server:
        assert (await look(f"{server.base}/x.mp4", quick)).verdict.accepted


@pytest.mark.parametrize("how", ["200", "204", "416"])
async def test_an_answer_without_bytes_is_an_empty_file(settings, how):
    async def handler(request: Request, reply: Reply) -> None:
        if how == "416" and request.range is not None:
            await reply.whole(b"", "416 Range Not Satisfiable", Content_Range="bytes */0")
        elif how == "204":
            reply.head("204 No Content")
        else:
            await reply.whole(b"")

    async with misbehaving(handler) as server:
        assert (await refused(f"{server.base}/x.mp4", settings)).code == "file-empty"


async def test_fewer_bytes_than_announced_are_asked_for_again_later(good, settings):
    async def handler(_: Request, reply: Reply) -> None:
        reply.head(Content_Length=good.stat().st_size)
        await reply.body(good.read_bytes()[:100_000])

    async with misbehaving(handler) as server:
        fault = await refused(f"{server.base}/x.mp4", settings)
    assert (fault.code, fault.permanent) == ("file-growing", False)


async def test_a_remote_file_that_grows_is_tried_again_later(good, settings):
    sent = 60_000

    async def handler(request: Request, reply: Reply) -> None:
        nonlocal sent
        sent += 10_000
        await reply.ranged(good.read_bytes()[:sent], request)

    async with misbehaving(handler) as server:
        assert (await refused(f"{server.base}/x.mp4", settings)).code == "file-growing"


async def test_a_truncated_remote_file_is_incomplete(good, settings):
    async with misbehaving(ranged(good.read_bytes()[:100_000])) as server:
        assert (await refused(f"{server.base}/x.mp4", settings)).code == "file-incomplete"


async def test_a_remote_index_without_its_pictures_is_incomplete(fast, settings):
    async with misbehaving(ranged(fast.read_bytes()[:100_000])) as server:
        fault = await refused(f"{server.base}/x.mp4", settings, size=fast.stat().st_size)
        assert fault.code == "file-incomplete"
        assert f"100000 bytes of the {fast.stat().st_size}" in fault.detail
        assert (await refused(f"{server.base}/x.mp4", settings)).code == "file-incomplete"


async def test_a_jpeg_at_an_mp4_address_is_not_a_video(jpeg, settings):
    async with misbehaving(ranged(jpeg.read_bytes())) as server:
        assert (await refused(f"{server.base}/x.mp4", settings)).code == "not-a-video"


# --------------------------------------------------------------------------------------------------------- no answer


async def test_nobody_listening_is_unreachable(settings):
    fault = await refused(f"http://127.0.0.1:{free_ports(1)[0]}/x.mp4", settings)
    assert (fault.code, fault.permanent) == ("source-unreachable", False)


async def test_a_name_that_does_not_resolve_is_unreachable(settings):
    fault = await refused("http://no-such-host.invalid/x.mp4", settings)
    assert (fault.code, fault.permanent) == ("source-unreachable", False)


async def test_a_server_that_closes_without_an_answer_is_unreachable(settings):
    async def handler(_: Request, reply: Reply) -> None:
        reply.writer.close()

    async with misbehaving(handler) as server:
        assert (await refused(f"{server.base}/x.mp4", settings)).code == "source-unreachable"


@pytest.mark.parametrize("how", ["silent", "stalled", "dripping"])
async def test_a_slow_server_is_ended_by_the_clock(good, settings, how):
    async def handler(_: Request, reply: Reply) -> None:
        if how != "silent":
            reply.head(Content_Length=good.stat().st_size)
            await reply.body(good.read_bytes()[:20])
        for byte in good.read_bytes()[20:]:
            await asyncio.sleep(0.5 if how == "dripping" else 3600)
            await reply.body(bytes([byte]))

    short = settings.model_copy(update={"timeout_s": 1.2})
    async with misbehaving(handler) as server, asyncio.timeout(60):
        fault = await refused(f"{server.base}/x.mp4", short)
    assert (fault.code, fault.permanent) == ("source-timeout", False)


async def test_a_cancelled_probe_leaves_no_process_and_no_listener(quick):
    async def handler(_: Request, reply: Reply) -> None:
        await asyncio.sleep(3600)

    async with misbehaving(handler) as server:
        before = set(psutil.Process().children())
        task = asyncio.create_task(look(f"{server.base}/x.mp4", quick))
        await server.arrived.wait()
        (child,) = set(psutil.Process().children()) - before
        listening = {c.laddr.port for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN}
        assert len(listening - {server.port}) >= 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not child.is_running()
        left = {c.laddr.port for c in psutil.Process().net_connections() if c.status == psutil.CONN_LISTEN}
        assert len(left) == len(listening) - 1


async def test_an_ffprobe_killed_half_way_is_no_bad_file(settings):
    async def handler(_: Request, reply: Reply) -> None:
        await asyncio.sleep(3600)

    async with misbehaving(handler) as server:
        task = asyncio.create_task(look(f"{server.base}/x.mp4", settings))
        await server.arrived.wait()
        for child in psutil.Process().children():
            if child.name().startswith("ffprobe"):
                child.kill()
        with pytest.raises(Fault) as caught:
            await task
    assert (caught.value.code, caught.value.permanent) == ("probe-died", False)


# ------------------------------------------------------------------------------------------------------------- secrets


@pytest.mark.parametrize("outcome", ["403", "page", "truncated", "reset", "hang", "redirect"])
async def test_no_secret_is_in_any_fault_or_log(good, quick, caplog, outcome):
    caplog.set_level(logging.DEBUG)

    async def handler(request: Request, reply: Reply) -> None:
        if outcome == "403":
            await reply.whole(b"", "403 Forbidden")
        elif outcome == "page":
            await reply.whole(b"<html>")
        elif outcome == "truncated":
            await reply.ranged(good.read_bytes()[:90_000], request)
        elif outcome == "reset":
            reply.writer.transport.abort()
        elif outcome == "redirect":
            await reply.whole(b"", "302 Found", Location="http://other:s3cret@no-such-host.invalid/y?sig=abcdef")
        else:
            await asyncio.sleep(3600)

    short = quick.model_copy(update={"timeout_s": 1.0 if outcome == "hang" else 10.0})
    async with misbehaving(handler) as server:
        fault = await refused(f"http://user:s3cret@127.0.0.1:{server.port}/x?X-Amz-Signature=abcdef", short)
    said = f"{fault!r} {fault} {fault.detail} {fault.as_application_error()} {caplog.text}"
    chain: BaseException | None = fault
    while chain is not None:
        said += f" {chain!r}"
        chain = chain.__cause__ or (None if chain.__suppress_context__ else chain.__context__)
    assert "s3cret" not in said
    assert "abcdef" not in said


async def test_no_secret_is_in_the_process_list_or_the_facts(fast, quick):
    seen: list[str] = []

    async def handler(request: Request, reply: Reply) -> None:
        seen.extend(" ".join(child.cmdline()) for child in psutil.Process().children())
        await reply.ranged(fast.read_bytes(), request)

    async with misbehaving(handler) as server:
        address = f"http://user:s3cret@127.0.0.1:{server.port}/x.mp4?X-Amz-Signature=abcdef"
        found = await look(address, quick, Authorization="Bearer t0ken")
    said = " ".join(seen) + json.dumps(found.facts.to_json())
    assert "ffprobe" in said
    assert not any(secret in said for secret in ("s3cret", "abcdef", "t0ken"))


async def test_the_relay_serves_only_who_knows_its_path(fast, quick):
    async with misbehaving(ranged(fast.read_bytes())) as server:
        location = Location(f"{server.base}/x.mp4")
        async with media.relay.Relay(location, allow_private=True) as relay:
            port = int(relay.url.split(":")[2].split("/")[0])
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /guess.mp4 HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 404")
            writer.close()
        assert server.requests == []


async def test_a_header_with_a_line_break_is_refused(quick):
    fault = await refused("http://127.0.0.1:9/x.mp4", quick, Cookie="a\r\nX-Injected: 1")
    assert fault.code == "source-address-refused"


# ----------------------------------------------------------------------------------------------------------------- TLS


def _tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    return context


async def test_a_certificate_that_nobody_vouches_for_is_not_accepted(fast, quick):
    async with misbehaving(ranged(fast.read_bytes()), host="localhost", tls=_tls()) as server:
        fault = await refused(f"{server.base}/x.mp4", quick)
    assert fault.code == "source-unreachable"
    assert "certificate" in fault.detail
    assert server.requests == []


async def test_https_is_read_and_the_certificate_is_checked_against_the_name(fast, settings, monkeypatch):
    trusting = ssl.create_default_context(cafile=str(PEM))
    monkeypatch.setattr(media.relay, "_tls", lambda: trusting)
    async with misbehaving(ranged(fast.read_bytes()), host="localhost", tls=_tls()) as server:
        assert (await look(f"{server.base}/x.mp4", settings)).facts.duration_ms == 4000
        wrong = await refused(f"https://127.0.0.1:{server.port}/x.mp4", settings)
    assert wrong.code == "source-unreachable"


async def test_many_probes_at_once_end_each_with_its_own_file(good, fast, quick):
    async with misbehaving(ranged(good.read_bytes())) as one, misbehaving(ranged(fast.read_bytes()[:99_000])) as other:
        results = await asyncio.gather(
            *(probe(Location(f"{server.base}/x.mp4"), settings=quick) for server in (one, other) * 6),
            return_exceptions=True,
        )
    assert [type(result).__name__ for result in results] == ["ProbeResult", "Fault"] * 6
