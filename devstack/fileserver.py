"""Serves a folder over HTTP, as a web server or bucket would: ranges, HEAD, exact lengths, content types.

`python -m devstack.fileserver --root DIR --host 127.0.0.1 --port 8070`
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import mimetypes
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Final

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from devstack.ports import LOOPBACK
from media.sniff import HEAD_BYTES, Kind, sniff

_TYPES: Final = {
    ".mkv": "video/x-matroska",
    ".m2ts": "video/mp2t",
    ".ts": "video/mp2t",
    ".flv": "video/x-flv",
    ".ogv": "video/ogg",
    ".mxf": "application/mxf",
    ".wmv": "video/x-ms-wmv",
}
"""Where the machine's own table differs from place to place."""


def make_app(root: Path) -> Starlette:
    """The application that serves the regular files below `root`. Names that begin with a dot are not served."""
    base = root.resolve()

    async def file(request: Request) -> Response:
        path = await asyncio.to_thread(_find, base, request.path_params["path"])
        if path is None:
            return PlainTextResponse("not found\n", status_code=404)
        return FileResponse(path, media_type=await asyncio.to_thread(_media_type, path))

    # Starlette adds HEAD to every route that has GET.
    return Starlette(routes=[Route("/{path:path}", file, methods=["GET"])])


def _find(base: Path, name: str) -> Path | None:
    if "\x00" in name or any(part.startswith(".") for part in name.split("/")):
        return None
    try:
        path = (base / name).resolve()
        return path if path.is_relative_to(base) and path.is_file() else None
    except (OSError, ValueError):
        return None


def _media_type(path: Path) -> str:
    """By its name; but a web page is sent as one whatever it is called, as the login page behind a shared link is."""
    with path.open("rb") as file:
        if sniff(file.read(HEAD_BYTES))[0] is Kind.HTML:
            return "text/html; charset=utf-8"
    suffix = path.suffix.lower()
    return _TYPES.get(suffix) or mimetypes.guess_type(f"x{suffix}")[0] or "application/octet-stream"


class _Server(uvicorn.Server):
    """Leaves the process's signals alone: this server also runs inside other programs."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextlib.asynccontextmanager
async def serving(
    root: Path,
    *,
    host: str = LOOPBACK,
    port: int = 0,
    around: Callable[[ASGIApp], ASGIApp] | None = None,
    send_buffer: int | None = None,
) -> AsyncIterator[str]:
    """Serves `root` inside this process while entered; yields the base address ("http://127.0.0.1:40123"). Port 0 takes
    a free one. `around` wraps the application, `send_buffer` is the kernel's for each connection, in bytes. Raises
    OSError where the port is taken."""
    app: ASGIApp = make_app(root)
    listener = _listen(host, port)
    if send_buffer is not None:
        # Accepted connections inherit it.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    server = _Server(
        uvicorn.Config(
            app if around is None else around(app),
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=2,
        )
    )
    task = asyncio.create_task(server.serve([listener]))
    try:
        while not server.started:
            if task.done():
                task.result()
                raise OSError("the file server ended before it began")
            await asyncio.sleep(0.005)
        yield f"http://{host}:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task
        listener.close()


async def _run(root: Path, host: str, port: int) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with serving(root, host=host, port=port) as base:
        print(f"serving {root} at {base}", flush=True)
        await stop.wait()


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    try:
        # A server that starts again at once finds its port in TIME_WAIT.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    return listener


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m devstack.fileserver", description="Serve a folder over HTTP.")
    parser.add_argument("--root", type=Path, required=True, help="the folder")
    parser.add_argument("--host", default=LOOPBACK)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free port, which is printed")
    given = parser.parse_args()
    if not given.root.is_dir():
        parser.error(f"{given.root} is not a folder")
    try:
        asyncio.run(_run(given.root, given.host, given.port))
    except OSError as error:
        parser.exit(1, f"cannot serve at {given.host}:{given.port}: {error.strerror or error}\n")


if __name__ == "__main__":
    main()
