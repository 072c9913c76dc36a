# Two commands from a fresh clone: `make demo` and `make test`. Each makes what it needs and says what it does.
# Needs Python 3.11 or newer and a C++ compiler; cmake and ninja come as wheels.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
SEED   ?= 0
# The last so that the sanitizer finds how exceptions are thrown before the first module that throws one is loaded.
ASAN    = $(foreach name,asan ubsan stdc++,$(shell $(CXX) -print-file-name=lib$(name).so))
NATIVE := $(wildcard cpp/*/* cpp/*/*/*) CMakeLists.txt pyproject.toml
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test torture lint types format sanitize clean
.DEFAULT_GOAL := help

help: ## List the commands
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

$(VENV)/made:
	@$(PYTHON) -c 'import sys; sys.exit(f"plait needs Python 3.11 or newer; {sys.executable} is {sys.version.split()[0]}. Try: make $(MAKECMDGOALS) PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	@echo "== making $(VENV) with $$($(PYTHON) --version)"
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/built-with: $(VENV)/made
	@echo "== installing the build tools"
	$(BIN)/pip install -q "scikit-build-core>=0.11" "nanobind>=2.4" cmake ninja
	@touch $@

# Editable: Python changes need no reinstall; a change to the native core or to pyproject.toml rebuilds it.
$(VENV)/installed: $(VENV)/built-with $(NATIVE)
	@echo "== building the native core and installing plait"
	$(BIN)/pip install -q --no-build-isolation -C build-dir=build/$(notdir $(VENV)) -e .
	@touch $@

$(VENV)/test-installed: $(VENV)/installed
	@echo "== installing what the tests need, torch among it"
	$(BIN)/pip install -q "torch==2.13.0" # before what depends on it, which would take the build for GPUs
	$(BIN)/pip install -q --no-build-isolation -C build-dir=build/$(notdir $(VENV)) -e '.[test,train]'
	@touch $@

demo: $(VENV)/installed ## Index the Python standard library's documentation and search it
	$(BIN)/plait demo --to .demo/index

test: $(VENV)/test-installed ## Tests, lint and types
	@echo "== ruff" && $(BIN)/ruff check . && $(BIN)/ruff format --check .
	@echo "== mypy --strict" && $(BIN)/mypy
	@echo "== pytest" && $(BIN)/python -m pytest -q

torture: $(VENV)/test-installed ## Crash an index a thousand times, search it while it is written, harm its files, watch its memory
	cd tests && ../$(BIN)/python -m faults.torture --points 1000 --seed $(SEED)
	cd tests && ../$(BIN)/python -m faults.concurrency --seconds 60 --seed $(SEED)
	cd tests && ../$(BIN)/python -m faults.fuzz --rounds 2000 --seed $(SEED)
	cd tests && ../$(BIN)/python -m faults.growth --searches 100000

lint: $(VENV)/test-installed ## Lint alone
	$(BIN)/ruff check . && $(BIN)/ruff format --check .

types: $(VENV)/test-installed ## Types alone
	$(BIN)/mypy

format: $(VENV)/test-installed ## Format the code and mend what lint can mend
	$(BIN)/ruff check --fix . && $(BIN)/ruff format .

sanitize: $(VENV)/test-installed ## Run every kernel, and harmed segment files, under the address and undefined-behaviour sanitizers
	$(BIN)/cmake -S . -B build/sanitize -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DPython_EXECUTABLE=$(abspath $(BIN)/python) -DCMAKE_CXX_COMPILER=$(CXX) -DPLAIT_SANITIZE=ON -DPLAIT_SANITIZE_MODULE=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo $(if $(SIMDE),-DPLAIT_SIMDE=$(SIMDE))
	$(BIN)/cmake --build build/sanitize
	build/sanitize/plait_sanitize
	@if [ -x build/sanitize/plait_emulated ]; then build/sanitize/plait_emulated; else \
	echo "AVX-512 and AMX, emulated: NOT CHECKED, there is no SIMDe. Install libsimde-dev or simde-devel, or give SIMDE=<folder that has simde/>"; fi
	cd tests && LD_PRELOAD="$(ASAN)" ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc ../$(BIN)/python -m faults.sanitized ../build/sanitize --seed $(SEED)

clean: ## Remove the environment, the builds and the demo's index
	rm -rf $(VENV) build dist .demo .mypy_cache .ruff_cache .pytest_cache
