"""Servers that answer in unusual, wrong or hostile ways: what can be read is read, the rest is a fault of the right
class, in time, without a request to anywhere else."""

from __future__ import annotations

import asyncio
import gzip
import socket
import ssl
import zlib
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from misbehaving import Reply, Request, misbehaving

import media.relay
from faults import REASONS, Fault
from media import Inspection, Limits, inspect
from media.relay import Relay
from settings import MediaSettings
from sources.base import Location

PEM = Path(__file__).with_name("localhost.pem")


async def look(address: str, settings: MediaSettings, *, size: int | None = None) -> Inspection:
    return await inspect(Location(address, size=size), settings=settings, limits=Limits())


async def refused(address: str, settings: MediaSettings, *, size: int | None = None) -> Fault:
    with pytest.raises(Fault) as caught:
        await look(address, settings, size=size)
    return caught.value


def asked(request: Request) -> tuple[int, int | None]:
    """The first and the last byte that a request asks for."""
    first, _, last = (request.range or "bytes=0-").removeprefix("bytes=").partition("-")
    return int(first), int(last) if last else None


async def part(reply: Reply, data: bytes, start: int, end: int, total: object, **headers: object) -> None:
    reply.head(
        "206 Partial Content", Content_Range=f"bytes {start}-{end - 1}/{total}", Content_Length=end - start, **headers
    )
    await reply.body(data[start:end])


# -------------------------------------------------------------------------------------------------------------- ranges


@pytest.mark.parametrize("name", ["good", "fast"])
@pytest.mark.parametrize("tells", ["total", "star"])
async def test_a_server_that_sends_a_little_at_a_time_is_asked_on(good, fast, settings, name, tells):
    data = {"good": good, "fast": fast}[name].read_bytes()

    async def handler(request: Request, reply: Reply) -> None:
        start, _ = asked(request)
        if start >= len(data):
            await reply.whole(b"", "416 Range Not Satisfiable", Content_Range=f"bytes */{len(data)}")
        else:
            await part(reply, data, start, min(start + 50_000, len(data)), len(data) if tells == "total" else "*")

    async with misbehaving(handler) as server:
        found = await look(f"{server.base}/x.mp4", settings, size=len(data))
    assert (found.verdict.reason, found.facts.duration_ms) == (None, 4000)
    # Where nobody says the size, only the end tells it, and ffprobe may have enough before.
    assert found.facts.size_bytes in ((len(data),) if tells == "total" else (len(data), None))


@pytest.mark.parametrize("wrong", ["no place", "several parts", "another place", "impossible", "endless", "beyond"])
async def test_a_part_that_is_not_the_one_asked_for_is_read_as_a_whole_instead(good, settings, wrong):
    data = good.read_bytes()
    places = {
        "no place": None,
        "several parts": None,
        "another place": f"bytes 7-{len(data) - 1}/{len(data)}",
        "impossible": "bytes 9-3/5",
        "endless": "bytes 0-9/" + "9" * 5_000,
        "beyond": f"bytes 0-{len(data) + 7}/{len(data)}",
    }

    async def handler(request: Request, reply: Reply) -> None:
        if request.range is None:
            await reply.whole(data)
        elif wrong == "several parts":
            body = b"--x\r\nContent-Type: video/mp4\r\n\r\n" + data + b"\r\n--x--\r\n"
            await reply.whole(body, "206 Partial Content", Content_Type="multipart/byteranges; boundary=x")
        elif places[wrong] is None:
            await reply.whole(data, "206 Partial Content")
        else:
            await reply.whole(data, "206 Partial Content", Content_Range=places[wrong])

    async with misbehaving(handler) as server:
        found = await look(f"{server.base}/x.mp4", settings)
    assert (found.verdict.reason, found.facts.duration_ms, found.facts.size_bytes) == (None, 4000, len(data))


async def test_a_server_that_always_sends_another_part_is_the_sources_fault(good, settings):
    data = good.read_bytes()

    async def handler(_: Request, reply: Reply) -> None:
        await part(reply, data, 7, len(data), len(data))

    async with misbehaving(handler) as server:
        fault = await refused(f"{server.base}/x.mp4", settings)
    assert (fault.code, fault.permanent) == ("source-unreachable", False)


