# Every target sets up what it needs in .venv; nothing outside this directory is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
VERSIONS := $(shell cat pyproject.toml constraints.txt 2>/dev/null | cksum | cut -d' ' -f1)
STAMP := $(VENV)/.stamp-$(VERSIONS)
DEMO_STAMP := $(VENV)/.stamp-demo-$(VERSIONS)
DOCS_STAMP := $(VENV)/.stamp-docs-$(VERSIONS)
FRAMEWORKS := $(VENV)-frameworks
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Tests start our programs hundreds of times; without compiled files each start would compile them again.
unexport PYTHONDONTWRITEBYTECODE

# What runs the tests: .ci/run runs failed tests a second time, and lists them; `make test` itself never does.
RUNNER := $(if $(SECOND_CHANCE),tools.second_chance,pytest)
PYTEST := $(BIN)/python -m $(RUNNER)
# Where slow tests are: files of other folders need not be imported to find that none of theirs is.
SLOW := tests/contract tests/e2e tests/integration tests/ui tests/unit/cli tests/unit/histories tests/unit/suggestion_services

.DEFAULT_GOAL := help

EXAMPLES := asha darts enas jobset pbt prometheus push tensorboard

.PHONY: help setup demo collection $(EXAMPLES:%=example-%) test test-slow test-callbacks test-optuna test-doors setup-optuna setup-doors setup-frameworks setup-docs test-frameworks test-cluster images lint lint-changed format type contracts proto schema crds chart golden docs package release bench clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-19s %s\n", $$1, $$2}'

define environment
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed; set PYTHON=/path/to/python3"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing $(1) into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade "pip>=25.1"
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable $(2)
endef

$(STAMP): pyproject.toml constraints.txt
	$(call environment,katib and the tools of its developers,'.[all]' --group dev)
	@rm -f $(VENV)/.stamp-* && touch $(DEMO_STAMP) $@

$(DEMO_STAMP): pyproject.toml constraints.txt
	$(call environment,katib and what its examples need,'.[examples]')
	@touch $@

setup: $(STAMP) ## Install everything that developers need, into .venv

demo: $(DEMO_STAMP) ## Tune the digits example on this machine, from nothing to the best trial
	@$(BIN)/katib run examples/digits/experiment.yaml
	@echo "From here:    $(BIN)/katib ui digits   (opens the page on this result; Ctrl-C ends it)"

example-asha: ## Tune a network with early stopping that saves most of the work
example-darts: ## Let one training find the operations of a small network by gradients
example-enas: ## Search the layers of a small network
example-jobset: ## Tune a JobSet: data first, then two workers and a watcher
example-pbt: ## Tune networks that continue from each other's checkpoints
example-prometheus: ## Tune a program that exposes its loss to Prometheus
example-push: ## Tune a training loop that pushes its metrics
example-tensorboard: ## Tune a program that writes event files for TensorBoard
$(EXAMPLES:%=example-%): example-%: $(DEMO_STAMP)
	@$(BIN)/katib run $(wildcard examples/$*/experiment.yaml examples/jobs/$*/experiment.yaml)

test: $(STAMP) ## Run the tests, except those of test-slow and test-cluster
	@$(PYTEST) -q -m "not slow and not cluster" -n 4 --dist worksteal

test-slow: $(STAMP) ## Run longer tests: examples, races, floods, SQL servers that go away, containers, hard trials
	@$(PYTEST) -q -m "slow and not cluster" -n 5 --dist worksteal $(SLOW)

# In a fresh clone: processes that run tests side by side would each compile all of them, and what they import.
collection: $(STAMP)
	@found=$$($(BIN)/python -m pytest -q --collect-only) || { echo "$$found" | tail -n 50; exit 1; }

setup-doors:
	@test -x $(VENV)-doors/bin/python || $(PYTHON) -m venv $(VENV)-doors
	@$(VENV)-doors/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(VENV)-doors/bin/python -m pip install --quiet --editable ".[files]" --group doors

test-doors: setup-doors ## Run what works with MLflow, Ray, Transformers, the Kubeflow SDK and a generated client with these libraries, in an environment of its own
	@PATH="$(CURDIR)/$(VENV)-doors/bin:$$PATH" $(VENV)-doors/bin/python -m $(RUNNER) -q tests/unit/histories tests/unit/cli/test_export.py tests/integration/test_tune_command.py tests/integration/test_optuna_examples.py tests/integration/test_ray_search.py tests/integration/test_trainer_status.py tests/integration/test_kubeflow_sdk.py tests/integration/test_rest_description.py

