"""The hosted video APIs that videos can be moved to: one module each, behind `destinations.base.Destination`.

A new host is a new module, and one line in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from destinations.apivideo import ApiVideoDestination
from destinations.base import Destination
from destinations.bunny import BunnyDestination
from destinations.cloudflare import CloudflareDestination
from destinations.fastpix import FastPixDestination
from destinations.generic import GenericDestination
from destinations.mux import MuxDestination
from faults import Fault
from settings import AccountSettings, LimitSettings


class Kind(Protocol):
    """What makes one kind of destination."""

    @property
    def default_limits(self) -> Sequence[LimitSettings]:
        """The limits that the host documents."""
        ...

    def address_of(self, account: AccountSettings, /) -> str:
        """Where its API is. Raises Fault("settings-refused") where neither the account nor the host says."""
        ...

    def __call__(self, account: AccountSettings, /, *, clock: Callable[[], float] = ...) -> Destination:
        """Makes no connection; `clock` gives seconds since 1970. Raises Fault("settings-refused") naming the wrong
        option."""
        ...

    def check_options(self, account: AccountSettings, /) -> None:
        """Raises Fault("settings-refused") naming the wrong option."""
        ...


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "apivideo": ApiVideoDestination,
        "bunny": BunnyDestination,
        "cloudflare": CloudflareDestination,
        "fastpix": FastPixDestination,
        "generic": GenericDestination,
        "mux": MuxDestination,
        "sandbox": GenericDestination,
    }
)
"""What an account's `kind` may be."""


def _kind(account: AccountSettings) -> Kind:
    if account.kind not in KINDS:
        known = ", ".join(sorted(KINDS))
        raise Fault("settings-refused", f"kind: there is no kind {account.kind!r} of destination (known: {known})")
    return KINDS[account.kind]


def check_options(account: AccountSettings) -> None:
    """Raises Fault("settings-refused") that names each wrong setting of the account, relative to it, and no secret."""
    kind = _kind(account)
    kind.address_of(account)
    kind.check_options(account)


def default_limits(kind: str) -> Sequence[LimitSettings]:
    """The limits that a kind's host documents, which count where an account declares none. Empty for a kind that there
    is not: `check_options` says so."""
    return KINDS[kind].default_limits if kind in KINDS else ()


def check_webhooks(account: AccountSettings) -> None:
    """Raises Fault("settings-refused") where deliveries for this account could not be verified: what an endpoint asks
    before it starts."""
    check_options(account)
    if not account.webhook_secrets:
        raise Fault("settings-refused", "webhook_secrets: none is set; set the secret that the provider shows")


def open_destination(name: str, account: AccountSettings) -> Destination:
    """The account's destination, ready for calls; close it with `aclose()`. `name` is the account's, for messages.

    Raises Fault("settings-refused") naming the wrong setting.
    """
    try:
        return _kind(account)(account)
    except Fault as fault:
        raise Fault(fault.code, f"accounts.{name}.{fault.detail}") from None
