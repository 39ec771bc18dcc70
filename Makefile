# Two commands for a newcomer: `make serve` and `make test`. Everything else is for contributors.
# The virtual environment is made once, and again only when pyproject.toml changes.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
READY  := $(VENV)/.ready
DEV    := $(VENV)/.dev-ready
BENCH  := $(VENV)/.bench-ready
CLIENTS := $(VENV)/clients/.ready
# Many tests wait for real time, so there are more workers than cores.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(2 * (os.cpu_count() or 2))')
PARALLEL = -n $(WORKERS) --dist worksteal
# For most changes: a minute or two. The rest of `tests/docs` runs programs.
QUICK  := tests/unit tests/http2 tests/docs/test_architecture.py tests/docs/test_configuration.py \
          tests/docs/test_limits.py tests/docs/test_metrics_page.py
# Seeds, kills and published client suites: minutes of computing and of servers under load.
HEAVY  := tests/property tests/simulation tests/faults tests/clients \
          tests/conformance/test_differential.py tests/conformance/test_restarts.py
# The tests that coverage is measured with; it makes them twice as slow, and the heavy ones three times.
COVERED := tests/unit tests/engines tests/integration
# Property tests draw the same examples each time (`HYPOTHESIS_PROFILE=deep` draws others), which takes
# sets of bytes that have the same order in each process.
REPEATABLE := PYTHONHASHSEED=0
# Tests start hundreds of processes, and each would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help serve demo quick test test-heavy clients check format bench bench-etcd wire sync clean

help:  ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' Makefile

serve: $(READY)  ## run the server on 127.0.0.1:2379; ARGS="--listen 127.0.0.1:2390" changes that
	@$(BIN)/leasehold serve $(ARGS)

demo: $(READY)  ## the shortest demonstration of the library
	@$(BIN)/python examples/first_lease.py

quick: check  ## lint, types and the tests without processes, servers and long computing: for every edit
	$(BIN)/pytest -q $(PARALLEL) -m 'not slow' $(QUICK)

test: $(DEV)  ## run the tests that a change has to pass
	$(BIN)/pytest $(PARALLEL) --durations=25 $(HEAVY:%=--ignore=%)

test-heavy: $(DEV) $(CLIENTS)  ## run the rest: seeds, kills, published client suites; coverage
	$(REPEATABLE) $(BIN)/pytest $(PARALLEL) --durations=25 $(HEAVY)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q $(PARALLEL) $(COVERED)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

clients: $(CLIENTS)  ## make the environments of the real clients that tests use

check: $(DEV)  ## lint, formatting, types, generated code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/generate_sync.py --check

format: $(DEV)  ## fix what lint and format can fix by themselves
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(DEV) $(BENCH)  ## measure lease core, engine, transport, client, locks, events, renewal, registry, discovery and files; writes tables and plots in docs/
	$(BIN)/python -m benchmarks.lease_core $(ARGS)
	$(BIN)/python -m benchmarks.engine $(ARGS)
	$(BIN)/python -m benchmarks.transport $(ARGS)
	-$(BIN)/python tools/client_environments.py
	$(BIN)/python -m benchmarks.client $(ARGS)
	$(BIN)/python -m benchmarks.locks $(ARGS)
	$(BIN)/python -m benchmarks.events $(ARGS)
	$(BIN)/python -m benchmarks.renewal $(ARGS)
	$(BIN)/python -m benchmarks.registry $(ARGS)
	$(BIN)/python -m benchmarks.discovery $(ARGS)
	$(BIN)/python -m benchmarks.files $(ARGS)

bench-etcd: $(DEV) $(BENCH)  ## measure the server beside etcd 3.5.1; writes table and plot in docs/
	$(BIN)/python -m benchmarks.etcd $(ARGS)

wire: $(DEV)  ## generate the protobuf modules from src/leasehold/wire/protos
	$(BIN)/python tools/generate_wire.py

sync: $(DEV)  ## generate the blocking client from the async one
	$(BIN)/python tools/generate_sync.py

clean:  ## remove the virtual environment and all caches
	rm -rf $(VENV) .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "Leasehold needs Python 3.11 or newer; $(PYTHON) is %d.%d. Try: make PYTHON=python3.12 ..." % v[:2])'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade 'pip>=25.1'
	$(PIP) --editable .
	@touch $@

$(DEV): $(READY)
	$(PIP) --group dev
	@touch $@

$(CLIENTS): $(DEV) tools/client_environments.py $(wildcard tests/clients/requirements/* tests/clients/node/*)
	@mkdir -p $(@D)
	$(BIN)/python tools/client_environments.py
	@touch $@

$(BENCH): $(READY)
	$(PIP) --group bench
	@touch $@
