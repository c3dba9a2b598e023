"""The destination accounts that one process has open: a client and a governor for each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from destinations import open_destination
from destinations.base import Destination
from governor.account import Governor
from ledger.engine import Engine
from settings import AccountSettings, Settings


@dataclass(frozen=True, slots=True)
class Account:
    """One account as an activity uses it."""

    name: str
    settings: AccountSettings
    destination: Destination
    governor: Governor


@dataclass(slots=True)
class Accounts:
    """Opens an account when it is first asked for, and keeps its connections until `aclose`."""

    engine: Engine
    settings: Settings
    _open: dict[str, Account] = field(default_factory=dict)

    def account(self, name: str) -> Account:
        """Raises Fault("settings-refused") for an account that the settings don't have."""
        if name not in self._open:
            settings = self.settings.account(name)
            self._open[name] = Account(
                name, settings, open_destination(name, settings), Governor(self.engine, name, settings)
            )
        return self._open[name]

    @property
    def opened(self) -> Mapping[str, Account]:
        return self._open

    async def aclose(self) -> None:
        for account in self._open.values():
            await account.destination.aclose()
        self._open.clear()
