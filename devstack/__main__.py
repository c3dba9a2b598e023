"""`python -m devstack`: the embedded stack's command line."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer

if sys.platform == "win32":
    sys.exit("the embedded stack needs Linux or macOS; on Windows use WSL 2, or servers of your own: docs/platforms.md")

from devstack.processes import StackError
from devstack.stack import PARTS, Changes, Stack

app = typer.Typer(
    help="Real servers from pip wheels, without root or Docker: Temporal, PostgreSQL, the sandbox, a worker.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Without = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="PART", help=f"Leave a part out; repeatable. Parts: {', '.join(PARTS)}."),
]


def _parts(without: list[str] | None) -> list[str]:
    unknown = sorted(set(without or ()) - set(PARTS))
    if unknown:
        raise StackError(f"no such part: {', '.join(unknown)} (known: {', '.join(PARTS)})")
    return [name for name in PARTS if name not in (without or ())]


def _show(stack: Stack, changes: Changes) -> None:
    if changes.started:
        print(f"started: {', '.join(changes.started)}")
    if changes.already_up:
        print(f"already up: {', '.join(changes.already_up)}")
    if "temporal" in stack.parts:
        print(f"Web UI: {stack.url('temporal_ui')}")
        print(f"for the temporal command: export TEMPORAL_ADDRESS={stack.temporal_address}")
    print(f"logs: {stack.logs}")


@app.command()
def up(without: Without = None) -> None:
    """Start what isn't up yet, and leave it running."""
    stack = Stack(parts=_parts(without), detached=True)
    _show(stack, stack.up())
    print("stop it with: make down")


@app.command()
def down() -> None:
    """Stop everything, also what a crash has left. Data is kept."""
    stopped = Stack().down()
    print(f"stopped: {', '.join(stopped)}" if stopped else "nothing was up")


@app.command()
def status() -> None:
    """Show each part; the exit code is 3 unless all are up."""
    parts = Stack().status()
    for part in parts:
        state = f"up, process {part.pid}" if part.pid is not None else "down"
        at = f"  {part.address}" if part.address is not None and part.pid is not None else ""
        print(f"{part.name:<9} {state}{at}")
    if any(part.pid is None for part in parts):
        raise typer.Exit(3)


@app.command()
def run(without: Without = None) -> None:
    """Run the stack in the foreground until Ctrl-C."""
    with Stack.foreground(parts=_parts(without)) as stack:
        others = [name for name in stack.parts if name not in stack.started]
        _show(stack, Changes(list(stack.started), others))
        print("stop it with: Ctrl-C", flush=True)
        up_now = {part.name for part in stack.status() if part.pid is not None}
        while up_now:
            time.sleep(0.5)
            for part in stack.status():
                if part.name in up_now and part.pid is None:
                    up_now.remove(part.name)
                    print(f"{part.name} has ended; its log: {part.log}", file=sys.stderr, flush=True)


def main() -> None:
    try:
        app(prog_name="python -m devstack")
    except StackError as error:
        print(f"devstack: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