test-callbacks: ## Run the callbacks with the training libraries they are for, in an environment of their own
	@test -x $(VENV)-callbacks/bin/python || $(PYTHON) -m venv $(VENV)-callbacks
	@$(VENV)-callbacks/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(VENV)-callbacks/bin/python -m pip install --quiet --editable . --group callbacks
	@$(VENV)-callbacks/bin/python -m pytest -q --noconftest tests/integration/test_callbacks.py
	@LIGHTNING=pytorch_lightning $(VENV)-callbacks/bin/python -m pytest -q --noconftest tests/integration/test_callbacks.py -k lightning

setup-optuna:
	@test -x $(VENV)-optuna/bin/python || $(PYTHON) -m venv $(VENV)-optuna
	@$(VENV)-optuna/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(VENV)-optuna/bin/python -m pip install --quiet --editable . --group optuna

test-optuna: setup-optuna ## Run Optuna's own tests of a storage, and its client, in an environment of their own
	@PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION=python $(VENV)-optuna/bin/python -m $(RUNNER) -q --noconftest tests/integration/test_optuna_storage.py tests/integration/test_optuna_examples.py

$(FRAMEWORKS)/.stamp-$(VERSIONS): pyproject.toml constraints.txt
	@test -x $(FRAMEWORKS)/bin/python || $(PYTHON) -m venv $(FRAMEWORKS)
	@$(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade "pip>=25.1"
	@PYTHONWARNINGS=ignore $(FRAMEWORKS)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[cluster]' --group jobs
	@rm -f $(FRAMEWORKS)/.stamp-* && touch $@

setup-frameworks: $(FRAMEWORKS)/.stamp-$(VERSIONS)

test-frameworks: setup-frameworks ## Run examples/jobs with JAX, LightGBM and MPI, in an environment of their own
	@$(FRAMEWORKS)/bin/python -m $(RUNNER) -q -k "example_of_a_framework or example_of_a_train_job" tests/e2e/test_training_jobs.py tests/e2e/test_examples.py

test-cluster: $(STAMP) ## Run the tests with a Kubernetes API server and with pods, in clusters started for them or given
	@$(BIN)/python -m tools.cluster_tests

images: $(STAMP) ## Build the container images
	@$(BIN)/python -m tools.images

lint: $(STAMP) type contracts ## Check style, types and import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@if command -v helm >/dev/null; then helm lint --strict --quiet manifests/chart; else echo "left out, helm lint: helm is missing"; fi

# The daemon keeps the types of all files in memory and checks what a change affects; it ends after two idle hours.
lint-changed: $(STAMP) ## Check the same in seconds, before a commit: unchanged files come from caches
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/dmypy run --timeout 7200

type: $(STAMP)
	@$(BIN)/mypy
	@$(BIN)/mypy tests/typing/api.py

contracts: $(STAMP)
	@$(BIN)/lint-imports

format: $(STAMP) ## Format the code
	@$(BIN)/ruff check --fix --quiet .
	@$(BIN)/ruff format .

proto: ## Regenerate the gRPC stubs from proto/
	@test -x $(VENV)-proto/bin/python || $(PYTHON) -m venv $(VENV)-proto
	@$(VENV)-proto/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	@$(VENV)-proto/bin/python -m pip install --quiet --group proto
	@$(VENV)-proto/bin/python tools/generate_stubs.py

crds: $(STAMP) ## Regenerate the definitions and the trial templates of the manifests, and the chart
	@$(BIN)/python -m tools.generate_crds
	@$(BIN)/python -m tools.generate_chart

chart: $(STAMP) ## Regenerate the Helm chart from the components of the manifests
	@$(BIN)/python -m tools.generate_chart

schema: $(STAMP) ## Regenerate the schema of a Job from the kubernetes package
	@$(BIN)/python tools/generate_job_schema.py

golden: $(STAMP) ## Rewrite the files that follow from the code; read the diff before you commit it
	@$(BIN)/python -m tools.golden

$(DOCS_STAMP): $(DEMO_STAMP)
	@echo "installing what builds the documentation into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group docs
	@touch $@

setup-docs: $(DOCS_STAMP)

docs: $(DOCS_STAMP) ## Build the documentation into build/docs/html; a broken link or an unlisted page is an error
	@$(BIN)/python -m tools.build_docs

package: $(STAMP) ## Build the sdist and the wheel into dist, and get started with the wheel in an empty environment
	@$(BIN)/python -m tools.release package

release: $(STAMP) ## Check this commit, build the package, and tag the release in this clone
	@$(BIN)/python -m tools.release tag

bench: $(STAMP) ## Run the benchmarks and print figures and ratios
	@$(BIN)/python -m benchmarks

clean: ## Remove the virtual environments and the files that runs left behind
	@$(BIN)/dmypy stop >/dev/null 2>&1 || true
	@rm -rf $(VENV) $(VENV)-callbacks $(VENV)-optuna $(FRAMEWORKS) $(VENV)-proto .katib .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .dmypy.json build/docs dist saved-tests