@pytest.mark.parametrize("refusal", ["400 Bad Request", "406 Not Acceptable", "416 Nope", "501 Not Implemented"])
async def test_every_refusal_of_a_range_is_followed_by_a_request_without_one(good, settings, refusal):
    async def handler(request: Request, reply: Reply) -> None:
        if request.range is not None:
            await reply.whole(b"no", refusal)
        else:
            await reply.whole(good.read_bytes())

    async with misbehaving(handler) as server:
        assert (await look(f"{server.base}/x.mp4", settings)).facts.duration_ms == 4000


async def test_a_server_that_refuses_with_and_without_a_range_is_the_sources_fault(settings):
    async def handler(_: Request, reply: Reply) -> None:
        await reply.whole(b"no", "400 Bad Request")

    async with misbehaving(handler) as server:
        assert (await refused(f"{server.base}/x.mp4", settings)).code == "source-forbidden"
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("asks", "least", "most"),
    [
        ("7", 7, 7), ("1.5", 1.5, 1.5), ("-5", 0, 0), ("999999999999", 3600, 3600), ("inf", 3600, 3600),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0, 0), ("nan", None, None), ("", None, None), ("soon", None, None),
    ],
)  # fmt: skip
async def test_a_busy_source_is_given_the_time_it_asks_for(settings, asks, least, most):
    async def handler(_: Request, reply: Reply) -> None:
        await reply.whole(b"", "503 Busy", Retry_After=asks)

    async with misbehaving(handler) as server:
        fault = await refused(f"{server.base}/x.mp4", settings)
    assert fault.code == "source-busy"
    assert fault.retry_after is None if least is None else least <= fault.retry_after <= most


# ------------------------------------------------------------------------------------------------------------- lengths


@pytest.mark.parametrize("protocol", ["HTTP/1.1", "HTTP/1.0"])
@pytest.mark.parametrize("name", ["good", "fast"])
async def test_a_body_that_ends_with_the_connection_is_a_whole_file(good, fast, settings, protocol, name):
    data = {"good": good, "fast": fast}[name].read_bytes()

    async def handler(_: Request, reply: Reply) -> None:
        reply.writer.write(f"{protocol} 200 OK\r\nContent-Type: video/mp4\r\n\r\n".encode())
        await reply.body(data)

    async with misbehaving(handler) as server:
        found = await look(f"{server.base}/x.mp4", settings)
    assert (found.verdict.reason, found.facts.duration_ms) == (None, 4000)


def chunks(data: bytes) -> bytes:
    return b"".join(
        b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (data[n : n + 9_000] for n in range(0, len(data), 9_000))
    )


@pytest.mark.parametrize("ends", [True, False])
async def test_a_chunked_body_is_whole_only_where_its_last_chunk_came(good, settings, ends):
    async def handler(_: Request, reply: Reply) -> None:
        reply.writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        whole = chunks(good.read_bytes()) + b"0\r\n\r\n"
        await reply.body(whole if ends else whole[:90_000])

    async with misbehaving(handler) as server:
        if ends:
            assert (await look(f"{server.base}/x.mp4", settings)).facts.duration_ms == 4000
        else:
            assert not (await refused(f"{server.base}/x.mp4", settings)).permanent


@pytest.mark.parametrize("length", ["-1", "abc", "1, 2", "99999999999999999999999", "1e5", ""])
async def test_a_length_that_is_none_is_never_the_files_fault(good, settings, length):
    async def handler(_: Request, reply: Reply) -> None:
        reply.writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode())
        await reply.body(good.read_bytes())

    async with misbehaving(handler) as server:
        fault = await refused(f"{server.base}/x.mp4", settings)
    assert (fault.code in ("source-unreachable", "file-growing"), fault.permanent) == (True, False)


async def test_a_length_smaller_than_the_file_leaves_it_incomplete(good, settings):
    data = good.read_bytes()

    async def handler(_: Request, reply: Reply) -> None:
        reply.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\nConnection: close\r\n\r\n")
        await reply.body(data)

    async with misbehaving(handler) as server:
        assert (await refused(f"{server.base}/x.mp4", settings)).code == "file-incomplete"


