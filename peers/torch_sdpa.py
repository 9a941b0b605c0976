#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's scaled_dot_product_attention over expanded keys and values (head space) or over latent rows (latent space)."""

from mla_peer import serve
from mla_torch import PaddedTorchPeer


class SdpaPeer(PaddedTorchPeer):
    name = "torch_sdpa"
    summary = "expanded K and V, scaled_dot_product_attention with a mask"
    strategy = "expanded"

    def rounding(self, shape):
        # Its fused kernels round P to the type of V, and scale and subtract the maximum in one product; K and V are tensors of
        # the query's type.
        return {"accumulate": "f64" if shape.q_dtype == "f64" else "f32", "probabilities": shape.q_dtype,
                "expanded_kv": shape.q_dtype, "unit_weight": False}

    def compute(self, s):
        torch, shape = self.torch, s["shape"]
        q, c_kv, k_pe = self.gather(s)
        if shape.space == "head":
            k = torch.cat([torch.einsum("bnl,hpl->bhnp", c_kv, s["w_uk"]),
                           k_pe[:, None].expand(-1, shape.num_heads, -1, -1)], dim=-1)
            v = torch.einsum("bnl,hvl->bhnv", c_kv, s["w_uv"])
        else:
            k = torch.cat([c_kv, k_pe], dim=-1)[:, None].expand(-1, shape.num_heads, -1, -1)
            v = c_kv[:, None].expand(-1, shape.num_heads, -1, -1)
        mask = s["mask"] | s["empty"]  # a row without keys would be 0/0; finish() makes it 0
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=s["scale"])
        # The call returns no LSE: it is computed beside it, and costs its time only when it is asked for.
        lse = None if s["lse"] is None else torch.logsumexp(self.scores(q, k, s), dim=-1)
        return self.finish(s, out, lse)


if __name__ == "__main__":
    serve(SdpaPeer)
