"""Buckets, against a real S3 server (rclone) and with AWS's own client as the judge of it and of our signatures."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import botocore.session
import httpx
import pytest
from botocore.config import Config
from starlette.requests import Request
from starlette.responses import Response

from faults import Fault, Scope
from settings import Settings, SourceSettings
from sources.base import Item, ListedPage
from sources.registry import open_source
from sources.s3 import Options, S3Source, bucket_address, objects
from sources.spec import SourceSpec
from tests.sources.hosts.serving import running

ACCESS, SECRET = "AKIATESTACCESS", "s3cret+key/with=signs"
BUCKET = "library"
KEYS = {
    "a b.mp4": b"space",
    "a+b.mp4": b"plus",
    "10%2B2.mp4": b"percent",
    "café/lecture 1.MP4": b"utf-8",
    'it\'s "q" & $HOME.mov': b"quotes",
    "日本/naïve?.webm": b"question",
    "x=1&y=2;z.mkv": b"signs",
}
"""Keys that must be encoded exactly once, and bytes to know them by."""


@dataclass(frozen=True)
class Store:
    url: str
    root: Path

    @property
    def judge(self) -> Any:
        """AWS's own client."""
        return botocore.session.Session().create_client(
            "s3",
            region_name="us-east-1",
            endpoint_url=self.url,
            aws_access_key_id=ACCESS,
            aws_secret_access_key=SECRET,
            config=Config(s3={"addressing_style": "path"}, signature_version="s3v4", retries={"max_attempts": 1}),
        )


def rclone() -> str:
    beside = Path(sys.executable).with_name("rclone")
    return str(beside) if beside.exists() else (shutil.which("rclone") or "rclone")


