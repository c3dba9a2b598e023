"""How each of the programs ends."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import NoReturn

import telemetry


def run(main: Callable[[], object]) -> NoReturn:
    """Runs a program's entry and ends the process with its exit code.

    The process leaves without the interpreter's own end: there the Temporal SDK's threads now and then find it gone and
    abort everything (temporalio/sdk-python#300), and the exit code is lost.
    """
    code: int | str | None
    try:
        main()
        code = 0
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = 130
    except BaseException:  # noqa: BLE001  # told as the interpreter would tell it
        traceback.print_exc()
        code = 1
    if isinstance(code, str):
        print(code, file=sys.stderr)
        code = 1
    telemetry.flush()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            continue  # whoever read it is gone
    os._exit(code or 0)
