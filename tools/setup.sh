#!/usr/bin/env bash
# Brings what the named parts need, and only what is missing; done before, it takes a fraction of a second.
#
#   tools/setup.sh PART...
#
#   build       compilers, C++ libraries, .venv with the pinned torch, cmake and ninja
#   demo        the model that `make demo` distributes
#   fuzz        clang 19 with libFuzzer, also the second compiler
#   test        what the Python tests, the stubs and the wheel need in .venv
#   dev         formatters and linters
#   mindspore   .venv-mindspore with the pinned MindSpore and without torch, and what builds the torch-free module
#
# Debian packages are installed as root or by a sudo that asks nothing. Without that right the script names what is
# missing and the command that brings it, and fails. Environment: PYTHON, the Python 3.11 that both are made with.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv
mindspore_venv=.venv-mindspore
core_packages=(nlohmann-json3-dev libcli11-dev ccache)
build_packages=("${core_packages[@]}" libgtest-dev libgmock-dev librapidcheck-dev libbenchmark-dev libgloo-dev)
fuzz_packages=(clang-19 libclang-rt-19-dev)

has_headers='import os.path, sysconfig; open(os.path.join(sysconfig.get_path("include"), "Python.h")).close()'

say() { printf 'setup: %s\n' "$*"; }
die() {
  printf 'setup: %s\n' "$@" >&2
  exit 1
}

# find_python: the path of a Python 3.11, nothing if there is none.
find_python() {
  local candidate
  for candidate in ${PYTHON:+"$PYTHON"} python3.11 python3 /usr/bin/python3; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null; then
      command -v "$candidate"
      return
    fi
  done
}

# wanted_for_modules ENVIRONMENT: the Debian packages with which an environment is made and extension modules are built.
wanted_for_modules() {
  command -v g++ >/dev/null || echo g++
  local python=$1/bin/python
  if [ ! -x "$python" ]; then
    python=$(find_python)
    [ -n "$python" ] || echo python3
    "${python:-false}" -c 'import ensurepip, venv' 2>/dev/null || echo python3-venv
  fi
  # The headers that the extension modules include; a Python of one's own build brings them along.
  "${python:-false}" -c "$has_headers" 2>/dev/null || echo python3-dev
}

# wanted_packages PART...: the Debian packages that the parts need.
wanted_packages() {
  local part
  for part in "$@"; do
    case $part in
      build)
        printf '%s\n' "${build_packages[@]}"
        wanted_for_modules "$venv"
        ;;
      mindspore)
        printf '%s\n' "${core_packages[@]}"
        wanted_for_modules "$mindspore_venv"
        ;;
      fuzz) printf '%s\n' "${fuzz_packages[@]}" ;;
    esac
  done
}

# missing_packages PART...: those of them that are not installed.
missing_packages() {
  local package
  for package in $(wanted_packages "$@" | sort --unique); do
    [ "$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || echo "$package"
  done
}

install_packages() {
  local missing root=()
  mapfile -t missing < <(missing_packages "$@")
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ]; then
    root=(sudo --non-interactive)
    sudo --non-interactive true 2>/dev/null || die "missing Debian packages: ${missing[*]}" \
      "no right to install them here; run this, then try again:" \
      "    sudo apt-get update && sudo apt-get install --no-install-recommends ${missing[*]}"
  fi
  command -v apt-get >/dev/null || die "missing packages (Debian's names): ${missing[*]}" \
    "this system has no apt-get; install them by its own means"
  say "installing Debian packages: ${missing[*]}"
  "${root[@]}" apt-get update --quiet=2
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --yes --no-install-recommends "${missing[@]}"
}

# make_venv ENVIRONMENT: with pip, unless it is there.
make_venv() {
  if [ -x "$1/bin/python" ] && "$1/bin/python" -c 'import pip' 2>/dev/null; then
    return
  fi
  local python
  python=$(find_python)
  [ -n "$python" ] || die "no Python 3.11 found (tried PYTHON, python3.11, python3): the pinned wheels are for 3.11"
  say "making $1 with $python"
  "$python" -m venv --clear "$1"
}

# install_requirements ENVIRONMENT FILE [PIP OPTION...]: pip, unless this very file was installed before.
install_requirements() {
  local environment=$1 file=$2 stamp=$1/.installed-$2
  shift 2
  if cmp --silent "$file" "$stamp"; then
    return
  fi
  say "installing $file into $environment"
  "$environment/bin/python" -m pip install --quiet --quiet --disable-pip-version-check --requirement "$file" "$@"
  cp "$file" "$stamp"
}

[ $# -gt 0 ] || die "usage: tools/setup.sh build|demo|fuzz|test|dev|mindspore..."
for part in "$@"; do
  case $part in
    build | demo | fuzz | test | dev | mindspore) ;;
    *) die "unknown part '$part': the parts are build, demo, fuzz, test, dev and mindspore" ;;
  esac
done

install_packages "$@"
for part in "$@"; do
  case $part in
    build) make_venv "$venv" && install_requirements "$venv" requirements.txt ;;
    demo) install_requirements "$venv" requirements-demo.txt --no-deps ;;
    test) install_requirements "$venv" requirements-test.txt ;;
    dev) install_requirements "$venv" requirements-dev.txt ;;
    mindspore) make_venv "$mindspore_venv" && install_requirements "$mindspore_venv" requirements-mindspore.txt ;;
  esac
done
