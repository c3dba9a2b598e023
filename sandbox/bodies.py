"""What callers say of a video they make, by an address or by an upload."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

METADATA_MAX: Final = 16_384
"""Bytes of a video's metadata as JSON."""

Text = Annotated[str, Field(max_length=16_384)]


class AboutBody(BaseModel):
    """What travels with a video beside its bytes. Everything may be missing."""

    model_config = ConfigDict(extra="forbid")

    description: Text | None = None
    tags: Annotated[list[Annotated[str, Field(min_length=1, max_length=255)]], Field(max_length=256)] = Field(
        default_factory=list
    )
    folder: Text | None = None
    privacy: Literal["public", "unlisted", "private"] | None = None


class VideoBody(BaseModel):
    """What a video is made with, wherever its bytes come from."""

    model_config = ConfigDict(extra="forbid")

    title: Annotated[str, Field(max_length=512)] = ""
    reference: Annotated[str, Field(min_length=1, max_length=255)] | None = None
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    duration_ms: Annotated[int, Field(ge=1, le=10**12)] | None = None
    about: AboutBody = Field(default_factory=AboutBody)

    def metadata_problem(self) -> tuple[str, str] | None:
        """The code and the words of what is wrong with the metadata; None where nothing is."""
        try:
            size = len(json.dumps(self.metadata, ensure_ascii=False, allow_nan=False).encode())
        except ValueError:
            return "invalid_request", "metadata: NaN and Infinity are no JSON"
        if size > METADATA_MAX:
            return "metadata_too_large", f"metadata: more than {METADATA_MAX} bytes of JSON"
        return None


class CreateBody(VideoBody):
    """The body of `POST /v1/videos`."""

    source_url: Annotated[str, Field(min_length=1, max_length=8192)]
    headers: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+$")], Annotated[str, Field(pattern=r"^[\x20-\x7e]*$")]
    ] = Field(default_factory=dict)


class UploadBody(VideoBody):
    """What `Upload-Metadata` says. Other names, such as `filename`, are the uploader's own and left alone."""

    model_config = ConfigDict(extra="ignore")

    @field_validator("metadata", "about", mode="before")
    @classmethod
    def _from_json(cls, value: Any) -> Any:
        return json.loads(value) if isinstance(value, str) else value

    @classmethod
    def of(cls, header: str) -> UploadBody:
        """Raises ValueError (pydantic's ValidationError too) for a header that is none."""
        return cls.model_validate(decoded(header))


def decoded(header: str) -> dict[str, str]:
    """The names and values of an `Upload-Metadata` header. Raises ValueError."""
    found: dict[str, str] = {}
    for pair in filter(None, (part.strip() for part in header.split(","))):
        name, _, value = pair.partition(" ")
        if name in found:
            raise ValueError(f"{name!r} stands twice")
        try:
            found[name] = base64.b64decode(value, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError):
            raise ValueError(f"{name!r} is not Base64 of UTF-8") from None
    return found
