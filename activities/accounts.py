"""The destination accounts that one process has open: a client and a governor for each."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from destinations import open_destination
from destinations.base import Destination
from governor.account import Governor, watch
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
    """Opens an account when it is first asked for, and keeps its connections until `aclose`. While any is open, pauses
    that other processes make are heard at once."""

    engine: Engine
    settings: Settings
    _open: dict[str, Account] = field(default_factory=dict)
    _governors: dict[str, Governor] = field(default_factory=dict)
    _watch: asyncio.Task[None] | None = None

    def account(self, name: str) -> Account:
        """Raises Fault("settings-refused") for an account that the settings don't have."""
        if name not in self._open:
            settings = self.settings.account(name)
            governor = Governor(self.engine, name, settings)
            destination = open_destination(name, settings)
            destination.observe(governor.observe)
            self._open[name] = Account(name, settings, destination, governor)
            self._governors[name] = governor
            if self._watch is None:
                self._watch = asyncio.get_running_loop().create_task(watch(self.engine, self._governors))
        return self._open[name]

    @property
    def opened(self) -> Mapping[str, Account]:
        return self._open

    async def aclose(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
            self._watch = None
        for account in self._open.values():
            await account.destination.aclose()
        self._open.clear()
        self._governors.clear()
