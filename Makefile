# `make help` lists the commands.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
# Two processes: much of a test is compiling, which takes one core. A file stays in one process.
PYTEST ?= $(BIN)/python -m pytest -n 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup train test test-all check format bench figures constraints clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## make .venv and install into it

# Done anew where the dependencies have changed, quick otherwise.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "moozi: error: Python 3.11 or newer is needed, and $(PYTHON) is" \
	    "$$($(PYTHON) --version 2>/dev/null || echo 'not there'); name another: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,envs]'
	@touch $(STAMP)

train: setup ## train MinAtar Breakout for about five minutes
	$(BIN)/moozi train config/minatar/breakout_short.yaml

test: setup ## the tests, under 12 minutes on two cores
	$(PYTEST) -m 'not slow and not learning and not bench'

test-all: setup ## the tests, those that train, measure or need Chromium among them
	$(PYTEST)

check: setup ## style, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## put the code into its style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure the speed of the parts and of the whole
	$(BIN)/python scripts/bench.py
	$(BIN)/python scripts/bench_rollout.py
	$(BIN)/python scripts/bench_reanalyze.py
	$(BIN)/python scripts/bench_envs.py atari
	$(BIN)/python scripts/bench_memory.py
	$(BIN)/python scripts/bench_saving.py

# All of them are tried: one whose results are missing says so and does not keep the others back.
figures: setup ## draw the thesis's figures from committed results
	@status=0; for figure in 5_1 5_2 5_3; do $(BIN)/python -m thesis_figures.figure_$$figure || status=$$?; done; exit $$status

constraints: setup ## renew constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/python scripts/make_constraints.py

clean: ## remove .venv and what tools left
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
