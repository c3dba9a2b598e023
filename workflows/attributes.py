"""The search attributes of every run and page: registered at deploy, checked when a worker starts."""

from __future__ import annotations

from typing import Final

from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

RUN: Final = SearchAttributeKey.for_keyword("LonghaulRun")
TENANT: Final = SearchAttributeKey.for_keyword("LonghaulTenant")
PHASE: Final = SearchAttributeKey.for_keyword("LonghaulPhase")
STATE: Final = SearchAttributeKey.for_keyword("LonghaulState")

ALL: Final = (RUN, TENANT, PHASE, STATE)
NAMES: Final = {key.name: "Keyword" for key in ALL}
"""Name and type, as the `temporal` command wants them."""


def attributes(*, run: str, tenant: str, phase: str, state: str) -> TypedSearchAttributes:
    return TypedSearchAttributes(
        [
            SearchAttributePair(RUN, run),
            SearchAttributePair(TENANT, tenant),
            SearchAttributePair(PHASE, phase),
            SearchAttributePair(STATE, state),
        ]
    )
