# Needs Python 3.11 to 3.14, git and make; everything else comes into .venv. `make help` lists what there is.
.DEFAULT_GOAL := help
SHELL := /bin/sh
PY := .venv/bin/python
APP ?= harness_worker.demo.shop:registry
WORKERS ?= 3
MINUTES ?= 10
SEED ?= 1
PYTEST_ARGS ?=
export PYTHON

.PHONY: help demo test coverage check bench chaos acceptance up clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

demo: .venv/installed ## watch three turns of a small shop's support agent (no key needed)
	@.venv/bin/harness demo

test: .venv/installed-dev ## every test but the long ones, on real Valkey, Postgres and SQLite; style and layers too
	@echo "Running the tests (some minutes) …"
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup $(PYTEST_ARGS)

coverage: .venv/installed-dev ## the unit tests, which must reach every line and branch of harness_worker/core
	@$(PY) -m pytest -n $(WORKERS) --dist loadgroup tests/unit --cov=harness_worker/core --cov-fail-under=100 \
		--cov-report=term-missing:skip-covered $(PYTEST_ARGS)

check: .venv/installed-dev ## style, layers and types, without running anything
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@.venv/bin/lint-imports --no-cache
	@$(PY) -m pyright --pythonpath $(PY)

bench: .venv/installed-dev ## the measuring workload W1 beside a bare Celery canvas, in one run; WHAT=floor: the least it can cost
	@$(PY) -m tests.benchmarks.w1 $(WHAT)

chaos: .venv/installed-dev ## MINUTES=10 SEED=1: turns in a storm of kills, faults and outages; the figures
	@$(PY) -m tests.chaos.storm --minutes $(MINUTES) --seed $(SEED) $(if $(WEATHER),--weather $(WEATHER))

acceptance: .venv/installed-dev ## the long tests that `make test` leaves out
	@$(PY) -m pytest -m acceptance $(PYTEST_ARGS)

up: .venv/installed ## everything on this machine, serving APP (default: the shop); Ctrl-C stops it
	@.venv/bin/harness up --app $(APP)

clean: ## remove .venv and caches, keep .harness
	@rm -rf .venv .coverage .pytest_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info

.venv/installed: pyproject.toml .ci/constraints.txt
	@.ci/install
	@touch $@

.venv/installed-dev: pyproject.toml .ci/constraints.txt
	@.ci/install dev,workloads
	@touch $@ .venv/installed
