"""What the stack remembers between two commands: ports, secrets, and which processes are its own."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from devstack.ports import free_ports
from devstack.postgres import write_secret
from devstack.processes import Child, StackError, recall

STACK_VARIABLE: Final = "LONGHAUL_STACK"
"""Names the state folder, for the stack and for `settings.py`."""
LOCK_S: Final = 60.0
"""Seconds to wait for another command that is starting or stopping the same stack."""


def default_folder(root: Path) -> Path:
    """The state folder: named by LONGHAUL_STACK, else `.longhaul` in the project."""
    return Path(os.environ.get(STACK_VARIABLE) or root / ".longhaul").absolute()


@dataclass(slots=True)
class Record:
    """A child and what it was started with: a running child whose recipe is another by now is started anew."""

    child: Child
    recipe: str


@dataclass(slots=True)
class State:
    folder: Path
    ports: dict[str, int] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)

    @property
    def file(self) -> Path:
        return self.folder / "state.json"

    @property
    def settings_file(self) -> Path:
        return self.folder / "stack.toml"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @classmethod
    def load(cls, folder: Path) -> State:
        """Raises StackError where the file is damaged."""
        state = cls(folder)
        try:
            stored: dict[str, Any] = json.loads(state.file.read_text())
            state.ports = {name: int(port) for name, port in stored["ports"].items()}
            state.secrets = {name: str(secret) for name, secret in stored["secrets"].items()}
            state.records = {
                name: Record(recall(name, record["child"]), str(record["recipe"]))
                for name, record in stored["children"].items()
            }
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StackError(
                f"{state.file} cannot be read ({type(error).__name__}: {error}); delete it, then `make down` finds and "
                "stops what may still run"
            ) from None
        return state

    def save(self) -> None:
        stored = {
            "ports": self.ports,
            "secrets": self.secrets,
            "children": {
                name: {"child": record.child.record(), "recipe": record.recipe} for name, record in self.records.items()
            },
        }
        write_secret(self.file, json.dumps(stored, indent=1))

    def running(self) -> dict[str, Record]:
        return {name: record for name, record in self.records.items() if record.child.alive()}

    def keep_or_choose_ports(self, *names: str, keep: bool) -> None:
        """Remembers a free port for each name that has none; new ones for all of them unless `keep`."""
        missing = [name for name in names if not keep or name not in self.ports]
        self.ports.update(zip(missing, free_ports(len(missing)), strict=True))

    def keep_or_make_secrets(self) -> None:
        self.secrets.setdefault("sandbox_token", secrets.token_urlsafe(24))
        # Standard Webhooks: "whsec_" and 24 to 64 bytes in base64.
        self.secrets.setdefault("webhook_secret", f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}")


def make_folder(folder: Path) -> None:
    """A private folder. As root others may pass through, not look into it: PostgreSQL's data in it is another
    account's."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o711 if os.geteuid() == 0 else 0o700)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One command at a time changes the stack; the kernel drops a killed command's lock.

    Raises StackError when another one holds it for more than `LOCK_S` seconds.
    """
    with open(os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600), "r+") as file:
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    holder = file.read().strip() or "unknown"
                    raise StackError(
                        f"another command (process {holder}) has been starting or stopping this stack for {LOCK_S:g} s"
                    ) from None
                time.sleep(0.05)
        file.seek(0)
        file.truncate()
        file.write(str(os.getpid()))
        file.flush()
        yield