async def test_a_kept_connection_that_closes_in_the_middle_is_tried_again_later(good, settings):
    data = good.read_bytes()

    async def handler(_: Request, reply: Reply) -> None:
        reply.writer.write(f"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Length: {len(data)}\r\n\r\n".encode())
        await reply.body(data[:70_000])
        reply.writer.transport.abort()

    async with misbehaving(handler) as server:
        assert not (await refused(f"{server.base}/x.mp4", settings)).permanent


# ----------------------------------------------------------------------------------------------------------- encodings


@pytest.mark.parametrize("coding", ["gzip", "x-gzip", "deflate", "GZIP"])
@pytest.mark.parametrize("name", ["good", "fast"])
async def test_a_video_that_was_compressed_unasked_is_read_all_the_same(good, fast, settings, coding, name):
    data = {"good": good, "fast": fast}[name].read_bytes()
    body = zlib.compress(data) if coding == "deflate" else gzip.compress(data)

    async def handler(request: Request, reply: Reply) -> None:
        assert request.headers["accept-encoding"] == "identity"
        await reply.ranged(body, request, Content_Encoding=coding)

    async with misbehaving(handler) as server:
        found = await look(f"{server.base}/x.mp4", settings, size=len(body))
    assert (found.verdict.reason, found.facts.duration_ms) == (None, 4000)
    # The sizes that are told are those of what was sent; the file's own is nobody's word.
    assert (found.facts.size_bytes, "larger-than-listed" in found.facts.flags) == (None, False)


async def test_several_compressed_members_are_one_file(good, settings):
    data = good.read_bytes()
    body = gzip.compress(data[:50_000]) + gzip.compress(data[50_000:])

    async def handler(_: Request, reply: Reply) -> None:
        await reply.whole(body, Content_Encoding="gzip")

    async with misbehaving(handler) as server:
        assert (await look(f"{server.base}/x.mp4", settings)).facts.duration_ms == 4000


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
async def test_a_compressed_web_page_is_a_web_page(settings, coding):
    page = b"<!doctype html><title>Sign in</title>" * 50

    async def handler(_: Request, reply: Reply) -> None:
        body = zlib.compress(page) if coding == "deflate" else gzip.compress(page)
        await reply.whole(body, Content_Encoding=coding, Content_Type="video/mp4")

    async with misbehaving(handler) as server:
        assert (await refused(f"{server.base}/x.mp4", settings)).code == "source-returned-html"


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br", "compress"])
async def test_an_encoding_that_nobody_can_undo_is_the_sources_fault(settings, coding):
    async def handler(_: Request, reply: Reply) -> None:
        await reply.whole(b"\x1b\x02" * 900, Content_Encoding=coding)

    async with misbehaving(handler) as server:
        fault = await refused(f"{server.base}/x.mp4", settings)
    assert (fault.code, fault.permanent) == ("source-unreachable", False)


@pytest.mark.parametrize("how", ["cut", "broken"])
async def test_an_encoding_that_breaks_off_is_tried_again_later(good, settings, how):
    body = gzip.compress(good.read_bytes())

    async def handler(_: Request, reply: Reply) -> None:
        await reply.whole(body[:60_000] if how == "cut" else b"\x1f\x8b" + body[9:], Content_Encoding="gzip")

    async with misbehaving(handler) as server:
        assert not (await refused(f"{server.base}/x.mp4", settings)).permanent


@pytest.mark.parametrize("label", ["aws-chunked", "identity", "utf-8", "video/mp4", "none"])
async def test_a_label_that_changes_nothing_is_passed_over(good, settings, label):
    async def handler(request: Request, reply: Reply) -> None:
        await reply.ranged(good.read_bytes(), request, Content_Encoding=label)

    async with misbehaving(handler) as server:
        found = await look(f"{server.base}/x.mp4", settings)
    assert (found.facts.duration_ms, found.facts.size_bytes) == (4000, good.stat().st_size)


