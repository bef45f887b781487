# Every target does the set-up that it needs: Python 3.10 or newer with its headers, a C++20
# compiler and make are enough. `make demo` and `make test` work on a fresh clone.
PYTHON ?= python3
BIN := .venv/bin
NATIVE_SOURCES := CMakeLists.txt $(shell find cuda_ext -type f)
CPP_SOURCES := $(filter %.h %.cpp %.cu %.cuh,$(NATIVE_SOURCES))
CPU_TORCH := torch==2.13.0
# Of the wheel, where nvcc is found; the last brings PTX for what comes after it.
CUDA_ARCHITECTURES := 75-real;80-real;86-real;89-real;90-real;100-real;120
# The package is linked, not copied, and its native module left to the target `native`.
LINKED := wheel.cmake=false wheel.py-api=py3 editable.mode=inplace

.PHONY: demo test lint format bench docs wheel native tsan gpu-check clean
.DEFAULT_GOAL := demo

demo: native ## run on the built-in synthetic room and print the result table
	$(BIN)/gsslam run --dataset synthetic/room

test: native ## the whole test suite
	$(BIN)/python -m pytest

lint: .venv/ready ## style and types of all sources
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run -Werror $(CPP_SOURCES)

format: .venv/ready ## rewrite the sources in the project's style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP_SOURCES)

bench: native ## time the native kernels
	$(BIN)/python -m scripts.bench_rasterizer
	$(BIN)/python -m scripts.bench_losses
	$(BIN)/python -m scripts.bench_attention
	$(BIN)/python -m scripts.bench_linear

docs: native ## write the pages that are made from sources
	$(BIN)/python -m scripts.configuration_reference

wheel: .venv/ready ## dist/*.whl and dist/*.tar.gz
	$(BIN)/python -m build "-Ccmake.define.GSSLAM_CUDA_ARCHITECTURES=$(CUDA_ARCHITECTURES)"

tsan: .venv/ready ## look for data races in the CPU kernels
	$(BIN)/python -m scripts.thread_sanitizer

gpu-check: .venv/ready ## tests, sanitizers and bench of the CUDA kernels, on a machine with a GPU
	PATH=$(CURDIR)/$(BIN):$$PATH scripts/gpu_check.sh

clean: ## remove everything that was made, the environment too
	rm -rf .venv build dist gsslam/_native*.so

native: .venv/native ## the native module, beside the Python sources

.venv/native: .venv/ready $(NATIVE_SOURCES)
	$(BIN)/cmake -S . -B build/dev -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja \
		-DCMAKE_BUILD_TYPE=Release -DPython_EXECUTABLE=$(CURDIR)/$(BIN)/python \
		-DGSSLAM_MODULE_FOLDER=$(CURDIR)/gsslam >build/cmake.log || (cat build/cmake.log; exit 1)
	$(BIN)/cmake --build build/dev
	touch $@

# Where there is no NVIDIA GPU, torch comes first and as its CPU build: the default one brings
# gigabytes of CUDA.
.venv/ready: pyproject.toml | .venv/bin/python
	mkdir -p build
	$(BIN)/python -m pip install --upgrade pip
	$(BIN)/python -c "import torch" 2>/dev/null || command -v nvidia-smi >/dev/null \
		|| test -e /dev/nvidia0 || $(BIN)/python -m pip install $(CPU_TORCH)
	$(BIN)/python -m pip install $(addprefix --config-settings=,$(LINKED)) -e ".[dev]"
	touch $@

# An environment that already has torch, such as a container's, lends it.
.venv/bin/python:
	@$(PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10))" \
		|| (echo "Python 3.10 or newer is needed: make PYTHON=python3.11" >&2; exit 1)
	$(PYTHON) -m venv .venv $$($(PYTHON) -c "import torch" 2>/dev/null && echo --system-site-packages)
