# `make demo` shows the product, `make test` checks it. Only Python 3.11 or newer has to be installed.
# PYTHON=... chooses the interpreter, ARGS=... is passed on to the program that the target runs.

PYTHON  ?= python3
ARGS    ?=
# The Django series to install, 5.2 for example. Without it pip takes the newest. Both PYTHON and DJANGO are
# read when $(VENV) is made or pyproject.toml has changed.
DJANGO  ?=
# The number of test processes: one more than a machine has cores, because many tests wait for processes. Each has
# databases of its own.
WORKERS ?= 3
# The program that `make prerequisites` gets its rights from: SUDO=sudo.
SUDO    ?=

VENV  := .venv
BIN   := $(VENV)/bin
# What the demo needs is installed, and what all other targets need.
DEMO  := $(VENV)/.installed-for-demo
STAMP := $(VENV)/.installed

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start hundreds of processes; without bytecode on disk each of them would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help test check lint types imports tests prerequisites coverage demo bench figures chaos docs format messages build clean

help:
	@echo 'make demo           Run a web site with the admin, and a worker with jobs (ARGS=--once: for a few seconds)'
	@echo 'make test           Check style, types and import layers, then run all tests (ARGS="-k name": some of them)'
	@echo 'make check          Check style, types and import layers only'
	@echo 'make tests          Run the tests only'
	@echo 'make coverage       Run the tests, and report the lines that no test reaches'
	@echo 'make chaos          Run the tests that take long: faults, long tables, PostgreSQL 16 to 18, a year of beat'
	@echo 'make bench          Run the benchmarks, for an hour (ARGS=--quick: ten minutes; ARGS=drain: one of them)'
	@echo 'make figures        Write the tables of the documentation from the recorded benchmarks'
	@echo 'make format         Let ruff rewrite what it can'
	@echo 'make messages       Bring the catalogues of the translations up to date'
	@echo 'make docs           Build the documentation in docs/_build/html'
	@echo 'make build          Build the wheel and the source distribution in dist'
	@echo 'make prerequisites  Install PostgreSQL 15 to 18, PgBouncer and Redis, with apt-get and as root (SUDO=sudo)'
	@echo 'make clean          Delete what these targets made, except .venv and .postgres'

# The tests come last, so that their summary is the last line of the output.
test: check tests

check: lint types imports

# An environment is installed again only when pyproject.toml has changed.
$(DEMO): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "$$($(PYTHON) --version) is too old, Python 3.11 is needed. Run: make PYTHON=python3.13 $(MAKECMDGOALS)"; \
	  exit 1; }
	@test -x $(BIN)/python || { echo 'Creating $(VENV) ...'; $(PYTHON) -m venv $(VENV); }
	@echo 'Installing Django, psycopg and an embedded PostgreSQL ...'
	@$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@$(BIN)/python -m pip install --editable . --group postgres $(if $(DJANGO),'Django~=$(DJANGO).0')
	@# Python 3.11 installs setuptools into every environment; its import hook costs time, and no package here needs it.
	@$(BIN)/python -m pip uninstall --quiet --yes setuptools 2>/dev/null || true
	@touch $@

$(STAMP): $(DEMO)
	@echo 'Installing the tools of the developers, which takes a minute or two ...'
	@$(BIN)/python -m pip install --quiet --editable . --group dev $(if $(DJANGO),'Django~=$(DJANGO).0')
	@# django-celery-beat would install an older Django than the one that was chosen.
	@! $(BIN)/python -c 'import sys, django; sys.exit(django.VERSION >= (6, 1))' || \
	  $(BIN)/python -m pip install --quiet --group celery-beat
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

# The tests run without these programs, and report at their end what they skipped.
prerequisites: $(STAMP)
	@$(SUDO) $(BIN)/python -m tests.support.install_prerequisites || true

coverage: $(STAMP)
	$(BIN)/pytest -n $(WORKERS) --dist worksteal --cov --cov-report=term $(ARGS)

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

messages: $(STAMP)
	@$(BIN)/python -m tests.support.catalogues

demo: $(DEMO)
	@$(BIN)/python testproject/manage.py demo $(ARGS)

bench: $(STAMP)
	$(BIN)/python -m benchmarks $(ARGS)

figures: $(STAMP)
	$(BIN)/python -m benchmarks.report $(ARGS)

chaos: $(STAMP)
	$(BIN)/pytest tests -m chaos -n $(WORKERS) $(ARGS)

docs: $(STAMP)
	$(BIN)/sphinx-build --fail-on-warning --keep-going --builder html $(ARGS) docs docs/_build/html
	@echo 'Open docs/_build/html/index.html'

build: $(STAMP)
	$(BIN)/python -m hatchling build

clean:
	rm -rf build dist docs/_build .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis htmlcov .coverage*
