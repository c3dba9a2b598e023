"""Which place videos come from, as it travels through a workflow: small, JSON-friendly, and free of heavy imports."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from sources.base import PAGE_SIZE

Kind = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]


class SourceSpec(BaseModel):
    """One source, named by its kind and either a path or an entry of the settings.

    It carries no secret: a token stays in the settings, which each worker reads for itself. Whether the kind is known
    and its options are right is decided where it is opened (`sources.registry`), so that a spec recorded in a
    workflow's history can always be read back.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Kind
    """Which module under sources/ reads it: "manifest", "folder", "generic", …"""
    location: str | None = Field(default=None, min_length=1)
    """Path of a manifest or folder. Absolute, since each worker has a working directory of its own."""
    name: Kind | None = None
    """Entry under [sources.<name>] in the settings, for sources that need an address or a token."""
    page_size: int = Field(default=PAGE_SIZE, ge=1, le=PAGE_SIZE)
    """Items listed together."""
    options: dict[str, Any] = Field(default_factory=dict)
    """What only this kind of path source has, e.g. {"format": "jsonl"}. A named source has its options in the
    settings."""

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.location is None) == (self.name is None):
            raise ValueError("give either a location (manifest, folder) or the name of a source in the settings")
        return self

    @property
    def label(self) -> str:
        """What a person reads."""
        return f"{self.kind} {self.location if self.location is not None else self.name}"