@pytest.fixture(scope="module")
async def store(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Store]:
    root = tmp_path_factory.mktemp("s3")
    (root / BUCKET).mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = ("serve", "s3", str(root), "--addr", f"127.0.0.1:{port}", "--auth-key", f"{ACCESS},{SECRET}")
    # The environment's own settings for AWS must neither help nor disturb.
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "RCLONE_"))}
    process = await asyncio.create_subprocess_exec(
        rclone(), *arguments, "--config", str(root / "none.conf"), env=clean,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        found = Store(f"http://127.0.0.1:{port}", root)
        async with httpx.AsyncClient(trust_env=False) as client:
            while True:
                assert process.returncode is None, "rclone ended"
                with contextlib.suppress(httpx.TransportError):
                    await client.get(found.url)
                    break
                await asyncio.sleep(0.02)
        judge = found.judge
        for key, body in KEYS.items():
            await asyncio.to_thread(judge.put_object, Bucket=BUCKET, Key=key, Body=body)
        for n in range(23):
            await asyncio.to_thread(judge.put_object, Bucket=BUCKET, Key=f"courses/CHEM/{n:02}.mp4", Body=b"x" * n)
        for key in ("notes.txt", "courses/CHEM/cover.jpg", "archive.mp4.part"):
            await asyncio.to_thread(judge.put_object, Bucket=BUCKET, Key=key, Body=b"no video")
        yield found
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@pytest.fixture(autouse=True)
def no_credentials_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What the machine has in its environment, files or metadata service is nobody's business here."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


def opened(url: str | None, *, page_size: int = 500, token: str | None = f"{ACCESS}:{SECRET}", **options: Any) -> Any:
    entry = SourceSettings(
        kind="s3", base_url=url, token=token, options={"bucket": BUCKET, "retry_wait_s": 0.001, **options}
    )
    return open_source(SourceSpec(kind="s3", name="old", page_size=page_size), Settings(sources={"old": entry}))


async def walked(url: str, **how: Any) -> list[ListedPage]:
    """The pages, each asked for by a source of its own, as another worker would."""
    pages: list[ListedPage] = []
    cursor = None
    while True:
        async with opened(url, **how) as source:
            pages.append(await source.list_page(cursor))
        cursor = pages[-1].next_cursor
        if cursor is None:
            return pages


async def refusal(url: str, **how: Any) -> Fault:
    with pytest.raises(Fault) as raised:
        await walked(url, **how)
    return raised.value


async def get(address: str, method: str = "GET") -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.request(method, address)


# -------------------------------------------------------------------------------------------------------------- listing


@pytest.mark.parametrize("page_size", [3, 7, 500])
async def test_a_bucket_is_listed_once_by_continuation_token(store: Store, page_size: int) -> None:
    pages = await walked(store.url, page_size=page_size)
    listed = {item.source_id: item.size for page in pages for item in page.items}

    expected = {key: len(body) for key, body in KEYS.items()} | {f"courses/CHEM/{n:02}.mp4": n for n in range(23)}
    assert listed == expected
    assert sum(len(page.items) for page in pages) == len(expected)
    assert all(len(page.items) <= page_size for page in pages)
    assert (len(pages) > 4) is (page_size < 500)


async def test_what_the_store_says_of_an_object_travels_with_it(store: Store) -> None:
    (page,) = await walked(store.url)
    item = {item.source_id: item for item in page.items}["café/lecture 1.MP4"]

    assert (item.title, item.locator, item.about.folder) == ("lecture 1", None, "café")
    assert item.metadata["modified"].startswith("20")
    assert item.metadata["etag"]


async def test_only_what_begins_with_the_prefix_is_asked_for(store: Store) -> None:
    pages = await walked(store.url, prefix="courses/", page_size=5)

    assert [item.source_id for page in pages for item in page.items] == [f"courses/CHEM/{n:02}.mp4" for n in range(23)]
    assert {item.about.folder for page in pages for item in page.items} == {"CHEM"}
    assert [page.items for page in await walked(store.url, prefix="nothing/")] == [[]]


async def test_only_wished_endings_are_listed_in_whatever_case(store: Store) -> None:
    (page,) = await walked(store.url, suffixes=[".MKV", ".webm"])

    assert {item.source_id for item in page.items} == {"x=1&y=2;z.mkv", "日本/naïve?.webm"}


async def test_a_walk_in_which_other_files_fill_whole_pages_goes_on(store: Store) -> None:
    pages = await walked(store.url, page_size=2, suffixes=[".webm"])

    assert sum(not page.items for page in pages) > 10
    assert [item.source_id for page in pages for item in page.items] == ["日本/naïve?.webm"]


# ------------------------------------------------------------------------------------------------------------ addresses


async def test_each_key_is_encoded_once_and_its_address_serves_it(store: Store) -> None:
    async with opened(store.url) as source:
        items = {item.source_id: item for item in (await source.list_page(None)).items}
        for key, body in KEYS.items():
            location = await source.locate(items[key])
            assert (await get(location.address)).content == body
            assert location.size == len(body)
            assert location.headers == {}


async def test_an_address_is_made_at_use_and_ends_when_it_says(store: Store) -> None:
    async with opened(store.url, expires_s=60) as source:
        item = (await source.list_page(None)).items[0]
        query = parse_qs(urlsplit((await source.locate(item)).address).query)

    assert item.locator is None
    assert query["X-Amz-Expires"] == ["60"]
    stamped = time.mktime(time.strptime(query["X-Amz-Date"][0], "%Y%m%dT%H%M%SZ")) - time.timezone
    assert abs(stamped - time.time()) < 120


async def test_an_address_is_the_one_that_awss_own_client_makes(store: Store) -> None:
    async with opened(store.url, expires_s=900) as source:
        for key in KEYS:
            ours = urlsplit((await source.locate(Item(key, None, 1))).address)
            theirs = urlsplit(
                store.judge.generate_presigned_url("get_object", {"Bucket": BUCKET, "Key": key}, ExpiresIn=900)
            )
            assert ours.path == theirs.path
            assert {*parse_qs(ours.query)} == {*parse_qs(theirs.query)}
            same = ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Expires", "X-Amz-SignedHeaders")
            assert all(parse_qs(ours.query)[name] == parse_qs(theirs.query)[name] for name in same)


async def test_an_address_is_bound_to_its_method_and_its_key(store: Store) -> None:
    async with opened(store.url) as source:
        address = (await source.locate(Item("a b.mp4", None, 1))).address

    assert (await get(address)).status_code == 200
    assert (await get(address, "DELETE")).status_code == 403
    assert (await get(address.replace("a%20b", "a%2Bb"))).status_code == 403


def test_a_signature_never_outlives_what_the_protocol_allows() -> None:
    with pytest.raises(Fault, match="expires_s"):
        opened("http://x", expires_s=604_801)


@pytest.mark.parametrize(
    ("endpoint", "options", "address"),
    [
        (None, {}, "https://library.s3.eu-west-1.amazonaws.com"),
        (None, {"path_style": True}, "https://s3.eu-west-1.amazonaws.com/library"),
        (None, {"bucket": "a.b"}, "https://s3.eu-west-1.amazonaws.com/a.b"),
        ("https://r2.example/", {}, "https://r2.example/library"),
        ("https://r2.example:8443", {"path_style": False}, "https://library.r2.example:8443"),
    ],
)
def test_the_bucket_stands_in_the_host_or_in_the_path(
    endpoint: str | None, options: dict[str, Any], address: str
) -> None:
    known = Options.model_validate({"bucket": BUCKET, "region": "eu-west-1", **options})
    assert bucket_address(endpoint, known) == address


# ---------------------------------------------------------------------------------------------------------- credentials


async def test_wrong_credentials_name_the_remedy_and_no_secret(store: Store) -> None:
    wrong = await refusal(store.url, token=f"{ACCESS}:not-the-s3cret")
    unknown = await refusal(store.url, token=f"AKIAUNKNOWN:{SECRET}")

    for fault in (wrong, unknown):
        assert (fault.code, fault.scope) == ("source-credentials-refused", Scope.RUN)
        assert "s3cret" not in str(fault)
    assert "secret access key" in wrong.detail


async def test_no_such_bucket_names_the_option(store: Store) -> None:
    fault = await refusal(store.url, bucket="elsewhere")

    assert (fault.code, fault.permanent) == ("settings-refused", True)
    assert "NoSuchBucket" in fault.detail
    assert "option bucket" in fault.detail


async def test_without_a_token_the_environments_credentials_are_used(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = await refusal(store.url, token=None)
    assert fault.code == "source-credentials-refused"
    assert "anonymous = true" in fault.detail

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    assert sum(len(page.items) for page in await walked(store.url, token=None)) == len(KEYS) + 23


@pytest.mark.parametrize("token", ["s3cret", "s3cret:", ":s3cret"])
def test_a_token_without_both_parts_is_refused_without_being_named(token: str) -> None:
    with pytest.raises(Fault, match="secret access key") as raised:
        opened("http://x", token=token)

    assert "s3cret" not in str(raised.value)


# ------------------------------------------------------------------------------------- stores that answer differently


def error(code: str, status: int, **more: str) -> Response:
    fields = "".join(f"<{name}>{value}</{name}>" for name, value in {"Code": code, "Message": "told", **more}.items())
    return Response(f'<?xml version="1.0"?><Error>{fields}</Error>', status, media_type="application/xml")


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        (
            lambda: error("AccessDenied", 403),
            "source-credentials-refused",
            "grant s3:ListBucket on arn:aws:s3:::library",
        ),
        (lambda: error("InvalidAccessKeyId", 403), "source-credentials-refused", "access key id in token"),
        (lambda: error("ExpiredToken", 400), "source-credentials-refused", "renew the session token"),
        (lambda: error("RequestTimeTooSkewed", 403), "source-down", "clock"),
        (lambda: error("NoSuchBucket", 404), "settings-refused", "option bucket"),
        (lambda: error("PermanentRedirect", 301, Endpoint="library.s3.x"), "settings-refused", "library.s3.x"),
        (
            lambda: error("AuthorizationHeaderMalformed", 400, Region="eu-west-1"),
            "settings-refused",
            'set region = "eu-west-1"',
        ),
        (
            lambda: Response(b"", 301, {"x-amz-bucket-region": "eu-west-1"}),
            "settings-refused",
            'set region = "eu-west-1"',
        ),
        (lambda: error("InternalError", 500), "source-down", "InternalError"),
        (lambda: Response("<html>Log in</html>", 200), "listing-malformed", "no ListBucketResult"),
        (lambda: Response("", 200), "listing-malformed", "no ListBucketResult"),
        (
            lambda: Response('<!DOCTYPE x [<!ENTITY a "b">]><ListBucketResult>&a;</ListBucketResult>', 200),
            "listing-malformed",
            "no ListBucketResult",
        ),
        (
            lambda: Response("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", 200),
            "listing-malformed",
            "ListObjectsV2",
        ),
    ],
)
async def test_a_stores_refusal_is_told_with_its_remedy(serve: Any, answer: Any, reason: str, words: str) -> None:
    host = await serve(lambda request: answer())
    fault = await refusal(host.url, retries=1)

    assert fault.code == reason
    assert words in fault.detail
    assert SECRET not in str(fault)


