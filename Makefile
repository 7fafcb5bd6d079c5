# The commands of this project. Every target creates .venv if it is missing.

# The first Python that is new enough and can create virtual environments; python3 if there is none, for its message.
USABLE := import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(or $(shell for candidate in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do \
	$$candidate -c '$(USABLE)' >/dev/null 2>&1 && { echo $$candidate; break; }; done),python3)
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check
PROJECT := -c constraints.txt -e '.[dev]'
# This file exists if .venv has the versions of pyproject.toml and constraints.txt.
STAMP := $(VENV)/.installed

# Tests start hundreds of processes; without bytecode each would compile all its imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo test check types lint docs sync bench crash chaos screenshots requirements frameworks clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  PYTHON=python3.12 chooses the interpreter (3.11 or newer), ARGS=... is passed to pytest, bench, crash, chaos and frameworks."

setup: $(STAMP) ## Create .venv with all development dependencies

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null 2>&1 \
		|| { echo "$(PYTHON) not found. Install Python 3.11 or newer, or set its path: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "$(PYTHON) is $$($(PYTHON) -V 2>&1). Python 3.11 or newer is required. Set its path: make $(or $(MAKECMDGOALS),setup) PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "$(PYTHON) cannot create virtual environments. Install its venv package (Debian: python3-venv)."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@# uv needs a third of the time of pip. pip is used if uv cannot be installed or cannot reach the package index.
	@# Neither compiles the modules, which would take half a minute. Python compiles those that it imports.
	@$(PIP) -c constraints.txt uv 2>/dev/null && UV_NATIVE_TLS=1 $(BIN)/uv pip install --quiet --python $(BIN)/python $(PROJECT) \
		|| $(PIP) $(PROJECT)
	@touch $@

demo: $(STAMP) ## Kill an agent during a payment and resume it
	$(BIN)/python examples/demo.py
	@echo
	@echo "# To see the pages with scripted agents, run this and open http://127.0.0.1:8765"
	@echo "$$ $(BIN)/lockstitch serve --demo"

test: $(STAMP) ## Run the tests on all three backends; install Chromium if it is missing
	@$(BIN)/python -m tools.browser >/dev/null
	$(BIN)/python -m pytest --processes 4 --spread-backends $(ARGS)

# One recipe, so that the cheap checks run first and the count last, also with make -j. The documentation and the type
# checker use one processor each, so they run while the tests are collected.
check: $(STAMP) ## Run everything that CI runs: lint, generated files, types, layers, docs, tests, requirements
	@$(MAKE) --no-print-directory lint
	@$(MAKE) --no-print-directory -j3 docs types test ARGS=
	$(BIN)/python tools/requirements.py

types: $(STAMP)
	$(BIN)/pyright --pythonpath $(BIN)/python

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python tools/generate_sync.py --check
	$(BIN)/python -m tools.check_prose
	$(BIN)/lint-imports

# The variable hides a warning about the theme, see docs/decisions/0001-dependencies.md.
docs: $(STAMP) ## Build the documentation site into build/site; fail on broken links and undocumented names
	$(BIN)/python -m tools.generate_cli_reference --check
	$(BIN)/python -m tools.generate_record_reference --check
	$(BIN)/python -m tools.generate_comparison --check
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

sync: $(STAMP) ## Generate src/lockstitch/sync from the async classes
	$(BIN)/python tools/generate_sync.py

bench: $(STAMP) ## Run the benchmarks; write build/bench.json; ARGS=--peers compares with other systems and writes README.md
	$(BIN)/python -m benchmarks $(ARGS)

crash: $(STAMP) ## Kill processes at every point and check the record
	$(BIN)/python -m tests.crash $(ARGS)

chaos: $(STAMP) ## Kill, stop and disconnect workers for a minute and check the record
	$(BIN)/python -m tests.chaos $(ARGS)

screenshots: $(STAMP) ## Take screenshots of every page; write build/screenshots
	$(BIN)/python -m tools.screenshots $(ARGS)

requirements: $(STAMP) build/requirements.json ## Count the requirement lines that the last full test run proved
	@$(BIN)/python tools/requirements.py

# Only the first time: later counts read the last full run instead of repeating it.
build/requirements.json: | $(STAMP)
	@$(MAKE) --no-print-directory test ARGS=

frameworks: $(STAMP) ## Run suites and unchanged clients of other frameworks, in their own environments (needs Node.js)
	cd frameworks/ui && npm install --silent --no-package-lock
	$(BIN)/python -m pytest -p no:cacheprovider frameworks $(ARGS)

clean: ## Delete all generated files and .venv
	rm -rf $(VENV) build dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis .schemathesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
