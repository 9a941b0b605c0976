#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# A record of measure.sh as a page of tables, in Markdown to standard output, each with the command that prints it again:
#     results/tables.sh results/h200/2026-11-30-name > results/h200/2026-11-30-name/README.md
set -euo pipefail
out=${1:?usage: $0 FOLDER}
bench=${MLA_BENCH:-mla-bench}
name=$(basename "$out")
question() { sed -n 's/^ *"question": "\(.*\)",\{0,1\} *\(\/\/.*\)\{0,1\}$/\1/p' "$out/$1/spec.json"; }
table() { # SWEEP OPTIONS...
  local sweep=$1
  shift
  [[ -e $out/$sweep/run.jsonl ]] || return 0
  printf '\n## %s\n\n%s\n\n' "$sweep" "$(question "$sweep")"
  "$bench" report "$out/$sweep" --pivot -o md "$@" | sed -n '/^|/,/^$/p' | sed -E 's/\| ([^ |]{30})[^ |]{40,} \|/| \1... |/'
  printf '\n    mla-bench report %s --pivot -o md%s\n' "$sweep" "$(printf ' %s' "$@")"
  [[ ! -e $out/$sweep.svg ]] || printf '\n![%s](%s.svg)\n' "$sweep" "$sweep"
  printf '\nAll of it: [%s.html](%s.html), `%s/run.jsonl`.\n' "$sweep" "$sweep" "$sweep"
}
first=$(find "$out" -mindepth 2 -name run.jsonl | sort | head -1)
fact() { sed -n '1s/.*"'"$1"'":"\{0,1\}\([^,"}]*\).*/\1/p' "$first"; }
printf '# %s\n\nMicroseconds for one layer, by %s on %s (driver %s, cuBLASLt as in the records), commit %s; each point verified first. The commands run\nin this folder; `mla-bench rerun SWEEP --row N` measures a row again.\n' \
  "$name" "$(fact version)" "$(fact gpu)" "$(fact gpu_driver)" "$(fact git)"
table decode --facet heads,requests
table step --facet heads,requests
table window --x window --facet kv
table heads --x heads --facet none
table page --x block_size --facet none
table dtype --x cache --facet kv
table ragged --x batch --facet none
table mixed --x batch --facet none
table prefill --x batch --facet none
table prefix --where backend=cuda-latent --x kv --facet heads,shared_prefix,mode
table regression --x batch --facet space,window
table peers --facet heads,requests
if [[ -e $out/again.md ]]; then
  printf '\n## Twice the same\n\n'
  grep -v '^was measured\|measured as' "$out/again.md" | sed -n '1,/^$/p'
  printf '\n    mla-bench compare regression ../%s-again/regression\n' "$name"
fi
