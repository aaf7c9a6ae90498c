# Every target works on a fresh clone: it makes .venv, installs, fetches data, runs.
PYTHON ?= python3.11
RESULTS ?= results
DEVICE ?= cpu
BIN := .venv/bin

# `make table2`, `make table2 PROFILE=quick`, `make table2 SEEDS=1`, `make table2 RESULTS=out` (a new folder: everything is trained anew)
TABLE_OPTIONS := --results $(RESULTS) --device $(DEVICE) $(if $(PROFILE),--profile $(PROFILE)) $(if $(SEEDS),--seeds $(SEEDS)) \
	$(if $(filter-out results,$(RESULTS)),--tables $(RESULTS))

.PHONY: setup table2 tune test bench clean

setup: .venv/installed

.venv/installed: pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is needed as '$(PYTHON)'; set PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0 torchvision==0.28.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

table2: setup
	$(BIN)/robustbench-dec data mnist cifar10
	$(BIN)/robustbench-dec table tables/table2.toml $(TABLE_OPTIONS)

tune: setup
	$(BIN)/robustbench-dec tune tables/table2.toml --device $(DEVICE)

test: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

bench: setup
	$(BIN)/python benchmarks/training_speed.py
	$(BIN)/python benchmarks/attack_strength.py

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache
