# make setup | demo | up | down | test | fuzz | check | format | lock | clean
PYTHON ?= python3
VENV   := .venv
PY     := $(VENV)/bin/python

.PHONY: help setup demo up down test fuzz check format lock clean
.DEFAULT_GOAL := help

help:
	@echo "make setup   a virtual environment in .venv from requirements.lock"
	@echo "make demo    migrate a small library of real videos into the sandbox, on an embedded stack"
	@echo "make up      start the embedded stack and leave it running;  make down  stops it"
	@echo "make test    the tests, against real servers;  make check  lint and types;  make format  mends what it can"
	@echo "make fuzz    the tests that draw their examples, with new ones"
	@echo "make lock    resolve pyproject.toml into requirements.lock again"

# The stamp names the lock it was made from, so that a changed lock makes the environment anew.
$(VENV)/.stamp: requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Longhaul needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "making $(VENV) from requirements.lock (once)"
	@$(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

setup: $(VENV)/.stamp

demo: setup
	@$(PY) starter.py demo

up: setup
	@$(PY) -m devstack up

down: setup
	@$(PY) -m devstack down

test: setup
	@$(PY) -m pytest -n 4 --dist loadfile --no-loadscope-reorder

# Examples that no run has tried yet, for the tests that draw theirs.
fuzz: setup
	@$(PY) -m pytest -n 3 -m hypothesis --hypothesis-profile=search

check: setup
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy

format: setup
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

lock: setup
	@$(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header --all-extras pyproject.toml -o requirements.lock
	@$(PY) -m uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-header pyproject.toml -o requirements-runtime.lock

clean: down
	rm -rf .longhaul $(VENV)
