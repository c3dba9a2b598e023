"""Signed events, and every way in which they fail to come as they should."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from tests.sandbox.conftest import OLD_SECRET, SECRET
from tests.sandbox.serving import until


@pytest.fixture
def begin(start: Any, receiver: Any) -> Any:
    """Begins with a sandbox whose events go to the receiver."""

    async def begin(**given: Any) -> Any:
        return await start(**{"webhook_url": receiver.url, "webhook_secret": SECRET, **given})

    return begin


def verified(receiver: Any, secret: str = SECRET) -> list[dict[str, Any]]:
    """The bodies of all deliveries; each must be signed."""
    return [Webhook(secret).verify(body, headers) for headers, body in receiver.deliveries]


async def test_ready_errored_and_deleted_are_signed_and_carry_the_whole_video(begin: Any, receiver: Any) -> None:
    box = await begin(duration_min_ms=100)
    ready, errored = await box.made("r-1", title="naïve 日本"), await box.made("r-2", duration_ms=40)
    shown = {video_id: await box.finished(video_id) for video_id in (ready, errored)}
    await box.http.delete(f"/v1/videos/{ready}")
    await until(lambda: len(receiver.deliveries) == 3)
    events = {event["type"]: event for event in verified(receiver)}
    assert events["video.ready"]["data"] == shown[ready]
    assert events["video.errored"]["data"] == shown[errored]
    assert events["video.errored"]["data"]["error"]["code"] == "too_short"
    deleted = events["video.deleted"]["data"]
    assert (deleted["id"], deleted["reference"], deleted["state"]) == (ready, "r-1", "deleted")
    assert len({headers["webhook-id"] for headers, _ in receiver.deliveries}) == 3
    await until(lambda: box.stats()["webhooks"]["waiting"] == 0)
    assert box.stats()["webhooks"]["delivered"] == 3


async def test_a_delivery_is_repeated_until_it_is_accepted_always_with_the_same_id_and_body(
    begin: Any, receiver: Any
) -> None:
    receiver.answer = lambda n: [500, 429, 302, 200][n - 1]
    box = await begin()
    await box.made()
    await until(lambda: box.stats()["webhooks"]["delivered"] == 1)
    assert len(receiver.deliveries) == 4
    verified(receiver)
    assert len({(headers["webhook-id"], body) for headers, body in receiver.deliveries}) == 1
    assert box.stats()["webhooks"] == {"waiting": 0, "delivered": 1, "failed_attempts": 3, "forged_accepted": 0}


async def test_an_event_for_a_receiver_that_is_down_waits_and_holds_up_no_create(begin: Any) -> None:
    box = await begin(webhook_url="http://127.0.0.1:9/hook", webhook_retry_s=60)
    for n in range(3):
        await box.made(f"ref-{n}")
    await until(lambda: box.stats()["webhooks"]["failed_attempts"] == 3)
    assert box.stats()["webhooks"]["waiting"] == 3


async def test_during_a_rotation_each_delivery_has_a_signature_by_each_secret(begin: Any, receiver: Any) -> None:
    box = await begin(webhook_secret=f"{OLD_SECRET} {SECRET}")
    await box.made()
    await until(lambda: receiver.deliveries)
    assert verified(receiver, SECRET) == verified(receiver, OLD_SECRET)
    with pytest.raises(WebhookVerificationError):
        verified(receiver, "whsec_" + "A" * 32)


async def test_without_an_address_or_a_secret_no_event_is_made(start: Any, begin: Any) -> None:
    box = await begin(webhook_secret=None)
    await box.finished(await box.made())
    assert box.stats()["webhooks"]["waiting"] == 0


async def test_an_address_can_be_registered_and_gets_a_secret(start: Any, receiver: Any) -> None:
    box = await start(webhook_retry_s=0.02)
    registered = (await box.http.put("/v1/webhook", json={"url": receiver.url})).json()
    assert registered["url"] == receiver.url
    await box.made()
    await until(lambda: receiver.deliveries)
    verified(receiver, registered["secret"])
    again = (await box.http.put("/v1/webhook", json={"url": receiver.url, "secret": SECRET})).json()
    assert again["secret"] == SECRET


@pytest.mark.parametrize("body", [{}, {"url": "nowhere"}, {"url": "http://h/x", "secret": "whsec_"}])
async def test_a_webhook_that_makes_no_sense_is_refused(start: Any, body: dict[str, str]) -> None:
    box = await start()
    assert (await box.http.put("/v1/webhook", json=body)).status_code == 422


async def test_missing_events_never_come(begin: Any, receiver: Any) -> None:
    box = await begin(webhook_missing_rate=0.5, seed=1)
    for n in range(20):
        await box.finished(await box.made(f"ref-{n}"))
    await until(lambda: box.stats()["webhooks"]["waiting"] == 0)
    missing = box.stats()["faults"]["webhook_missing"]
    assert 2 < missing < 18
    assert len(receiver.deliveries) == 20 - missing


async def test_duplicated_events_come_three_times_with_one_id(begin: Any, receiver: Any) -> None:
    box = await begin(webhook_duplicate_rate=1)
    await box.made("a")
    await box.made("b")
    await until(lambda: box.stats()["webhooks"]["delivered"] == 6)
    assert sorted(Counter(headers["webhook-id"] for headers, _ in receiver.deliveries).values()) == [3, 3]
    verified(receiver)


async def test_late_events_come_late(begin: Any, receiver: Any) -> None:
    box = await begin(webhook_late_rate=1, webhook_late_s=0.3)
    began = time.time()
    await box.made()
    await until(lambda: receiver.deliveries)
    assert time.time() - began >= 0.3


async def test_reordered_events_come_after_a_later_one(begin: Any, receiver: Any) -> None:
    box = await begin(webhook_reorder_rate=1, webhook_reorder_s=60)
    video_id = await box.made()
    await box.finished(video_id)
    box.faults(webhook_reorder_rate=0)
    await box.http.delete(f"/v1/videos/{video_id}")
    await until(lambda: len(receiver.deliveries) == 2)
    assert [event["type"] for event in verified(receiver)] == ["video.deleted", "video.ready"]


async def test_a_held_event_comes_in_the_end_when_no_other_does(begin: Any, receiver: Any) -> None:
    box = await begin(webhook_reorder_rate=1, webhook_reorder_s=0.1)
    await box.made()
    await until(lambda: receiver.deliveries)


async def test_a_forged_copy_comes_first_and_its_acceptance_is_counted(begin: Any, receiver: Any) -> None:
    box = await begin(webhook_forged_rate=1)
    await box.made()
    await until(lambda: box.stats()["webhooks"]["delivered"] == 1)
    (forged_headers, forged), (headers, body) = receiver.deliveries
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(forged, forged_headers)
    Webhook(SECRET).verify(body, headers)
    assert json.loads(forged)["data"]["forged"] is True
    assert box.stats()["webhooks"]["forged_accepted"] == 1, "this receiver accepts anything"


async def test_events_can_be_switched_off(begin: Any, receiver: Any) -> None:
    box = await begin(webhooks=False)
    await box.finished(await box.made())
    assert box.stats()["webhooks"]["waiting"] == 0
    assert not receiver.deliveries
