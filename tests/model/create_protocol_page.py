"""Writes docs/create-protocol.md: `python tests/model/create_protocol_page.py`. A test says when it is out of date.

The prose stands here; the traces are what the explorer finds.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

from create_cases import (  # noqa: E402
    BEYOND,
    BREAKS,
    EXACT,
    HOSTS,
    PATIENT,
    TWICE,
    WITHOUT,
    Explored,
    busy,
    endless,
    explored,
)
from create_protocol import Rules  # noqa: E402
from create_traces import told  # noqa: E402

from activities.creating import CLOCK_S  # noqa: E402

PAGE = ROOT / "docs" / "create-protocol.md"

HEAD = """\
# How a video is made once

Written by `python tests/model/create_protocol_page.py`; the traces on it are found by the explorer in `tests/model`.

No hosted video API that we know documents an idempotency key. A create call whose answer is lost leaves three
possibilities: it made a video, it made none, or it still will. Longhaul must not make a second video where there is a
first, and must not lose sight of one that is there, whichever process dies or stands still at whatever moment.

## The protocol

1. **Claim.** One statement takes the row for a worker: a new fence, the state `creating`, the time of the intent, and
   the end of its *quiet time* (`quiet_s` from then). The attempt is counted now. (`ledger.claims.claim`)
2. **Prepare.** The source is asked for a fresh address. (`activities.creating`)
3. **Check the time.** If so much of the quiet time has gone that the call might not end within it, no call is made.
4. **Call**, with the row's `ref` as reference.
5. **Write** the video's id at once, under the fence: if the row bears another by now, nothing changes.
   (`ledger.claims.finish`)

Where the answer is lost, the worker **looks at once**: what it finds it adopts. If it finds nothing the row stays
`creating`, its call open, and nobody may work it before its quiet time is over. Where the worker died, stood still or
was stopped, the row is in the same state once its claim's lease has passed, or Temporal has noticed and ended it.

Whoever claims a row with an open call **looks first**: a video with the row's `ref` is adopted; if there is none the
row goes back to `inventoried`, and the next claim makes a call of its own, with an intent and a quiet time of its own.

**Events** go another way. One that carries our reference moves the row at any time, and so does one for a video whose
id the row has. One that carries only an id that no row knows waits in the inbox until a row does. An event for
another video than the row's moves nothing. An event closes the row's claim and its call; the worker's write then
comes to nothing.

**Runs.** A cancelled run hands the row back with a new fence, and with its intent and its quiet time: the run that
takes it up goes on as any worker would.

## How it is known

`tests/model` visits every state that the protocol can come to for one row: three workers, a host, its events, crashes,
stand-stills, cancelled runs, rows taken up again. What a worker decides is not modelled there: it is the code, run step
by step against a scripted host. The steps that the model takes in the ledger are also taken by the SQL, in a real
PostgreSQL, with the same result. What is held everywhere:

* *no duplicate*: never two live videos with the row's reference;
* *none lost*: from every state the row can still come to own the video that is there, or is a dead letter that a person
  is shown;
* `ready` is never pulled back, `deleted` is never left, a row's video is never exchanged for another;
* a write with a stale fence changes nothing.

## What is assumed of a host

| kind of host | like | assumed | states | with rows taken up again |
|---|---|---|--:|--:|
"""

KINDS = {
    "exact": (
        "filter by reference; events carry it: Cloudflare Stream, the sandbox",
        "a call lands within its time-out or never; a look-up shows at once what has landed",
    ),
    "list": (
        "list and compare: Mux, FastPix",
        "the same; what was there when the reading of the list began is in it",
    ),
    "id-only": (
        "events carry only the video's id: api.video, Bunny Stream",
        "the same",
    ),
    "slow-index": (
        "a look-up lags behind",
        "the lag ends before the quiet time does, counted from when the call lands",
    ),
    "key": (
        "honours an idempotency key: the sandbox, if so set",
        "the key is remembered for as long as a row may be tried again",
    ),
    "key-late": (
        "the same, and calls may land at any later time",
        "the same; no quiet time is kept and none is needed",
    ),
}

CLOCK = """
A tick of the model is the shortest time that matters: a call has one, and the code keeps one (`creating.CLOCK_S`, half
of it) between the last moment at which a call can end and the end of its quiet time.
"""

RULES = {
    "intent": (
        "The claim is written before the call",
        "If the row said nothing of a call until it was answered, a worker that takes over would not know of it.",
    ),
    "look_first": (
        "Look up before a second create",
        "An open call may have made a video.",
    ),
    "quiet": (
        "Look only after the quiet time",
        "A look-up that finds nothing proves something only once the earlier call can no longer land. This is the "
        "heart of it: *the one way to a duplicate is a call that lands after the look-up*, and each of the next rules "
        "closes another way to it.",
    ),
    "on_time": (
        "Check the time before the call",
        "A worker that stood still would send its call when others have long looked and found nothing.",
    ),
    "fence": (
        "Write under the fence",
        "A worker that stood still would write “nothing is open here” over the intent of the one that took over.",
    ),
    "keep_open": (
        "A row that fails keeps its open call",
        "A dead letter can be taken up again by a person. If its last call was neither answered nor looked up, that "
        "must still be known.",
    ),
    "legal": (
        "Move only along the table of transitions",
        "Events come late and in any order.",
    ),
    "one_video": (
        "An event for another video moves nothing",
        "Here somebody deleted the first video at the host while its call was open, so that a second was made: the "
        "first one’s event must not reach the row.",
    ),
}


def page() -> str:
    parts = [HEAD + _kinds() + CLOCK, _rules(), _beyond(), _dead_letters(), _open_ends(), TAIL]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _kinds() -> str:
    rows = []
    for name, host in HOSTS.items():
        once, ever = busy(host), endless(host)
        assert once.violation is None and ever.violation is None
        rows.append(
            f"| `{name}` | {KINDS[name][0]} | {KINDS[name][1]} | {len(once.graph.states)} | {len(ever.graph.states)} |"
        )
    return "\n".join(rows) + "\n"


def _rules() -> str:
    parts = [
        "## What each rule is for\n\nEach is taken out of the model in turn; what follows is the shortest way to harm. "
        "A, B and C are workers;\nbetween two steps of one, any time may pass.\n"
    ]
    for name, (title, why) in RULES.items():
        found = explored(*WITHOUT[name])
        assert found.violation == BREAKS[name]
        parts.append(f"### {title}\n\n{_wrapped(why)}\n\nWithout it:\n\n{_steps(found.trace)}\n\n{_end(found)}\n")
    parts.append(
        "### Looking at once after a lost answer\n\n"
        + _wrapped(
            "This is no rule but a saving: without it the model breaks nothing. What was made is adopted a quiet time "
            "earlier, and the row is claimed once less."
        )
        + "\n"
    )
    return "\n".join(parts)


def _beyond() -> str:
    late, lag, gap = (explored(*BEYOND[name]) for name in ("late", "lag", "gap"))
    grown = explored(BEYOND["lag"][0], Rules(), PATIENT)
    apart = explored(BEYOND["lag"][0], Rules(waits_grow=False), PATIENT)
    assert {late.violation, lag.violation, gap.violation, grown.violation} == {"duplicate"}
    assert apart.violation is None
    return f"""\
