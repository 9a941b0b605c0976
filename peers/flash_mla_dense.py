#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FlashMLA's dense decode, flash_mla_with_kvcache: pages of 64, one query length for all requests."""

import math

from mla_peer import Skip, need, serve
from mla_torch import TorchPeer


class FlashMlaPeer(TorchPeer):
    name = "flash_mla"
    summary = "FlashMLA dense decode"
    strategy = "absorbed"
    versions_of = ("torch",)
    needs_gpu = True

    def __init__(self, wait):
        super().__init__(wait)
        self.flash = need_module()
        major, minor = self.torch.cuda.get_device_capability(0)
        if major != 9:
            raise Skip(f"dense decode needs an sm_90 GPU, this one is sm_{major}{minor}")

    def hello(self):
        answer = super().hello()
        answer["versions"]["flash_mla"] = str(getattr(self.flash, "__version__", "?"))
        return {**answer, "edges": [64]}

    def rounding(self, shape):
        return {"probabilities": shape.q_dtype, "unit_weight": False}

    def supports(self, shape, splits):
        if splits > 1:
            return f"{splits} splits were forced, but its scheduler splits as it likes"
        if shape.space != "latent":
            return "head space: it takes absorbed queries"
        if shape.topk > 0 or shape.window is not None:
            return "dense decode knows no index and no window"
        if (shape.kv_lora_rank, shape.qk_rope_head_dim) != (512, 64):
            return f"widths {shape.kv_lora_rank} + {shape.qk_rope_head_dim}, but it is built for 512 + 64"
        if shape.block_size != 64:
            return f"pages of {shape.block_size}, but it is built for 64"
        if len(set(shape.q_lens)) != 1:
            return "it takes one query length for all requests"
        if shape.q_dtype not in ("f16", "bf16") or shape.out_dtype != shape.q_dtype or shape.cache != shape.q_dtype:
            return f"types {shape.q_dtype}, {shape.cache}, {shape.out_dtype}, but all must be f16 or all bf16"
        return None

    def prepare(self, call):
        shape = call.shape
        requests, q_len = len(shape.q_lens), shape.q_lens[0]
        lengths = self.tensor(call.tensors["seq_lens"])
        cache = self.tensor(call.tensors["cache"])[:, :, None, :]
        # Older versions plan from the lengths, newer ones take no arguments and plan at the first call.
        metadata, splits = self.flash.get_mla_metadata(lengths, q_len * shape.num_heads, 1)
        q = self.tensor(call.tensors["q"]).view(requests, q_len, shape.num_heads, 576)
        table = self.tensor(call.tensors["block_table"])
        table = table.where((table >= 0) & (table < cache.shape[0]), table.new_zeros(()))
        return {"arguments": (q, cache, table, lengths, 512, metadata, splits, call.softmax_scale, shape.causal),
                "lse": call.lse, "empty": self.rows_without_keys(lengths, q_len, shape.causal)}

    def rows_without_keys(self, lengths, q_len, causal):
        """[requests, q_len] of bool: a query sees nothing where its request is shorter than the queries behind it."""
        behind = self.torch.arange(q_len - 1, -1, -1, device=lengths.device) if causal else lengths.new_zeros(q_len)
        return lengths[:, None] <= behind[None, :]

    def compute(self, s):
        return self.flash.flash_mla_with_kvcache(*s["arguments"])

    def as_asked(self, s, out, lse):
        if s["lse"] is None:
            return out.flatten(0, 1), None
        # Its sign for a row without keys; plus infinity elsewhere is an infinite score.
        lse = lse.transpose(1, 2).masked_fill(s["empty"][:, :, None], -math.inf)
        return out.flatten(0, 1), lse.flatten(0, 1)


def need_module():
    return need("flash_mla", "; it is built from github.com/deepseek-ai/FlashMLA")


if __name__ == "__main__":
    serve(FlashMlaPeer)
