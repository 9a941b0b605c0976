#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's BatchMLAPagedAttentionWrapper. Argument: fa2, fa3 or auto (default)."""

import math
import sys

from mla_peer import Skip, need, serve
from mla_torch import TorchPeer


class FlashInferPeer(TorchPeer):
    name = "flashinfer"
    summary = "FlashInfer BatchMLAPagedAttentionWrapper"
    strategy = "absorbed"
    versions_of = ("torch", "flashinfer")
    needs_gpu = True

    def __init__(self, wait):
        super().__init__(wait)
        need("flashinfer")
        self.mla = need("flashinfer.mla")
        self.backend = sys.argv[1] if len(sys.argv) > 1 else "auto"
        if self.backend not in ("auto", "fa2", "fa3"):
            raise Skip(f"the argument must be auto, fa2 or fa3, not {self.backend!r}")
        self.kernel = self.backend
        if self.backend == "auto":
            self.kernel = need("flashinfer.utils").determine_mla_backend(self.device)
        self.workspace = self.torch.empty(128 << 20, dtype=self.torch.uint8, device=self.device)
        self.built = set()

    def rounding(self, shape):
        # Results of split keys wait for their merge in the output's type. fa2 sums P as the matrix unit gets it, rounded.
        return {"probabilities": shape.q_dtype, "partials": shape.out_dtype,
                "lse_from_rounded_p": self.kernel == "fa2", "unit_weight": False}

    def supports(self, shape, splits):
        if splits > 1:
            return f"{splits} splits were forced, but the wrapper splits as it likes"
        if shape.space != "latent":
            return "head space: the wrapper takes absorbed queries"
        if shape.topk > 0 or shape.window is not None:
            return "no index, no window: the wrapper knows causal and full"
        if (shape.kv_lora_rank, shape.qk_rope_head_dim) != (512, 64):
            return f"widths {shape.kv_lora_rank} + {shape.qk_rope_head_dim}, but this peer builds 512 + 64 only"
        if shape.q_dtype not in ("f16", "bf16") or shape.out_dtype != shape.q_dtype:
            return f"types {shape.q_dtype} to {shape.out_dtype}, but it takes f16 or bf16 in and out"
        if shape.cache.removesuffix("_split") != shape.q_dtype:
            return f"cache {shape.cache}, but this peer takes the query's type"
        return None

    def prepare(self, call):
        torch, shape = self.torch, call.shape
        c_kv, k_pe = self.latent_and_rope(call)
        lengths = self.tensor(call.tensors["seq_lens"])
        pages = torch.div(lengths + shape.block_size - 1, shape.block_size, rounding_mode="floor")
        indptr = torch.cat([pages.new_zeros(1), pages.cumsum(0, dtype=torch.int32)]).to(torch.int32)
        table = self.tensor(call.tensors["block_table"]).cpu()
        indices = torch.cat([table[b, :n] for b, n in enumerate(pages.cpu().tolist())] or
                            [table.new_zeros(0)]).to(self.device, torch.int32)
        if shape.q_dtype not in self.built:
            self.wait(900)  # it compiles its kernels when they are first planned
            self.built.add(shape.q_dtype)
        # Each state needs integer workspaces of its own: the plan lives in them.
        wrapper = self.mla.BatchMLAPagedAttentionWrapper(self.workspace, backend=self.backend)
        wrapper.plan(self.tensor(call.tensors["cu_seqlens_q"]), indptr, indices, lengths, shape.num_heads,
                     shape.kv_lora_rank, shape.qk_rope_head_dim, shape.block_size, shape.causal,
                     call.softmax_scale, self.dtype(shape.q_dtype), c_kv.dtype)
        q = self.tensor(call.tensors["q"])
        return {"wrapper": wrapper, "q_nope": q[..., :512].contiguous(), "q_pe": q[..., 512:].contiguous(),
                "c_kv": c_kv, "k_pe": k_pe, "lse": call.lse}

    def compute(self, s):
        arguments = (s["q_nope"], s["q_pe"], s["c_kv"], s["k_pe"])
        if s["lse"] is None:
            return s["wrapper"].run(*arguments), None
        return s["wrapper"].run(*arguments, return_lse=True)

    def as_asked(self, s, out, lse):
        # Its LSE is of base 2, and -50000 and a little stands for minus infinity: rows without keys.
        return out, None if lse is None else lse.masked_fill(lse < -49000, -math.inf) * math.log(2)

    def plan_text(self):
        return f"backend {self.kernel}"


if __name__ == "__main__":
    serve(FlashInferPeer)
