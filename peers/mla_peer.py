# SPDX-License-Identifier: Apache-2.0
"""What every Python peer shares: the protocol of PROTOCOL.md and safetensors files. Standard library only."""

import json
import os
import struct
import sys
import traceback
from types import SimpleNamespace

PROTOCOL = 1

# Names in messages -> names in safetensors files.
STORED = {"f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "e4m3": "F8_E4M3", "i64": "I64", "i32": "I32",
          "u8": "U8"}
SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "F8_E4M3": 1, "I64": 8, "I32": 4, "U8": 1}


class Skip(Exception):
    """This peer cannot work here at all; the text says why (a package that is not installed, no GPU)."""


class Unsupported(Exception):
    """This peer cannot do this call; the text says why."""


def need(package, why=""):
    """Imports a package or skips with a sentence."""
    import importlib
    try:
        return importlib.import_module(package)
    except ImportError as e:
        raise Skip(f"the Python package {package} cannot be imported: {e}{why}")


# ---- files ------------------------------------------------------------------------------------------------------------


def read_safetensors(path):
    """name -> (stored dtype, shape, bytearray)."""
    tensors = {}
    with open(path, "rb") as f:
        (length,) = struct.unpack("<Q", f.read(8))
        header = json.loads(f.read(length))
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            begin, end = entry["data_offsets"]
            data = bytearray(end - begin)
            f.seek(8 + length + begin)
            if f.readinto(data) != len(data):
                raise ValueError(f"{path} ends within tensor {name}")
            tensors[name] = (entry["dtype"], entry["shape"], data)
    return tensors


def write_safetensors(path, tensors):
    """`tensors`: name -> (stored dtype, shape, bytes)."""
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": [int(n) for n in shape], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            f.write(data)


# ---- the conversation -------------------------------------------------------------------------------------------------


def _call(message):
    return SimpleNamespace(shape=SimpleNamespace(**message["shape"]), softmax_scale=message["softmax_scale"],
                           lse=message["lse"], splits=message["splits"], tensors=read_safetensors(message["in"]))


def _answer(peer, message):
    what = message.get("do")
    if what == "hello":
        if message.get("protocol") != PROTOCOL:
            return {"error": f"this peer speaks protocol {PROTOCOL}, not {message.get('protocol')}"}
        return {"protocol": PROTOCOL, **peer.hello()}
    if what == "supports":
        why = peer.supports(SimpleNamespace(**message["shape"]), message["splits"])
        answer = {"ok": why is None, "why": why or ""}
        if why is None and hasattr(peer, "rounding"):
            answer["rounding"] = peer.rounding(SimpleNamespace(**message["shape"]))
        return answer
    if what == "run":
        plan, outputs = peer.run(_call(message))
        write_safetensors(message["out"], outputs)
        return {"ok": True, "plan": plan}
    if what == "time":
        if not hasattr(peer, "time"):
            return {"unsupported": "this peer does not time itself"}
        rules = SimpleNamespace(**{k: message[k] for k in
                                   ("warmup", "preheat", "samples", "max_time", "graph", "cold", "rotate_bytes")})
        return {"ok": True, **peer.time(_call(message), rules)}
    return {"error": f"unknown message {what!r}"}


def serve(make_peer):
    """Answers until stdin ends or 'quit'. `make_peer()` gives an object with hello(), supports(shape, splits) -> None or a
    sentence, run(call) -> (plan, tensors), and optionally rounding(shape) and time(call, rules) -> dict."""
    # What libraries print must not reach the conversation: stdout becomes stderr, the conversation keeps its own copy.
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    peer, message = None, None

    def say(answer):
        out.write(json.dumps({"id": message["id"], **answer}) + "\n")
        out.flush()

    for line in sys.stdin:
        message = json.loads(line)
        if message.get("do") == "quit":
            return
        try:
            if peer is None:
                peer = make_peer(lambda seconds: say({"wait": seconds}))
            answer = _answer(peer, message)
        except Skip as e:
            answer = {"skip" if message.get("do") == "hello" else "unsupported": str(e)}
        except Unsupported as e:
            answer = {"unsupported": str(e)}
        except Exception as e:  # noqa: BLE001 - whatever a library throws is this call's failure, said in one line
            traceback.print_exc()
            text = str(e).strip().splitlines()
            answer = {"error": f"threw {type(e).__name__}: {text[0] if text else ''}"}
        say(answer)
