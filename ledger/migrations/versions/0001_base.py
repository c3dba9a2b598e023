"""The first schema.

Revision ID: 0001
"""

from ledger.migrations import run_script

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    run_script("0001_base.sql")
