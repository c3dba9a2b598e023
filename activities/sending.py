"""Sending a local file's bytes to the destination, so that a killed worker's transfer goes on where it stood."""

from __future__ import annotations

from dataclasses import asdict

from temporalio import activity

from activities.accounts import Account
from activities.heartbeats import note
from activities.remote import turn
from crossings import crossing
from destinations.base import CreateRequest, RemoteVideo, Transfer
from faults import Fault
from ledger import claims
from ledger.assets import Row
from ledger.engine import Engine
from workflows.messages import PageInput


async def send(engine: Engine, account: Account, page: PageInput, row: Row, request: CreateRequest) -> RemoteVideo:
    """Sends the file, from where an earlier attempt stood. How far it has come is written under the row's fence after
    each chunk. Raises the destination's faults, "fence-lost" where another has the row by now, and "worker-stopping"
    between two chunks where this worker was told to stop."""

    async def keep(transfer: Transfer) -> None:
        with crossing("transfer"):
            held = await claims.keep_transfer(engine, row.ref, row.fence, asdict(transfer))
        if not held:
            raise Fault("fence-lost", f"another has taken {row.ref} over")
        note(sending=row.ref, bytes=transfer.sent)

    async def in_turn() -> None:
        if activity.is_worker_shutdown():
            raise Fault("worker-stopping", "told to stop between two chunks", landed=True)
        await turn(account, "upload", page)

    begun = None if row.transfer is None else Transfer(row.transfer["place"], row.transfer["sent"])
    with crossing("upload"):
        return await account.destination.upload(request, begun, keep=keep, turn=in_turn)
