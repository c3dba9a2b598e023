"""The live view, in a real terminal of 80 columns."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading

import pytest

from devstack.stack import ROOT
from tests.programs.conftest import environment, wait_for

MOVES = re.compile(r"\r|\x1b\[\d*[A-HJ]")
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """A program in a terminal of its own."""

    def __init__(self, *arguments: str, variables: dict[str, str]) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        with environment({**variables, "TERM": "xterm-256color"}):
            inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                cwd=ROOT,
                env=inherited,
                stdin=theirs,
                stdout=theirs,
                stderr=theirs,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            )
        os.close(theirs)
        self._ours = ours
        self.raw = b""
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                got = os.read(self._ours, 65_536)
            except OSError:
                return
            if not got:
                return
            self.raw += got

    @property
    def text(self) -> str:
        """What was written, each stretch between two moves of the cursor on a line of its own."""
        return CONTROL.sub("", MOVES.sub("\n", self.raw.decode(errors="replace")))

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def close(self) -> int:
        code = self.process.wait(30)
        self._reader.join(10)
        os.close(self._ours)
        return code


@pytest.fixture
def terminal(desk):
    opened = []

    def open_one(*arguments):
        opened.append(Terminal(*arguments, variables=desk.variables))
        return opened[-1]

    yield open_one
    for each in opened:
        if each.process.poll() is None:
            each.process.kill()
            each.close()


def test_the_live_view_shows_every_phase_and_ctrl_c_ends_the_view_and_not_the_run(desk, terminal):
    first = terminal(
        *("starter.py", "start", desk.manifest("seen", 2), "--name", "seen-by-a-person-in-a-terminal", "--approval"),
        "--wait",
    )
    wait_for(lambda: "waits for approval: 2 videos" in first.text, "the view shows that the run waits")
    first.press(b"\x03")
    assert first.close() == 130
    assert "interrupted; a run that was started goes on" in first.text
    assert "Traceback" not in first.text
    assert "━" in first.text, "bars"
    assert b"\x1b[?25h" in first.raw, "the cursor is back"

    assert desk("approve", "seen-by-a-person-in-a-terminal").code == 0
    second = terminal("starter.py", "watch", "seen-by-a-person-in-a-terminal")
    assert second.close() == 0
    assert "run seen-by-a-person-in-a-terminal finished" in second.text
    assert re.search(r"reconcile +━+ +2/2", second.text)
    for line in (first.text + second.text).splitlines():
        assert len(line.rstrip()) <= 80 or line.startswith("http://"), line
