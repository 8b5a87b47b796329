# Everything happens inside this folder: .venv (packages) and .gpufleet (the demo's state).
.DEFAULT_GOAL := help
BIN := .venv/bin
READY := .venv/.ready
WORKERS ?= 2

# The first Python that is new enough; empty where there is none.
PYTHON ?= $(shell for name in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$name -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$name && break; done)

.PHONY: test-style test-units test-flows test-real test-drivers help setup demo test format clean

help:
	@echo "make demo    a firmware rollout over 32 simulated nodes, in the terminal and in the Prefect UI"
	@echo "make test    ruff, mypy and all tests; those that need a part that is not here say so and skip"
	@echo "make setup   only the virtual environment"
	@echo "make format  let ruff put the code in shape"
	@echo "make clean   remove .venv, .gpufleet and caches"

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or later found: install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo "$(PYTHON) has no venv module: install it (Debian, Ubuntu: apt install python3-venv)"; exit 1; }
	@echo "setting up .venv with $(PYTHON); this takes a minute or two, once"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@$(BIN)/python -m cli.runtime.database
	@touch $(READY)

demo: $(READY)
	@$(BIN)/gpufleet demo

test: $(READY)
	$(MAKE) --no-print-directory -j 3 test-flows test-style test-units test-real test-drivers

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv .gpufleet .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis *.egg-info build

test-style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-units: $(READY)
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not prefect"

# What needs a Prefect server mostly waits: so sites run side by side, and beside the rest.
test-flows: $(READY)
	$(BIN)/python -m pytest -m prefect tests/flows

test-real: $(READY)
	$(BIN)/python -m pytest -m prefect tests/real

test-drivers: $(READY)
	$(BIN)/python -m pytest -m prefect tests/drivers
