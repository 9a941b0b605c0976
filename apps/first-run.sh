#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job on a fresh machine, no GPU needed: set up, build, then one real answer from each program.
source "$(dirname "${BASH_SOURCE[0]}")/../cmake/setup.sh"

say "1/5 Packages"
mla_packages
say "2/5 Build"
mla_build
bin=build/$preset/bin

say "3/5 mla-memcalc: what fits DeepSeek-V3 on 8 x H200?"
"$bin/mla-memcalc" plan deepseek-v3 --gpu h200 --gpus 8 --context 32k

say "4/5 mla-verify: does the reference agree with the golden vectors of another implementation?"
"$bin/mla-verify" golden tests/golden

say "5/5 mla-bench: expanded against absorbed against windowed, on this machine's CPU"
"$bin/mla-bench" run --spec smoke --out "build/$preset/first-run/$(date +%Y%m%dT%H%M%S)"

say "Done. Next: $bin/mla-memcalc --help, $bin/mla-verify --help, $bin/mla-bench --help, and README.md."
