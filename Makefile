# Every target sets up what it needs by itself: `make demo` on a fresh clone is enough.

VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
WORKERS ?= 2
MARKS ?= not nightly

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# threads that wait sleep instead of spinning: other work on the same cores hurts less
export OMP_WAIT_POLICY ?= PASSIVE
# a hundred processes of the tests would compile every module of isotrope anew
unexport PYTHONDONTWRITEBYTECODE

# The first interpreter that starts and is new enough, unless PYTHON names one. A candidate is
# run, not only looked up: version managers leave names on PATH that answer with an error.
FIND_PYTHON := for candidate in $(or $(PYTHON),python3.11 python3 python3.12 python3.13); do \
	if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then python=$$candidate; break; fi; done; \
	test -n "$$python" || { echo "isotrope needs Python 3.11 or newer; found none as \
	$(or $(PYTHON),python3.11, python3, python3.12 or python3.13): \
	install one, or say which with PYTHON=/path/to/python" >&2; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help demo demo-images demo-seeds zoo reproduce test test-numerical faults test-mteb test-docs \
	test-lowest test-slow nightly check check-all fix docs picture site newcomer lock bench bench-gpu clean
.DELETE_ON_ERROR:

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

demo: $(READY) ## train by the recipe and with three objectives on text of this machine (minutes)
	$(BIN)/python -m examples.demo --output demo

demo-images: $(READY) ## two methods on images, with and without cut-initialization (minutes)
	$(BIN)/python examples/digits.py --output demo-images

demo-seeds: $(READY) ## the demo with three seeds: is its margin luck?
	$(BIN)/python -m examples.demo --seeds 0 1 2 --output demo-seeds

zoo: $(READY) ## small trainings, most of them broken on purpose, and what the doctor says of them
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.zoo --output zoo

reproduce: $(READY) ## the papers' tables and figures at cpu scale (a day or more; it resumes)
	$(BIN)/python -m papers --all --scale cpu --output docs/results/reproduce --jobs $(WORKERS)

# one thread for each worker: threads of several workers on the same cores slow all of them
test: $(READY) ## run the test suite (minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow and not nightly" -n $(WORKERS) \
		--dist worksteal

NUMERICAL := tests/paradigm tests/kernels tests/objectives tests/diagnostics tests/measures \
	tests/evaluation

# every pair of ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA and the number of threads; - is unset
test-numerical: $(READY) ## the numerical tests as on other processors, with one and two threads (an hour)
	@for how in "default SSE41 1" "default - 2" "avx2 SSE41 2" "avx2 - 1" "- SSE41 1" "- - 2"; do \
		set -- $$how; with="OMP_NUM_THREADS=$$3"; \
		[ $$1 = - ] || with="$$with ATEN_CPU_CAPABILITY=$$1"; \
		[ $$2 = - ] || with="$$with ONEDNN_MAX_CPU_ISA=$$2"; \
		echo "the numerical tests with $$with"; \
		env -u ATEN_CPU_CAPABILITY -u ONEDNN_MAX_CPU_ISA $$with $(BIN)/python -m pytest \
			-m "not slow and not nightly" -n $(WORKERS) --dist worksteal $(NUMERICAL) || exit 1; \
		ran="$$ran\n  $$with"; \
	done; printf "the numerical tests passed with$$ran\n"

# what has been done stands in faults/figures.json, and is not done again
faults: $(READY) ## kill runs, fail their writes, soak, try bad input: the figures (an hour)
	OMP_NUM_THREADS=1 $(BIN)/python -m tests.faults --output faults

test-mteb: $(VENV)/.ready-mteb ## MTEB's own check of an encoder, and its STS scores beside ours
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/adapters/test_mteb.py

# the oldest versions that pyproject.toml allows of what losses need
test-lowest: $(VENV)-lowest/.ready ## losses and their components with the oldest torch and numpy (minutes)
	OMP_NUM_THREADS=1 $(VENV)-lowest/bin/python -m pytest -m "not slow and not nightly" $(LOWEST)

test-docs: $(VENV)/.ready-docs ## the notebooks run, and the site asks nobody for anything
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/docs/test_notebooks.py tests/docs/test_site.py

newcomer: $(VENV)/.ready-package ## the docs' first pages in a clean environment, from the built wheel (minutes)
	.ci/newcomer.sh

# the audit asks a service; without a network it says so and does not fail
check: $(READY) ## lint, formatting, types, direction of imports, sizes, licences, known vulnerabilities
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python .ci/ratchet.py
	$(BIN)/python requirements/licences.py
	$(BIN)/python requirements/audit.py

check-all: check test-slow ## the checks, then the tests that take longer

# FLAGS: what .ci/run leaves out because nothing of it has changed
test-slow: $(READY) ## the tests that take longer: whole runs, pages, real processes (minutes)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "slow and not nightly" -n $(WORKERS) \
		--dist worksteal $(FLAGS)

nightly: check $(VENV)/.ready-docs $(VENV)/.ready-mteb ## every test there is: all bad inputs and presets, faults, pages, kernels (hours)
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
	$(MAKE) test-numerical
	$(MAKE) site newcomer test-lowest
	$(MAKE) faults zoo

fix: $(READY) ## repair what lint and formatting can repair
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(READY) ## write what is generated in docs/ anew: objectives, methods, commands ...
	$(BIN)/python docs/build.py

picture: $(READY) ## the report at the top of the README; it needs Chromium (ten minutes)
	$(BIN)/python docs/picture.py picture

site: $(VENV)/.ready-docs ## the documentation as a site, in site/ (seconds)
	$(BIN)/python docs/site.py

bench: $(READY) ## the cost of every loss, training and STS, beside the peers (hours)
	$(BIN)/python benchmarks/peers.py
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/throughput.py
	$(BIN)/python benchmarks/sts.py

bench-gpu: $(READY) ## the losses on an NVIDIA GPU, beside the peers (minutes)
	$(BIN)/python benchmarks/gpu.py

clean: ## remove the environment, caches and the demo's output; runs/ stays
	rm -rf $(VENV) $(VENV)-lock $(VENV)-lowest site picture demo demo-images demo-seeds zoo faults build \
		dist
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find src papers examples tests benchmarks docs -name __pycache__ -prune -exec rm -rf {} +

# --no-deps: the lock is complete, and with --require-hashes pip would otherwise ask for hashes of
# torch, which the machine chose.
$(READY): requirements/torch.txt requirements/lock.txt pyproject.toml
	@$(FIND_PYTHON); "$$python" -m venv $(VENV) || { echo "cannot make the virtual environment \
	$(VENV): does this Python have the module venv (Debian: apt-get install python3-venv)?" >&2; \
	exit 1; }
	@echo "1/3 torch (0.2 GB for a CPU, some GB with CUDA)"
	@$(BIN)/python -m pip install -qq -r requirements/torch.txt \
		$(if $(TORCH_INDEX_URL),--index-url "$(TORCH_INDEX_URL)")
	@echo "2/3 the locked packages (0.3 GB)"
	@$(BIN)/python -m pip install -qq --no-deps --require-hashes -r requirements/lock.txt
	@echo "3/3 isotrope itself"
	@$(BIN)/python -m pip install -qq --no-deps --no-build-isolation -e .
	@$(BIN)/python -m pip check
	@touch $@

# where TORCH_INDEX_URL has no build for a CPU that is so old, it is gigabytes
LOWEST_TORCH ?= 2.5.0
LOWEST := tests/objectives tests/paradigm tests/kernels tests/measures tests/test_plain.py

$(VENV)-lowest/.ready: requirements/lowest.txt pyproject.toml
	@$(FIND_PYTHON); "$$python" -m venv $(VENV)-lowest
	@$(VENV)-lowest/bin/python -m pip install -qq torch==$(LOWEST_TORCH) \
		$(if $(TORCH_INDEX_URL),--index-url "$(TORCH_INDEX_URL)")
	@$(VENV)-lowest/bin/python -m pip install -qq -r requirements/lowest.txt
	@$(VENV)-lowest/bin/python -m pip install -qq --no-deps -e .
	@touch $@

# what one target needs alone: mteb 62 MB, docs 40 MB, package 20 MB on disk
$(VENV)/.ready-%: requirements/%.txt $(READY)
	@echo "what requirements/$*.txt pins"
	@$(BIN)/python -m pip install -qq --no-deps --require-hashes -r $<
	@$(BIN)/python -m pip check
	@touch $@

COMPILE = $(VENV)-lock/bin/pip-compile --quiet $(UPGRADE) --generate-hashes \
	--strip-extras --unsafe-package torch --constraint requirements/torch.txt --no-emit-options \
	--no-header

# pip-compile comments on what is left out; that is on purpose, so the comment goes. The other files
# hold what their extra needs beyond lock.txt.
lock: ## write what requirements/ pins anew, but torch (UPGRADE=--upgrade: newer versions)
	@$(FIND_PYTHON); "$$python" -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet -r requirements/lock-tool.txt
	$(COMPILE) pyproject.toml --extra dev --build-deps-for editable --output-file requirements/lock.txt
	for extra in mteb docs package; do $(COMPILE) --output-file requirements/$$extra.txt \
		pyproject.toml --extra $$extra \
		--constraint requirements/lock.txt --unsafe-package isotrope \
		$$(sed -n 's/^\([a-z0-9][a-z0-9._-]*\)==.*/--unsafe-package \1/p' requirements/lock.txt) \
		|| exit 1; done
	for lock in lock mteb docs package; do \
		sed -i.old -e '/^# WARNING/,$$d' requirements/$$lock.txt && rm requirements/$$lock.txt.old; done