@pytest.mark.parametrize("encoded", [True, False])
@pytest.mark.parametrize("namespace", ["", ' xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'])
def test_keys_are_decoded_only_where_the_store_encoded_them(encoded: bool, namespace: str) -> None:
    key = "10%252B2+b.mp4" if encoded else "10%2B2 b.mp4"
    how = "<EncodingType>url</EncodingType>" if encoded else ""
    content = f"<Contents><Key>{key}</Key><Size>1</Size></Contents>"
    body = f"<ListBucketResult{namespace}>{how}{content}</ListBucketResult>"
    entries, following = objects(body.encode(), AssertionError)

    assert [entry["Key"] for entry in entries] == ["10%2B2 b.mp4"]
    assert following is None


async def test_the_protocols_own_parameters_are_sent_and_signed(serve: Any) -> None:
    def answer(request: Request) -> Response:
        more = "continuation-token" not in request.query_params
        token = "<NextContinuationToken>a+/=b</NextContinuationToken>" if more else ""
        return Response(f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}</ListBucketResult>")

    host = await serve(answer)
    await walked(host.url, prefix="a b/é", page_size=7, token=f"{ACCESS}:{SECRET}:session")

    first, second = host.requests
    assert dict(first.query_params) == {"list-type": "2", "encoding-type": "url", "max-keys": "7", "prefix": "a b/é"}
    assert second.query_params["continuation-token"] == "a+/=b"
    assert first.headers["x-amz-security-token"] == "session"
    assert first.headers["authorization"].startswith(f"AWS4-HMAC-SHA256 Credential={ACCESS}/")


