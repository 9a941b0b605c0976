#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The absorbed form in plain PyTorch: two batched products around a softmax in single precision."""

from mla_peer import serve
from mla_torch import PaddedTorchPeer


class BmmPeer(PaddedTorchPeer):
    name = "torch_bmm"
    summary = "absorbed form: batched products around a softmax in f32"
    strategy = "absorbed"

    def rounding(self, shape):
        q = shape.q_dtype
        return {"accumulate": "f64" if q == "f64" else "f32", "probabilities": q, "absorbed_query": q,
                "latent_output": q}

    def compute(self, s):
        torch, shape = self.torch, s["shape"]
        q, c_kv, k_pe = self.gather(s)
        if shape.space == "head":
            nope = shape.qk_nope_head_dim
            q = torch.cat([torch.einsum("bhsp,hpl->bhsl", q[..., :nope], s["w_uk"]), q[..., nope:]], dim=-1)
        scores = self.scores(q, torch.cat([c_kv, k_pe], dim=-1)[:, None], s)
        lse = torch.logsumexp(scores, dim=-1)
        # Not exp(scores - lse): with scores of 1e4 the last place of an LSE in single precision is 1e-3, in every weight.
        weights = torch.softmax(scores, dim=-1)  # NaN where there is no key; finish() writes those rows
        out = torch.matmul(weights.to(c_kv.dtype), c_kv[:, None])
        if shape.space == "head":
            out = torch.einsum("bhsl,hvl->bhsv", out, s["w_uv"])
        return self.finish(s, out, None if s["lse"] is None else lse)


if __name__ == "__main__":
    serve(BmmPeer)
