"""What travels with a video beside its bytes: words, captions, a poster, who may see it.

Sources read it from their listing, the ledger keeps it as JSON, destinations carry over what their host has a place
for. Addresses in it are those of the listing, without which nothing is known; where they expire, the source is asked
for a fresh one at the moment of use.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, StringConstraints

Language = Annotated[str, StringConstraints(pattern=r"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$")]
"""A language tag in the form of BCP 47."""


class Caption(BaseModel):
    """One text track. `key` is what the source calls it, `address` where the listing says it is (None: ask)."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    language: Language
    key: str | None = None
    address: str | None = None
    label: str | None = None
    kind: Literal["subtitles", "captions"] = "subtitles"
    """Captions also tell sounds, for the deaf."""


class About(BaseModel):
    """See the module. What is not known is None or empty; `privacy` None means that the source doesn't say."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    description: str | None = None
    tags: tuple[str, ...] = ()
    folder: str | None = None
    """Names of folders from the outermost in, joined by "/"."""
    captions: tuple[Caption, ...] = ()
    poster: str | None = None
    """Address of a still picture, as the listing gives it."""
    privacy: Literal["public", "unlisted", "private"] | None = None

    def to_json(self) -> Mapping[str, Any]:
        """Only what is known."""
        return self.model_dump(exclude_defaults=True)

    @classmethod
    def from_json(cls, value: Mapping[str, Any] | None) -> Self:
        return cls.model_validate(value or {})


NOTHING = About()