async def test_a_few_bytes_that_unfold_into_a_flood_stay_a_trickle(quick):
    flood = zlib.compressobj(9, wbits=31)
    body = b"".join(flood.compress(bytes(1_000_000)) for _ in range(120)) + flood.flush()
    own = psutil.Process()

    async def handler(_: Request, reply: Reply) -> None:
        await reply.whole(body, Content_Encoding="gzip")

    async with misbehaving(handler) as server:
        before = own.memory_info().rss
        assert (await refused(f"{server.base}/x.mp4", quick)).code == "not-a-video"
        assert own.memory_info().rss - before < 100_000_000


# ----------------------------------------------------------------------------------------------------------- redirects


@pytest.mark.parametrize(
    "onward",
    [
        "file:///etc/passwd", "ftp://127.0.0.1/x", "http://[::1", "http://127.0.0.1:99999/x", "gopher://x/",
        "concat:http://a|http://b", "data:video/mp4;base64,AAAA", "http://0.0.0.0/x", "http://169.254.169.254/latest/",
        "http://[fd00:ec2::254]/", "http://[::ffff:169.254.169.254]/", "http://2852039166/", "javascript:alert(1)",
        "\\\\host\\share", "http://\x01/",
    ],
)  # fmt: skip
async def test_a_redirect_to_what_is_not_fetched_is_refused_though_private_addresses_are_allowed(settings, onward):
    async def handler(_: Request, reply: Reply) -> None:
        await reply.whole(b"", "302 Found", Location=onward)

    async with misbehaving(handler) as server:
        fault = await refused(f"{server.base}/x.mp4", settings)
        # "\\host\share" is, to a server, a path of its own.
        assert len(server.requests) == 1 or onward.startswith("\\")
    assert fault.code in ("source-address-refused", "source-unreachable")
    assert fault.code == "source-address-refused" or onward.startswith("\\") or "\x01" in onward


@pytest.mark.parametrize(
    "onward", ["next/x.mp4", "/a/next/x.mp4", "./next/x.mp4", "?to=x.mp4", "//{host}/a/next/x.mp4"]
)
async def test_a_relative_redirect_is_read_against_where_it_stands(good, quick, onward):
    async def handler(request: Request, reply: Reply) -> None:
        if request.target == "/a/start":
            await reply.whole(b"", "302 Found", Location=onward.format(host=request.headers["host"]))
        else:
            await reply.ranged(good.read_bytes(), request)

    async with misbehaving(handler) as server:
        assert (await look(f"{server.base}/a/start", quick)).facts.duration_ms == 4000
    assert server.requests[1].target == ("/a/start?to=x.mp4" if "?" in onward else "/a/next/x.mp4")


async def test_redirects_in_a_circle_end(settings):
    async def handler(request: Request, reply: Reply) -> None:
        await reply.whole(b"", "302 Found", Location="/b" if request.target == "/a" else "/a")

    async with misbehaving(handler) as server:
        fault = await refused(f"{server.base}/a", settings)
    assert (fault.code, fault.permanent) == ("source-unreachable", False)
    assert len(server.requests) < 12


