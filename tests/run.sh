#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All tests on a fresh machine, no GPU needed: set up, build, test. Tests that need a GPU say so and are skipped.
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"

say "1/3 Packages"
mla_packages python3 python3-jsonschema python3-numpy
say "2/3 Build"
mla_build
say "3/3 Tests"
ctest --preset "$preset" --progress "$@"
