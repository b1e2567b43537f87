# Everything a newcomer needs: `make demo` to see it run, `make test` to check it.
# Python 3.11+ is all that must be installed; PYTHON=... chooses one, ARGS=... is passed on.

PYTHON  ?= python3
ARGS    ?=
# How many test processes; each has a database of its own.
WORKERS ?= 2

VENV  := .venv
BIN   := $(VENV)/bin
STAMP := $(VENV)/.installed

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help test check lint types imports tests prerequisites coverage demo bench chaos docs format build clean

help:
	@echo 'make demo    a web site with the admin, a worker, and jobs flowing (ARGS=--once: a short tour)'
	@echo 'make test    lint, types, import layers, and the whole test suite (ARGS="-k name": some of it)'
	@echo 'make format  let ruff rewrite what it can'
	@echo 'make docs    the documentation, in docs/_build/html'
	@echo 'make bench   the benchmarks        make chaos     the fault tests'
	@echo 'make prerequisites  PostgreSQL 15 to 18 and PgBouncer for the tests, where apt-get and root can install them'
	@echo 'make build   wheel and sdist       make coverage  the suite, with a report of what it misses'

# The suite comes last: its closing line is the last thing to read.
test: check tests

check: lint types imports

# Installed again only when pyproject.toml has changed.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Expected Python 3.11 or newer, got $$($(PYTHON) --version). Run: make PYTHON=python3.13 $(MAKECMDGOALS)"; \
	  exit 1; }
	@test -x $(BIN)/python || { echo 'Making $(VENV) ...'; $(PYTHON) -m venv $(VENV); }
	@echo 'Installing ...'
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --quiet --editable . --group dev
	@# Python 3.11 puts it into every environment, with a hook that looks at each import; nothing here asks for it.
	@$(BIN)/python -m pip uninstall --quiet --yes setuptools 2>/dev/null || true
	@touch $@

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports --no-logo

tests: $(STAMP)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal $(ARGS)

# The suite runs without these, and says at its end what it skipped.
prerequisites: $(STAMP)
	@$(BIN)/python -m tests.support.install_prerequisites || true

coverage: $(STAMP)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --cov --cov-report=term $(ARGS)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: $(STAMP)
	@$(BIN)/python testproject/manage.py demo $(ARGS)

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(ARGS)

chaos: $(STAMP)
	$(BIN)/pytest tests/faults -m 'chaos or not chaos' -n $(WORKERS) $(ARGS)

docs: $(STAMP)
	$(BIN)/sphinx-build --fail-on-warning --keep-going --builder html $(ARGS) docs docs/_build/html
	@echo 'Open docs/_build/html/index.html'

build: $(STAMP)
	$(BIN)/python -m hatchling build

clean:
	rm -rf build dist docs/_build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis htmlcov .coverage*
