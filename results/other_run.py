#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times of other kernels, measured in another run by another program, as records that mla-bench reports beside ours.

    results/other_run.py peers-h200.json results/h200/2026-11-30-elsewhere

Every record is marked: the backend's name ends in "(another run)", the flag says the same, nothing was verified by us.
"""

import json
import os
import sys


def count(n):
    return f"{n // 1024}k" if n % 1024 == 0 and n > 0 else str(n)


def key_of(row):
    batch = "" if row["batch"] == 1 else str(row["batch"])
    return (f"decode latent h{row['heads']} l512 r64 p128 v128 {batch}q{row['q_len']}s{count(row['kv_len'])} causal b64 "
            "q:bf16 out:bf16 cache:bf16")


def records_of(data):
    facts = {"command": "another run: not made by mla-bench", "gpu": data["device"], "what": data["what"],
             "spread": data["spread"], **{f"version_{k}": v for k, v in data["versions"].items()},
             **{f"gpu_{k}": float(v) for k, v in data["ceilings"].items()}}
    yield {"schema_version": 1, "type": "environment", "id": "another-run", "facts": facts}
    for row in data["rows"]:
        for name, time in row.items():
            if not name.endswith("_us") or time is None:
                continue
            yield {"schema_version": 1, "type": "point", "key": key_of(row),
                   "backend": f"{name[:-3]} (another run)", "model": "deepseek-v3", "device": "NVIDIA H200",
                   "cache_state": "cold", "timer": "graph", "status": "ok", "time_us": time, "verified": "no",
                   "strategy": "absorbed", "origin": "another run",
                   "tokens_per_s": row["batch"] * row["q_len"] / time * 1e6, "spec": "another run",
                   "env": "another-run", "flags": ["another-run"]}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1]) as f:
        data = json.load(f)
    os.makedirs(sys.argv[2], exist_ok=True)
    with open(os.path.join(sys.argv[2], "run.jsonl"), "x") as f:
        for record in records_of(data):
            f.write(json.dumps(record) + "\n")


main()
