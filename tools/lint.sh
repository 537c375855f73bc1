#!/usr/bin/env bash
# The tree's layout and lint, over the files that git knows or would add.
#
#   lint.sh format   rewrites the files
#   lint.sh check    changes nothing; fails if a formatter would, or if a linter finds something
#
# clang-tidy reads build/dev/compile_commands.json and the stubs are compared with the modules in build/dev/python:
# configure the preset 'dev' and build its targets _core and _torch first.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

sources() { git ls-files --cached --others --exclude-standard -- "$@"; }
mapfile -t cxx < <(sources '*.cc' '*.h')
mapfile -t units < <(sources '*.cc' | grep -v '_fuzz\.cc$')
mapfile -t cmake < <(sources '*CMakeLists.txt' '*.cmake')
mapfile -t python < <(sources '*.py')

case ${1:-} in
  format)
    clang-format -i "${cxx[@]}"
    gersemi --in-place "${cmake[@]}"
    ruff format --quiet "${python[@]}"
    ;;
  check)
    clang-format --dry-run -Werror "${cxx[@]}"
    gersemi --check "${cmake[@]}"
    ruff format --quiet --check "${python[@]}"
    ruff check --quiet "${python[@]}"
    python tools/make_stubs.py check
    mypy
    # For each file clang-tidy counts the findings in foreign headers that it does not show.
    printf '%s\0' "${units[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p build/dev 2> >(
      grep -v ' warnings\? generated' >&2
    )
    ;;
  *)
    echo "usage: tools/lint.sh format|check" >&2
    exit 2
    ;;
esac
