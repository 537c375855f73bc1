#!/usr/bin/env bash
# Runs every benchmark program of a folder and then the Python programs named, one after the other. The first failure
# ends the run.
#
#   run_benchmarks.sh FOLDER [PROGRAM.py...]
set -euo pipefail

programs=()
for file in "$1"/*; do
  if [ -f "$file" ] && [ -x "$file" ]; then programs+=("$file"); fi
done
if [ ${#programs[@]} -eq 0 ]; then
  echo "no benchmark program in $1" >&2
  exit 1
fi
for program in "${programs[@]}"; do
  printf '\n=== %s ===\n' "$(basename "$program")"
  "$program"
done
for program in "${@:2}"; do
  printf '\n=== %s ===\n' "$(basename "$program")"
  python "$program"
done
