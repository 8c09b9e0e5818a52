# Everything that people and CI type. Each target installs what it needs; `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LAB := $(BIN)/python -m lab
INSTALLED := $(VENV)/.installed
SECONDS ?= 600

.DEFAULT_GOAL := help
.PHONY: help demo test check fuzz bench chaos soak format up verify demo-fractional demo-pending demo-placement \
	demo-static demo-environment evidence clean status down doctor

help:  ## List the targets.
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "error: $(PYTHON) is %s; Tranche needs 3.11 or newer: make PYTHON=/path/to/python3" % sys.version.split()[0])'
	@$(PYTHON) -m venv $(VENV) || { echo "error: $(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }
	@echo "installing Python packages into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt setuptools
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --no-build-isolation --editable '.[dev]'
	@touch $@

demo: $(INSTALLED)  ## The main job on a real cluster: label, admission, placement, environment; then clean up.
	@$(LAB) demo

test: $(INSTALLED)  ## All tests; those that need root or a container runtime say so where it is missing.
	@$(BIN)/python -m pytest

check: $(INSTALLED)  ## Style, types and the rules of the house.
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

fuzz: $(INSTALLED)  ## Hostile bytes for everything that reads bytes: SECONDS for each target, 600 unless said.
	@$(BIN)/python -m fuzz --seconds $(SECONDS)

bench: $(INSTALLED)  ## Measure everything: figures beside their targets, raw numbers in benchmarks/raw/.
	@$(BIN)/python -m benchmarks

bench-%: $(INSTALLED)
	@$(BIN)/python -m benchmarks $*

chaos: $(INSTALLED)  ## Faults on a cluster under load, and whether anything is lost (MINUTES, SEED, KILLS, LOST, PODS).
	@$(BIN)/python -m chaos --minutes $(or $(MINUTES),6) --seed $(or $(SEED),1) \
		--kills $(or $(KILLS),0) --lost-bindings $(or $(LOST),0) --pods $(or $(PODS),0)

soak: $(INSTALLED)  ## Half an hour under load, and whether any process grows (MINUTES).
	@$(BIN)/python -m chaos soak --minutes $(or $(MINUTES),30)

format: $(INSTALLED)  ## Format the code.
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

up: $(INSTALLED)  ## Start the lab: a real control plane, three simulated nodes, a real one where possible.
	@$(LAB) up

verify: $(INSTALLED)  ## Check that every node of the lab has its cards.
	@$(LAB) verify

demo-fractional demo-pending demo-placement demo-static demo-environment: demo-%: $(INSTALLED)
	@$(LAB) demo-$*

evidence: $(INSTALLED)  ## Record what the cluster shows in .lab/evidence/<time>/.
	@$(LAB) evidence

status: $(INSTALLED)  ## Which processes of the lab run.
	@$(LAB) status

clean: $(INSTALLED)  ## Delete the demos' workloads.
	@$(LAB) clean

down: $(INSTALLED)  ## Stop the lab; nothing is left but its logs and evidence.
	@$(LAB) down

doctor: $(INSTALLED)  ## Check what the lab needs of this machine.
	@$(LAB) doctor