## Where it ends

Three things lead to a duplicate with every rule in force. With an idempotency key none of them does.

### A host on which a call lands after its quiet time

{_steps(late.trace)}

`quiet_s` is a setting for this reason and the next.

### A look-up that lags behind for longer than what is left of the quiet time

{_steps(lag.trace)}

A longer `quiet_s` helps, but a longer quiet time also lets a worker wait longer before its call. With a tick more of
it a way is still open where the source was slow or the worker stood still:

{_steps(grown.trace)}

So `quiet_s` covers a late landing or a lag wherever the call was made at once and `timeout_s` and the lag fit into
it; where the call was made as late as it may be, {CLOCK_S / 2:g} s is left for both. If the time before the call were
bounded apart from the quiet time, a longer one would cover them always ({len(apart.graph.states)} states, no
duplicate).

### A process that stands still between its last check and the first byte of its call

{_steps(gap.trace)}

Between the two are some microseconds of our own code and the HTTP library’s, and no statement of ours can make them
none. The clock that is checked also stands still while a virtual machine is suspended: one that is frozen before its
call and thawed much later believes that no time has passed.

If it happens, nothing is hidden: the reconcile pass lists everything that is at the host, and names a second video of a
reference with the one that the row has. Removing it is offered, never done unasked.
"""


def _dead_letters() -> str:
    plain = explored(EXACT)
    stranded = plain.strands(dead_letters_count=False)
    letter = next(number for number in stranded if plain.graph.states[number].row.state == "failed")
    return f"""\
## Dead letters

A row whose attempts are used up fails, whether or not its last call made a video. The shortest way there, with two
attempts instead of five:

{_steps(told(plain.graph.trace(letter)))}

Where events carry our reference, the one that says “ready” makes the row `ready` all the same. Otherwise the row is
on the dead-letter list, and the reconcile pass names the video as one that no row owns. Taken up again, the row looks
first.
"""


def _open_ends() -> str:
    parts = [
        "## Ends that are open\n\n"
        + _wrapped(
            "Besides the time before the call, which a longer quiet time lets grow, the explorer finds these in the "
            "code as it stands. What they leave behind is named by the reconcile pass."
        )
        + "\n"
    ]
    again = explored(*TWICE)
    if again.violation is not None:
        assert again.violation == "duplicate"
        parts.append(
            _wrapped(
                "A row that is taken up again because the host could not process its video gives up that video and "
                "gets another. What is still said of the first one, by a late event or by a look-up that finds both, "
                "can be taken for the second:"
            )
            + f"\n\n{_steps(again.trace)}\n"
        )
    key = explored(HOSTS["key"])
    rejected = [n for n in key.strands(dead_letters_count=False) if key.graph.states[n].row.state == "rejected"]
    if rejected:
        parts.append(
            _wrapped(
                "With an idempotency key nothing is looked up before the create is repeated, so that a source which "
                "fails in between rejects a row whose video is there:"
            )
            + f"\n\n{_steps(told(key.graph.trace(rejected[0])))}\n"
        )
    return "\n".join(parts)


TAIL = """
## What is not promised

* Anything beyond the assumptions above: a host that lists without what it has, forgets keys, or lands calls hours
  later; a proxy between us and the host that repeats requests by itself.
* A video that somebody deletes at the host while its call is open may be made once more, since a look-up finds nothing.
  A row that an event of the deleted one then moves is put right by the reconcile pass.
* The model has one row. That rows do not disturb each other is shown by tests of the ledger and of whole runs.
* The model has no time but ticks: how long a lease, a quiet time or a call is, is a matter of `settings`.
"""


def _steps(trace: list[str]) -> str:
    return "\n".join(f"{n}. {words}" for n, words in enumerate(trace, 1))


def _end(found: Explored) -> str:
    return {
        "duplicate": "Two videos carry the reference.",
        "ready pulled back": "A video that plays counts as processing again.",
        "video exchanged": "The row has lost the video that it owned.",
    }[found.violation or ""]


def _wrapped(words: str) -> str:
    return textwrap.fill(words, 120, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"written: {PAGE}")
