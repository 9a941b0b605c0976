#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vLLM's Triton decode kernel as its MLA backend calls it: one query token a request."""

import importlib
import inspect
import math

from mla_peer import Skip, need, serve
from mla_torch import TorchPeer

PLACES = ("vllm.v1.attention.ops.triton_decode_attention", "vllm.attention.ops.triton_decode_attention")


class TritonPeer(TorchPeer):
    name = "vllm_triton"
    summary = "vLLM decode_attention_fwd (Triton)"
    strategy = "absorbed"
    versions_of = ("torch", "vllm")
    needs_gpu = True

    def __init__(self, wait):
        super().__init__(wait)
        need("vllm")
        self.kernel = None
        for place in PLACES:
            try:
                self.kernel = importlib.import_module(place).decode_attention_fwd
                break
            except (ImportError, AttributeError):
                continue
        if self.kernel is None:
            raise Skip("this vllm has no decode_attention_fwd in " + " or ".join(PLACES))
        self.takes = inspect.signature(self.kernel).parameters
        self.built = set()

    def rounding(self, shape):
        return {"probabilities": shape.q_dtype}

    def supports(self, shape, splits):
        if shape.space != "latent":
            return "head space: it takes absorbed queries"
        if set(shape.q_lens) != {1}:
            return "it takes one query token a request"
        if shape.topk > 0 or shape.window is not None:
            return "it knows no index and no window"
        latent, rope = shape.kv_lora_rank, shape.qk_rope_head_dim
        if latent & (latent - 1):
            return f"a latent of {latent}: it looks for the rotary part behind the next power of two"
        if rope and (rope < 16 or rope & (rope - 1)):
            return f"a rotary part of {rope}: its products take 0 or a power of two of at least 16"
        if shape.num_heads == 1:
            return "one head takes another kernel, for attention with as many key heads"
        if shape.q_dtype not in ("f16", "bf16") or shape.out_dtype != shape.q_dtype or shape.cache != shape.q_dtype:
            return f"types {shape.q_dtype}, {shape.cache}, {shape.out_dtype}, but all must be f16 or all bf16"
        return None

    def prepare(self, call):
        torch, shape = self.torch, call.shape
        splits = call.splits or 4
        cache = self.tensor(call.tensors["cache"])[:, :, None, :]
        q = self.tensor(call.tensors["q"])
        state = {"q": q, "k": cache, "v": cache[..., :shape.kv_lora_rank],
                 "o": q.new_empty((*q.shape[:2], shape.kv_lora_rank)),
                 "lse": torch.empty(q.shape[:2], dtype=torch.float32, device=self.device),
                 "table": self.tensor(call.tensors["block_table"]), "lengths": self.tensor(call.tensors["seq_lens"]),
                 "partials": torch.empty((*q.shape[:2], splits, shape.kv_lora_rank + 1), dtype=torch.float32,
                                         device=self.device),
                 "splits": splits, "scale": call.softmax_scale, "page": shape.block_size, "want_lse": call.lse}
        key = (shape.q_dtype, shape.num_heads, shape.kv_lora_rank, shape.qk_rope_head_dim, shape.block_size, splits)
        if key not in self.built:
            self.wait(300)  # Triton compiles
            self.built.add(key)
        return state

    def compute(self, s):
        arguments = [s["q"], s["k"], s["v"], s["o"]]
        has_lse = "lse" in self.takes
        if has_lse:
            arguments.append(s["lse"])
        more = {"is_mla": True} if "is_mla" in self.takes else {}
        self.kernel(*arguments, s["table"], s["lengths"], s["partials"], s["splits"], s["scale"], s["page"], **more)
        return s["o"], s["lse"] if has_lse else None

    def as_asked(self, s, out, lse):
        empty = s["lengths"] == 0  # 0 / 0 there: an engine does not look at such rows
        out = out.masked_fill(empty[:, None, None], 0)
        if s["want_lse"] is None:
            return out, None
        # Older versions return no LSE; that of each part stands behind its partial output.
        lse = self.torch.logsumexp(s["partials"][..., -1], dim=-1) if lse is None else lse
        return out, lse.masked_fill(empty[:, None], -math.inf)


if __name__ == "__main__":
    serve(TritonPeer)
