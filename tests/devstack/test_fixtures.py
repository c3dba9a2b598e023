"""The fixtures of tests/conftest.py keep what they promise to every other test."""

from __future__ import annotations

import asyncpg
from temporalio.api.operatorservice.v1 import ListSearchAttributesRequest
from temporalio.client import Client

_seen: set[str] = set()


async def _tables(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        found = await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname NOT LIKE 'pg\\_%'")
        await connection.execute("CREATE TABLE left_behind ()")
        return int(found)
    finally:
        await connection.close()


async def test_a_test_gets_a_migrated_database(database: str) -> None:
    _seen.add(database)
    assert await _tables(database) > 0


async def test_the_next_test_gets_another_one_without_what_the_first_left(database: str) -> None:
    assert database not in _seen
    connection = await asyncpg.connect(database)
    try:
        assert await connection.fetchval("SELECT to_regclass('left_behind')") is None
    finally:
        await connection.close()


async def test_the_temporal_server_knows_the_search_attributes(temporal_client: Client) -> None:
    listed = await temporal_client.operator_service.list_search_attributes(
        ListSearchAttributesRequest(namespace=temporal_client.namespace)
    )
    assert {"LonghaulRun", "LonghaulTenant", "LonghaulPhase", "LonghaulState"} <= set(listed.custom_attributes)
