"""What can be known about an account before a run, without creating anything there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import httpx

from destinations import check_webhooks, open_destination
from destinations.base import Capabilities, Finding
from faults import Fault
from settings import Settings

_ASKED_S = 10.0


async def check_account(name: str, settings: Settings) -> Sequence[Finding]:
    """Tries the account's settings, credentials and rights, the webhook's way to our endpoint, and the clocks. A few
    requests. Raises Fault("settings-refused") for an account that cannot be opened at all."""
    account = settings.account(name)
    destination = open_destination(name, account)
    findings: list[Finding] = []
    try:
        findings += await destination.check()
    except Fault as fault:
        findings.append(Finding("credentials", False, f"{fault.reason.words} ({fault.detail}); {fault.reason.remedy}"))
    finally:
        await destination.aclose()
    try:
        check_webhooks(account)
    except Fault as fault:
        findings.append(
            Finding("webhook secret", False, f"{fault.detail}; until then the destination is asked instead, later")
        )
    else:
        findings.append(Finding("webhook secret", True, f"{len(account.webhook_secrets)} set"))
    findings.append(await _endpoint(name, settings))
    return findings


async def _endpoint(name: str, settings: Settings) -> Finding:
    """Whether the address that the host calls leads to our endpoint: it refuses what isn't signed."""
    base = settings.endpoint.public_url
    if base is None:
        words = "endpoint.public_url is not set; set it to the address under which the host reaches the endpoint"
        return Finding("webhook address", None, words)
    address = f"{base.rstrip('/')}/webhooks/{name}"
    try:
        async with httpx.AsyncClient(timeout=_ASKED_S) as client:
            answer = await client.post(address, content=b"{}")
    except httpx.HTTPError as error:
        words = f"{address} cannot be reached from here ({type(error).__name__}); start webhook.py, open the way to it"
        return Finding("webhook address", False, words)
    if answer.status_code == 401:
        return Finding("webhook address", True, f"{address} answers, and refuses what is not signed")
    words = f"{address} answers {answer.status_code} to an unsigned delivery instead of 401: is it our endpoint?"
    return Finding("webhook address", False, words)


def losses(have: Mapping[str, int], offers: Capabilities) -> Mapping[str, int]:
    """Of what videos have (`have`: videos by field of `sources.about.About`), that for which the destination has no
    place."""
    kept = set(offers.carries)
    kept |= {"captions"} if offers.captions else set()
    kept |= {"poster"} if offers.poster else set()
    return {name: count for name, count in have.items() if count and name not in kept}


async def losses_at(name: str, settings: Settings, have: Mapping[str, int]) -> Mapping[str, int]:
    """The same for an account by its name. Empty for one that the settings don't have (any more)."""
    if name not in settings.accounts:
        return {}
    destination = open_destination(name, settings.accounts[name])
    try:
        return losses(have, destination.capabilities)
    finally:
        await destination.aclose()
