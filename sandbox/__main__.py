"""`python -m sandbox`: the sandbox as a program."""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from sandbox.config import ConfigRefused, Faults, Limit, SandboxConfig, load_config
from sandbox.server import running_sandbox
from sandbox.store import StoreInUse

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command()
def run(
    host: Annotated[str | None, typer.Option(envvar="SANDBOX_HOST", help="Address to listen on. [127.0.0.1]")] = None,
    port: Annotated[int | None, typer.Option(envvar="SANDBOX_PORT", help="Port; 0 takes a free one. [0]")] = None,
    data: Annotated[
        Path | None, typer.Option(envvar="SANDBOX_DATA", help="Directory for its storage; survives restarts. Required.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(envvar="SANDBOX_TOKEN", help="Bearer token that every call must carry. Required.")
    ] = None,
    public_url: Annotated[
        str | None,
        typer.Option(envvar="SANDBOX_PUBLIC_URL", help="Its address as others see it, for playback addresses."),
    ] = None,
    webhook_url: Annotated[
        str | None, typer.Option(envvar="SANDBOX_WEBHOOK_URL", help="Where signed events are sent. None: no events.")
    ] = None,
    webhook_secret: Annotated[
        str | None,
        typer.Option(
            envvar="SANDBOX_WEBHOOK_SECRET",
            help="whsec_…, which signs the events; several, separated by spaces, as during a rotation.",
        ),
    ] = None,
    webhook_retry_s: Annotated[
        float | None,
        typer.Option(envvar="SANDBOX_WEBHOOK_RETRY_S", help="Seconds before the first redelivery; doubles. [1]"),
    ] = None,
    allow_local_files: Annotated[
        bool | None,
        typer.Option(
            "--allow-local-files/--no-local-files",
            envvar="SANDBOX_ALLOW_LOCAL_FILES",
            help="Whether a source may be a path on this machine. [no]",
        ),
    ] = None,
    ingest: Annotated[
        str | None,
        typer.Option(
            envvar="SANDBOX_INGEST", help="fetch: read and probe the files. synthesize: only pretend to. [fetch]"
        ),
    ] = None,
    ingest_s: Annotated[
        float | None, typer.Option(envvar="SANDBOX_INGEST_S", help="Seconds that processing a video takes. [0]")
    ] = None,
    limit: Annotated[
        list[str] | None,
        typer.Option(
            envvar="SANDBOX_LIMIT",
            help="REQUESTS/SECONDS, or REQUESTS/SECONDS:BLOCK_SECONDS to refuse everything for that long once the limit"
            " is exceeded (1200/300:300). Repeatable.",
        ),
    ] = None,
    in_flight: Annotated[
        int | None, typer.Option(envvar="SANDBOX_IN_FLIGHT", help="Videos that may be processing at once. [no cap]")
    ] = None,
    fault: Annotated[
        list[str] | None,
        typer.Option(
            envvar="SANDBOX_FAULT",
            help="NAME=VALUE of any switch, for instance lost_answer_rate=0.02. Repeatable; all of them:"
            " docs/sandbox.md, or --list-faults.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(envvar="SANDBOX_CONFIG", help="TOML file with the same settings, and the switches in [faults]."),
    ] = None,
    log_level: Annotated[
        str, typer.Option(envvar="SANDBOX_LOG_LEVEL", help="debug, info, warning or error.")
    ] = "warning",
    list_faults: Annotated[
        bool, typer.Option("--list-faults", help="Show every switch with its default, and end.")
    ] = False,
) -> None:
    """A hosted video API to rehearse against: limits, faults and webhooks, all adjustable while it runs.

    Every option can be given as the variable named beside it. Options win over variables, these over the file.
    """
    if list_faults:
        for name, value in Faults().model_dump(mode="json").items():
            typer.echo(f"{name}={json.dumps(value)}")
        return
    given: dict[str, Any] = {
        "host": host,
        "port": port,
        "data": data,
        "token": token,
        "public_url": public_url,
        "webhook_url": webhook_url,
        "webhook_secret": webhook_secret,
        "webhook_retry_s": webhook_retry_s,
        "allow_local_files": allow_local_files,
    }
    switches: dict[str, Any] = {"ingest": ingest, "ingest_s": ingest_s, "in_flight": in_flight}
    try:
        switches["limits"] = [Limit.parse(text).model_dump() for text in limit] if limit else None
        named = dict(_switch(text) for text in fault or ())
        settings = load_config(
            config,
            {
                **{name: value for name, value in given.items() if value is not None},
                "faults": {**{name: value for name, value in switches.items() if value is not None}, **named},
            },
        )
        logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        asyncio.run(_serve(settings))
    except (ConfigRefused, StoreInUse, ValueError, OSError) as error:
        typer.echo(f"sandbox: {error}", err=True)
        sys.exit(2)


def _switch(text: str) -> tuple[str, Any]:
    """`name=value`; a value that is no JSON is text, so that quotes are not needed."""
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"--fault {text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


async def _serve(config: SandboxConfig) -> None:
    """Serves until SIGTERM or SIGINT."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    async with running_sandbox(config) as sandbox:
        typer.echo(f"sandbox listening on {sandbox.base_url} (storage in {config.data})")
        sys.stdout.flush()
        await ended.wait()


if __name__ == "__main__":
    app(prog_name="sandbox")
