"""The three programs as people run them: the command line on an embedded stack, processes on servers of the test's."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import structlog
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from typer.testing import CliRunner

import starter
from devstack.processes import POLL_S, Child, Spec, launch, log_tail
from devstack.stack import ROOT, Stack
from settings import Settings
from tests.run.conftest import SECRET, media, rig, rig_factory

__all__ = ["media", "rig", "rig_factory"]


@dataclass(frozen=True)
class Said:
    """What a command said, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one JSON value on standard output."""
        assert self.out.count("\n") == 1, self.out
        return json.loads(self.out)


@contextlib.contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """These variables, and none of another LONGHAUL_ or TEMPORAL_ setting."""
    before = dict(os.environ)
    for name in before:
        if name.startswith(("LONGHAUL_", "TEMPORAL_")) and not name.startswith("LONGHAUL_TEST_"):
            del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def starter_says(*arguments: str, variables: Mapping[str, str]) -> Said:
    """`python starter.py …` in this process, which saves its start."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        with environment(variables):
            result = CliRunner().invoke(starter.app, list(arguments))
    finally:
        root.handlers[:], root.level = before
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Said(result.exit_code, result.stdout, result.stderr)


class Collector(ThreadingHTTPServer):
    """Takes spans as an OpenTelemetry collector does, over HTTP."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Collecting)
        self.bodies: list[bytes] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def spans(self) -> list[tuple[str, Span]]:
        """Each span with the name of its service."""
        found = []
        for body in list(self.bodies):
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                names = {each.key: each.value.string_value for each in resource.resource.attributes}
                found += [(names["service.name"], span) for scope in resource.scope_spans for span in scope.spans]
        return found


class _Collecting(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/v1/traces":
            self.server.bodies.append(body)  # type: ignore[attr-defined]
        self._answer(200)

    def _answer(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


class _Locked(_Collecting):
    """A host that refuses every token."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self._answer(401)

    def do_GET(self) -> None:
        self._answer(401)


@contextlib.contextmanager
def _serving(server: ThreadingHTTPServer) -> Iterator[None]:
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass
class Desk:
    """A person's place at an embedded stack, whose programs send their spans to `collector` and write their logs as
    JSON. Beside the sandbox's account there is one named "locked", whose host refuses the token."""

    stack: Stack
    folder: Path
    collector: Collector
    accounts: str

    @property
    def variables(self) -> dict[str, str]:
        return {"LONGHAUL_STACK": str(self.stack.folder), "LONGHAUL_ACCOUNTS": self.accounts}

    @property
    def traced(self) -> dict[str, str]:
        """Variables of a program that sends its spans too."""
        return {**self.variables, **_tracing(self.collector)}

    def __call__(self, *arguments: str, **variables: str) -> Said:
        return starter_says(*arguments, variables={**self.variables, **variables})

    def manifest(self, name: str, count: int = 2, *more: str, prefix: str | None = None) -> str:
        """The path of a manifest with so many good videos of their own, and these lines."""
        prefix = name if prefix is None else prefix
        good = [f"{prefix}-{n},{self.stack.url('library')}/good.mp4?{prefix}={n},Title {n}" for n in range(count)]
        path = self.folder / f"{name}.csv"
        path.write_text("\n".join(["id,url,title", *good, *more]) + "\n", encoding="utf-8")
        return str(path)

    @property
    def settings(self) -> Settings:
        with environment(self.variables):
            return Settings()


@pytest.fixture(scope="session")
def desk(media: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """One embedded stack for the session; tests keep apart by their runs' names and videos."""
    place = Path(tempfile.mkdtemp(prefix="longhaul-test-"))
    place.chmod(0o711)
    collector, host = Collector(), ThreadingHTTPServer(("127.0.0.1", 0), _Locked)
    locked = {"base_url": f"http://127.0.0.1:{host.server_port}", "token": "stale", "webhook_secrets": SECRET}
    accounts = json.dumps({"locked": locked})
    told = {
        "LONGHAUL_ACCOUNTS": accounts,
        "LONGHAUL_TELEMETRY__LOG_FORMAT": "json",
        "LONGHAUL_TELEMETRY__LOG_LEVEL": "debug",
        **_tracing(collector),
    }
    with _serving(collector), _serving(host), contextlib.ExitStack() as up:
        with environment(told):
            stack = up.enter_context(Stack.foreground(folder=place / ".longhaul", fast=True))
        for file in media.iterdir():
            shutil.copy(file, stack.library / file.name)
        yield Desk(stack, tmp_path_factory.mktemp("desk"), collector, accounts)
    shutil.rmtree(place)


def _tracing(collector: Collector) -> dict[str, str]:
    return {"LONGHAUL_TELEMETRY__OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}


# ------------------------------------------------------------------------------------------------------------ processes


def as_variables(settings: Settings) -> dict[str, str]:
    """Settings of a rig as a program finds them in its environment."""
    variables = {"LONGHAUL_STACK": os.devnull}
    for name, section in settings.model_dump(mode="python", exclude_unset=True).items():
        if name == "accounts":
            variables["LONGHAUL_ACCOUNTS"] = json.dumps(section, default=_revealed)
            continue
        for key, value in section.items():
            if value is None:
                continue
            written = value if isinstance(value, str) else json.dumps(value, default=_revealed)
            variables[f"LONGHAUL_{name}__{key}".upper()] = written.strip('"')
    return variables


def changed(settings: Settings, **sections: Mapping[str, Any]) -> Settings:
    """Settings with some of their values replaced, checked anew. Not `model_copy`: it keeps what was computed."""
    whole = {name: getattr(settings, name) for name in settings.model_fields_set}
    for name, values in sections.items():
        whole[name] = getattr(settings, name).model_copy(update=values)
    return Settings(**whole)


def _revealed(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value.get_secret_value()


class Programs:
    """Starts programs of the project as processes; what is left of them is ended after the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.children: list[Child] = []

    def start(self, *arguments: str, variables: Mapping[str, str]) -> Child:
        with environment(variables):
            whole = dict(os.environ)
        name = f"{Path(arguments[0]).stem}-{len(self.children)}"
        spec = Spec(name, [sys.executable, "-u", *arguments], ROOT, whole, grace_s=30)
        child = launch(spec, self.folder / f"{name}.log")
        self.children.append(child)
        return child

    def run(self, *arguments: str, variables: Mapping[str, str], timeout: float = 30) -> Said:
        """Runs one to its end."""
        with environment(variables):
            done = subprocess.run(
                [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=timeout
            )
        return Said(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[Programs]:
    made = Programs(tmp_path)
    yield made
    for child in made.children:
        child.kill()


def log_of(child: Child) -> str:
    return child.log.read_text(errors="replace")


def wait_for(condition: Callable[[], Any], what: str, within: float = 30) -> Any:
    """Waits until the condition gives something true."""
    deadline = time.monotonic() + within
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {within} s: {what}"
        time.sleep(POLL_S)
    return value


def wait_says(child: Child, words: str, within: float = 30) -> None:
    wait_for(lambda: words in log_of(child) or not child.alive(), f"{child.name} says {words!r}", within)
    assert words in log_of(child), "\n".join(log_tail(child.log, 40))


def wait_ended(child: Child, within: float = 40) -> int:
    code = wait_for(lambda: None if child.exit_code() is None else (child.exit_code(),), f"{child.name} ends", within)
    return int(code[0])
