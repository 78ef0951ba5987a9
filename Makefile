# Everything there is to do with this repository; `make help` lists it. CI runs `make check` and nothing else.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.SUFFIXES:
# Tests start hundreds of processes: none of them is to compile the package again.
unexport PYTHONDONTWRITEBYTECODE

PYTHON ?= python3
BIN := .venv/bin
WAITING := $(PYTHON) deploy/waiting.py
KAFKA := $(PYTHON) deploy/kafka/local.py
PYTEST := $(BIN)/pytest
# More processes than cores: many tests wait for a broker.
PARALLEL = -n $(shell $(PYTHON) -c 'import os; print(3 * (os.cpu_count() or 1))')
BESIDE_KAFKA := $(KAFKA) with -- $(PYTEST)
# For Linux; colorama is of Windows alone.
LOCK := $(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 --constraint constraints.txt \
	--no-emit-package colorama --no-annotate --custom-compile-command "make lock"
CODE := service tests deploy benchmarks docs

# What runs every day: neither long tests nor those that need more than Python, Java and Maven.
DAILY := not nightly and not deploy_tools

.PHONY: help install fix check test demo first-steps kafka-up kafka-down bench papers nightly tools check-deploy policy-page \
        house mutants format-check lint types imports unit unit-nojit properties golden conformance doctest \
        integration faults privacy privacy-table judge-table init-table tune-table reliability lock soak

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: .venv/.installed ## install the package and its tools in .venv, at the versions of constraints.txt

.venv/.installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Shoal needs Python 3.11 or newer; on Debian: apt-get install python3 python3-venv")'
	@test -x $(BIN)/python || $(WAITING) "install: making .venv" $(PYTHON) -m venv .venv
	@$(WAITING) "install: pip brings itself up to date" $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade pip
	@$(WAITING) "install: pip fetches and installs the package and its tools" \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --build-constraint constraints.txt --editable . --group dev
	@touch $@

lock: install ## write deploy/image/*.txt: what the image installs, by hash, at the versions of constraints.txt
	@$(WAITING) "lock: pip fetches what resolves versions" \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group lock
	$(LOCK) pyproject.toml -o deploy/image/requirements.txt
	$(LOCK) --group image -o deploy/image/build-requirements.txt

fix: install ## format the code and apply the linter's automatic fixes
	$(BIN)/ruff check --quiet --fix-only $(CODE)
	$(BIN)/ruff format $(CODE)

check: format-check lint types imports unit-nojit doctest test ## run everything that CI runs

test: install ## run every test except the nightly ones and check-deploy; starts and stops a local broker
	$(BESIDE_KAFKA) $(PARALLEL) -m "$(DAILY)"

tools: ## build and unpack helm, kustomize, kubeconform, actionlint, toxiproxy, promtool, kcat, libfaketime in build/tools; ONLY='prometheus' selects some
	@$(PYTHON) deploy/tools/install.py $(ONLY)

check-deploy: install tools ## check charts, manifests, alerts and workflows with the tools of `make tools`
	$(BESIDE_KAFKA) -m "deploy_tools and not nightly"

demo: install ## anonymize a real data set through a local broker; V=1 shows each check; the last line is the summary
	@$(KAFKA) with -- $(BIN)/python deploy/demo/run.py $(if $(V),-v)

first-steps: install ## from a file to a report without an edit: init, check, tune, release, verify on three samples
	@$(KAFKA) with -- $(BIN)/python deploy/demo/first_steps.py

kafka-up: ## start a local Kafka in the background and print bootstrap=HOST:PORT; BROKERS=3 starts a cluster
	@$(KAFKA) $(if $(BROKERS),--brokers $(BROKERS)) up

kafka-down: ## stop the local Kafka and remove its data
	@$(KAFKA) down

bench: install ## measure speed and loss, write docs/reports/benchmarks.md; PARTS='loss order' selects parts
	@$(WAITING) "bench: pip fetches what results are compared with" \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group bench
	$(KAFKA) with -- $(BIN)/python benchmarks/bench.py $(PARTS)

soak: install ## run at half of the highest rate for SOAK_MINUTES (30), write docs/reports/soak.md
	@$(WAITING) "soak: pip fetches what figures are drawn with" \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group bench
	$(KAFKA) with -- $(BIN)/python benchmarks/soak.py

papers: install ## compute the tables and figures of five papers, write docs/reports/papers.md
	@$(WAITING) "bench: pip fetches what results are compared with" \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group bench
	PYTHONPATH=benchmarks $(BIN)/python -m papers

nightly: check-deploy ## run check-deploy, the tests that take longer than a minute, and the properties with more examples
	HYPOTHESIS_PROFILE=nightly $(BESIDE_KAFKA) -n auto -m "nightly or property" -raP

house: install ## print lines, files and import depth of each package, and the files that twenty messages pass
	PYTHONPATH=tests $(BIN)/python -m support.house

mutants: install ## change the code in 53 ways, one at a time, and list what no test notices; MUTANTS='rules' selects some
	$(BIN)/python tests/mutants/run.py $(MUTANTS)

.PHONY: policy-page
policy-page: install ## write docs/policy.md from the schema of the policy and docs/policy.template
	$(BIN)/python tests/support/policy_page.py

.PHONY: commands-page
commands-page: install ## write docs/commands.md from the parsers of the commands and docs/commands.template
	$(BIN)/python tests/support/commands_page.py

format-check: install ## check the formatting
	$(BIN)/ruff format --check $(CODE)

lint: install ## run ruff
	$(BIN)/ruff check $(CODE)

types: install ## run mypy in strict mode
	$(BIN)/mypy

imports: install ## check the import rules between packages
	$(BIN)/lint-imports

unit: install ## run the unit tests
	$(PYTEST) $(PARALLEL) -m "unit and $(DAILY)"

unit-nojit: install ## run the tests of the kernels without compilation, with their branch coverage
	NUMBA_DISABLE_JIT=1 $(PYTEST) $(PARALLEL) tests/unit/kernels tests/unit/protection tests/unit/scales tests/unit/streams tests/unit/tables tests/conformance -m "$(DAILY) and not own_interpreter" $(addprefix --cov=service/shoal/,kernels protection scales streams tables) --cov-branch --cov-report=term:skip-covered

properties: install ## run the property tests
	$(PYTEST) $(PARALLEL) -m "property and $(DAILY)"

golden: install ## compare results with numbers from the literature
	$(PYTEST) $(PARALLEL) -m "golden and $(DAILY)"

conformance: install ## compare each algorithm with its reference implementation
	$(PYTEST) $(PARALLEL) -m "conformance and $(DAILY)"

doctest: install ## run the examples in the docstrings
	$(PYTEST) --doctest-modules service/shoal

integration: install ## run the integration tests against a local broker
	$(BESIDE_KAFKA) $(PARALLEL) -m "integration and $(DAILY)"

faults: install ## run the fault tests: killed workers, malformed input
	$(BESIDE_KAFKA) $(PARALLEL) -m "faults and $(DAILY)"

privacy: install ## run the attack tests and the search for leaked values
	$(BESIDE_KAFKA) $(PARALLEL) -m "privacy and $(DAILY)"

privacy-table: install ## run the attack tests, write docs/reports/privacy.md
	$(KAFKA) with -- $(BIN)/python tests/support/privacy_table.py

.PHONY: reliability
reliability: install tools ## run the nightly faults of a cluster one by one, write docs/reports/reliability.md; FAULTS='leader' selects some
	$(BIN)/python tests/support/reliability.py $(if $(FAULTS),--only '$(FAULTS)')

init-table: install ## draft policies of tables that packages ship, write docs/reports/init.md
	@$(WAITING) "init-table: pip fetches packages with tables" \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group samples
	$(BIN)/python benchmarks/init_roles.py

tune-table: install ## try settings on first halves of data sets, compare with second halves, write docs/reports/tune.md
	$(BIN)/python benchmarks/tune_halves.py

judge-table: install ## judge the catalogue of falsified releases, write docs/reports/judge.md
	$(BIN)/python tests/support/judge_table.py
