"""A bucket that speaks S3: AWS, Google Cloud Storage's interoperable API, R2, B2, Spaces, MinIO, Ceph, rclone.

Objects are listed by ListObjectsV2, which says what they are called and how large they are. Addresses are presigned at
the moment of use and bound to GET. Only the signing is botocore's, and its chain of credentials where none are given.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any, Final
from urllib.parse import quote, unquote_plus, urlsplit
from xml.etree import ElementTree

import httpx
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials, ReadOnlyCredentials
from botocore.exceptions import BotoCoreError
from botocore.session import Session
from pydantic import Field

from faults import Fault
from settings import SourceSettings
from sources import claims, values
from sources.about import About
from sources.addresses import encode_key
from sources.asking import Api, ApiOptions, Refused
from sources.base import Item, Location, Problem
from sources.folder import SUFFIXES, Suffix
from sources.hosted import paging, pair
from sources.walking import Answer, PagedSource

PAGE_LIMIT: Final = 1000
EXPIRES_LIMIT_S: Final = 604_800
"""Seven days: the longest that a signature of version 4 can be good for."""
_CREDENTIAL_WORDS: Final = "access key id, colon, secret access key; then, if there is one, colon, session token"
_DOCTYPE: Final = re.compile(rb"<!DOCTYPE|<!ENTITY", re.IGNORECASE)
_DOTS: Final = re.compile(r"(^|/)\.{1,2}(/|$)")
_REMEDY: Final = {
    "NoSuchBucket": "correct the option bucket",
    "InvalidBucketName": "correct the option bucket",
    "InvalidAccessKeyId": "correct the access key id in token",
    "SignatureDoesNotMatch": "correct the secret access key in token",
    "ExpiredToken": "renew the session token",
    "InvalidToken": "correct the session token",
    "RequestTimeTooSkewed": "set this machine's clock",
}
_CREDENTIALS: Final = frozenset(
    {"AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken", "AccountProblem"}
)
_ELSEWHERE: Final = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException", "TemporaryRedirect"}
)


class Options(ApiOptions):
    """What a bucket's source may be told. `base_url` is the endpoint; AWS's own where there is none."""

    bucket: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{1,254}$")
    """Name of the bucket."""
    prefix: str = ""
    """Only keys that begin with it."""
    region: str = Field(default="us-east-1", pattern=r"^[a-z0-9-]+$")
    """The bucket's region; "auto" for R2."""
    path_style: bool | None = None
    """Whether the bucket stands in the path instead of the host name; None: where base_url is given."""
    anonymous: bool = False
    """Whether the bucket is public and nothing is signed."""
    suffixes: tuple[Suffix, ...] = Field(default=SUFFIXES, min_length=1)
    """Endings of the keys that are videos, in whatever case."""
    expires_s: int = Field(default=3600, ge=60, le=EXPIRES_LIMIT_S)
    """Seconds for which a presigned address is good."""


def open_named(entry: SourceSettings, options: Options, page_size: int) -> S3Source:
    token = None if entry.token is None else entry.token.get_secret_value().strip()
    return S3Source(entry.base_url, options, token=token, page_size=page_size)


