#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The verifier's record of a machine into one folder: full suite, all oracles, capabilities, and the peers that can run.
#     results/verify.sh results/h200/2026-11-30-verify BACKENDS
# BACKENDS as for mla-verify run ("cuda-splitkv,cuda-gemm"). MLA_VERIFY names the program, PEERS a list of peers (peers/*.py),
# LIMIT the seconds after which everything is interrupted and writes what it has. The parts run side by side: the reference
# needs the processors, the backends the device.
set -euo pipefail
out=${1:?usage: $0 FOLDER BACKENDS}
backends=${2:?usage: $0 FOLDER BACKENDS}
verify=${MLA_VERIFY:-mla-verify}
limit=${LIMIT:-3600}
mkdir -p "$out"
small=$(mktemp)
trap 'rm -f "$small"' EXIT
echo 'decode latent h16 l512 r64 p128 v128 q1s70 causal b64 q:bf16 out:bf16 cache:bf16' >"$small"
jobs=()
part() { # NAME OPTIONS...: one record
  local name=$1
  shift
  timeout --foreground -s INT -k 10 "$limit" "$verify" "$@" -q -o json >"$out/$name.json" 2>"$out/$name.err" &
  jobs+=($!)
}
part full run --backends "$backends" --suite full --no-oracles --no-shrink
part oracles run --backends "$backends" --suite "$small" --no-shrink
part capabilities capabilities --backends "$backends"
for peer in ${PEERS:-}; do part "peer-$(basename "$peer" .py)" run --peer "$peer" --no-shrink; done
status=0
for job in "${jobs[@]}"; do wait "$job" || status=1; done
find "$out" -name '*.err' -empty -delete
exit $status
