# `make help` explains the targets.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
# Options of the demo and of pytest: make demo ARGS="--nodes 2000", make test ARGS="-k lease"
ARGS ?=
# The oldest glibc that the kernel's wheel runs on; the linker that comes with zig knows its symbols.
MANYLINUX := manylinux2014
# Processes of `make test`, each with a database of its own, one more than cores since they also wait:
# make test WORKERS=0 for one alone.
WORKERS ?= 3
PARALLEL = --numprocesses=$(WORKERS) --dist=worksteal

# What `make audit` fetches.
PIP_AUDIT := 2.10.1

.DEFAULT_GOAL := help
.PHONY: help demo install test proofs coverage test-without-kernel lint chaos upgrade-proof docs dist sbom audit release-check deploy-check format clean kernel-test kernel-bench kernel-fuzz differential bounds clients api-fuzz api-released api-breaks vendor screenshots race

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  make %-20s %s\n", $$1, $$2}'

# The kernel is built where there is a Rust toolchain; without one everything runs on lxml.
CARGO := $(shell command -v cargo 2>/dev/null)
ifneq ($(CARGO),)
KERNEL := $(VENV)/kernel
endif

# The workbench's modules are checked, and what it uses of other people's bundled, where there is node.
NPM := $(shell command -v npm 2>/dev/null)
WEB := api/web

# Who keeps Python from storing what it has compiled would have each of the hundreds of processes that
# the tests start compile it again.
unexport PYTHONDONTWRITEBYTECODE

# Where our packages are: pyproject.toml names the folders once.
FOLDERS := $(shell sed -n 's/^pythonpath = \[\(.*\)\]/\1/p' pyproject.toml | tr -d '" ' | tr , :)

# A line that says what will evaluate.
EVALUATOR := PYTHONPATH=$(FOLDERS) $(RUN) -c "import tagmill_worker.evaluators.base as base; print('Evaluator:', \
	'kernel (lxml is its reference)' if base.has_kernel() else 'lxml (the kernel needs cargo)')"

demo: $(VENV)/runtime $(KERNEL) ## 10,000 machines get tagged before your eyes (ARGS="--nodes N --exit --json FILE")
	@$(RUN) manage.py demo $(ARGS)

install: $(VENV)/runtime $(KERNEL) ## What the server, the workers and the commands need, in .venv
	@$(EVALUATOR)

test: $(VENV)/development $(KERNEL) ## The tests, on a real PostgreSQL (ARGS="-k lease" for some)
	@$(EVALUATOR)
	@$(RUN) -m pytest $(PARALLEL) $(ARGS)

proofs: $(VENV)/development $(KERNEL) ## The tests that take longest: benches from end to end, long random walks; and those of an S3 server
	@$(RUN) -m pip install --quiet --disable-pip-version-check "moto[s3,server]==5.2.5" "django-storages[s3]==1.14.6"
	@$(RUN) -m pytest $(PARALLEL) -m proof $(ARGS)

coverage: $(VENV)/development $(KERNEL) ## Branch coverage of the packages by the tests, as htmlcov/ and a table
	@$(RUN) -m pytest $(PARALLEL) --cov --cov-report=term:skip-covered --cov-report=html -m "proof or not proof" $(ARGS)

test-without-kernel: ## The workers as they are where there is no cargo, in an environment of its own
	@$(MAKE) VENV=.venv-without-kernel CARGO= test ARGS="tests/workers tests/system tests/kernel"

lint: $(VENV)/development ## ruff, mypy --strict, the table of layers; clippy where there is cargo, tsc and eslint where there is node
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m mypy
	@PYTHONPATH=$(FOLDERS) $(VENV)/bin/lint-imports
ifneq ($(NPM),)
	@if $(MAKE) --no-print-directory $(WEB)/node_modules/.package-lock.json; then cd $(WEB) && npm run --silent check; \
	else echo "npm cannot install what the workbench is checked with: its modules were not checked"; fi
endif
ifneq ($(CARGO),)
	@cd kernel && cargo fmt --check && cargo clippy --quiet --all-targets -- -D warnings
endif

kernel-test: ## The kernel crate's own tests
	@cd kernel && cargo test --quiet

kernel-bench: ## The kernel crate's criterion benches
	@cd kernel && cargo bench

