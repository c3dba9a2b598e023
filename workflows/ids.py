"""Workflow ids: readable, and they say where they are."""

from __future__ import annotations


def migration_id(run: str) -> str:
    return f"migration/{run}"


def run_of(migration: str) -> str:
    """The run that a migration's workflow id names."""
    return migration.removeprefix("migration/")


def page_id(run: str, phase: str, page: int) -> str:
    return f"{run}/{phase}/{page:06d}"


def stripe_id(run: str, walk: int, stripe: int) -> str:
    return f"{run}/list/walk-{walk}-stripe-{stripe}"
