# SPDX-License-Identifier: Apache-2.0
"""A peer with one fault, named by its argument: what peers do wrong in the field. Without a fault it answers zeros."""

import json
import os
import signal
import struct
import sys
import time

FAULT = sys.argv[1] if len(sys.argv) > 1 else "none"


def say(**answer):
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def write(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def outputs(shape, value):
    tokens, heads = sum(shape["q_lens"]), shape["num_heads"]
    width = shape["kv_lora_rank"] if shape["space"] == "latent" else shape["v_head_dim"]
    out = struct.pack("<f", value) * (tokens * heads * width)
    return {"out": ("F32", [tokens, heads, width], out),
            "lse": ("F32", [tokens, heads], struct.pack("<f", value) * (tokens * heads))}


def run(message):
    n, shape = message["id"], message["shape"]
    if FAULT == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if FAULT == "exit":
        print("out of luck", file=sys.stderr)
        sys.exit(7)
    if FAULT == "hang":
        time.sleep(1000)
    if FAULT == "stdout":
        print("a library says hello")
    if FAULT == "endless":
        while True:
            sys.stdout.write("x" * 65536)
    if FAULT == "id":
        n += 1
    if FAULT == "error":
        return say(id=n, error="the kernel said \x1b[31mno")
    if FAULT == "unsupported":
        return say(id=n, unsupported="not on a Monday")
    tensors = outputs(shape, float("nan") if FAULT == "nan" else 0.0)
    if FAULT == "shape":
        dtype, extents, data = tensors["out"]
        tensors["out"] = (dtype, [extents[0] * extents[1], extents[2]], data)
    if FAULT == "dtype":
        dtype, extents, data = tensors["out"]
        tensors["out"] = ("I32", extents, data)
    if FAULT == "no-lse":
        del tensors["lse"]
    if FAULT == "extra":
        tensors["more"] = ("F32", [1], b"\0\0\0\0")
    if FAULT == "wait":
        say(id=n, wait=60)
        time.sleep(3)
    if FAULT != "no-file":
        write(message["out"], tensors)
    if FAULT == "cut-file":
        with open(message["out"], "r+b") as f:
            f.truncate(os.path.getsize(message["out"]) - 4)
    say(id=n, ok=True, plan="zeros")


def main():
    for line in sys.stdin:
        message = json.loads(line)
        n, what = message["id"], message["do"]
        if what == "quit":
            return
        if what == "hello":
            if FAULT == "hello-garbage":
                print("hello!")
                sys.stdout.flush()
            elif FAULT == "hello-skip":
                say(id=n, skip="the package nothing is not installed")
            elif FAULT == "hello-exit":
                sys.exit(3)
            elif FAULT == "hello-protocol":
                say(id=n, protocol=99, name="bad", strategy="absorbed")
            elif FAULT == "hello-strategy":
                say(id=n, protocol=1, name="bad", strategy="magic")
            elif FAULT == "hello-rounding":
                say(id=n, protocol=1, name="bad", strategy="absorbed", rounding={"probabilities": "f12"})
            else:
                say(id=n, protocol=1, name="bad", strategy="absorbed", device="cpu", summary="zeros")
        elif what == "supports":
            if FAULT == "supports-exit":
                sys.exit(9)
            if FAULT == "supports-silent":
                say(id=n, ok=False)
            elif FAULT == "refuse":
                say(id=n, ok=False, why="page size 16, but this kernel is built for 64")
            else:
                say(id=n, ok=True)
        elif what == "time":
            samples = {"time-none": [], "time-zero": [1.0, 0.0], "time-text": ["fast"]}.get(FAULT, [3.0, 1.0, 2.0])
            say(id=n, ok=True, samples_us=samples, timer="sundial" if FAULT == "time-timer" else "wall", copies=2,
                plan=f"asked to pre-heat for {message['preheat']} s")
        else:
            run(message)


main()
