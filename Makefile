# `make help` explains the targets.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# Options of the demo and of pytest: make demo ARGS="--nodes 2000", make test ARGS="-k lease"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help demo install test lint format clean

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

demo: $(VENV)/runtime ## 10,000 machines get tagged before your eyes (ARGS="--nodes N --exit --json FILE")
	@$(RUN) manage.py demo $(ARGS)

install: $(VENV)/runtime ## What the server, the workers and the commands need, in .venv

test: $(VENV)/development ## Every test, on a real PostgreSQL (ARGS="-k lease" for some)
	@$(RUN) -m pytest $(ARGS)

lint: $(VENV)/development ## ruff, mypy --strict, the table of layers
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy
	@PYTHONPATH=src:. $(VENV)/bin/lint-imports

format: $(VENV)/development ## Format the code
	@$(RUN) -m ruff format .
	@$(RUN) -m ruff check --fix .

clean: ## Forget the demo's data (stop the demo first)
	rm -rf var

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Tagmill needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
		|| { rm -rf $(VENV); echo "Python has no venv module here; on Debian: apt install python3-venv"; exit 1; }

$(VENV)/runtime: requirements.txt requirements-worker.txt | $(VENV)/bin/python
	@echo "Installing requirements.txt into $(VENV) ..."
	@$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/development: requirements-dev.txt $(VENV)/runtime
	@echo "Installing requirements-dev.txt into $(VENV) ..."
	@$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@
