"""Everything that `make up` starts, with the worker and the endpoint on it."""

from __future__ import annotations

import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from shutil import rmtree

import httpx
import pytest
from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client

from destinations import open_destination
from devstack.stack import ACCOUNT, PARTS, Stack
from settings import TASK_QUEUE, AccountSettings


@pytest.fixture(scope="module")
def stack() -> Iterator[Stack]:
    place = Path(tempfile.mkdtemp(prefix="longhaul-test-"))
    place.chmod(0o711)
    with Stack.foreground(folder=place / ".longhaul", fast=True) as stack:
        yield stack
    rmtree(place)


def test_every_part_is_up(stack: Stack) -> None:
    assert [part.name for part in stack.status() if part.pid is not None] == list(PARTS)


def test_the_endpoint_is_ready_and_knows_the_sandboxs_account(stack: Stack) -> None:
    endpoint = stack.url("webhook")
    assert httpx.get(f"{endpoint}/readyz").status_code == 200
    assert httpx.post(f"{endpoint}/webhooks/sandbox", content=b"{}").status_code == 401
    assert httpx.post(f"{endpoint}/webhooks/stranger", content=b"{}").status_code == 404


def test_the_sandboxs_account_carries_over_what_a_video_has(stack: Stack) -> None:
    accounts = tomllib.loads(stack.settings_file.read_text())["accounts"]
    offers = open_destination(ACCOUNT, AccountSettings.model_validate(accounts[ACCOUNT])).capabilities
    assert (offers.captions, offers.poster, offers.fetches_local_paths) == ("bytes", "bytes", True)
    assert "privacy" in offers.carries


def test_the_library_is_served(stack: Stack) -> None:
    stack.library.joinpath("told.txt").write_text("one line\n")
    assert httpx.get(f"{stack.url('library')}/told.txt").text == "one line\n"


async def test_a_killed_worker_comes_back_and_polls_the_stacks_temporal(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is told to log so little that it doesn't say that it is ready."""
    monkeypatch.setenv("LONGHAUL_TELEMETRY__LOG_LEVEL", "error")
    before = stack.child("worker")
    assert before is not None
    stack.kill("worker")
    assert stack.child("worker") is None
    assert stack.up().started == ["worker"]
    after = stack.child("worker")
    assert after is not None
    assert after.pid != before.pid
    client = await Client.connect(stack.temporal_address)
    queue = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=TASK_QUEUE),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
    )
    assert str(after.pid) in {poller.identity.split("@")[0] for poller in queue.pollers}
