#!/usr/bin/env bash
# Checks that the README shows the quickstart example as it is, and runs it on four processes.
#
#   run_quickstart.sh PROGRAM SOURCE_TREE
set -euo pipefail

shown=$(sed -n '/^```cpp$/,/^```$/p' "$2/README.md" | sed '1d;$d')
written=$(sed -n '/^\/\/ \[readme\]$/,/^\/\/ \[readme\]$/p' "$2/examples/quickstart.cc" | sed '1d;$d')
if [ "$shown" != "$written" ]; then
  echo "README.md and examples/quickstart.cc differ:" >&2
  diff <(echo "$shown") <(echo "$written") >&2
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
pids=()
for rank in 0 1 2 3; do
  timeout 50 "$1" "$rank" "$folder/rendezvous" >"$folder/out.$rank" &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
cat "$folder"/out.*
for share in '(64,)' '(128,)' '(0,)' '(320,)'; do
  grep -qF "local=$share" "$folder"/out.* || { echo "no rank holds $share" >&2; exit 1; }
done
