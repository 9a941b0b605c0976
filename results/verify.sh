#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The verifier's record of a machine into one folder: quick and full suite, all oracles, capabilities, index builders, and the
# peers that can run.
#     results/verify.sh results/h200/2026-11-30-verify BACKENDS
# BACKENDS as for mla-verify run ("cuda-splitkv,cuda-gemm"). MLA_VERIFY names the program, PEERS a list of peers, joined by commas
# ("peers/torch_bmm.py,peers/flashinfer_mla.py fa2"), which are judged side by side,
# LIMIT the seconds after which a part is interrupted and writes what it has (its headline then says NOT COMPLETE), SHARD a part
# of the full suite (1/3, 2/3, 3/3 in three calls and folders), JOBS how many judges work side by side. What each part printed
# while it ran is in NAME.log, what all of them say first in SUMMARY.md.
set -euo pipefail
out=${1:?usage: $0 FOLDER BACKENDS}
backends=${2:?usage: $0 FOLDER BACKENDS}
verify=${MLA_VERIFY:-mla-verify}
limit=${LIMIT:-3600}
jobs=${JOBS:-$(nproc)}
mkdir -p "$out"
status=0
part() { # NAME OPTIONS...: one record
  local name=$1
  shift
  timeout --foreground -s INT -k 10 "$limit" "$verify" "$@" -o json >"$out/$name.json" 2>"$out/$name.log" || status=1
}
part quick run --backends "$backends" --suite quick --no-shrink --jobs "$jobs" --log-progress
part full run --backends "$backends" --suite full --no-oracles --no-shrink --jobs "$jobs" --log-progress --shard "${SHARD:-1/1}"
part capabilities capabilities --backends "$backends"
part index index
IFS=, read -ra peers <<<"${PEERS:-}"
waiting=()
for peer in ${peers[@]+"${peers[@]}"}; do
  name=$(basename "${peer%% *}" .py)
  [[ $peer == *' '* ]] && name+=-${peer#* }
  (status=0 && part "peer-${name// /-}" run --peer "$peer" --no-shrink --jobs 3 --log-progress && exit $status) &
  waiting+=($!)
done
for job in ${waiting[@]+"${waiting[@]}"}; do wait "$job" || status=1; done
find "$out" -name '*.log' -empty -delete
# What each part says first.
{
  printf '| part | outcome |\n|---|---|\n'
  for record in "$out"/*.json; do
    printf '| `%s` | ' "$(basename "$record")"
    awk '/"headline"/ {h = 1; next} h && /\]/ {exit} h {gsub(/^ *"|",?$/, ""); printf "%s%s", (n++ ? "; " : ""), $0}' "$record"
    printf ' |\n'
  done
} >"$out/SUMMARY.md"
exit $status
