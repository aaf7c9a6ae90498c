# Every target works on a fresh clone: it makes .venv, installs, fetches data, runs.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
RESULTS ?= results
DEVICE ?= cpu
BIN := .venv/bin
INSTALL := python -m pip install --quiet --disable-pip-version-check --no-compile  # compiled when first imported: half the time
unexport PYTHONDONTWRITEBYTECODE  # else torch is compiled anew by every process: 17 seconds of a core instead of 6

# make table2                    print the published table, make it anew with one seed in out/table2, hold the two against each other
# make table2 SEEDS=6, PROFILE=quick, STRICT=1, JOBS=4, DEVICE=cuda, RESULTS=elsewhere
# make table2 PROCESSES=2        each run on 2 processes of torchrun, one run after the other; also for radius and robust-network
# make tables                    render all tables from results/, without training
# make figures                   what is missing in results/; RESULTS=out: everything anew; also for radius, table1 and robust-network; DATASET=a9a
COMMON = --results $(RESULTS) --device $(DEVICE) $(if $(PROFILE),--profile $(PROFILE)) $(if $(SEEDS),--seeds $(SEEDS))
TRAIN_ON_PROCESSES = $(if $(PROCESSES),$(BIN)/torchrun --standalone --nproc-per-node $(PROCESSES) -m robustbench_dec train $(1) $(COMMON))
TABLE_OPTIONS = $(if $(JOBS),--jobs $(JOBS)) $(COMMON)

.PHONY: setup docs table1 table2 tables radius robust-network methods figures page tune lint style test all-tests quick fast-tests bench clean

setup: .venv/installed

.venv/installed: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed, not '$(PYTHON)'; set PYTHON=/path/to/python3.11" >&2; exit 2; }
	$(PYTHON) -m venv .venv
	$(BIN)/$(INSTALL) torch==2.13.0 torchvision==0.28.0 -e .
	@touch $@

.venv/tested: .venv/installed  # what only tests and lint need
	$(BIN)/$(INSTALL) -e '.[test]'
	@touch $@

table2: RESULTS := $(if $(filter file,$(origin RESULTS)),out/table2,$(RESULTS))
table2: SEEDS := $(or $(SEEDS),1)
table2: setup
	$(BIN)/robustbench-dec render tables/table2.toml
	$(BIN)/robustbench-dec data mnist cifar10
	$(call TRAIN_ON_PROCESSES,tables/table2.toml)
	$(BIN)/robustbench-dec reproduce tables/table2.toml $(TABLE_OPTIONS) $(if $(STRICT),--strict)

radius: setup  # Table 2's columns by the radius of y in training
	$(BIN)/robustbench-dec data mnist cifar10
	$(call TRAIN_ON_PROCESSES,tables/table2-radius.toml)
	$(BIN)/robustbench-dec table tables/table2-radius.toml $(TABLE_OPTIONS)

tables: setup  # from the results on disk
	for table in table2 table2-radius methods robust-network figures figures-split table1; do $(BIN)/robustbench-dec render tables/$$table.toml || exit; done

robust-network: setup  # MNIST on other graphs and on networks that lose messages
	$(BIN)/robustbench-dec data mnist
	$(call TRAIN_ON_PROCESSES,tables/robust-network.toml)
	$(BIN)/robustbench-dec table tables/robust-network.toml $(TABLE_OPTIONS)

methods: setup tables/methods-tune.csv  # every method on three ways to deal the data
	$(BIN)/robustbench-dec data mnist fashion-mnist
	$(BIN)/robustbench-dec table tables/methods.toml $(TABLE_OPTIONS)

tables/methods-tune.csv:
	$(BIN)/robustbench-dec data mnist
	$(BIN)/robustbench-dec tune tables/methods.toml $(if $(JOBS),--jobs $(JOBS)) --device $(DEVICE)

figures: setup  # Figures 1 and 2 and, but for a part of them, their second page
	$(BIN)/robustbench-dec table tables/figures.toml $(TABLE_OPTIONS) $(if $(DATASET),--dataset $(DATASET))
	$(if $(DATASET)$(PROFILE),,$(BIN)/robustbench-dec table tables/figures-split.toml $(TABLE_OPTIONS))

table1: setup  # make table1 RESULTS=out measures everything anew
	$(BIN)/robustbench-dec table tables/table1.toml --results $(RESULTS) --device $(DEVICE) $(if $(SEEDS),--seeds $(SEEDS))

page: setup  # tables/index.html from the results on disk
	$(BIN)/robustbench-dec page --results $(RESULTS)

tune: setup
	$(BIN)/robustbench-dec trials tables/protocol.toml --device $(DEVICE)
	$(BIN)/robustbench-dec tune tables/figures.toml --device $(DEVICE)
	$(BIN)/robustbench-dec tune tables/figures-split.toml --device $(DEVICE)
	$(BIN)/robustbench-dec tune tables/table1.toml --device $(DEVICE)

# Sphinx has an environment of its own inside .venv, because it wants a newer requests than torchattacks allows.
.venv/docs/installed: docs/requirements.txt | .venv/installed
	$(PYTHON) -m venv .venv/docs
	.venv/docs/bin/$(INSTALL) -r docs/requirements.txt
	@touch $@

docs: setup .venv/docs/installed  # docs/built/index.html; a warning or a broken link inside is an error
	$(BIN)/python docs/make_pages.py docs/made
	$(BIN)/python -m doctest -o ELLIPSIS docs/python.md
	.venv/docs/bin/sphinx-build -q -W --keep-going -b html docs docs/built

lint: style
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

style: .venv/tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Lint goes on beside the tests; all of them have a worker more than cores, as some wait for a process or a time-out.
ONE_MORE = $(shell echo $$(( $$(nproc 2>/dev/null || sysctl -n hw.ncpu) + 1 )))

test: .venv/tested .venv/docs/installed  # lint and all tests, on all cores
	@$(MAKE) --no-print-directory --jobs 2 lint all-tests

quick: style fast-tests  # ruff and the fast tests of every room

all-tests: .venv/tested .venv/docs/installed
	$(BIN)/python -m pytest -n $(ONE_MORE) --dist worksteal

fast-tests: .venv/tested
	$(BIN)/python -m pytest -n logical --dist worksteal -m "not slow and not ranks and not browser"

bench: setup  # hours: attack_strength attacks all of Table 2's networks
	$(BIN)/python benchmarks/training_speed.py
	$(BIN)/python benchmarks/attack_strength.py
	$(BIN)/python benchmarks/same_steps.py

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache
