#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a record of record.sh says, in words for results/README.md: every number is taken from the record.

    results/words.py results/h200/2026-11-30-name [results/h200/2026-11-30-elsewhere/run.jsonl]
"""

import json
import math
import os
import statistics
import sys
import textwrap

ORDER = ["cuda-latent", "cuda-splitkv", "cuda-gemm", "cuda-expand", "cuda-prefill-varlen", "cuda-prefill-ragged",
         "cuda-prefill-paged"]


class Run:
    """The records of one sweep, repetitions merged: (shape, backend) -> record with the median time."""

    def __init__(self, path):
        self.records, self.facts = {}, {}
        groups = {}
        for line in open(path) if os.path.exists(path) else []:
            r = json.loads(line)
            if r["type"] == "environment":
                self.facts = self.facts or r["facts"]
            elif r["status"] == "ok":
                groups.setdefault((r["key"], r["backend"]), []).append(r)
        for at, several in groups.items():
            self.records[at] = dict(several[0], time_us=statistics.median(r["time_us"] for r in several))

    def __bool__(self):
        return bool(self.records)

    def shapes(self):
        return sorted({key for key, _ in self.records}, key=lambda key: (int(heads_of(key)), len(key), key))

    def backends(self):
        have = {backend for _, backend in self.records}
        return [b for b in ORDER if b in have] + sorted(have - set(ORDER))

    def times(self, **want):
        """backend -> microseconds at the one shape that is like this."""
        return {backend: r["time_us"] for (key, backend), r in self.records.items()
                if all(axes_of(key)[axis] == str(value) for axis, value in want.items())}

    def at(self, key):
        return {backend: r["time_us"] for (k, backend), r in self.records.items() if k == key}


def heads_of(key):
    return axes_of(key)["heads"]


def axes_of(key):
    words = key.split()

    def number(letter, otherwise):
        return next((w[1:] for w in words if w[0] == letter and w[1:].isdigit()), otherwise)

    return {"heads": number("h", "0"), "batch": words[7], "window": number("w", "full"), "block": number("b", "0"),
            "cache": words[-1].split(":")[1]}


def us(time):
    return f"{time:.0f}" if time >= 200 else f"{time:.1f}"


def best(times):
    return min(times.items(), key=lambda entry: entry[1])


def keys_of(batch):
    return batch.split("s")[-1]


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def time_table(labels, run, shapes, backends=None):
    """`shapes`: (label cells, backend -> time)."""
    names = backends or run.backends()
    head = labels + [f"`{b.replace('peer:peers/', '').replace('.py', '')}`" for b in names]
    return table(head, [label + [us(times[b]) if b in times else "-" for b in names] for label, times in shapes])


def intro(folder, run):
    f = run.facts
    name = os.path.basename(folder)
    power = f"{f.get('gpu_power_limit_w', 0):.0f} W"
    options = f["command"].partition("--spec decode")[2]  # of record.sh, which hands them on
    return f"""## h200/{name}

One {f['gpu']} (driver {f.get('gpu_driver')}, {power}, clocks as found), every device backend but `cuda-naive`, DeepSeek-V3's
widths, bf16, cold caches; each point verified against the fp64 reference before it was timed. Made by one command:

    results/record.sh results/h200/{name}{options}

[Its tables](h200/{name}/README.md) stand with the commands that print them again, each sweep has its page (`decode.html`: charts, best
backend over batch and length, roofline, every point), and `results/words.py` made the text below. Ceilings measured in the same run:
{f['gpu_read_gbps'] / 1e3:.2f} TB/s read, {f['gpu_copy_gbps'] / 1e3:.2f} TB/s copy, {f['gpu_bf16_gflops'] / 1e3:.0f} TFLOP/s bf16
({f['gpu_bf16_method']}), {f['gpu_kernel_us']:.2f} us a launch in a graph. Times are microseconds for one layer.
"""


def absorption(step):
    backends = [b for b in step.backends() if not b.startswith("cuda-prefill")]
    ratios = []
    for key in step.shapes():
        times = step.at(key)
        rivals = [t for b, t in times.items() if b != "cuda-expand"]
        if "cuda-expand" in times and rivals:
            ratios.append(times["cuda-expand"] / min(rivals))
    shapes = [([batch, str(h)], step.times(heads=h, batch=batch)) for h in (16, 128)
              for batch in ("q1s1k", "32q1s4k", "128q1s16k")]
    return f"""**What absorption buys** (`step`: cache write, both projections, attention). Attending on the latent rows instead of decompressing
them is {min(ratios):.1f} to {max(ratios):.0f} times as fast (the fastest absorbed backend against `cuda-expand`, {len(ratios)} shapes):

{time_table(["batch", "heads"], step, shapes, backends)}
"""


def prompts(prefill, mixed):
    shapes = [([batch], prefill.times(batch=batch)) for batch in ("q1k", "q4k", "q8k", "4q2k", "4q1ks8k")]
    ratios = [times["cuda-splitkv"] / min(t for b, t in times.items() if b.startswith("cuda-prefill"))
              for _, times in shapes if "cuda-splitkv" in times]
    both = []
    for key in mixed.shapes():
        times = mixed.at(key)
        name, first = best(times)
        second = best({b: t for b, t in times.items() if b != name})
        both.append(f"`{axes_of(key)['batch']}` {us(first)} us with `{name}`, then {us(second[1])} with `{second[0]}`")
    return f"""**Where decompressing wins**: many new tokens of a request share it. Prompts (`prefill`, 16 heads, with all that W_UK and W_UV cost):

{time_table(["batch"], prefill, shapes)}

The fastest prefill kernel is {min(ratios):.1f} to {max(ratios):.1f} times as fast as the absorbed `cuda-splitkv`. Prompts and decodes in one
batch (`mixed`): {'; '.join(both)}.
"""


def limit(decode):
    said = []
    for h in ("16", "128"):
        rows = {}
        for (key, _), r in decode.records.items():
            if heads_of(key) == h and (key not in rows or r["time_us"] < rows[key]["time_us"]):
                rows[key] = r
        top = max(rows.values(), key=lambda r: r["of_floor"])
        near = sum(r["of_floor"] >= 0.7 for r in rows.values())
        small = next(r for key, r in rows.items() if axes_of(key)["batch"] == "q1s1k")
        said.append(f"With {h} heads the fastest backend reaches {100 * top['of_floor']:.0f} % of the floor at best "
                    f"(`{axes_of(top['key'])['batch']}`: {us(top['time_us'])} us, `{top['backend']}`, "
                    f"{top['gbps'] / 1e3:.2f} TB/s, {top['gflops'] / 1e3:.0f} TFLOP/s) and 70 % or more at {near} of "
                    f"{len(rows)} shapes; one request of 1k keys takes {us(small['time_us'])} us (`{small['backend']}`) "
                    f"where {small['floor_us']:.1f} would do.")
    return "**How near to the limit** (`decode`, attention alone). " + "\n".join(said) + "\n"


def head_counts(run):
    fastest = {h: best(run.times(heads=h)) for h in (8, 16, 32, 64, 128)}
    listed = ", ".join(f"{h}: {us(time)} us (`{name}`)" for h, (name, time) in fastest.items())
    return (f"**Heads** (32 x 8k), the fastest backend: {listed}. From 8 to 128 heads there are 16 times as many multiplications and it "
            f"takes {fastest[128][1] / fastest[8][1]:.1f} times as long: the same rows are read for all heads.\n")


def windows(run):
    said = []
    for batch in ("32q1s4k", "32q1s16k", "32q1s64k"):
        t = {w: us(best(run.times(batch=batch, window=w))[1]) for w in ("full", "4096", "1024", "512")}
        said.append(f"of {keys_of(batch)} keys all take {t['full']} us, a window of 4k {t['4096']}, of 1k {t['1024']}, of 512 {t['512']}")
    whole = {w: best(run.times(batch="32q1s4k", window=w))[1] for w in ("full", "4096")}
    cost = whole["4096"] / whole["full"] - 1
    return (f"**What a window saves** (32 requests, 16 heads, sink 4, the fastest backend): {'; '.join(said)}. Under a window nothing "
            f"depends on the context any more. In time a window costs {cost:.0%} where it spans all of 4k keys; in quality it is the model's "
            "affair: only models trained with one should be given one.\n")


def pages(run):
    said = [f"`{name}` " + ", ".join(f"{us(run.times(block=b)[name])} ({b})" for b in (1, 16, 32, 64, 128, 256))
            for name in run.backends() if all(name in run.times(block=b) for b in (1, 16, 32, 64, 128, 256))]
    return "**Page size** (32 x 8k; tokens a page in brackets): " + "; ".join(said) + ".\n"


def formats(run):
    said = []
    for batch in ("32q1s8k", "32q1s64k"):
        t = {c: best(run.times(batch=batch, cache=c)) for c in ("bf16", "bf16_split", "fp8", "fp8_ds_mla")
             if run.times(batch=batch, cache=c)}
        said.append(f"{keys_of(batch)} keys: " + ", ".join(f"`{c}` {us(time)} us (`{name}`)" for c, (name, time) in t.items()))
    ratio = (best(run.times(batch="32q1s64k", cache="fp8"))[1] / best(run.times(batch="32q1s64k", cache="bf16"))[1])
    return (f"**Cache formats** (32 requests, the fastest backend). {'; '.join(said)}. fp8 halves the bytes and takes {ratio:.2f} times as "
            "long as bf16 at 64k keys.\n")


def unequal(run):
    names = {"64q1s8k": "64 of 8k", "60q1s1k_4q1s113k": "60 of 1k, 4 of 113k"}
    shapes = [([names.get(axes_of(key)["batch"], "64 drawn from 1k..15k")], run.at(key)) for key in run.shapes()]
    return "**Unequal lengths** (`ragged`, about 512 Ki keys in all):\n\n" + time_table(["batch"], run, shapes) + "\n"


def others(run):
    shapes = [([heads_of(key), axes_of(key)["batch"]], run.at(key)) for key in run.shapes() if " latent " in key]
    return f"""**Other kernels** on the same inputs, interleaved, by the same rules (`peers`, attention alone):

{time_table(["heads", "batch"], run, shapes)}

PyTorch's gather the pages first and compute in single precision around the softmax: what one writes in an afternoon, not a measure of
good kernels.
"""


def shared_prefixes(path):
    times = {}  # (heads, batch) -> way of reading -> microseconds
    for line in open(path):
        r = json.loads(line)
        if r["type"] == "point" and r["status"] == "ok" and r["backend"] == "cuda-latent":
            key = axes_of(r["key"])
            way = (r.get("mode") or "as it decides") if " prefix" in r["key"] else "no page is shared"
            times.setdefault((int(key["heads"]), key["batch"]), {})[way] = r["time_us"]
    ways = ["no page is shared", "prefix-each", "prefix-once", "as it decides"]
    rows = [[str(heads), batch] + [us(of[way]) if way in of else "-" for way in ways]
            for (heads, batch), of in sorted(times.items(), key=lambda one: (one[0][0], len(one[0][1]), one[0][1]))]
    return ("**A shared prefix** (`prefix`, `cuda-latent`, 8k tokens in common; its pages read for each request, mostly from the L2, or once "
            "for all; the last column is what the backend does unless it is told):\n\n" + table(["heads", "batch"] + ways, rows))


def elsewhere(decode, other):
    said = []
    for name in other.backends():
        for h in ("16", "128"):
            logs = [math.log(r["time_us"] / best(decode.at(key))[1]) for (key, backend), r in other.records.items()
                    if backend == name and heads_of(key) == h and decode.at(key)]
            if logs:
                said.append(f"{name.replace(' (another run)', '')} {math.exp(sum(logs) / len(logs)):.2f} with {h} heads "
                            f"({len(logs)} shapes, {math.exp(min(logs)):.2f} to {math.exp(max(logs)):.2f})")
    return ("**Beside another run** (`h200/2026-11-30-elsewhere`: FlashMLA, FlashAttention-3 and FlashInfer, measured by another program on "
            "another H200; cards differ by up to 7 %). Their times over those of our fastest backend, geometric mean of the shapes both "
            f"have: {'; '.join(said)}.\n")


def wrapped(text):
    """Paragraphs in lines of 140; tables, pictures, code and headings as they are."""
    paragraphs = []
    for paragraph in text.strip("\n").split("\n\n"):
        plain = not any(line.startswith(("|", "!", "    ", "#")) for line in paragraph.split("\n"))
        paragraphs.append(textwrap.fill(" ".join(paragraph.split("\n")), 140, break_long_words=False,
                                        break_on_hyphens=False) if plain else paragraph)
    return "\n\n".join(paragraphs) + "\n"


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    folder = sys.argv[1].rstrip("/")
    run = {sweep: Run(os.path.join(folder, sweep, "run.jsonl"))
           for sweep in ("decode", "step", "window", "heads", "page", "dtype", "ragged", "mixed", "prefill", "prefix", "peers")}
    name = os.path.basename(folder)

    def picture(sweep, what):
        return f"![{what}](h200/{name}/{sweep}.svg)\n"

    parts = [(("decode",), lambda: intro(folder, run["decode"])),
             (("step",), lambda: absorption(run["step"]) + "\n" + picture("step", "A whole step over keys")),
             (("prefill", "mixed"), lambda: prompts(run["prefill"], run["mixed"]) + "\n" + picture("prefill", "Prompts")),
             (("decode",), lambda: limit(run["decode"]) + "\n" + picture("decode", "Decode over keys")),
             (("heads",), lambda: head_counts(run["heads"]) + "\n" + picture("heads", "Heads")),
             (("window",), lambda: windows(run["window"]) + "\n" + picture("window", "Windows")),
             (("page",), lambda: pages(run["page"])), (("dtype",), lambda: formats(run["dtype"])),
             (("ragged",), lambda: unequal(run["ragged"])),
             (("prefix",), lambda: shared_prefixes(os.path.join(folder, "prefix", "run.jsonl"))), (("peers",), lambda: others(run["peers"]))]
    for needs, text in parts:
        missing = [sweep for sweep in needs if not run[sweep]]
        print(wrapped(f"`{'`, `'.join(missing)}` is missing in this record." if missing else text()))
    if len(sys.argv) == 3:
        print(wrapped(elsewhere(run["decode"], Run(sys.argv[2]))))
    again = os.path.join(folder, "again.md")
    if os.path.exists(again):
        print(wrapped("**Twice the same** (`regression` in three processes, and in two more right after): " +
                      open(again).readline()))


main()