kernel-fuzz: ## Fuzz the kernel's XML parser and XPath compiler for a minute each (nightly, cargo-fuzz)
	@cd kernel && for target in parser compiler; do cargo +nightly fuzz run $$target -- -max_total_time=60; done

differential: $(VENV)/development $(KERNEL) ## Four million random pairs of the kernel and lxml, instead of 100,000
	@TAGMILL_DIFFERENTIAL_BATCHES=5000 $(RUN) -m pytest -m "proof or not proof" tests/kernel/test_differential.py

clients: $(VENV)/development ## Generate clients in Python, TypeScript and Go, and run the main flow with each
	@TAGMILL_CLIENTS=1 $(RUN) -m pytest tests/clients -rs $(ARGS)

# Seconds for each role.
FUZZ_SECONDS ?= 300
api-fuzz: $(VENV)/development ## Fuzz the API by its description, as each role, for FUZZ_SECONDS each (schemathesis)
	@$(RUN) -m pip install --quiet --disable-pip-version-check schemathesis==4.32.5
	@TAGMILL_FUZZ_SECONDS=$(FUZZ_SECONDS) $(RUN) -m pytest tests/clients/test_fuzz.py -s -o faulthandler_timeout=0 $(ARGS)

# Run it when a version is released, and commit what it writes: tests compare the next one with it.
api-released: $(VENV)/development ## Keep the description of the API, which the next release must not break
	@mkdir -p build && $(RUN) manage.py spectacular --format openapi-json > build/openapi.json
	@$(RUN) tests/support/released.py < build/openapi.json > docs/openapi-released.json

# The last one whose modules the Go proxy has.
OASDIFF := github.com/oasdiff/oasdiff@v1.18.6
api-breaks: $(VENV)/development ## What of the API would break clients of the last release, as oasdiff sees it (go)
	@mkdir -p build && $(RUN) manage.py spectacular --format openapi-json > build/openapi.json
	@if command -v go >/dev/null; then go run $(OASDIFF) breaking --fail-on ERR docs/openapi-released.json build/openapi.json; \
	else echo "There is no go: only tests/api/test_released.py has compared the descriptions."; fi

bounds: $(VENV)/development $(KERNEL) ## Look for texts that take the server a second or 100 MiB, among thousands
	@TAGMILL_BOUNDS_CASES=2000 TAGMILL_BOUNDS_SECONDS=1 TAGMILL_BOUNDS_SEED=$$(date +%s) $(RUN) -m pytest -m "proof or not proof" tests/bounds

chaos: $(VENV)/development $(KERNEL) ## Every fault under load, and a soak, in ten minutes (ARGS="--soak 3600" for an hour); docs/reliability.md
	@$(RUN) manage.py bench chaos --json chaos.json $(ARGS)

upgrade-proof: $(VENV)/development $(KERNEL) ## Servers and workers of PREVIOUS=<commit> beside these, under load
	@$(RUN) manage.py bench upgrade --previous $(PREVIOUS) $(ARGS)

race: $(VENV)/development ## 100,000 reads of the body cache against writes, its servers frozen, emptied and restarted with old content
	@TAGMILL_RACE_READS=100000 $(RUN) -m pytest tests/server/test_cache_servers.py tests/server/test_shared_bodies.py tests/server/test_redis_bodies.py -k "readers or torn" -s -o faulthandler_timeout=0

dist: $(VENV)/dist ## Wheels of server, worker and kernel, and the kernel's sources, in dist/
	@rm -rf dist && mkdir dist
	@for folder in . workers; do $(VENV)/dist/bin/python -m build --no-isolation --wheel --outdir dist $$folder >dist/build.log \
		|| { cat dist/build.log; exit 1; }; done; rm dist/build.log
ifneq ($(CARGO),)
	@cd kernel && PATH="$(CURDIR)/$(VENV)/dist/bin:$$PATH" maturin build --quiet --release --zig --compatibility $(MANYLINUX) --out ../dist
	@cd kernel && "$(CURDIR)/$(VENV)/dist/bin/maturin" sdist --out ../dist >/dev/null
else
	@echo "There is no cargo: the kernel's wheel was not built."
endif
	@ls dist

release-check: dist ## The wheels, installed without a compiler: a server and a worker tag a node
	@$(PYTHON) deploy/release_check.py dist

