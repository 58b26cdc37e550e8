# `make demo` and `make test` do all set-up themselves: a virtual environment in .venv,
# made once and reused until pyproject.toml changes. `make PYTHON=... test` chooses the
# interpreter, `make WORKERS=... test` the number of test processes.

.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: docs docs-browser demo operations test test-slow test-poison test-reference test-shared test-sanitizer test-cuda-static registry lint format typecheck bench clean

PYTHON := python3.13 python3.12 python3.11 python3
WORKERS := 2
BIN := .venv/bin
PIP := $(BIN)/python -m pip -qq --disable-pip-version-check --no-input
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --max-worker-restart 0

# What the caller's shell sets must not reach the environment that is built here.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONWARNINGS PYTHONOPTIMIZE VIRTUAL_ENV
unexport PIP_TARGET PIP_PREFIX PIP_ROOT PIP_USER PIP_REQUIRE_VIRTUALENV PIP_PYTHON
unexport PYTEST_ADDOPTS PYTEST_PLUGINS PYTEST_DISABLE_PLUGIN_AUTOLOAD MYPYPATH
unexport JAX_ENABLE_X64 JAX_PLATFORMS XLA_FLAGS
export PYTHONNOUSERSITE := 1

demo: .venv/.demo
	$(BIN)/python examples/train_digits.py

CHECKS := test test-slow test-poison test-reference test-shared test-sanitizer test-cuda-static registry
$(CHECKS): export TENFERRO_BACKENDS := cpu,fake
$(CHECKS): export JAX_PLATFORMS := cpu
$(CHECKS) bench: export OPENBLAS_NUM_THREADS := 1
$(CHECKS) bench: export OMP_NUM_THREADS := 1
$(CHECKS) bench: export MKL_NUM_THREADS := 1
test-poison: export TENFERRO_POISON := 1
test-poison: export PYTHONMALLOC := debug
test-poison: export PYTHONFAULTHANDLER := 1

test: lint typecheck
	$(PYTEST)

# The example on a WebGPU device is slow; the rest needs no device.
test-slow: export TENFERRO_BACKENDS := cpu,fake,webgpu
test-slow: .venv/.lanes
	$(PYTEST) -m "slow and not shared and not opencl and not webgpu"
	$(PYTEST) $(LANE_TESTS) -m "slow and webgpu"

# Guards around the ownership kernel's memory: tests/poison.py says which.
test-poison: .venv/.test
	$(PYTEST) tests/storage tests/contract

# Agreement with PyTorch, which the extra `reference` brings.
test-reference: .venv/.test .venv/.bench
	$(PYTEST) -m "reference and not shared"

# Tests over the files of ../shared, or of $TENFERRO_SHARED; some compare with PyTorch.
test-shared: .venv/.test .venv/.bench
	$(PYTEST) -m shared

# Printed OpenCL kernels under Oclgrind: accesses out of bounds, and races.
test-sanitizer: .venv/.kernels
	TENFERRO_OCLGRIND=1 $(PYTEST) tests/backends/test_sanitizer.py
	TENFERRO_BACKENDS=oclgrind $(PYTEST) tests/backends/test_printed_kernels.py

# CUDA without a card: calls and signatures, machine code of every printed kernel; then
# the backend's own code over host memory (tests/backends/host_cuda.py; needs g++).
HOST_CUDA := TENFERRO_BACKENDS=cuda_on_host $(PYTEST)
LIBRARY_ROWS := matmul or fftn or cholesky or eigh or svd or qr or inv or solve_triangular or sort

test-cuda-static: .venv/.kernels
	TENFERRO_CUDA_STATIC=1 $(PYTEST) tests/backends/test_cuda_static.py
	$(HOST_CUDA) $(addprefix tests/backends/test_,conformance.py eager.py index_ranges.py \
	    equal_ledgers.py chains.py submitted_loops.py cuda.py) -k "not long and not illegal and not librarys"
	$(HOST_CUDA) tests/backends/test_op_table.py -k "lane and ($(LIBRARY_ROWS))"

# Devices that every machine can have: OpenCL by PoCL, WebGPU by Mesa's Vulkan driver. A
# lane that cannot start is a failure. Each kind has processes of its own, because a
# library of a device may end its process. The longest test comes first.
LANES := cpu,fake,opencl,webgpu
LANE_TESTS := tests/test_examples.py tests/backends tests/contract/test_g7_lanes.py tests/storage/test_lanes.py tests/test_quiet.py
DRIVERS := $(CURDIR)/.cache/drivers
test-lanes test-slow registry: export POCL_DEVICES := pthread
test-lanes test-slow registry: export POCL_CACHE_DIR := $(DRIVERS)/pocl
test-lanes test-slow registry: export PYOPENCL_NO_CACHE := 1
test-lanes test-slow registry: export MESA_SHADER_CACHE_DIR := $(DRIVERS)/mesa
test-lanes test-slow registry: export XDG_RUNTIME_DIR := $(DRIVERS)/run

test-lanes: export TENFERRO_BACKENDS := $(LANES)
test-lanes: .venv/.lanes
	$(BIN)/python -m tenferro_ad doctor --require opencl,webgpu
	$(PYTEST) $(LANE_TESTS) -m "opencl and not slow"
	$(PYTEST) $(LANE_TESTS) -m "webgpu and not slow"

