# Frazil: every command installs what it needs, without root and without Maven.
# `make help` lists them. PYTHON=/path/to/python3.11 chooses the interpreter, PYTEST_ARGS adds arguments.

SHELL := /bin/sh
.DEFAULT_GOAL := help
export PYTHON

PY := .venv/bin/python
PYTEST_ARGS ?=
# Two workers, of which one begins with the tests that need Spark: see tests/conftest.py.
WORKERS := -n 2 --dist loadscope
COMPILE := uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--no-emit-index-url --no-annotate --no-header
RUN_EXTRAS := --extra server --extra postgres --extra s3 --extra parquet --extra pyiceberg --extra spark-local

.PHONY: help
help: ## List the commands
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  make %-22s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: run-environment ## Create .venv with .venv/bin/frazil, then check the machine
	@.venv/bin/frazil doctor

.PHONY: demo
demo: ## Show sixteen writers, one conflict, a MERGE by Spark, a compaction beside deletes
	@scripts/bootstrap.sh run --say
	@$(PY) demo/demo.py

.PHONY: serve
serve: run-environment ## Start the catalog on port 8181 (./frazil.db, ./warehouse)
	@.venv/bin/frazil serve $(ARGS)

.PHONY: test
test: test-environment ## Run the tests with real components, about 15 minutes
	@$(PY) scripts/jars.py fetch spark spark-s3 kit
	@$(PY) -m pytest $(WORKERS) $(PYTEST_ARGS)

.PHONY: test-fast
test-fast: test-environment ## Run the tests without Spark, PostgreSQL and processes, about a minute
	@$(PY) -m pytest --fast -n 2 --dist loadfile $(PYTEST_ARGS)

.PHONY: test-full
test-full: test-environment ## Run the tests with new random examples and the slow tests
	@$(PY) scripts/jars.py fetch spark spark-s3 kit
	@HYPOTHESIS_PROFILE=full $(PY) -m pytest $(WORKERS) --full --ignore=tests/conformance $(PYTEST_ARGS)

.PHONY: torture
torture: test-environment ## Run thousands of random steps of maintenance; prints and records the seeds
	@$(PY) -m tests.housekeeping.torture $(ARGS)

.PHONY: test-spark-versions
test-spark-versions: test-environment ## Run the core tests of frazil.spark on Spark 4.0, 4.2 and 4.3
	@$(PY) scripts/spark_versions.py --pytest="$(PYTEST_ARGS)" $(VERSIONS)

.PHONY: conformance
conformance: test-environment ## Run Iceberg's compatibility kit on every database and store, and Trino
	@$(PY) scripts/jars.py fetch kit kit-s3 trino
	@$(PY) -m pytest --full tests/conformance $(PYTEST_ARGS)

.PHONY: lint
lint: test-environment ## Check style, types, imports and forbidden words
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(PY) -m mypy src scripts tests demo benchmarks
	@.venv/bin/lint-imports
	@$(PY) scripts/lint_words.py

.PHONY: bench
bench: test-environment ## Measure load and commit beside other catalogs, under 10 minutes
	@$(PY) scripts/jars.py fetch bench
	@$(PY) -m benchmarks

.PHONY: bench-full
bench-full: test-environment ## Measure with more rounds and longer histories
	@$(PY) scripts/jars.py fetch bench
	@$(PY) -m benchmarks --full

.PHONY: bench-commit
bench-commit: test-environment ## Measure commits of declared files beside other systems, under 6 minutes
	@$(PY) scripts/jars.py fetch bench
	@$(PY) -m benchmarks commit --quick

.PHONY: bench-commit-full
bench-commit-full: test-environment ## The same with all writers and a million live files
	@$(PY) scripts/jars.py fetch bench
	@$(PY) -m benchmarks commit --full

.PHONY: bench-client
bench-client: test-environment ## Measure the client beside stock PyIceberg, under 4 minutes
	@$(PY) -m benchmarks client --quick

.PHONY: bench-client-full
bench-client-full: test-environment ## The same with more samples, under 12 minutes
	@$(PY) -m benchmarks client --full

.PHONY: bench-planning
bench-planning: test-environment ## Measure scan planning beside PyIceberg and Java, about 10 minutes
	@$(PY) scripts/jars.py fetch bench
	@$(PY) -m benchmarks planning --quick

.PHONY: bench-planning-full
bench-planning-full: test-environment ## The same with a million files, about an hour
	@$(PY) scripts/jars.py fetch bench
	@$(PY) -m benchmarks planning --full

.PHONY: bench-manifests
bench-manifests: test-environment ## Measure each path through the manifest code on and off, about 10 minutes
	@$(PY) -m benchmarks.manifest_paths

.PHONY: bench-spark
bench-spark: test-environment ## Measure the Spark pipeline beside plain Parquet and stock Iceberg
	@$(PY) scripts/jars.py fetch spark
	@$(PY) -m benchmarks spark --quick

.PHONY: bench-spark-full
bench-spark-full: test-environment ## The same with more rows and rounds
	@$(PY) scripts/jars.py fetch spark
	@$(PY) -m benchmarks spark --full

.PHONY: bench-maintenance
bench-maintenance: test-environment ## Measure maintenance beside stock Iceberg's procedures
	@$(PY) scripts/jars.py fetch spark
	@$(PY) -m benchmarks maintenance --quick

.PHONY: bench-maintenance-full
bench-maintenance-full: test-environment ## The same with more rows and rounds
	@$(PY) scripts/jars.py fetch spark
	@$(PY) -m benchmarks maintenance --full

.PHONY: lock
lock: ## Write requirements/*.lock again (needs uv and the network)
	@$(COMPILE) $(UPGRADE) pyproject.toml $(RUN_EXTRAS) requirements/run.in -o requirements/run.lock
	@$(COMPILE) $(UPGRADE) pyproject.toml --extra all requirements/test.in -o requirements/test.lock
	@for version in 4.0 4.2 4.3; do $(COMPILE) $(UPGRADE) pyproject.toml --extra server --extra spark \
		requirements/spark-$$version.in -o requirements/spark-$$version.lock || exit 1; done
	@$(MAKE) --no-print-directory test-environment
	@$(PY) scripts/jars.py lock

.PHONY: clean
clean: ## Remove what the commands created, except downloaded jars
	rm -rf .venv .demo .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache dist build
	find . -name __pycache__ -type d -not -path './.cache/*' -prune -exec rm -rf {} +

.PHONY: run-environment test-environment
run-environment:
	@scripts/bootstrap.sh run

test-environment:
	@scripts/bootstrap.sh test