deploy-check: ## Lint and render images, units, chart and alerts in deploy/, as far as their tools are here
	@PYTHON=$(if $(wildcard $(VENV)/bin/python),$(CURDIR)/$(RUN),$(PYTHON)) deploy/check.sh

docs: $(VENV)/docs ## The documentation as a site of files, in build/site
	@$(RUN) docs/build_site.py build/docs
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --quiet
	@echo "build/site/index.html"

sbom: $(VENV)/development ## What server, worker and kernel are made of, as CycloneDX, in build/sbom
	@$(RUN) deploy/sbom.py build/sbom

# What cannot be looked up fails: nothing is taken for audited that nobody has an answer about.
audit: sbom ## Known vulnerabilities of what server, worker and kernel are made of (asks PyPI, npm and RustSec)
	@$(RUN) -m pip install --quiet --disable-pip-version-check pip-audit==$(PIP_AUDIT)
	@$(RUN) -c "import json; [print(c['name'] + '==' + c['version']) for c in json.load(open('build/sbom/server.cdx.json'))['components']]" > build/sbom/server.txt
	@failed=0; \
	$(VENV)/bin/pip-audit --strict --no-deps --disable-pip --progress-spinner off -r build/sbom/server.txt || failed=1; \
	if command -v cargo-audit >/dev/null; then (cd kernel && cargo audit) || failed=1; \
	else echo "There is no cargo-audit (cargo install cargo-audit): the kernel's crates were not looked up."; failed=1; fi; \
	if command -v npm >/dev/null; then (cd $(WEB) && npm audit) || failed=1; \
	else echo "There is no npm: the workbench's packages were not looked up."; failed=1; fi; \
	exit $$failed

format: $(VENV)/development ## Format the code
	@$(RUN) -m ruff format .
	@$(RUN) -m ruff check --fix .

screenshots: $(VENV)/development $(KERNEL) ## Draw every page of the workbench, and the README's picture of it (Chromium)
	@$(RUN) manage.py bench web --nodes 2000 --edits 1 --opened 1 --screenshots $(if $(TMPDIR),$(TMPDIR),/tmp)/tagmill-screenshots
	@cp $(if $(TMPDIR),$(TMPDIR),/tmp)/tagmill-screenshots/editor-1280-light.png docs/workbench.png

vendor: $(WEB)/node_modules/.package-lock.json ## Bundle the workbench's libraries anew into api/web/client/vendor (node)
	@cd $(WEB) && npm run --silent build

$(WEB)/node_modules/.package-lock.json: $(WEB)/package-lock.json
	@cd $(WEB) && npm ci --silent --ignore-scripts
	@touch $@

clean: ## Forget the demo's data, in TAGMILL_VAR or var (stop the demo first)
	@dir="$${TAGMILL_VAR:-var}"; \
	if [ ! -d "$$dir" ]; then echo "There is no $$dir."; \
	elif [ -e "$$dir/secret_key" ] || [ -d "$$dir/postgres" ]; then echo "rm -rf $$dir"; rm -rf "$$dir"; \
	else echo "$$dir is no data directory of Tagmill: nothing was removed."; exit 1; fi

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Tagmill needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
		|| { rm -rf $(VENV); echo "Python has no venv module here; on Debian: apt install python3-venv"; exit 1; }

$(VENV)/runtime: requirements.txt requirements-embedded.txt requirements-worker.txt | $(VENV)/bin/python
	@echo "Installing requirements.txt into $(VENV) ..."
	@$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@touch $@

$(VENV)/kernel: kernel/Cargo.toml kernel/Cargo.lock $(shell find kernel/src -name '*.rs') | $(VENV)/runtime
	@echo "Building the kernel ..."
	@$(RUN) -m pip install --quiet --disable-pip-version-check --force-reinstall --no-deps ./kernel
	@touch $@

# An environment of its own: what builds is no part of what is tested.
$(VENV)/dist: requirements-dist.txt | $(VENV)/bin/python
	@rm -rf $@ && $(PYTHON) -m venv $@
	@$@/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-dist.txt
	@touch $@

$(VENV)/docs: requirements-docs.txt $(VENV)/development
	@echo "Installing requirements-docs.txt into $(VENV) ..."
	@$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
	@touch $@

$(VENV)/development: requirements-dev.txt requirements-bench.txt $(VENV)/runtime
	@echo "Installing requirements-dev.txt into $(VENV) ..."
	@$(RUN) -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	@touch $@
