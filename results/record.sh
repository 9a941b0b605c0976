#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The record of a machine: every sweep (measure.sh), the sweep for comparisons a second time and what compare says of the two,
# the selector's table made from them, and a page of tables.
#     results/record.sh results/h200/2026-11-30-name [options of mla-bench run]
# MLA_BENCH, PEERS, SWEEPS and LIMIT as for measure.sh; AGAIN is the seconds of LIMIT kept for the second time (60).
set -euo pipefail
out=${1:?usage: $0 FOLDER [options of mla-bench run]}
shift
here=$(dirname "${BASH_SOURCE[0]}")
bench=${MLA_BENCH:-mla-bench}
limit=${LIMIT:-100000}
again=${AGAIN:-60}
status=0
LIMIT=$((limit - again)) bash "$here/measure.sh" "$out" "$@" || status=$?
if [[ -e $out/regression/run.jsonl ]]; then
  PEERS='' SWEEPS=regression LIMIT=$((limit - SECONDS)) bash "$here/measure.sh" "$out-again" "$@" --processes 2 || status=$?
  code=0
  "$bench" compare "$out/regression" "$out-again/regression" -o md >"$out/again.md" || code=$?
  echo "compared with a second run: exit code $code: $(head -1 "$out/again.md")" >&2
fi
rm -f "$out/selector.json"
"$bench" tune "$out" --to "$out/selector.json" -o md >"$out/selector.md" || status=$?
bash "$here/tables.sh" "$out" >"$out/README.md" || status=$?
exit "$status"
