"""The system account that PostgreSQL runs as where we are root, which it refuses to run as.

An account that exists is taken, so that nothing on the machine changes: `postgres`, else `nobody`.
"""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CANDIDATES: Final = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    uid: int
    gid: int


def unprivileged() -> Account | None:
    """The account to run as instead of root; None where we are not root.

    Raises LookupError where the machine has none.
    """
    if os.geteuid() != 0:
        return None
    for name in CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return Account(name, entry.pw_uid, entry.pw_gid)
    raise LookupError(f"no system account named {' or '.join(CANDIDATES)}")


def can_reach(account: Account, path: Path) -> bool:
    """Whether the account can go through every folder down to the folder `path`, and into it."""
    resolved = path.resolve()
    return all(_allows(account, folder, stat.S_IXOTH) for folder in (resolved, *resolved.parents))


def can_read(account: Account, tree: Path) -> bool:
    """Whether the account can reach the folder `tree` and read all that is in it."""
    if not can_reach(account, tree):
        return False
    for folder, _, files in os.walk(tree):
        if not _allows(account, Path(folder), stat.S_IROTH | stat.S_IXOTH):
            return False
        if not all(_allows(account, Path(folder, name), stat.S_IROTH) for name in files):
            return False
    return True


def _allows(account: Account, path: Path, wanted: int) -> bool:
    """`wanted` as the bits for others; those for the owner or the group count where the account is it."""
    try:
        status = path.stat()
    except OSError:
        return False
    if status.st_uid == account.uid:
        wanted <<= 6
    elif status.st_gid == account.gid:
        wanted <<= 3
    return status.st_mode & wanted == wanted
