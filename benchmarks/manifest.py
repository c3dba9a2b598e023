"""A long manifest, imported as the list phase does it: `python -m benchmarks.manifest --rows 1000000`.

Half-way through its second half stands an id that had stood half as many rows before. The import must find it, and
needs the memory of a page, not of the file: what the process grew by between the first rows and the last is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from devstack.ports import free_ports
from devstack.postgres import EmbeddedPostgres
from ledger import schema
from ledger.engine import Engine
from ledger.listings import Walker, tally, write_page
from ledger.runs import open_phase, open_run
from settings import LedgerSettings
from sources.manifest import ManifestSource


def write(path: Path, rows: int) -> tuple[int, int]:
    """Writes so many rows; returns the lines of the two with the same id."""
    first, second = rows // 4, rows // 4 + rows // 2
    with path.open("w", encoding="utf-8") as file:
        file.write("id,url\n")
        for n in range(rows):
            file.write(f"{'twice' if n in (first, second) else n},https://host.example/videos/{n:07}.mp4\n")
    return first + 2, second + 2


async def imported(dsn: str, path: Path) -> dict[str, Any]:
    """Checks and imports the manifest, page by page. Returns what the ledger counted, the problems that it noted, the
    seconds that it took, and by how many KiB the process's peak memory grew after the first ten pages."""
    engine = await Engine.open(LedgerSettings(dsn=dsn, pool_size=2, statement_timeout_ms=60_000))
    spec = {"kind": "manifest", "location": str(path)}
    plan = ("list", "inventory")
    await open_run(engine, run="r", tenant="t", source="s", source_spec=spec, account="a", plan=plan)
    fence = await open_phase(engine, "r", "list", None)
    assert fence is not None, "a new run's first phase opens"
    walker = Walker("r", "t", "s", "a", 1, 0, fence)
    source = ManifestSource(str(path), page_size=500)
    began = time.monotonic()
    await source.check()
    cursor, sequence, early = None, 0, 0
    while sequence == 0 or cursor is not None:
        page = await source.list_page(cursor)
        written = await write_page(engine, walker, sequence, page)
        assert written is not None, "nobody else walks"
        cursor, sequence = page.next_cursor, sequence + 1
        early = _peak_kib() if sequence <= 10 else early
    seconds = time.monotonic() - began
    counted = await tally(engine, "r", 1)
    problems = await engine.fetch("select position, words from problem where run = 'r'")
    await engine.close()
    return {
        "listed": counted.listed,
        "added": counted.added,
        "collapsed": counted.collapsed,
        "problems": [(problem["position"], problem["words"]) for problem in problems],
        "seconds": round(seconds, 1),
        "grown_kib": _peak_kib() - early,
    }


def _peak_kib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def measure(rows: int) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="longhaul-bench-"))
    folder.chmod(0o755)  # PostgreSQL runs as somebody else where we are root
    [port] = free_ports(1)
    postgres = EmbeddedPostgres(folder / "postgres", port=port, fast=True)
    postgres.start()
    try:
        await schema.migrate(postgres.dsn())
        first, second = write(folder / "long.csv", rows)
        found = await imported(postgres.dsn(), folder / "long.csv")
    finally:
        postgres.remove()
    [(position, words)] = found.pop("problems")
    print(words)
    return {
        "rows": rows,
        "rows_per_s": round(rows / found["seconds"]),
        "found": position == second and f"stands at {first} and at {second}" in words,
        **found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    print(json.dumps(asyncio.run(measure(parser.parse_args().rows))))


if __name__ == "__main__":
    main()