async def test_a_redirect_to_another_scheme_is_followed_without_what_was_given_for_the_first(
    good, settings, monkeypatch
):
    monkeypatch.setattr(media.relay, "_tls", lambda: ssl.create_default_context(cafile=str(PEM)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)

    async def serve(request: Request, reply: Reply) -> None:
        await reply.ranged(good.read_bytes(), request)

    async with misbehaving(serve, host="localhost", tls=context) as secure:

        async def handler(_: Request, reply: Reply) -> None:
            await reply.whole(b"", "301 Moved", Location=f"{secure.base}/x.mp4")

        async with misbehaving(handler) as server:
            location = Location(f"http://user:pw@127.0.0.1:{server.port}/x.mp4", headers={"Cookie": "a=1"})
            found = await inspect(location, settings=settings, limits=Limits())
    assert found.facts.duration_ms == 4000
    assert all(not {"cookie", "authorization"} & request.headers.keys() for request in secure.requests)


async def test_credentials_in_a_redirect_are_used_there_and_told_nowhere(good, quick, caplog):
    caplog.set_level("DEBUG")

    async def handler(request: Request, reply: Reply) -> None:
        if request.target == "/start":
            host = request.headers["host"]
            await reply.whole(b"", "302 Found", Location=f"http://us:s3cret@{host}/x.mp4?sig=abcdef")
        elif "authorization" in request.headers:
            await reply.whole(b"", "404 Not Found")
        else:
            await reply.ranged(good.read_bytes(), request)

    async with misbehaving(handler) as server:
        fault = await refused(f"{server.base}/start", quick)
    assert fault.code == "source-not-found"
    assert "s3cret" not in f"{fault} {caplog.text}"
    assert "abcdef" not in f"{fault} {caplog.text}"


# ------------------------------------------------------------------------------------------------- addresses, spellings


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.1", "127.0.1", "2130706433", "0x7f000001", "0x7f.0.0.1", "0177.0.0.1", "017700000001",
        "localhost", "LOCALHOST", "[::1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]",
        "[64:ff9b::7f00:1]", "[0:0:0:0:0:ffff:7f00:1]", "①②⑦.⓪.⓪.①", "127。0。0。1", "0.0.0.0", "0", "[::]",
        "169.254.169.254", "user@127.0.0.1", "example.com@127.0.0.1",
    ],
)  # fmt: skip
async def test_no_spelling_of_an_inner_address_gets_a_request(good, ffprobe, host):
    async def handler(request: Request, reply: Reply) -> None:
        await reply.ranged(good.read_bytes(), request)

    async with misbehaving(handler) as server:
        fault = await refused(f"http://{host}:{server.port}/x.mp4", MediaSettings(ffprobe=ffprobe))
        assert server.requests == []
    assert fault.code == "source-address-refused"


# ------------------------------------------------------------------------------------------------------ headers, clocks


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"\r\n\r\n", b"hello\r\n\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 300_000 + b"\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 60_000,
        b"HTTP/1.1 200 OK\r\nno colon here\r\n\r\n", b"SSH-2.0-OpenSSH_9.2\r\n", b"\x15\x03\x01\x00\x02\x02\x16",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nx",
        b"HTTP/1.1 999 Odd\r\n\r\n", b"HTTP/1.1 304 Not Modified\r\n\r\n", b"HTTP/1.1 300 Choose\r\n\r\n",
    ],
)  # fmt: skip
async def test_what_is_no_answer_is_the_sources_fault_and_soon_over(settings, answer):
    async def handler(_: Request, reply: Reply) -> None:
        await reply.body(answer)

    async with misbehaving(handler) as server:
        fault = await refused(f"{server.base}/x.mp4", settings)
    assert fault.code in ("source-unreachable", "source-busy"), "and not ended by the clock"
    assert not fault.permanent


async def test_early_hints_are_no_answer_yet(good, settings):
    async def handler(request: Request, reply: Reply) -> None:
        reply.writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n")
        await reply.ranged(good.read_bytes(), request)

    async with misbehaving(handler) as server:
        assert (await look(f"{server.base}/x.mp4", settings)).facts.duration_ms == 4000


@pytest.mark.parametrize("where", ["status", "headers", "body", "chunk", "redirected", "second", "dripping headers"])
async def test_wherever_a_server_stops_the_clock_ends_it(good, settings, where):
    data = good.read_bytes()

    async def handler(request: Request, reply: Reply) -> None:
        if where == "redirected" and request.target == "/x.mp4":
            await reply.whole(b"", "302 Found", Location="/y.mp4")
            return
        if where == "second" and asked(request)[0] == 0:
            await reply.ranged(data, request)
            return
        begun = {
            "headers": b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n",
            "body": b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n" + data[:900],
            "chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n384\r\n" + data[:900] + b"\r\n",
            "dripping headers": b"HTTP/1.1 200 OK\r\nX: ",
        }
        await reply.body(begun.get(where, b""))
        while True:
            await asyncio.sleep(0.2 if where == "dripping headers" else 3600)
            await reply.body(b"y")

    short = settings.model_copy(update={"timeout_s": 1.2})
    async with misbehaving(handler) as server, asyncio.timeout(60):
        fault = await refused(f"{server.base}/x.mp4", short)
    assert (fault.code, fault.permanent) == ("source-timeout", False)


