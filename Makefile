# `make help` lists the commands.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
AXE := $(VENV)/axe/node_modules/axe-core/axe.min.js
# Two processes; the tests of one file share a process, so that they share compiled functions.
# In the order of names, long files come before short ones that fill up the other worker.
PYTEST ?= $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
# Compiling is most of the work of the quick tests. Without LLVM's optimizations they take a fifth less processor time,
# and without the fusion emitters and parallel code generation a third less than that. `make test-all` compiles as users
# do. An unknown flag ends the process; jaxlib 0.11.2 has no flag for the fusion emitters.
UNOPTIMIZED := --xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false
UNOPTIMIZED += --xla_cpu_parallel_codegen_split_count=1

.DEFAULT_GOAL := help
.PHONY: help setup train test test-all axe trackers check format bench bench-gpu bench-scale figures zoo-check docs screenshots constraints clean

help: ## list the commands
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## create .venv and install into it
ifeq ($(origin PYTHON),command line)
	@test "$$($(BIN)/python -V)" = "$$($(PYTHON) -V)" || { \
	  echo "moozi: error: $(VENV) has $$($(BIN)/python -V), and $(PYTHON) is $$($(PYTHON) -V); run make clean first" >&2; \
	  exit 2; }
endif

# Runs again only if the dependencies changed.
$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "moozi: error: Python 3.11 or newer is required; $(PYTHON) is" \
	    "$$($(PYTHON) --version 2>/dev/null || echo missing); choose another: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs,envs]'
	@touch $(STAMP)

train: setup ## train MinAtar Breakout for about five minutes
	$(BIN)/moozi train minatar/breakout_short

# Tests start many processes, which share compiled modules also where the environment forbids writing them.
test: setup ## run the tests, under 5 minutes on two cores
	PYTHONDONTWRITEBYTECODE= XLA_FLAGS='$(UNOPTIMIZED)' $(PYTEST) -m 'not slow and not learning and not bench'

test-all: setup axe trackers ## run all tests, including slow ones, learning runs and pages in Chromium
	$(PYTEST)

axe: setup $(AXE) ## install axe-core, which checks pages for accessibility in tests; needs npm

$(AXE):
	-npm install --silent --no-save --no-package-lock --prefix $(VENV)/axe axe-core@4.14.1

trackers: setup ## install Weights & Biases and MLflow, whose sinks tests try offline
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[wandb,mlflow]'

check: setup ## check style, types and import contracts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## measure the speed of each part and of the whole
	$(BIN)/python scripts/bench.py
	$(BIN)/python scripts/bench_start.py
	$(BIN)/python scripts/bench_acting.py
	$(BIN)/python scripts/bench_rollout.py
	$(BIN)/python scripts/bench_inference.py
	$(BIN)/python scripts/bench_reanalyze.py
	$(BIN)/python scripts/bench_envs.py
	$(BIN)/python scripts/bench_atari.py
	$(BIN)/python scripts/bench_memory.py
	$(BIN)/python scripts/bench_saving.py
	$(BIN)/python scripts/bench_passing.py

bench-gpu: setup ## measure Pong on a machine with one GPU, in a quarter of an hour
	$(BIN)/python scripts/bench_gpu.py parts
	$(BIN)/python scripts/bench_gpu.py modes
	$(BIN)/python scripts/bench_gpu.py learning

bench-scale: setup ## measure the driver, replay and Ray alone, with 1 to 32 workers that wait
	$(BIN)/python scripts/bench_scale.py

# Writes the tables of experiments, and draws their pictures and every thesis figure that has results; reports missing results, and fails at the
# end if there are any.
figures: setup ## write the tables and draw the pictures and figures from committed results
	$(BIN)/python -m experiments.minatar_vs_ppo.analysis --readme > /dev/null
	$(BIN)/python -m experiments.lib.tables --readme > /dev/null
	$(BIN)/python -m experiments.peers.pages --readme > /dev/null
	$(BIN)/python scripts/make_results_page.py
	$(BIN)/python -m experiments.lib.pictures > /dev/null
	@status=0; for figure in figure_5_1 figure_5_2 figure_5_3 minutes; do $(BIN)/python -m thesis_figures.$$figure || status=$$?; done; exit $$status

zoo-check: setup ## play the zoo's agents again and compare with their cards
	$(BIN)/python scripts/check_zoo.py

docs: setup ## build the documentation site into site/; a warning is an error
	$(BIN)/python docs/figures
	$(BIN)/python scripts/make_config_page.py
	$(BIN)/python scripts/make_results_page.py
	$(BIN)/python scripts/make_environment_pages.py
	$(BIN)/python scripts/make_scale_page.py
	$(BIN)/python -m sphinx -W --keep-going -q -E -c docs -d build/doctrees . site
	@echo "site/index.html"

screenshots: setup ## make the pictures of docs/images again (apt-get install chromium)
	$(BIN)/python scripts/make_screenshots.py
	$(BIN)/python scripts/make_environment_pictures.py

constraints: setup ## update constraints.txt with a resolver
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(BIN)/python scripts/make_constraints.py

clean: ## remove .venv and tool caches
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
