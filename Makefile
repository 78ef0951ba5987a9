# Everything there is to do with this repository; `make help` lists it. CI runs `make check` and nothing else.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.SUFFIXES:

PYTHON ?= python3
BIN := .venv/bin
KAFKA := $(PYTHON) deploy/kafka/local.py
PYTEST := $(BIN)/pytest
BESIDE_KAFKA := $(KAFKA) with -- $(PYTEST)
CODE := service tests deploy benchmarks docs

.PHONY: help install fix check test demo kafka-up kafka-down bench papers nightly \
        mutants format-check lint types imports unit unit-nojit properties golden conformance doctest integration faults privacy privacy-table

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: .venv/.installed ## the package and its tools in .venv, at the versions of constraints.txt

.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Shoal needs Python 3.11 or newer; on Debian: apt-get install python3 python3-venv")'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade pip
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --build-constraint constraints.txt --editable . --group dev
	@touch $@

fix: install ## format, and mend what the linter can mend
	$(BIN)/ruff check --quiet --fix-only $(CODE)
	$(BIN)/ruff format $(CODE)

check: format-check lint types imports unit-nojit doctest test ## all that CI does

test: install ## every test but the nightly ones, against a real broker that it starts and stops
	$(BESIDE_KAFKA) -m "not nightly"

demo: install ## the main job on real input against a real broker; the summary is the last line
	@$(KAFKA) with -- $(BIN)/python deploy/demo/run.py

kafka-up: ## start a local Kafka in the background and print bootstrap=HOST:PORT
	@$(KAFKA) up

kafka-down: ## stop it and remove its data
	@$(KAFKA) down

bench: install ## ratios to the best there is elsewhere; PARTS='loss order' for some of it
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group bench
	$(KAFKA) with -- $(BIN)/python benchmarks/bench.py $(PARTS)

papers: install ## every table and figure of the papers beside ours: docs/papers.md
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group bench
	PYTHONPATH=benchmarks $(BIN)/python -m papers

nightly: install ## what is too long for every day
	HYPOTHESIS_PROFILE=nightly $(BESIDE_KAFKA) -m nightly -raP

mutants: install ## break the code in 49 ways, one at a time, and list what no test finds; MUTANTS='rules' for some
	$(BIN)/python tests/mutants/run.py $(MUTANTS)

format-check: install ## is everything formatted?
	$(BIN)/ruff format --check $(CODE)

lint: install ## ruff
	$(BIN)/ruff check $(CODE)

types: install ## mypy, strict
	$(BIN)/mypy

imports: install ## the rooms and the doors between them
	$(BIN)/lint-imports

unit: install ## unit tests
	$(PYTEST) -m "unit and not nightly"

unit-nojit: install ## unit and conformance tests without compilation, with the branches covered
	NUMBA_DISABLE_JIT=1 $(PYTEST) -m "(unit or conformance) and not nightly" --cov=service/shoal --cov-branch --cov-report=term:skip-covered

properties: install ## what must hold whatever the input
	$(PYTEST) -m "property and not nightly"

golden: install ## published numbers
	$(PYTEST) -m "golden and not nightly"

conformance: install ## the method against its naive twin
	$(PYTEST) -m "conformance and not nightly"

doctest: install ## the examples of the docstrings
	$(PYTEST) --doctest-modules service/shoal

integration: install ## against a real broker
	$(BESIDE_KAFKA) -m "integration and not nightly"

faults: install ## kills and hostile input
	$(BESIDE_KAFKA) -m "faults and not nightly"

privacy: install ## attacks and canaries
	$(BESIDE_KAFKA) -m "privacy and not nightly"

privacy-table: install ## docs/privacy.md: how far each attack comes
	$(KAFKA) with -- $(BIN)/python tests/privacy/table.py
