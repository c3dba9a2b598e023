"""`gated.py GATE PROGRAM`: imports a program, and runs it once the file GATE is there: it then starts at once."""

from __future__ import annotations

import importlib
import os
import sys
import time

if __name__ == "__main__":
    gate, name = sys.argv[1:]
    sys.path.insert(0, os.getcwd())
    program = importlib.import_module(name)
    while not os.path.exists(gate):
        time.sleep(0.02)
    program.main()
