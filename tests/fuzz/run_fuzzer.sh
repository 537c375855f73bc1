#!/usr/bin/env bash
# Runs one libFuzzer program for HYPER_PARALLEL_FUZZ_SECONDS (30 by default).
#
#   run_fuzzer.sh PROGRAM CORPUS OUTPUT
#
# CORPUS is the committed one and stays as it is. New inputs go to OUTPUT/corpus, a failing one to OUTPUT/failures;
# to make a failure a test for good, copy its file into CORPUS.
set -euo pipefail

program=$1 corpus=$2 output=$3
if [ -z "$(ls -A "$corpus" 2>/dev/null)" ]; then
  echo "no committed corpus in $corpus" >&2
  exit 1
fi
mkdir -p "$output/corpus" "$output/failures"
exec "$program" -max_total_time="${HYPER_PARALLEL_FUZZ_SECONDS:-30}" -timeout=10 -rss_limit_mb=2048 \
  -print_final_stats=1 -artifact_prefix="$output/failures/" "$output/corpus" "$corpus"
