"""Becomes another program: `shim.py PARENT SIGNAL UID:GID|- -- COMMAND …`.

Between fork and exec only a fresh interpreter can safely do what is needed here; code run in a forked copy of a program
that has threads may hang. It gives up root's rights if told to, asks the kernel for SIGNAL (0: none) when PARENT dies,
and executes COMMAND in its own place. Standard library only, as it runs without site-packages.
"""

from __future__ import annotations

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1
"""<linux/prctl.h>"""


def main(argv: list[str]) -> int:
    parent, number, account, _, *command = argv
    # Imported first: the other account may not be able to read the standard library.
    prctl = ctypes.CDLL(None, use_errno=True).prctl if sys.platform == "linux" else None
    if account != "-":
        uid, gid = (int(part) for part in account.split(":"))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    # After the change of user: the kernel forgets the wish when credentials change.
    if number != "0" and prctl is not None:
        prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != int(parent):  # it died before we asked
            return 1
    try:
        os.execvp(command[0], command)  # noqa: S606 - argument list from our own supervisor
    except OSError as error:
        print(f"{command[0]}: cannot be run: {error.strerror}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
