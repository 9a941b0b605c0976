#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MLA attention in NumPy, double precision: the smallest whole peer, and a second opinion on the reference."""

from mla_peer import STORED, Unsupported, need, serve


class NumpyPeer:
    def __init__(self):
        self.np = need("numpy", "; on Debian: apt-get install python3-numpy")
        # Every e4m3 code as a number.
        self.e4m3 = self.np.array([self._e4m3(code) for code in range(256)])

    @staticmethod
    def _e4m3(code):
        sign, exponent, mantissa = -1.0 if code & 128 else 1.0, code >> 3 & 15, code & 7
        if exponent == 15 and mantissa == 7:
            return float("nan")
        return sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0**(exponent - 7))

    def hello(self):
        return {"name": "numpy", "summary": "absorbed form in NumPy, double precision", "strategy": "absorbed",
                "device": "cpu", "versions": {"numpy": self.np.__version__}, "batch_invariant": False,
                "rounding": {place: "f64" for place in ("accumulate", "probabilities", "partials", "absorbed_query",
                                                        "latent_output", "expanded_kv")}}

    def supports(self, shape, splits):
        return None

    # ---- numbers ------------------------------------------------------------------------------------------------------

    def decode(self, tensor):
        dtype, shape, data = tensor
        np = self.np
        if dtype == "BF16":
            values = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4").astype("f8")
        elif dtype == "F8_E4M3":
            values = self.e4m3[np.frombuffer(data, "u1")]
        else:
            kind = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I32": "<i4", "U8": "u1"}[dtype]
            values = np.frombuffer(data, kind)
            if dtype.startswith("F"):
                values = values.astype("f8")
        return values.reshape(shape)

    def encode(self, values, name):
        """(stored dtype, shape, bytes), each value rounded once."""
        np = self.np
        with np.errstate(over="ignore"):
            if name == "bf16":
                # Round to odd in f32 first: then the second rounding cannot be a double one.
                f32 = values.astype("f4")
                bits = f32.view("<u4")
                inexact = f32.astype("f8") != values
                towards_zero = np.where(np.abs(f32.astype("f8")) > np.abs(values), bits - 1, bits)
                odd = np.where(inexact & np.isfinite(f32), towards_zero | 1, bits)
                rounded = (odd.astype("<u8") + 0x7FFF + (odd >> 16 & 1)) >> 16
                data = np.where(np.isnan(values), 0x7FC0, rounded).astype("<u2")
            else:
                data = values.astype({"f64": "<f8", "f32": "<f4", "f16": "<f2"}[name])
        return STORED[name], values.shape, data.tobytes()

    def take(self, tensor, slots):
        """Those slots of a pool [blocks, block_size, width]: the rest of it may be gigabytes."""
        dtype, shape, data = tensor
        width = len(data) // max(1, shape[0] * shape[1])
        picked = self.np.frombuffer(data, "u1").reshape(-1, width)[slots]
        return dtype, (len(slots), shape[2]), picked.tobytes()

    def rows(self, call, slots):
        """These slots of the pool as [slots, L + R] numbers."""
        np, shape = self.np, call.shape
        tensors = {**call.tensors, **{name: self.take(call.tensors[name], slots)
                                      for name in ("cache", "k_pe") if name in call.tensors}}
        latent, rope = shape.kv_lora_rank, shape.qk_rope_head_dim
        if shape.cache == "fp8_ds_mla":
            raw = self.decode(tensors["cache"])
            raw = np.ascontiguousarray(raw.reshape(-1, raw.shape[-1]))
            tiles = latent // 128
            scales = np.ascontiguousarray(raw[:, latent:latent + 4 * tiles]).view("<f4").astype("f8")
            k_pe = np.ascontiguousarray(raw[:, latent + 4 * tiles:])
            k_pe = self.decode(("BF16", (len(raw), rope), k_pe.tobytes()))
            return np.concatenate([self.e4m3[raw[:, :latent]] * np.repeat(scales, 128, axis=1), k_pe], axis=1)
        cache = self.decode(tensors["cache"])
        cache = cache.reshape(-1, cache.shape[-1])
        if shape.cache.endswith("_split") and rope > 0:
            k_pe = self.decode(tensors["k_pe"])
            return np.concatenate([cache, k_pe.reshape(-1, k_pe.shape[-1])], axis=1)
        if shape.cache == "fp8":
            return cache * float(self.decode(tensors["cache_scale"])[0])
        return cache

    # ---- attention ----------------------------------------------------------------------------------------------------

    def visible(self, shape, index, i, q_len, n):
        """Positions that query i of q_len may see among n keys."""
        np = self.np
        if index is not None:
            return index[(index >= 0) & (index < n)]
        p = n - q_len + i
        keys = np.arange(n if not shape.causal else max(0, p + 1))
        if shape.causal and shape.window is not None:
            keys = keys[(keys > p - shape.window) | (keys < shape.sink)]
        return keys

    def attend(self, call, q, rows, latent):
        """One query row a head, q [H, L + R], against rows [n, L + R], n > 0: unnormalised output [H, L], sum [H, 1] and
        the largest score [H, 1], which both are relative to."""
        np = self.np
        scores = call.softmax_scale * (q @ rows.T)
        top = scores.max(axis=1, keepdims=True)
        weights = np.exp(scores - top)
        return weights @ rows[:, :latent], weights.sum(axis=1, keepdims=True), top

    def merge(self, parts):
        """Output and LSE of parts of the same row: never by way of the parts' LSEs, whose digits large scores eat up."""
        np = self.np
        top = np.max([part_top for _, _, part_top in parts], axis=0)
        out = sum(np.exp(part_top - top) * part_out for part_out, _, part_top in parts)
        total = sum(np.exp(part_top - top) * part_total for _, part_total, part_top in parts)
        return out / total, (top + np.log(total))[:, 0]

    def run(self, call):
        np, shape = self.np, call.shape
        q = self.decode(call.tensors["q"])
        latent, nope, head = shape.kv_lora_rank, shape.qk_nope_head_dim, shape.space == "head"
        if head:
            w_uk, w_uv = self.decode(call.tensors["w_uk"]), self.decode(call.tensors["w_uv"])
            q = np.concatenate([np.einsum("thp,hpl->thl", q[:, :, :nope], w_uk), q[:, :, nope:]], axis=2)
        table, starts = self.decode(call.tensors["block_table"]), self.decode(call.tensors["cu_seqlens_q"])
        lengths, size = self.decode(call.tensors["seq_lens"]), shape.block_size
        index = self.decode(call.tensors["token_index"]) if shape.topk > 0 else None
        tokens, heads = q.shape[:2]
        out, lse = np.zeros((tokens, heads, latent)), np.full((tokens, heads), -np.inf)
        for b, n in enumerate(lengths):
            first, last = int(starts[b]), int(starts[b + 1])
            positions = np.arange(int(n))
            slots = table[b, positions // size].astype("i8") * size + positions % size
            with np.errstate(invalid="ignore", over="ignore"):
                rows = self.rows(call, slots)
            for t in range(first, last):
                keys = self.visible(shape, None if index is None else index[t], t - first, last - first, int(n))
                if len(keys) == 0:
                    continue
                out[t], lse[t] = self.merge([self.attend(call, q[t], rows[part], latent)
                                             for part in np.array_split(keys, max(1, call.splits))
                                             if len(part) > 0])
        if head:
            out = np.einsum("thl,hvl->thv", out, w_uv)
        tensors = {"out": self.encode(out, shape.out_dtype)}
        if call.lse is not None:
            tensors["lse"] = self.encode(lse, call.lse)
        return "per token", tensors

    def time(self, call, rules):
        """Wall clock; inputs are small against a CPU's caches, so nothing rotates."""
        import time
        if rules.cold:
            raise Unsupported("this peer can only time warm calls")
        for _ in range(rules.warmup):
            self.run(call)
        start = time.perf_counter()
        while time.perf_counter() - start < rules.preheat:
            self.run(call)
        samples, start = [], time.perf_counter()
        while len(samples) < rules.samples and (not samples or time.perf_counter() - start < rules.max_time):
            begin = time.perf_counter()
            self.run(call)
            samples.append((time.perf_counter() - begin) * 1e6)
        return {"samples_us": samples, "timer": "wall", "copies": 1, "plan": "per token"}


if __name__ == "__main__":
    serve(lambda wait: NumpyPeer())
