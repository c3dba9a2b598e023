"""Traces of the create protocol's model, in words."""

from __future__ import annotations

from collections.abc import Iterable

from create_protocol import State
from explorer import Action

_WORKERS = "ABC"
_SAYS = {
    "tick": "a tick passes",
    "lapse": "the lease of the claim passes, or Temporal declares its worker dead",
    "come to nothing": "the call that nobody waits for comes to nothing",
    "cancel": "the run is cancelled",
    "skip": "the cancelled run hands the row back",
    "take up": "a later run takes the row up",
    "redrive": "a person has the row taken up again",
    "quarantine": "the row's attempts have ended in a death: it fails",
    "crash": "{who} dies",
    "hand back": "{who} is stopped in the middle of its work and hands the row back",
    "claim": "{who} claims the row",
    "claim and stop": "{who} claims the row and is told to stop before it begins; it has yet to write so",
    "source busy": "{who} asks the source, which is busy",
    "source gone": "{who} asks the source, which has no such file",
    "too late": "{who} finds that its time for the call has passed",
    "check": "{who} finds that its time for the call has not passed",
    "send": "{who} sends the create",
    "lost": "{who} does not get the answer",
    "busy": "{who} is answered 503",
    "refused": "{who} is answered 429",
    "answer": "{who} is answered: video {video}",
    "list": "{who} begins to read the host's list",
    "found": "{who} looks up the reference and finds video {video}",
    "none": "{who} looks up the reference and finds nothing",
    "look-up failed": "{who} looks up the reference, and the look-up fails",
    "write": "{who} writes “{state}”",
    "write in vain": "{who} writes “{state}”, which changes nothing",
    "ready": "the host has video {video} ready",
    "errored": "the host could not process video {video}",
    "deleted": "somebody deletes video {video} at the host",
    "deliver": "the event “{state}” of video {video} is delivered",
    "event lost": "the event “{state}” of video {video} is lost",
    "apply waiting": "the event “{state}” of video {video}, which waited in the inbox, is applied",
    "sweep": "the sweep asks for video {video}: {state}",
}
_WORKERS_OWN = {name for name, words in _SAYS.items() if "{who}" in words}


def told(trace: Iterable[tuple[State, Action, State]]) -> list[str]:
    """One sentence for each step; a worker that a tick has passed by "wakes"."""
    lines, stood = [], set()
    for before, action, after in trace:
        name, rest = action[0], action[1:]
        if name == "land":
            lines.append(_landing(*rest, before, after))
            continue
        who = _WORKERS[rest[0]] if name in _WORKERS_OWN else ""
        about = rest[1:] if who else rest
        words = _SAYS[name].format(
            who=who,
            video=next((value + 1 for value in about if isinstance(value, int)), ""),
            state=next((value for value in about if isinstance(value, str)), ""),
        )
        if who and name != "crash" and rest[0] in stood and not name.startswith("claim"):
            words = words.replace(who, f"{who}, which stood still,", 1)
        stood.discard(rest[0] if who else None)
        if name == "tick":
            stood = {n for n, worker in enumerate(before.workers) if worker.node >= 0}
            quiet = (before.row.quiet, after.row.quiet)
            if quiet == (1, 0):
                words += ", and with it the row's quiet time"
        lines.append(words)
    return lines


def _landing(n: int | None, video: int, before: State, after: State) -> str:
    whose = "the call that nobody waits for" if n is None else f"{_WORKERS[n]}’s call"
    if len(after.videos) == len(before.videos):
        return f"{whose} lands: under the same key it is video {video + 1} again"
    return f"{whose} lands: video {video + 1} is made"
