#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every sweep whose numbers results/README.md speaks of, into one folder with a report:
#     results/measure.sh results/h200/2026-11-30-first [options of mla-bench run]
# Run again, it goes on where it was interrupted. MLA_BENCH names the program, PEERS a list of peers (peers/*.py).
set -euo pipefail
out=${1:?usage: $0 FOLDER [options of mla-bench run]}
shift
bench=${MLA_BENCH:-mla-bench}
sweeps=${SWEEPS:-decode step window heads page dtype ragged mixed prefill regression}
status=0
measure() { # SWEEP OPTIONS...: a sweep with a wrong or refused point does not keep the others from being measured
  local sweep=$1 code=0
  shift
  if [[ -e $out/$sweep/run.jsonl ]]; then set -- --resume "$@"; else set -- --spec "$sweep" "$@"; fi
  "$bench" run --out "$out/$sweep" "$@" >"$out/$sweep.txt" || code=$?
  echo "$sweep: exit code $code, ${SECONDS} s in all" >&2
  [[ $code == 130 ]] && exit 130
  [[ $code == 0 ]] || status=1
}
mkdir -p "$out"
for sweep in $sweeps; do measure "$sweep" "$@"; done
if [[ -n ${PEERS:-} ]]; then
  peers=()
  for peer in $PEERS; do peers+=(--peer "$peer"); done
  measure peers "${peers[@]}" "$@"
fi
rm -f "$out/report.html"
"$bench" report "$out" -o html --to "$out/report.html"
exit $status
