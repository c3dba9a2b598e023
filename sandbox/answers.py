"""What the API's answers look like."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError
from starlette.responses import Response

from sandbox.config import in_words


class Json(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return Json({"error": {"code": code, "message": message}}, status, headers)


def invalid(problem: ValidationError) -> Response:
    """The answer to a body that is not what it should be."""
    kinds = {entry["type"]: entry["loc"] for entry in problem.errors()}
    if "json_invalid" in kinds:
        return error(400, "invalid_json", in_words(problem))
    long = kinds.get("string_too_long")
    if long in (("title",), ("reference",)):
        return error(422, f"{long[0]}_too_long", in_words(problem))
    return error(422, "invalid_request", in_words(problem))


def no_such_video() -> Response:
    return error(404, "not_found", "there is no such video")
