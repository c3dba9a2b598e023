"""Which calls cross to another system, and whether each stands inside `with crossing("…")`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

LEDGER = {"budgets", "claims", "inbox", "listings", "redrive", "remotes", "runs"}
READS = {
    "budgets.pace_of",
    "claims.left",
    "inbox.state_of",
    "listings.place",
    "listings.tally",
    "remotes.age_s",
    "remotes.oldest",
    "remotes.seen",
    "remotes.waiting",
    "runs.holds",
    "runs.is_closed",
    "runs.pages_left",
}
"""What only asks the ledger: a kill there changes nothing."""
OTHERS = {
    "governor": {"changed", "freed", "held", "judged", "late", "observe", "start", "went_well"},
    "destination": {"aclose", "capabilities", "observe", "parse_event", "verify"},
    "source": {"aclose", "label", "model_dump", "stripeable"},
    "media": {"Inspection", "Limits"},
    "handle": set(),
    "question": set(),
}
"""What else is called across, by the name that it has in the code, with what of it stays in the process."""
CARRIERS = {"_asked"}
"""Functions that are given a call and make it inside their own crossing, as the calls of `question` prove."""


def unguarded(code: str, name: str = "snippet") -> list[str]:
    """Calls that cross outside of any crossing, as "file:line what"."""
    return [f"{name}:{node.lineno} {what}" for node, what in _walk(ast.parse(code), guarded=False)]


def used(code: str) -> set[str]:
    """The crossings that the code enters. Raises AssertionError where one is not named by a plain text."""
    found = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and _dotted(node.func) in ("crossing", "_reach"):
            [argument] = node.args
            assert isinstance(argument, ast.Constant), f"line {node.lineno}: a crossing is named by a plain text"
            found.add(str(argument.value).partition(":")[0])
    return found


def _walk(node: ast.AST, guarded: bool) -> Iterator[tuple[ast.expr, str]]:
    if isinstance(node, ast.Attribute | ast.Call) and not guarded and (what := _crossing(node)):
        assert isinstance(node, ast.expr)
        yield node, what
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _walk(child, guarded=False)  # it runs when it is called, not where it stands
        else:
            inside = guarded or _guards(node, child)
            yield from _walk(child, inside)


def _guards(node: ast.AST, child: ast.AST) -> bool:
    if isinstance(node, ast.With):
        return child in node.body and any(
            isinstance(item.context_expr, ast.Call) and _dotted(item.context_expr.func) == "crossing"
            for item in node.items
        )
    return isinstance(node, ast.Call) and child in node.args and _dotted(node.func) in CARRIERS


def _crossing(node: ast.Attribute | ast.Call) -> str | None:
    """What of another system is named here, or None."""
    if isinstance(node, ast.Call):
        name = _dotted(node.func)
        return name if name in OTHERS else None
    *path, attribute = _dotted(node).split(".")
    if not path or not isinstance(node.ctx, ast.Load):
        return None
    owner = path[-1].lstrip("_").lower()
    if path == [owner] and owner in LEDGER:
        word = f"{owner}.{attribute}"
        return None if word in READS or attribute[0].isupper() else word
    if owner in OTHERS and attribute not in OTHERS[owner]:
        return f"{owner}.{attribute}"
    return None


def _dotted(node: ast.AST) -> str:
    """ "a.b.c" for a.b.c, also where a is what a call returns; empty where it is anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return _dotted(node.func)
    return ""
