"""A claimed row as the source's item that it was listed as."""

from __future__ import annotations

from ledger.assets import Row
from sources.about import About
from sources.base import Item


def item_of(row: Row) -> Item:
    return Item(
        source_id=row.source_id,
        locator=row.locator,
        position=row.position,
        title=row.title,
        size=row.size,
        duration_ms=row.claimed_duration_ms,
        metadata=row.metadata,
        about=About.from_json(row.about),
    )
