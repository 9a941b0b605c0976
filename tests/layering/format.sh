#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every C++ and CUDA file is formatted as .clang-format says. Versions of clang-format differ in taste: 14 decides.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tool=$(command -v clang-format-14 || true)
if [[ -z $tool ]] && command -v clang-format >/dev/null && clang-format --version | grep -q 'version 14\.'; then
  tool=clang-format
fi
if [[ -z $tool ]]; then
  if [[ -n ${CI:-} ]] && command -v apt-get >/dev/null && apt-cache show clang-format-14 >/dev/null 2>&1; then
    apt-get install -y -qq --no-install-recommends clang-format-14 >/dev/null
    tool=clang-format-14
  else
    echo "skipped: clang-format 14 is not installed (Debian 12: apt-get install clang-format-14)"
    exit 0
  fi
fi
git ls-files -z '*.cpp' '*.hpp' '*.h' '*.cu' '*.cuh' | xargs -0 "$tool" --dry-run -Werror
echo "formatting: $(git ls-files '*.cpp' '*.hpp' '*.h' '*.cu' '*.cuh' | wc -l) files as .clang-format says"
