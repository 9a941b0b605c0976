#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Shared by apps/first-run.sh and tests/run.sh: installs the packages that are missing, configures and builds.
# Safe to run any number of times: nothing is downloaded or rebuilt when it is already there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

MLA_PACKAGES=(g++ cmake ninja-build git ca-certificates pkg-config libcli11-dev libeigen3-dev nlohmann-json3-dev
  libbenchmark-dev libgtest-dev libfmt-dev libssl-dev)

say() { printf '\n== %s\n' "$*"; }

# mla_packages [more...]: installs what is missing, as root or through sudo.
mla_packages() {
  local missing=() package
  if ! command -v dpkg-query >/dev/null; then
    echo "This is not Debian or Ubuntu: assuming the packages ${MLA_PACKAGES[*]} $* are installed under other names."
    return
  fi
  for package in "${MLA_PACKAGES[@]}" "$@"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  if ((${#missing[@]} == 0)); then
    echo "All packages are installed."
    return
  fi
  local root=()
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || {
      echo "Missing packages: ${missing[*]}. Run this as root, or install sudo." >&2
      exit 2
    }
    root=(sudo)
  fi
  echo "Installing: ${missing[*]}"
  "${root[@]}" apt-get update -qq
  "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# mla_build: sets $preset (gpu when there is an nvcc, else cpu), configures and builds it.
mla_build() {
  preset=cpu
  local nvcc
  for nvcc in "${CUDACXX:-}" "$(command -v nvcc || true)" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" /usr/local/cuda/bin/nvcc; do
    if [[ -n $nvcc && -x $nvcc ]]; then
      preset=gpu
      echo "CUDA compiler: $nvcc (preset gpu: kernels for sm_80 and sm_90a are built too; no GPU is needed for that)"
      break
    fi
  done
  [[ $preset == gpu ]] || echo "No CUDA compiler found: building the CPU parts only (preset cpu)."
  # Warnings stop our own CI, never a user whose compiler knows one more. It has no time to read GoogleTest's header in
  # every test either; all others are read as they stand, so a missing include is found.
  cmake --preset "$preset" ${CI:+-DMLA_WERROR=ON -DMLA_PCH=TESTS} | sed 's/^/   /'
  cmake --build --preset "$preset"
}