async def test_a_port_that_takes_connections_and_never_speaks_is_ended_by_the_clock(settings):
    with socket.create_server(("127.0.0.1", 0), backlog=8) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}/x.mp4"
        short = settings.model_copy(update={"timeout_s": 1.0})
        for scheme in ("http", "https"):
            assert (await refused(f"{scheme}://{address}", short)).code == "source-timeout"


async def test_a_plain_server_at_an_https_address_is_unreachable(settings):
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        fault = await refused(f"https://127.0.0.1:{port}/x.mp4", settings)
    assert (fault.code, fault.permanent) == ("source-unreachable", False)


@pytest.mark.parametrize(
    "headers", [{"X": "a\nb"}, {"X\r\nY": "1"}, {"X": "é"}, {"": "1"}, {"a b": "1"}, {"X": "\x00"}]
)
async def test_a_header_that_no_header_may_be_is_refused_before_anything_is_sent(good, quick, headers):
    async def handler(request: Request, reply: Reply) -> None:
        await reply.ranged(good.read_bytes(), request)

    async with misbehaving(handler) as server:
        with pytest.raises(Fault) as caught:
            await inspect(Location(f"{server.base}/x.mp4", headers=headers), settings=quick, limits=Limits())
        assert server.requests == []
    assert caught.value.code == "source-address-refused"


async def test_what_nobody_foresaw_is_raised_and_not_taken_for_the_files_fault(good, quick, monkeypatch):
    def broken(*_: object) -> None:
        raise LookupError("unforeseen")

    monkeypatch.setattr(media.relay, "_total", broken)

    async def handler(request: Request, reply: Reply) -> None:
        await reply.ranged(good.read_bytes(), request)

    async with misbehaving(handler) as server:
        with pytest.raises(LookupError, match="unforeseen"):
            await look(f"{server.base}/x.mp4", quick)


# ------------------------------------------------------------------------------------------------------------ any bytes

_line = st.sampled_from(
    [
        b"HTTP/1.1 200 OK", b"HTTP/1.1 206 Partial Content", b"HTTP/1.1 416 No", b"HTTP/1.1 302 Found",
        b"HTTP/1.0 200 OK",
        b"Content-Length: 5", b"Content-Length: 50000", b"Content-Range: bytes 0-4/5", b"Content-Range: bytes 3-4/*",
        b"Content-Range: bytes */0", b"Transfer-Encoding: chunked", b"Content-Encoding: gzip", b"Content-Encoding: br",
        b"Location: /again", b"Location: http://[", b"Location: //0.0.0.0/", b"Accept-Ranges: bytes", b"Retry-After: 5",
        b"5", b"hello", b"0", b"<html>", b"", b"",
    ]
)  # fmt: skip
_answers = st.binary(max_size=200) | st.builds(
    lambda lines, rest: b"\r\n".join(lines) + rest,
    st.lists(_line | st.binary(max_size=12), max_size=12),
    st.binary(max_size=90),
)
_begun = st.builds(lambda answer: b"HTTP/1.1 20" + answer, st.sampled_from([b"0", b"6"]).flatmap(
    lambda last: _answers.map(lambda answer: last + b" OK\r\n" + answer)
))  # fmt: skip


@hypothesis_settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(answers=st.lists(_answers | _begun, min_size=1, max_size=3), offset=st.sampled_from([0, 3, 70]))
async def test_any_bytes_from_a_server_end_soon_and_leave_at_most_a_fault(answers, offset):
    came = 0

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal came
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answers[min(came, len(answers) - 1)])
        came += 1
        writer.close()

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    async with (
        listener,
        asyncio.timeout(10),
        Relay(Location(f"http://127.0.0.1:{port}/x.mp4"), allow_private=True) as relay,
    ):
        for start in (0, offset):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(relay.url.split(":")[2].split("/")[0]))
            path = relay.url.partition("//")[2].partition("/")[2]
            writer.write(f"GET /{path} HTTP/1.1\r\nHost: x\r\nRange: bytes={start}-\r\n\r\n".encode())
            while await reader.read(65_536):
                pass
            writer.close()
        seen = relay.seen
    assert relay.crash is None
    assert seen.fault is None or seen.fault.code in REASONS
    assert seen.size is None or seen.size >= 0
    assert came < 40
    assert len(seen.head) <= 4_096
