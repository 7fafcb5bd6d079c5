# The commands of this project. Every target creates .venv if it is missing.

# The first Python that is new enough and can create virtual environments; python3 if there is none, for its message.
USABLE := import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(or $(shell for candidate in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do \
	$$candidate -c '$(USABLE)' >/dev/null 2>&1 && { echo $$candidate; break; }; done),python3)
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
# Says that .venv holds what pyproject.toml and constraints.txt ask for.
STAMP := $(VENV)/.installed

# Tests start hundreds of processes; without bytecode every one would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test check bench crash chaos screenshots requirements clean

help: ## List what can be done here
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12 chooses the interpreter (3.11 or newer), ARGS=... goes on to pytest, bench, crash and chaos."

setup: $(STAMP) ## Make .venv with everything that development needs

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null 2>&1 \
		|| { echo "There is no $(PYTHON). Install Python 3.11 or newer, or name one: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is $$($(PYTHON) -V 2>&1), and 3.11 or newer is needed. Name one: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) cannot make virtual environments. Install its venv package (Debian: python3-venv)."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

demo: $(STAMP) ## Show in a minute what this is for
	$(BIN)/python examples/demo.py
	@echo
	@echo "# The pages: an office of agents to look at and to steer. Run this, and open http://127.0.0.1:8765"
	@echo "$$ $(BIN)/lockstitch serve --demo"

test: $(STAMP) ## Run the tests on all three backends; install Chromium if there is none
	@$(BIN)/python -m tools.browser >/dev/null
	$(BIN)/python -m pytest -n 3 --dist worksteal $(ARGS)

# One recipe, so that the cheap checks speak first and the count comes last, with make -j too.
check: $(STAMP) ## Run all that CI runs: lint, types, floors, tests, requirements
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	@$(MAKE) --no-print-directory test ARGS=
	$(BIN)/python tools/requirements.py

bench: $(STAMP) ## Measure against the raw floor, into build/bench.json
	$(BIN)/python -m benchmarks $(ARGS)

crash: $(STAMP) ## Kill real processes at every point and look what is left
	$(BIN)/python -m tests.crash $(ARGS)

chaos: $(STAMP) ## Kill, stop and cut off workers on one database for a minute, and look what is left
	$(BIN)/python -m tests.chaos $(ARGS)

screenshots: $(STAMP) ## Take pictures of every page, into build/screenshots
	$(BIN)/python -m tools.screenshots $(ARGS)

requirements: $(STAMP) build/requirements.json ## Count the requirement lines that the last full test run proved
	@$(BIN)/python tools/requirements.py

# Only for the first time: later counts read the last full run instead of repeating it.
build/requirements.json: | $(STAMP)
	@$(MAKE) --no-print-directory test ARGS=

clean: ## Remove everything that was made here, .venv too
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis .schemathesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