class S3Source(PagedSource):
    """One bucket, or what of it begins with a prefix."""

    def __init__(self, endpoint: str | None, options: Options, *, token: str | None, page_size: int) -> None:
        self._options = options
        self._credentials: Any = None
        secrets: tuple[str, ...] = ()
        if token and not options.anonymous:
            access, rest = pair(token, "s3", _CREDENTIAL_WORDS)
            secret, _, session = rest.partition(":")
            self._credentials = Credentials(access, secret, session or None)
            secrets = tuple(part for part in (secret, session) if part)
        base = bucket_address(endpoint, options)
        api = Api(base, options, secrets=secrets, authorize=None if options.anonymous else self._authorize)
        super().__init__(api, api.url("/"), paging("cursor", PAGE_LIMIT, page_size, options))

    # -------------------------------------------------------------------------------------------------- the listing

    async def ask_cursor(self, cursor: str | None, size: int) -> Answer:
        params = {"list-type": "2", "encoding-type": "url", "max-keys": str(size), "prefix": self._options.prefix}
        if cursor is not None:
            params["continuation-token"] = cursor
        url = httpx.URL(f"{self.listing}?{signable(params)}")
        try:
            body = await self.api.listing(url)
        except Refused as refused:
            if cursor is not None and error_of(refused.body).get("Code") == "InvalidArgument":
                raise
            raise self._told(refused) from None
        entries, following = objects(body, self.malformed)
        if len(entries) > size:
            raise self.malformed(f"{len(entries)} objects came where at most {size} were asked for")
        return Answer(entries, None, following)

    def _told(self, refused: Refused) -> Fault:
        """What the store's error means, and what to do."""
        error = error_of(refused.body)
        code, bucket = error.get("Code", ""), self._options.bucket
        words = f"{self.shown}: {code or f'status {refused.status}'}: {self.api.scrubbed(error.get('Message', ''))}"
        region = error.get("Region") or refused.headers.get("x-amz-bucket-region")
        if code in _ELSEWHERE or refused.status in (301, 307) or (region and region != self._options.region):
            where = f'set region = "{region}"' if region else f"its endpoint is {error.get('Endpoint') or 'another'}"
            return Fault("settings-refused", f"{words}; the bucket {bucket} is elsewhere: {where}")
        if code == "RequestTimeTooSkewed":
            return Fault("source-down", f"{words}; {_REMEDY[code]}")
        if code in _CREDENTIALS or refused.status in (401, 403):
            right = f"grant s3:ListBucket on arn:aws:s3:::{bucket} and s3:GetObject on arn:aws:s3:::{bucket}/*"
            return Fault("source-credentials-refused", f"{words}; {_REMEDY.get(code, right)}")
        if code in _REMEDY or refused.status == 404:
            return Fault("settings-refused", f"{words}; {_REMEDY.get(code, 'correct base_url or the option bucket')}")
        return Fault("listing-malformed", words if code else refused.words)

    def read(self, entry: Any, position: int) -> Item | Problem | None:
        return found_object(entry, position, self._options.prefix, self._options.suffixes)

    def identify(self, entry: Any) -> Any:
        return entry.get("Key")

    # ------------------------------------------------------------------------------------------------------ one object

    async def locate(self, item: Item) -> Location:
        """Signs an address; asks nobody. Raises Fault("source-credentials-refused") where there are no credentials."""
        address = f"{self.api.base}/{encode_key(item.source_id)}"
        if not self._options.anonymous:
            request = AWSRequest(method="GET", url=address)
            signer = S3SigV4QueryAuth(await self._frozen(), "s3", self._options.region, expires=self._options.expires_s)
            signer.add_auth(request)
            address = str(request.url)
        return Location(address, size=item.size)

    # --------------------------------------------------------------------------------------------------------- signing

    async def _authorize(self, method: str, url: httpx.URL, renew: bool) -> Mapping[str, str]:
        request = AWSRequest(method=method, url=str(url))
        S3SigV4Auth(await self._frozen(), "s3", self._options.region).add_auth(request)
        return dict(request.headers.items())

    async def _frozen(self) -> ReadOnlyCredentials:
        """The credentials as they are now: those of an instance's role are renewed by botocore before they end."""
        # Its chain reads files and asks the instance's own metadata service.
        return await asyncio.to_thread(self._chained)

    def _chained(self) -> ReadOnlyCredentials:
        try:
            if self._credentials is None:
                self._credentials = Session().get_credentials()
            if self._credentials is not None:
                frozen: ReadOnlyCredentials = self._credentials.get_frozen_credentials()
                return frozen
        except BotoCoreError as error:
            raise Fault("source-credentials-refused", f"no credentials for {self.shown}: {error}") from None
        raise Fault(
            "source-credentials-refused",
            f"no credentials for {self.shown}: set the source's token ({_CREDENTIAL_WORDS}), give the workers "
            "AWS_… variables, a profile or an instance role, or set anonymous = true for a public bucket",
        )


