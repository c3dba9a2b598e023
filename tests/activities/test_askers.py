"""Who asks: one activity, however many attempts it takes; what a later one asks is another question."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pydantic import SecretStr
from temporalio.testing import ActivityEnvironment

from activities.accounts import Accounts
from activities.heartbeats import beating
from activities.reconciling import RemoteListingActivities
from activities.runs import RunActivities
from ledger import remotes, runs
from ledger.engine import Engine
from settings import LedgerSettings, Settings
from tests.run.conftest import media, rig_factory  # noqa: F401 - fixtures
from workflows.messages import AdvanceInput, RemoteListingInput, RemoteListingResult


def attempt(activity_id: str, number: int) -> ActivityEnvironment:
    environment = ActivityEnvironment()
    environment.info = replace(
        environment.info, workflow_run_id="an execution", activity_id=activity_id, attempt=number
    )
    return environment


async def test_a_stalled_attempt_that_comes_back_does_not_take_the_phase_from_who_was_answered_meanwhile(
    database: str,
) -> None:
    settings = Settings(ledger=LedgerSettings(dsn=SecretStr(database)))
    engine = await Engine.open(settings.ledger)
    try:
        await runs.open_run(
            engine, run="r", tenant="acme", source="s", source_spec={}, account="sandbox", plan=["inventory"]
        )
        activities = RunActivities(engine, settings)
        question = AdvanceInput(run="r", phase="inventory", before=None, fence=None, may_close=False)
        answered = await attempt("7", 2).run(activities.advance, question)
        late = await attempt("7", 1).run(activities.advance, question)
        assert late.fence == answered.fence
        going_on = question.model_copy(update={"fence": answered.fence})
        assert (await attempt("8", 1).run(activities.advance, going_on)).fence == answered.fence

        again = await attempt("9", 1).run(activities.advance, question)
        assert again.fence > answered.fence, "a later question takes it over"
        assert (await attempt("7", 1).run(activities.advance, question)).fence == again.fence
        assert await runs.holds(engine, "r", "inventory", again.fence)
    finally:
        await engine.close()


async def test_an_interrupted_walk_is_gone_on_with_by_a_retry_and_begun_anew_by_a_later_question(
    rig_factory: Any,  # noqa: F811
    unique: str,
) -> None:
    rig = await rig_factory(account={"options": {"list_limit": 1}})
    assert (await rig.migrate(unique, rig.manifest(rig.videos(3))))["states"] == {"verified": 3}
    accounts = Accounts(rig.engine, rig.settings)
    try:
        account = accounts.account("sandbox")
        walk = await remotes.begin(rig.engine, "sandbox", unique, "an execution/3")
        page = await account.destination.list_page(None)
        await remotes.write_page(rig.engine, "sandbox", walk, page)
        listing = RemoteListingActivities(rig.engine, rig.settings, accounts)
        asked = RemoteListingInput(run=unique, account="sandbox")

        async def list_remote() -> RemoteListingResult:
            async with beating():
                return await listing.list_remote(asked)

        later = await attempt("4", 1).run(list_remote)
        retried = await attempt("3", 2).run(list_remote)
    finally:
        await accounts.aclose()
    assert (later.videos, later.requests) == (3, 3)
    assert (retried.videos, retried.requests) == (2, 2)
