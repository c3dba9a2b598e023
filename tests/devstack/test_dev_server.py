"""The Temporal dev server: executions outlive kills, and what a newer version needs is registered in an older file."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecutionStatus

from devstack.processes import StackError
from devstack.temporal import RETENTION_S, TemporalDevServer, temporal_command


async def _attributes(server: TemporalDevServer) -> set[str]:
    client = await Client.connect(server.address)
    listed = await client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=client.namespace)
    )
    return set(listed.custom_attributes)


async def test_a_file_keeps_executions_over_a_kill_and_learns_new_attributes(tmp_path: Path) -> None:
    old = TemporalDevServer(search_attributes={"First": "Keyword"}, log=tmp_path / "log", db=tmp_path / "db")
    new = TemporalDevServer(
        search_attributes={"First": "Keyword", "Second": "Keyword"}, log=tmp_path / "log", db=tmp_path / "db"
    )
    try:
        old.start()
        assert await _attributes(old) == {"First"}
        client = await Client.connect(old.address)
        await client.start_workflow("Anything", id="kept", task_queue="nobody-polls")
        old.kill()

        new.start()
        assert await _attributes(new) == {"First", "Second"}
        client = await Client.connect(new.address)
        description = await client.get_workflow_handle("kept").describe()
        assert description.status is WorkflowExecutionStatus.RUNNING
        namespace = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace=client.namespace)
        )
        assert namespace.config.workflow_execution_retention_ttl.seconds == RETENTION_S
    finally:
        await asyncio.to_thread(old.kill)
        await asyncio.to_thread(new.kill)


def test_a_missing_command_is_named_with_the_way_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(StackError, match=r"`temporal` command is not installed.*docs/platforms\.md"):
        temporal_command()