# ------------------------------------------------------------------------------------------------------------- reading


def bucket_address(endpoint: str | None, options: Options) -> str:
    """The address under which the bucket's keys are."""
    base = (endpoint or f"https://s3.{options.region}.amazonaws.com").rstrip("/")
    in_path = options.path_style if options.path_style is not None else endpoint is not None
    # A certificate for *.s3.amazonaws.com does not cover a name with further dots.
    if in_path or ("." in options.bucket and options.path_style is None):
        return f"{base}/{options.bucket}"
    parts = urlsplit(base)
    return f"{parts.scheme}://{options.bucket}.{parts.netloc}{parts.path}"


def signable(params: Mapping[str, str]) -> str:
    """A query as it is signed: each name and value encoded once, the way version 4 signatures want it."""
    return "&".join(f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in sorted(params.items()))


def objects(body: bytes, malformed: Any) -> tuple[list[dict[str, str]], str | None]:
    """The objects of one page, their keys decoded, and the token of the next page."""
    root = parsed(body)
    if root is None or _name(root) != "ListBucketResult":
        raise malformed(
            f"its answer is no ListBucketResult: {' '.join(body[:200].decode('utf-8', 'replace').split())!r}"
        )
    encoded = _text(root, "EncodingType") == "url"
    entries = []
    for node in root:
        if _name(node) == "Contents":
            entry = {_name(child): child.text or "" for child in node}
            entry["Key"] = unquote_plus(entry.get("Key", "")) if encoded else entry.get("Key", "")
            entries.append(entry)
    truncated, following = _text(root, "IsTruncated") == "true", _text(root, "NextContinuationToken")
    if truncated and not following:
        raise malformed("there are more objects, but no NextContinuationToken; it does not speak ListObjectsV2")
    return entries, following if truncated else None


def error_of(body: bytes) -> dict[str, str]:
    """The fields of the store's error; none where the body is no such error."""
    root = parsed(body)
    return {} if root is None or _name(root) != "Error" else {_name(node): (node.text or "").strip() for node in root}


def parsed(body: bytes) -> ElementTree.Element | None:
    """XML without definitions of its own: those serve only to make a parser grow."""
    if _DOCTYPE.search(body[:2000]):
        return None
    try:
        return ElementTree.fromstring(body)  # noqa: S314
    except ElementTree.ParseError:
        return None


def found_object(
    entry: Mapping[str, str], position: int, prefix: str, suffixes: tuple[str, ...]
) -> Item | Problem | None:
    """An object as an item; None where it is no video by its name. The key is the id."""
    key = entry["Key"]
    if not key.lower().endswith(suffixes):
        return None
    if key != key.strip():
        return Problem(position, "Key", "begins or ends in a blank, which an id cannot; rename the object")
    if _DOTS.search(key):
        return Problem(position, "Key", 'has a part "." or "..", which HTTP clients take out of an address; rename it')
    if not values.size(entry.get("Size") or None) and entry.get("Size") != "0":
        return Problem(position, "Size", "is missing")
    path = PurePosixPath(key.removeprefix(prefix) if prefix.endswith("/") else key)
    folder = str(path.parent)
    return claims.item(
        position,
        source_id=key,
        id_field="Key",
        title=path.stem,
        size=entry.get("Size"),
        metadata={
            "modified": entry.get("LastModified"),
            "etag": entry.get("ETag", "").strip('"'),
            "storage_class": entry.get("StorageClass"),
        },
        about=About(folder=None if folder in (".", "/") else folder.strip("/")),
    )


def _name(node: ElementTree.Element) -> str:
    """Some stores leave the namespace out."""
    return node.tag.rpartition("}")[2]


def _text(root: ElementTree.Element, name: str) -> str | None:
    return next((node.text for node in root if _name(node) == name), None)