async def test_a_continuation_token_that_the_store_forgot_is_stale() -> None:
    def answer(request: Request) -> Response:
        if "continuation-token" in request.query_params:
            return error("InvalidArgument", 400)
        return Response(
            "<ListBucketResult><IsTruncated>true</IsTruncated>"
            "<NextContinuationToken>t</NextContinuationToken></ListBucketResult>"
        )

    async with running(answer) as host:
        assert (await refusal(host.url)).code == "cursor-stale"


async def test_keys_that_no_address_or_id_can_hold_are_reported(serve: Any) -> None:
    keys = ["a/../b.mp4", "./c.mp4", " d.mp4", "e.mp4"]
    contents = "".join(f"<Contents><Key>{key}</Key><Size>1</Size></Contents>" for key in keys)
    host = await serve(lambda request: Response(f"<ListBucketResult>{contents}</ListBucketResult>"))
    (page,) = await walked(host.url)

    assert [item.source_id for item in page.items] == ["e.mp4"]
    assert [problem.position for problem in page.problems] == [1, 2, 3]


async def test_a_public_bucket_is_asked_without_a_signature(serve: Any) -> None:
    body = "<ListBucketResult><Contents><Key>a b.mp4</Key><Size>1</Size></Contents></ListBucketResult>"
    host = await serve(lambda request: Response(body))
    async with opened(host.url, token=None, anonymous=True) as source:
        item = (await source.list_page(None)).items[0]
        location = await source.locate(item)

    assert "authorization" not in host.requests[0].headers
    assert location.address == f"{host.url}/library/a%20b.mp4"


async def test_a_source_of_a_bucket_is_walked_by_one(store: Store) -> None:
    async with opened(store.url) as source:
        assert isinstance(source, S3Source)
        assert not source.stripeable
        assert (await source.list_page(None, stripe=1, stripes=3)).items == ()
        await source.check()
