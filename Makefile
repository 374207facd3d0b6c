# Every target sets up what it needs; on a fresh machine start with `make demo` or `make test`.
# Needed beforehand: python3 (3.11 or later) with venv, a C compiler, make.

PYTHON ?= python3
BIN := .venv/bin
NATIVE := $(shell find src -name '*.pyx' -o -name '*.pxd' -o -name '*.h')
LATER := TAILRACE_NATIVE_LATER=1
PROCESSES ?= 4
CACHE := env --unset=PYTHONDONTWRITEBYTECODE XDG_CACHE_HOME=$(CURDIR)/build/cache
SANITIZERS := thread address undefined
CFLAGS_STRESS := -std=c11 -O1 -g -Wall -Wextra -Wno-tsan -Isrc/tailrace/transport -pthread

.PHONY: setup java demo test ci lint sanitize simulate chaos bench bench-peers clean help

help:
	@echo "make demo      see it work"
	@echo "make test      all tests, five to six minutes on two cores"
	@echo "make ci        lint, type-check and test: what CI runs"
	@echo "make sanitize  the ring's C code under Thread-, Address- and UBSanitizer"
	@echo "make simulate  100,000 simulated jobs with kills at every step; make test has 1,200"
	@echo "make chaos     a thousand kills -9 of a job that changes meanwhile: nothing may be lost, nothing twice"
	@echo "make bench     the benchmarks; figures land in build/bench"
	@echo "make bench-peers  beside Bytewax, PyFlink, Spark and pyzmq; installs them into build/peers"
	@echo "make lint      ruff and mypy    make setup  only the environment    make clean"

setup: build/.native

build/.environment: pyproject.toml
	@mkdir -p build
	@command -v cc >/dev/null || { echo "tailrace needs a C compiler (cc), for example: apt-get install gcc"; exit 1; }
	@echo "setting up .venv: a minute or two, once ..."
	@if command -v uv >/dev/null; then \
		{ [ -x $(BIN)/python ] || uv venv --quiet --python $(PYTHON) .venv; } && \
		$(LATER) uv pip install --quiet --python $(BIN)/python --editable '.[dev,bench]'; \
	else \
		{ [ -x $(BIN)/pip ] || $(PYTHON) -m venv .venv; } && \
		$(LATER) $(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev,bench]'; \
	fi
	@touch $@

build/.native: build/.environment setup.py $(NATIVE)
	@$(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

demo: setup java
	$(BIN)/tailrace demo

java:
	@command -v java >/dev/null || [ -n "$$JAVA_HOME" ] || \
		{ [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing Java ..." && \
		  apt-get update -qq && apt-get install -qq -y openjdk-17-jre-headless >/dev/null; } || \
		{ echo "Spark needs Java 17 or later; for example: apt-get install openjdk-17-jre-headless"; exit 1; }

# Side by side: what shares a Spark in two processes (tests/conftest.py), the rest in the others too.
# All Sparks start from one archive of classes, and what they import is compiled once.
test: setup java build/.classes
	$(CACHE) $(BIN)/python -m pytest -n $(PROCESSES) --dist loadscope --no-loadscope-reorder $(OPTIONS)

build/.classes: build/.environment | build/.native java
	@$(CACHE) $(BIN)/tailrace warm-up || echo "without it, tests take a minute longer"
	@touch $@

ci: lint test

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# 35 position bits are the real thing; with 14 the positions come round every few hundred messages.
# A ring of some KB starts over (see writer.h) only when told to.
sanitize:
	@mkdir -p build/sanitize
	@for sanitizer in $(SANITIZERS); do for bits in 35 14; do for warm in 262144 512; do \
		program=build/sanitize/ring_stress_$${sanitizer}_$${bits}_$$warm; \
		$(CC) $(CFLAGS_STRESS) -fsanitize=$$sanitizer -fno-sanitize-recover=all \
			-DRING_POSITION_BITS=$$bits -DRING_WARM_BYTES=$$warm \
			tests/concurrency/ring_stress.c -o $$program || exit 1; \
		for seed in 1 2 3; do echo "$$sanitizer:"; $$program $$seed || exit 1; done; \
	done; done; done

# A seed that fails is named, and replays; for fewer: make simulate SEEDS=10000
# (tests/seeds.py; `make test SEEDS=2000`: more of everything that goes by seeds or examples).
SEEDS ?= 100000
simulate: setup
	SEEDS=$(SEEDS) $(BIN)/python -m pytest -q -n $(PROCESSES) tests/checkpoint/test_simulation.py \
		tests/checkpoint/test_drivers.py

# For fewer, or another seed: make chaos KILLS=100 SEED=7
KILLS ?= 1000
SEED ?= 1
chaos: setup java
	$(BIN)/python bench/chaos.py --kills $(KILLS) --seed $(SEED) --changes

bench: setup
	$(BIN)/python bench/ipc.py
	$(BIN)/python bench/engine.py
	$(BIN)/python bench/planner.py

# For a short run: make bench-peers OPTIONS=--quick
bench-peers: setup java
	$(BIN)/python bench/peer_systems/install.py
	$(BIN)/python bench/peers.py $(OPTIONS)

clean:
	rm -rf build dist .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf src/*.egg-info
	find src -name '*.so' -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
