# Every command for people and CI. Each target installs what it needs; `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LAB := $(BIN)/python -m lab
INSTALLED := $(VENV)/.installed
CHECKS := check-style check-types check-page check-layers check-language
PYTEST := $(BIN)/python -m pytest --numprocesses 4 --max-worker-restart 0 --dist loadscope

# Half of the start of a process is spent on compiling its modules, unless the result is kept.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test test-dra gpu-test test-quick test-again test-random test-deep test-durations mutation mutation-changed screenshots check format fuzz bench bench-judge bench-packing chaos soak image image-load image-push cli-wheel cli-archive krew-manifest install-lab install-test up down status doctor verify evidence clean \
	$(CHECKS) \
	demo-fractional demo-pending demo-placement demo-claim demo-static demo-environment

help:  ## List the targets.
	@sed -n 's/^\([a-z%-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: $(PYTHON) is %s; Tranche needs 3.11 or newer: make PYTHON=/path/to/python3" % sys.version.split()[0])'
	@$(PYTHON) -m venv $(VENV) || { echo "error: $(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "installing Python packages into $(VENV)"
	@# The pip that comes with Python 3.11 takes three times as long to choose among all files of an index.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --upgrade pip setuptools
	@# Python compiles what is imported; compiling everything takes a third of the installation.
	@# setuptools warns of what an editable installation is, which this pip prints.
	@PYTHONWARNINGS=ignore $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@

demo: $(INSTALLED)  ## Show the main job on a real cluster: label, admission, placement, environment; then take it down.
	@$(LAB) demo

test: $(INSTALLED)  ## Run all tests but those of `test-dra`; those that need root or a container runtime say so where it is missing.
	@$(PYTEST) -m 'not dra'

test-dra: $(INSTALLED)  ## Run the tests of DRA on Kubernetes 1.37; builds its programs first (half an hour).
	@$(BIN)/python -m pytest -m dra tests/dra

gpu-test: $(INSTALLED)  ## Run the tests that need an NVIDIA GPU, on any machine that has nvidia-smi; each says what it lacks.
	@$(BIN)/python -m pytest -m gpu -rs tests/agent tests/limits

test-quick: $(INSTALLED)  ## Run the tests that need no Kubernetes, no root, no container tools and no browser.
	@$(PYTEST) -m 'not apiserver and not kubelet and not helm and not image and not archive and not promtool and not browser'

test-again: $(INSTALLED)  ## Try the tests that failed in the last run again, each three times alone.
	@$(BIN)/python -m tests.support.again

test-random: $(INSTALLED)  ## Run all tests in random order (SEED, printed if none is given).
	@$(PYTEST) -m 'not dra' --random-order-bucket=module --random-order-seed=$(or $(SEED),$(shell date +%s))

test-deep: $(INSTALLED)  ## Look for rare failures, for hours: many repetitions and examples, chaos, fuzz, mutants (MINUTES, SECONDS).
	@TEST_DEPTH=deep $(PYTEST) -m 'not dra'
	@$(MAKE) chaos MINUTES=$(or $(MINUTES),30)
	@$(MAKE) fuzz
	@$(MAKE) mutation

mutation: $(INSTALLED)  ## Change the code in small ways and see whether tests notice, for hours (ROOMS, by default all; SAMPLE of each).
	@$(BIN)/python -m tests.mutants $(ROOMS) --sample $(or $(SAMPLE),0)

mutation-changed: $(INSTALLED)  ## The same for the lines that differ from a revision (REV, MINUTES).
	@$(BIN)/python -m tests.mutants --changed $(or $(REV),HEAD^) --minutes $(or $(MINUTES),5)

test-durations: $(INSTALLED)  ## Print what took longest in the last run of tests, by test, module and fixture.
	@$(BIN)/python -m tests.support.durations

check: $(INSTALLED)  ## Check style, types, layers and language, at once.
	@$(MAKE) --no-print-directory --jobs $(if $(filter output-sync,$(.FEATURES)),--output-sync) $(CHECKS)

check-style: $(INSTALLED)  ## Check style (ruff).
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

check-types: $(INSTALLED)  ## Check types (mypy, strict).
	@$(BIN)/mypy

check-page: $(INSTALLED)  ## Check types of the page (TypeScript).
	@$(BIN)/python -m tests.ui.typescript

check-layers: $(INSTALLED)  ## Check what imports what (import-linter).
	@$(BIN)/lint-imports

check-language: $(INSTALLED)  ## Check words and comments.
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/test_language.py

screenshots: $(INSTALLED)  ## Write what the page looks like to docs/ui/, by a test in a real browser.
	@SCREENSHOTS=docs/ui $(BIN)/python -m pytest -q tests/ui/test_scene.py

fuzz: $(INSTALLED)  ## Feed hostile input to everything that parses input (SECONDS for each target, 600 by default).
	@$(BIN)/python -m fuzz --seconds $(or $(SECONDS),600)

bench: $(INSTALLED)  ## Measure everything; compare with the targets, write raw figures to benchmarks/raw/.
	@$(BIN)/python -m benchmarks

bench-judge: $(INSTALLED)  ## Judge in a minute whether decisions have become slower, on any machine; CI runs this.
	@$(BIN)/python -m benchmarks.judge

bench-%: $(INSTALLED)  ## Run one benchmark, for example `make bench-admission`.
	@$(BIN)/python -m benchmarks $*

bench-packing: $(INSTALLED)  ## Compare how many cards policies allocate (TRACE: openb's folder, SEEDS); else of random shapes.
	@$(BIN)/python -m benchmarks.packing $(if $(TRACE),--trace $(TRACE) --picture docs/performance/packing.svg) $(if $(SEEDS),--seeds $(SEEDS))

chaos: $(INSTALLED)  ## Inject faults into a cluster under load and check that nothing is lost (MINUTES, SEED, KILLS, LOST, PODS).
	@$(BIN)/python -m chaos --minutes $(or $(MINUTES),6) --seed $(or $(SEED),1) \
		--kills $(or $(KILLS),0) --lost-bindings $(or $(LOST),0) --pods $(or $(PODS),0)

soak: $(INSTALLED)  ## Run half an hour under load and check that no process grows (MINUTES).
	@$(BIN)/python -m chaos soak --minutes $(or $(MINUTES),30)

image: $(INSTALLED)  ## Build the container image, reproducibly and without a daemon (BASE: an image with Python 3.11 and pip).
	@$(BIN)/python -m lab.image build --base '$(BASE)'

image-load: $(INSTALLED)  ## Import the image into the containerd of the lab's real node.
	@$(BIN)/python -m lab.image load

image-push: $(INSTALLED)  ## Push the image to a registry, for example REGISTRY=registry.example.com/team.
	@$(if $(REGISTRY),,echo 'error: name a registry: make image-push REGISTRY=registry.example.com/team' >&2; exit 1)
	@$(BIN)/python -m lab.image push '$(REGISTRY)'

cli-wheel: $(INSTALLED)  ## Build the wheel, from which pipx installs kubectl gpu, in dist/.
	@$(BIN)/python -m lab.release wheel

cli-archive: $(INSTALLED)  ## Build an archive of kubectl gpu with its own Python, for this platform, in dist/.
	@$(BIN)/python -m lab.release archive

krew-manifest: $(INSTALLED)  ## Write krew's manifest for the archives in dist/ (URL: the folder that will serve them).
	@$(if $(URL),,echo 'error: name the folder of the archives: make krew-manifest URL=https://releases.example.com/v0.1.0' >&2; exit 1)
	@$(BIN)/python -m lab.release krew '$(URL)'

install-lab: $(INSTALLED)  ## Start a lab with one real node in which Helm installs Tranche, its processes as pods (root); `make down` removes it.
	@$(LAB) install

install-test: $(INSTALLED)  ## Install, use, upgrade and remove Tranche on a real node, with its processes as pods, by Helm and kustomize (root).
	@$(BIN)/python -m pytest tests/install

format: $(INSTALLED)  ## Format the code.
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

up: $(INSTALLED)  ## Start the lab: a real control plane, three simulated nodes, a real one where possible; print the line for your shell.
	@$(LAB) up

verify: $(INSTALLED)  ## Check that every node of the lab has its cards.
	@$(LAB) verify

demo-fractional:  ## Show a pod that gets 3000 MiB and 30 % of a card.
demo-pending:  ## Show a pod that fits on no card, and the reasons.
demo-placement:  ## Show a Deployment of three and the decision for each pod.
demo-claim:  ## Show a pod that gets two whole cards by a GpuClaim.
demo-static:  ## Show an allocation that a trusted identity decides beforehand.
demo-environment:  ## Show what each container of a pod sees.
demo-fractional demo-pending demo-placement demo-claim demo-static demo-environment: demo-%: $(INSTALLED)
	@$(LAB) demo-$*

evidence: $(INSTALLED)  ## Record what the cluster shows in .lab/evidence/<time>/.
	@$(LAB) evidence

status: $(INSTALLED)  ## Show which of Tranche's processes run and are ready.
	@$(LAB) status

clean: $(INSTALLED)  ## Delete the demos' workloads.
	@$(LAB) clean

down: $(INSTALLED)  ## Stop the lab and remove everything but logs and evidence, also after a failed start.
	@$(LAB) down

doctor: $(INSTALLED)  ## Check what the lab needs of this machine; changes nothing.
	@$(LAB) doctor
