"""Vendors' own descriptions of their APIs (OpenAPI), read by openapi-core: whether requests and answers are so.

The descriptions are no part of this project: $LONGHAUL_SPECS names their folder, and without it these tests do not run.
They are older than the APIs in places; each test names what its description lacks.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

import pytest
import yaml
from openapi_core import Config, OpenAPI
from openapi_core.datatypes import RequestParameters
from werkzeug.datastructures import Headers

SPECS: Final = os.environ.get("LONGHAUL_SPECS")
needs_descriptions = pytest.mark.skipif(
    not SPECS,
    reason="not run: the vendors' descriptions are no part of this project; LONGHAUL_SPECS names their folder",
)


_VENDORS_JSON: Final = re.compile(r"application/vnd\.[a-z0-9.+-]+\+json")
"""Vimeo's answers are called so; openapi-core reads nothing but plain JSON."""


class Exchange(Protocol):
    """What went over the wire, as the test servers write it down."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    status: int | None
    answer: bytes
    answer_type: str


@dataclass
class _Request:
    host_url: str
    path: str
    method: str
    parameters: RequestParameters
    content_type: str
    body: bytes | None


@dataclass
class _Response:
    status_code: int
    content_type: str
    data: bytes | None
    headers: Mapping[str, Any] = field(default_factory=dict)


class Description:
    """One vendor's description. `server` is the address below which its paths are; `file` is in $LONGHAUL_SPECS.
    `sound` is false for a description that itself breaks OpenAPI's rules, and is read all the same; `sparse` for
    answers that have no more than the fields they were asked for, so that none is required."""

    def __init__(self, file: str, server: str, *, sound: bool = True, sparse: bool = False) -> None:
        assert SPECS, "a test that reads descriptions is marked with needs_descriptions"
        text = (Path(SPECS) / file).read_text(encoding="utf-8")
        text = _VENDORS_JSON.sub("application/json", text)
        self.raw: dict[str, Any] = json.loads(text) if file.endswith(".json") else yaml.load(text, yaml.CSafeLoader)
        self.raw["servers"] = [{"url": server}]
        if sparse:
            _require_nothing(self.raw)
        self._server = server
        self._api = OpenAPI.from_dict(self.raw, config=None if sound else Config(spec_validator_cls=None))

    def wrong(self, seen: Exchange, *, prefix: str = "") -> list[str]:
        """What the description holds against a request, empty where nothing: unknown path, parameter or body field,
        a missing or mistyped one. `prefix` is what the test server's paths have in place of the real server's."""
        request = self._request(seen, prefix)
        found = [_words(error) for error in self._api.iter_request_errors(request)]
        operation = self._operation(request)
        if operation is None:
            return found or [f"no {seen.method} {seen.path}"]
        known = {parameter["name"] for parameter in self._parameters(operation) if parameter["in"] == "query"}
        found += [f"?{name}" for name, _ in parse_qsl(seen.query, keep_blank_values=True) if name not in known]
        schema = self._schema(operation.get("requestBody"), request.content_type)
        if schema is not None and seen.body and request.content_type.startswith("application/json"):
            found += self.unknown(schema, json.loads(seen.body))
        return found

    def wrong_answer(self, seen: Exchange, *, prefix: str = "") -> list[str]:
        """What it holds against an answer of status 2xx; fields that it doesn't know are named too."""
        request = self._request(seen, prefix)
        kind = _VENDORS_JSON.sub("application/json", seen.answer_type.partition(";")[0])
        response = _Response(seen.status or 0, kind, seen.answer or None)
        found = [_words(error) for error in self._api.iter_response_errors(request, response)]
        operation = self._operation(request)
        if operation is not None and seen.answer and response.content_type == "application/json":
            answer = operation["responses"].get(str(seen.status)) or operation["responses"].get("default")
            schema = self._schema(answer, response.content_type)
            if schema is not None:
                found += self.unknown(schema, json.loads(seen.answer))
        return found

    def examples(self, method: str, path: str) -> Iterator[Any]:
        """Every example of a good answer that is documented for an operation."""
        operation = self.raw["paths"][path][method.lower()]
        for status, answer in operation["responses"].items():
            content = self.resolved(answer).get("content", {})
            if str(status).startswith("2"):
                for media in content.values():
                    if "example" in media:
                        yield media["example"]
                    yield from (self.resolved(example)["value"] for example in media.get("examples", {}).values())
                    if "example" in media.get("schema", {}):
                        yield media["schema"]["example"]

    def resolved(self, node: Any) -> Any:
        """The node itself, wherever a reference leads."""
        while isinstance(node, Mapping) and "$ref" in node:
            target: Any = self.raw
            for name in node["$ref"].removeprefix("#/").split("/"):
                target = target[name.replace("~1", "/").replace("~0", "~")]
            node = target
        return node

    def unknown(self, schema: Any, value: Any, where: str = "") -> list[str]:
        """Places in a JSON value that the schema has no word for. Validators accept these: the vendors' schemas forbid
        no further fields."""
        schema = self.resolved(schema)
        if isinstance(value, list):
            return [w for entry in value for w in self.unknown(self._items(schema), entry, f"{where}[]")]
        if not isinstance(value, Mapping):
            return []
        fields = self._fields(schema)
        if fields is None:
            return []
        found = []
        for name, entry in value.items():
            place = f"{where}.{name}".lstrip(".")
            found += [place] if name not in fields else self.unknown(fields[name], entry, place)
        return list(dict.fromkeys(found))

    # ------------------------------------------------------------------------------------------------------- inside

    def _alternatives(self, schema: Any) -> Iterator[Any]:
        schema = self.resolved(schema)
        yield schema
        for word in ("allOf", "anyOf", "oneOf"):
            for part in schema.get(word, ()):
                yield from self._alternatives(part)

    def _fields(self, schema: Any) -> dict[str, Any] | None:
        """Every property that any part of the schema knows; None where anything goes."""
        fields: dict[str, Any] = {}
        for part in self._alternatives(schema):
            if "additionalProperties" in part and part["additionalProperties"] is not False:
                return None
            for name, inner in part.get("properties", {}).items():
                fields[name] = {"anyOf": [fields[name], inner]} if name in fields else inner
        return fields or None

    def _items(self, schema: Any) -> Any:
        found = [part["items"] for part in self._alternatives(schema) if "items" in part]
        return {"anyOf": found} if found else {"additionalProperties": True}

    def _request(self, seen: Exchange, prefix: str) -> _Request:
        origin = "/".join(self._server.split("/", 3)[:3])
        base = self._server[len(origin) :].rstrip("/")
        parameters = RequestParameters(
            query=dict(parse_qsl(seen.query, keep_blank_values=True)), header=Headers(seen.headers)
        )
        path = base + seen.path.removeprefix(prefix)
        content_type = seen.headers.get("content-type", "")
        return _Request(origin, path, seen.method.lower(), parameters, content_type, seen.body or None)

    def _operation(self, request: _Request) -> Any:
        """The operation whose path fits, the one with fewest placeholders first."""
        base = self._server.split("/", 3)
        path = request.path.removeprefix("/" + base[3].rstrip("/") if len(base) > 3 else "")
        parts = path.split("/")
        for known in sorted(self.raw["paths"], key=lambda name: name.count("{")):
            names = known.split("/")
            if len(names) == len(parts) and all(n == p or n.startswith("{") for n, p in zip(names, parts, strict=True)):
                item = self.raw["paths"][known]
                if request.method in item:
                    parameters = [*item.get("parameters", ()), *item[request.method].get("parameters", ())]
                    return {**item[request.method], "parameters": parameters}
        return None

    def _parameters(self, operation: Any) -> Iterator[Any]:
        return (self.resolved(parameter) for parameter in operation.get("parameters", ()))

    def _schema(self, holder: Any, content_type: str) -> Any:
        content = (self.resolved(holder) or {}).get("content", {})
        media = content.get(content_type.partition(";")[0]) or content.get("*/*")
        return None if media is None else media.get("schema")


def _words(error: BaseException) -> str:
    """The validator's words, with the schema errors behind them."""
    cause = error.__cause__
    inner = "; ".join(
        f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in getattr(cause, "schema_errors", ())
    )
    return f"{type(error).__name__}: {error} {inner}".strip()


def _require_nothing(node: Any) -> None:
    """Takes the list of required fields out of every schema below."""
    if isinstance(node, dict):
        if isinstance(node.get("required"), list):
            del node["required"]
        for inner in node.values():
            _require_nothing(inner)
    elif isinstance(node, list):
        for inner in node:
            _require_nothing(inner)
