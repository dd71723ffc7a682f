# make demo     install, then check and talk to the bundled model (PROMPT=TEXT asks it that)
# make demo MODEL=FOLDER AUDIO=FILE     the real job: real Whisper weights, real speech
# make test     install, then every package's tests (T="-k name" passes options to pytest)
# make check    format, lint, types and every test: what CI runs
# make fix      let the tools repair format and lint

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
.PHONY: help setup demo test check fix long kit clean $(wildcard plugins/*/tests)

VENV ?= .venv
BIN := $(VENV)/bin
# PYTHON makes the environment: the first of these that really runs and is new enough.
PYTHON ?= $(shell for p in python3.11 python3.12 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
STAMP := $(VENV)/.installed
JOBS ?= 2
T ?=
MODEL ?=
AUDIO ?=
PROMPT ?=
# What make demo says, a turn each.
TALK := "Hello!" "What is 348 + 275?" "Reverse QXKBD" "Count from 7 to 12." \
	"Anna is in the park. Ben is in the barn. Anna goes to the library. Where is Anna?" \
	"Where is Ben?" "What is the capital of France?" "Write a sentence about the fox." "Goodbye!"
PACKAGES := . $(patsubst %/,%,$(sort $(dir $(wildcard plugins/*/pyproject.toml))))
SUITES := $(shell du -s plugins/*/tests | sort -rn | cut -f2)
QUICK = $(BIN)/python -m pytest -q -m "not long and not gpu"
SOURCES := mstar_core plugins tests tools conftest.py
export OMP_NUM_THREADS ?= 1

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml requirements-dev.txt $(wildcard plugins/*/pyproject.toml)
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or newer was found: make PYTHON=/path/to/python"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	pip="$(BIN)/python -m pip --disable-pip-version-check --quiet"
	# A plain torch may bring a CUDA build of several GB, so the version known to be small goes first.
	$(BIN)/python -c 'import torch' 2>/dev/null || $$pip install 'torch==2.13.0' || $$pip install torch
	$$pip install 'hatchling>=1.27' 'editables>=0.5'
	$$pip install --no-build-isolation -r requirements-dev.txt
	touch $@

demo: setup
ifneq ($(MODEL)$(AUDIO),)
	@test -n "$(MODEL)" && test -n "$(AUDIO)" || { echo "give both: make demo MODEL=FOLDER AUDIO=FILE"; exit 1; }
	$(BIN)/mstar-core transcribe whisper.yaml --set "model.path=$(MODEL)" "$(AUDIO)"
else
	@$(BIN)/mstar-core list-plugins
	$(BIN)/mstar-core check qwen35_micro
	turns=($(if $(PROMPT),"$(PROMPT)",$(TALK)))
	$(BIN)/mstar-core generate qwen35_micro --chat --report "$${turns[@]/#/--prompt=}"
	@echo
	echo "A real model next:"
	echo "  $(BIN)/mstar-core serve echo      # a server without a model, ready in seconds"
	echo "  $(BIN)/mstar-core generate qwen35.yaml --set model.path=FOLDER-or-hub-id --chat --prompt \"...\""
	echo "  make demo MODEL=WHISPER-FOLDER AUDIO=FILE.wav"
endif

# No package's tests lean on another's. The core's are shared out over processes, in runs of
# neighbours with fixtures in common; then the plugins', JOBS beside each other, the longest first.
test: setup
	@$(QUICK) tests -n $(JOBS) --dist worksteal $(T) || test $$? = 5
	$(MAKE) --no-print-directory --output-sync --jobs $(JOBS) $(SUITES)

$(SUITES):
	@echo "== $(@:%/tests=%)"
	$(QUICK) $@ $(T) || test $$? = 5

check: setup
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	@$(MAKE) --no-print-directory test

fix: setup
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

long: setup
	@for package in $(PACKAGES); do
		test -d "$$package/tests" || continue
		$(BIN)/python -m pytest "$$package/tests" -n $(JOBS) -q -m "long" $(T) || test $$? = 5
	done

# The conformance suites alone: what a plugin's author runs.
kit: setup
	$(BIN)/python -m pytest tests/contract -n $(JOBS) -q $(T)
	@for package in $(PACKAGES); do
		test "$$package" = . && continue
		$(BIN)/python -m pytest "$$package/tests" -n $(JOBS) -q -k "contract or conformance" $(T) || test $$? = 5
	done

clean:
	rm -rf $(VENV) dist build .pytest_cache .mypy_cache .ruff_cache
