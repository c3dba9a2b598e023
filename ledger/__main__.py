"""`python -m ledger`: the schema's command line."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from faults import Fault
from ledger import schema
from settings import load_settings

app = typer.Typer(help="The ledger's schema.", no_args_is_help=True, add_completion=False)

Dsn = Annotated[
    str | None, typer.Option(help="The ledger's DSN; default: the settings' one.", envvar="LONGHAUL_LEDGER__DSN")
]


def _dsn(given: str | None) -> str:
    return given or load_settings().ledger.dsn.get_secret_value()


@app.command()
def migrate(dsn: Dsn = None) -> None:
    """Bring the ledger to the schema that this code needs. Safe to repeat, and under running workers."""
    print(f"ledger schema at version {asyncio.run(schema.migrate(_dsn(dsn)))}")


@app.command()
def version(dsn: Dsn = None) -> None:
    """Print the schema version that the ledger has and the one that this code needs."""

    async def ask() -> str | None:
        import asyncpg

        try:
            connection = await asyncpg.connect(_dsn(dsn), timeout=5)
        except (OSError, TimeoutError, asyncpg.PostgresError) as error:
            raise schema.unreachable(_dsn(dsn), error) from None
        try:
            return await schema.current(connection)
        finally:
            await connection.close()

    print(f"ledger: {asyncio.run(ask()) or 'none'}, code: {schema.newest()}")


if __name__ == "__main__":
    try:
        app()
    except Fault as fault:
        sys.exit(f"longhaul: {fault.reason.words}: {fault.detail}")
