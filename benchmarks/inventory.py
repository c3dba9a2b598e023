"""What the inventory phase adds to ffprobe: `python -m benchmarks.inventory --videos 500`.

The whole phase — claims, relay, ffprobe, verdicts, ledger — over real videos on a local HTTP server, against `xargs -P`
running the same ffprobe on the same addresses with the same number of processes side by side. Both are measured in
turns, several times, since a machine's speed wanders; the ratio is of the medians. Bytes are those that the server
sent, with a send buffer too small to hide much.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from benchmarks.fleet import ACCOUNT, Fleet
from devstack.fileserver import serving
from devstack.library import find_ffmpeg
from media.tools import bundled_ffprobe, find_ffprobe
from settings import WorkerSettings
from workflows.ids import migration_id

_MADE: Final = {
    "fast.mp4": ["-c:v", "libx264", "-preset", "ultrafast", "-c:a", "aac", "-movflags", "+faststart"],
    "late.mp4": ["-c:v", "libx264", "-preset", "ultrafast", "-c:a", "aac"],
    "film.mkv": ["-c:v", "libx264", "-preset", "ultrafast", "-c:a", "aac"],
    "film.webm": ["-c:v", "libvpx", "-deadline", "realtime", "-cpu-used", "8", "-c:a", "libopus"],
    "film.ts": ["-c:v", "libx264", "-preset", "ultrafast", "-c:a", "aac"],
}
"""What libraries are made of: MP4 with its index at the front and at the end, Matroska, WebM, MPEG-TS."""


@dataclass
class Counted:
    """What the file server has sent."""

    sent: int = 0
    requests: int = 0

    def around(self, app: ASGIApp) -> ASGIApp:
        async def counting(scope: Scope, receive: Receive, send: Send) -> None:
            async def sending(message: Message) -> None:
                self.sent += len(message.get("body", b""))
                await send(message)

            self.requests += 1
            await app(scope, receive, sending)

        return counting


def make_media(folder: Path, seconds: int) -> list[str]:
    """One video of each kind, some megabytes long; returns their names."""
    for name, how in _MADE.items():
        subprocess.run(
            [str(find_ffmpeg()), "-v", "error", "-f", "lavfi", "-i", f"testsrc2=s=1280x720:r=25:d={seconds}"]
            + ["-f", "lavfi", "-i", f"sine=d={seconds}", "-pix_fmt", "yuv420p", *how, str(folder / name)],
            check=True,
        )
    return list(_MADE)


async def by_xargs(ffprobe: Path, addresses: list[str], at_once: int) -> float:
    """Seconds that `xargs -P` takes for one plain ffprobe per address."""
    process = await asyncio.create_subprocess_exec(
        "xargs", "-P", str(at_once), "-n", "1", str(ffprobe), "-v", "error", "-show_format", "-show_streams",
        "-of", "json", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    began = time.monotonic()
    await process.communicate("\n".join(addresses).encode())
    if process.returncode:
        raise RuntimeError(f"xargs ended with {process.returncode}")
    return time.monotonic() - began


async def by_longhaul(fleet: Fleet, run: str, addresses: list[str]) -> float:
    """Seconds from the opening to the closing of the inventory phase."""
    manifest = fleet.folder / f"{run}.csv"
    manifest.write_text("id,url\n" + "".join(f"{run}-{n},{url}\n" for n, url in enumerate(addresses)), "utf-8")
    await fleet.begin(run, manifest, approval=True)
    while True:
        seconds = await fleet.engine.fetchval(
            "select extract(epoch from closed_at - opened_at)::float8 from phase"
            " where run = $1 and phase = 'inventory'",
            run,
        )
        if seconds is not None:
            break
        await asyncio.sleep(0.2)
    states = await fleet.engine.fetch("select state, count(*) as n from asset where run = $1 group by state", run)
    found = {row["state"]: row["n"] for row in states}
    if found != {"inventoried": len(addresses)}:
        raise RuntimeError(f"not all were inventoried: {found}")
    await fleet.client.get_workflow_handle(migration_id(run)).terminate("measured")
    return float(seconds)


async def measure(videos: int, seconds: int, rounds: int, ffprobe: Path) -> dict[str, Any]:
    at_once = WorkerSettings().probes_at_once
    variables = {"LONGHAUL_MEDIA__FFPROBE": str(ffprobe)}
    async with Fleet.running(faults={"ingest": "synthesize"}, variables=variables) as fleet:
        names = make_media(fleet.folder / "media", seconds)
        theirs: list[float] = []
        ours: list[float] = []
        sent = {"xargs": 0, "longhaul": 0}
        files = Counted()
        # Left alone, the kernel takes in megabytes that no client ever reads.
        async with serving(fleet.folder / "media", around=files.around, send_buffer=65_536) as base:
            for number in range(rounds):
                addresses = [f"{base}/{names[n % len(names)]}?v={number}-{n}" for n in range(videos)]
                before = files.sent
                theirs.append(await by_xargs(ffprobe, addresses, at_once))
                sent["xargs"] += files.sent - before
                before = files.sent
                ours.append(await by_longhaul(fleet, f"inventory-{number}", addresses))
                sent["longhaul"] += files.sent - before
                print(f"round {number}: xargs {theirs[-1]:.2f} s, the inventory phase {ours[-1]:.2f} s", flush=True)
    probes = videos * rounds
    return {
        "ffprobe": "bundled" if ffprobe == bundled_ffprobe() else "from the PATH",
        "videos": videos,
        "rounds": rounds,
        "account": ACCOUNT,
        "probes_per_s": round(videos / statistics.median(ours), 2),
        "xargs_per_s": round(videos / statistics.median(theirs), 2),
        "ratio_to_xargs": round(statistics.median(theirs) / statistics.median(ours), 3),
        "bytes_per_probe": round(sent["longhaul"] / probes),
        "xargs_bytes_per_probe": round(sent["xargs"] / probes),
    }


def _ffprobe(which: str) -> Path:
    found: Mapping[str, Path | None] = {"bundled": bundled_ffprobe(), "default": find_ffprobe(None)}
    path = found[which]
    if path is None:
        raise SystemExit("no bundled ffprobe for this machine")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--videos", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=20, help="length of each video")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ffprobe", choices=["default", "bundled"], default="default")
    options = parser.parse_args()
    if shutil.which("xargs") is None or os.name != "posix":
        parser.exit(1, "xargs is needed to compare with\n")
    print(json.dumps(asyncio.run(measure(options.videos, options.seconds, options.rounds, _ffprobe(options.ffprobe)))))


if __name__ == "__main__":
    main()
