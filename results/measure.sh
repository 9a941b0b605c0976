#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every sweep whose numbers results/README.md speaks of, into one folder, with a page and a picture each:
#     results/measure.sh results/h200/2026-11-30-name [options of mla-bench run]
# Run again, it goes on where it was interrupted. MLA_BENCH names the program, PEERS a list of peers with their arguments
# ("peers/torch_bmm.py;peers/flashinfer_mla.py fa3"), SWEEPS the sweeps, LIMIT the seconds after which the sweep in hand is interrupted and no other begins (the pages are still made).
set -euo pipefail
out=${1:?usage: $0 FOLDER [options of mla-bench run]}
shift
bench=${MLA_BENCH:-mla-bench}
sweeps=${SWEEPS-decode step window heads page dtype ragged mixed prefill prefix regression}
limit=${LIMIT:-100000}
status=0
measure() { # SWEEP OPTIONS...: a sweep with a wrong or refused point does not keep the others from being measured
  local sweep=$1 code=0 left=$((limit - SECONDS))
  shift
  if ((left <= 0)); then
    echo "$sweep: no time is left for it" >&2
    status=130
    return
  fi
  if [[ -e $out/$sweep/run.jsonl ]]; then set -- --resume "$@"; else set -- --spec "$sweep" "$@"; fi
  timeout --foreground -s INT "$left" "$bench" run --out "$out/$sweep" "$@" >"$out/$sweep.txt" || code=$?
  echo "$sweep: exit code $code, $SECONDS s in all" >&2
  case $code in
    0) ;;
    124 | 130) status=130 ;;
    *) [[ $status == 130 ]] || status=1 ;;
  esac
  if [[ $code == 130 ]] && ((SECONDS < limit)); then exit 130; fi # by the user
}
page() { # SWEEP OPTIONS...: its page and its picture, which show what the sweep asks
  local sweep=$1
  shift
  [[ -e $out/$sweep/run.jsonl ]] || return 0
  rm -f "$out/$sweep.html" "$out/$sweep.svg"
  "$bench" report "$out/$sweep" "$@" -o html --to "$out/$sweep.html" || status=1
  if command -v gnuplot >/dev/null; then "$bench" report "$out/$sweep" "$@" -o svg --to "$out/$sweep.svg" || status=1; fi
}
command -v gnuplot >/dev/null || echo "without gnuplot the pages have no charts: run this again where it is, with SWEEPS=" >&2
mkdir -p "$out"
for sweep in $sweeps; do measure "$sweep" "$@"; done
if [[ -n ${PEERS:-} ]]; then
  IFS=';' read -ra list <<<"$PEERS"
  peers=()
  for peer in "${list[@]}"; do peers+=(--peer "$peer"); done
  measure peers "${peers[@]}" "$@"
fi
page decode --facet heads,requests
page step --facet heads,requests
page window --by window --facet backend
page heads --x heads --facet none
page page --x block_size --facet none
page dtype --by cache --facet backend
page ragged --facet none
page mixed --facet none
page prefill --facet requests
page prefix --where backend=cuda-latent --by mode --x kv --facet heads,requests,shared_prefix
page regression --facet space,window
page peers --facet space,heads,requests
exit $status
