"""The ledger's schema, version by version, run by Alembic. Each version is an SQL script beside its Python file."""

from pathlib import Path

from alembic import op


def run_script(name: str) -> None:
    """Runs a whole SQL script in the migration's transaction.

    SQLAlchemy's asyncpg dialect prepares each statement, and PostgreSQL prepares only one at a time; so the script goes
    to the driver itself, on the same connection and inside the transaction that Alembic has begun.
    """
    script = (Path(__file__).parent / "versions" / name).read_text(encoding="utf-8")
    connection = op.get_bind().connection.dbapi_connection
    assert connection is not None, "Alembic runs migrations on an open connection"
    connection.run_async(lambda driver: driver.execute(script))
