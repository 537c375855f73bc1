#!/usr/bin/env bash
# Starts as many processes of a program as ranks, each with its rank and a rendezvous file, and fails if one does.
#
#   run_ranks.sh RANKS PROGRAM
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
processes=()
for ((rank = 0; rank < $1; rank++)); do
  "$2" "$rank" "$folder/rendezvous" &
  processes+=($!)
done
status=0
for process in "${processes[@]}"; do
  wait "$process" || status=$?
done
exit "$status"
