#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One record beside another at the shapes that both have, as Markdown: how many times longer the best of the others takes.

    results/against.py RECORD/run.jsonl OTHER/run.jsonl

The best of a shape is the fastest backend of each record. Above 1 the first record is the faster one. A record of another run
(results/other_run.py) is another card's: a few per cent mean nothing.
"""

import json
import math
import re
import sys

ROW_CLASSES = (("up to 16 rows", 16), ("32 rows", 32), ("64 rows", 64), ("128 rows", 128), ("more rows", math.inf))


def best_times(path):
    """shape -> (microseconds, backend) of the fastest that was measured."""
    best = {}
    for line in open(path):
        r = json.loads(line)
        if r["type"] == "point" and r["status"] == "ok" and r["time_us"] > 0:
            best[r["key"]] = min(best.get(r["key"], (math.inf, "")), (r["time_us"], r["backend"]))
    return best


def parts_of(key):
    """Heads, requests, query tokens and keys of a uniform batch; None for another one."""
    found = re.search(r" h(\d+) .* (\d*)q(\d+)s(\d+)(k?) ", key)
    if not found:
        return None
    heads, requests, q_len, keys, kilo = found.groups()
    return int(heads), int(requests or 1), int(q_len), int(keys) * (1024 if kilo else 1)


def geometric_mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def row_class(heads, q_len):
    return next(name for name, most in ROW_CLASSES if heads * q_len <= most)


def table(ratios, title):
    print(f"| {title} | shapes | geometric mean | least | below 1 | below 1/1.05 |\n|---|---:|---:|---:|---:|---:|")
    for name, several in ratios.items():
        print(f"| {name} | {len(several)} | {geometric_mean(several):.2f} | {min(several):.2f} | "
              f"{sum(r < 1 for r in several)} | {sum(r < 1 / 1.05 for r in several)} |")
    print()


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    ours, theirs = best_times(sys.argv[1]), best_times(sys.argv[2])
    both = [(theirs[key][0] / ours[key][0], key) for key in ours if key in theirs and parts_of(key)]
    if not both:
        sys.exit(f"{sys.argv[1]} and {sys.argv[2]} have no shape in common")
    by_rows, by_batch = {}, {}
    for ratio, key in sorted(both, key=lambda one: parts_of(one[1])):
        heads, requests, q_len, _ = parts_of(key)
        by_rows.setdefault(row_class(heads, q_len), []).append(ratio)
        by_batch.setdefault(requests, []).append(ratio)
    rows = {name: by_rows[name] for name, _ in ROW_CLASSES if name in by_rows}
    print(f"{len(both)} shapes.\n")
    table({"all": [ratio for ratio, _ in both], **rows}, "rows (heads x query tokens)")
    table(dict(sorted(by_batch.items())), "requests")
    print("| slowest beside the other: heads, batch | us | backend | other, us | other | ratio |\n|---|---:|---|---:|---|---:|")
    for ratio, key in sorted(both)[:20]:
        heads, requests, q_len, keys = parts_of(key)
        print(f"| {heads}, {requests} x q{q_len} x {keys // 1024}k | {ours[key][0]:.1f} | {ours[key][1]} | {theirs[key][0]:.1f} | "
              f"{theirs[key][1]} | {ratio:.2f} |")


main()