# What the registry has as active runs, and the checker reads the log of it. The tracked
# tree must be HEAD. Rows are about every lane, CUDA without a card, and the built site.
# docs/verification.md explains STORAGE_OWNERSHIP_BASE.
RECEIPT := .cache/storage-ownership-receipt.json
BASE := $${STORAGE_OWNERSHIP_BASE+--base-commit "$$STORAGE_OWNERSHIP_BASE"}

registry: export PATH := $(CURDIR)/$(BIN):$(PATH)
registry: export TENFERRO_BACKENDS := $(LANES)
registry: export TENFERRO_CUDA_STATIC := 1
registry: .venv/.test .venv/.lanes .venv/.kernels docs
	@mkdir -p $(dir $(RECEIPT))
	python scripts/run-storage-ownership-contracts.py --receipt-out $(RECEIPT) $(BASE)
	python scripts/check-storage-ownership-contracts.py --receipt $(RECEIPT) $(BASE)

# The site: build/docs/index.html. A warning is a failure, and so is a broken link, a
# public name without a place, or stale wording on a rendered page.
docs: .venv/.docs
	rm -rf build/docs
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs build/docs
	$(BIN)/python scripts/generate-operations.py --categories build/docs/operations.html
	$(BIN)/python scripts/check-docs-site.py
	$(BIN)/python scripts/check-storage-docs.py --include-rendered

# The site in a browser: every page narrow and wide, light and dark, and the search.
docs-browser: docs .venv/.browser
	$(PYTEST) -m browser tests/site

lint: .venv/.test
	$(BIN)/python -m ruff check .
	$(BIN)/python -m ruff format --check .

format: .venv/.test
	$(BIN)/python -m ruff check --fix .
	$(BIN)/python -m ruff format .

# docs/operations.md, made of the operation table; a test compares.
operations: .venv/.test
	$(BIN)/python scripts/generate-operations.py

typecheck: .venv/.test
	$(BIN)/python -m mypy --strict

bench: .venv/.bench
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE $(BIN)/python benchmarks/eager.py

clean:
	rm -rf .venv .cache .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A stamp says which extras are installed; all of them include what the demo needs.
.venv/.demo: pyproject.toml .venv/.made
	@echo "Installing tenferro_ad with [examples] into .venv"
	@$(PIP) install --editable '.[examples]'
	@touch $@

.venv/.test: pyproject.toml .venv/.made
	@echo "Installing tenferro_ad with [test,examples,dev] into .venv"
	@$(PIP) install --editable '.[test,examples,dev]'
	@touch .venv/.demo $@

# NVRTC as a wheel compiles without a driver; its version is that of CuPy's CUDA.
.venv/.kernels: pyproject.toml .venv/.made
	@echo "Installing tenferro_ad with [test,opencl,cuda13], Oclgrind and NVRTC into .venv"
	@$(PIP) install --editable '.[test,opencl,cuda13]' 'pyopencl[oclgrind]' 'nvidia-cuda-nvrtc==13.0.*'
	@touch $@

# Drivers of the system are looked for every time: they can go away.
.PHONY: .venv/.lanes
.venv/.lanes: .venv/.test .venv/.drivers
	@mkdir -p -m 700 $(DRIVERS)/run $(DRIVERS)/pocl $(DRIVERS)/mesa
	@scripts/install-drivers.sh $(BIN)/python

.venv/.drivers: pyproject.toml .venv/.made
	@echo "Installing tenferro_ad with [opencl,webgpu] into .venv"
	@$(PIP) install --editable '.[opencl,webgpu]'
	@touch $@

.venv/.bench: pyproject.toml .venv/.made
	@echo "Installing tenferro_ad with [reference,examples] into .venv (PyTorch is large)"
	@$(PIP) install --editable '.[reference,examples]'
	@touch .venv/.demo $@

.venv/.docs: pyproject.toml .venv/.made
	@echo "Installing tenferro_ad with [docs,examples] into .venv"
	@$(PIP) install --editable '.[docs,examples]'
	@touch .venv/.demo $@

# Playwright drives the browser; the script finds one or installs it.
.venv/.browser: pyproject.toml scripts/install-browser.sh .venv/.test
	@echo "Installing tenferro_ad with [browser] into .venv, and a browser if none is there"
	@$(PIP) install --editable '.[browser]'
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh scripts/install-browser.sh
	@touch $@

# An environment that was moved, or whose interpreter went away, is made again.
ifneq ($(shell test "`cat .venv/.made 2>&1`" = "`pwd -P`" && .venv/bin/python -c '' 2>&1 \
	&& echo usable),usable)
.PHONY: .venv/.made
endif

.venv/.made:
	@rm -rf .venv
	@for python in $(PYTHON); do \
	    if "$$python" -c 'import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))' \
	        >/dev/null 2>&1; then \
	        echo "Making .venv with `"$$python" --version`"; \
	        "$$python" -m venv .venv && pwd -P >$@ && exit 0; \
	        exit 1; \
	    fi; \
	done; \
	echo "No Python 3.11 or newer with its venv module was found; tried: $(PYTHON)." >&2; \
	echo "Install one (Debian, Ubuntu: python3-venv), or name it: make PYTHON=/path/to/python" >&2; \
	exit 1
