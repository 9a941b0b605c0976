# SPDX-License-Identifier: Apache-2.0
"""What the PyTorch peers share: tensors from the protocol's, and timing with events and captured graphs."""

import math
import time

from mla_peer import Skip, Unsupported, need

DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn",
          "I64": "int64", "I32": "int32", "U8": "uint8"}
NAMES = {"f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16"}
ROUND_SECONDS = 2e-3
ROUNDS_AT_MOST = 64
CPU_CACHE_BYTES = 256 << 20  # more than twice the last-level cache of most processors


class TorchPeer:
    """`prepare(call)` puts a call's inputs on the device and plans it; `compute(state)` is the timed work and returns out and
    LSE (natural logarithm, None if not wanted)."""

    name = summary = strategy = "?"
    versions_of = ("torch",)
    needs_gpu = False

    def __init__(self, wait):
        self.torch = need("torch")
        self.wait = wait
        gpu = self.torch.cuda.is_available()
        if self.needs_gpu and not gpu:
            raise Skip("torch.cuda.is_available() is false: this peer needs a CUDA GPU")
        self.device = self.torch.device("cuda" if gpu else "cpu")
        self.torch.set_grad_enabled(False)

    def hello(self):
        torch = self.torch
        versions = {package: str(getattr(need(package), "__version__", "?")) for package in self.versions_of}
        gpu = self.device.type == "cuda"
        if gpu:
            versions["CUDA of torch"] = str(torch.version.cuda)
        return {"name": self.name, "summary": self.summary, "strategy": self.strategy, "versions": versions,
                "device": torch.cuda.get_device_name(0) if gpu else "cpu", "batch_invariant": False}

    # ---- tensors ------------------------------------------------------------------------------------------------------

    def tensor(self, stored):
        dtype, shape, data = stored
        kind = getattr(self.torch, DTYPES[dtype])
        if 0 in shape:
            return self.torch.empty(shape, dtype=kind, device=self.device)
        return self.torch.frombuffer(data, dtype=kind).reshape(shape).to(self.device)

    def dtype(self, name):
        return getattr(self.torch, DTYPES[NAMES[name]])

    def stored(self, tensor, name):
        tensor = tensor.to(self.dtype(name)).contiguous().cpu()
        return NAMES[name], list(tensor.shape), tensor.reshape(-1).view(self.torch.uint8).numpy().tobytes()

    def latent_and_rope(self, call):
        """c_kv [blocks, block_size, L] and k_pe [blocks, block_size, R], views of the pool where it is one."""
        cache = self.tensor(call.tensors["cache"])
        latent = call.shape.kv_lora_rank
        if call.shape.cache.endswith("_split"):
            rope = (self.tensor(call.tensors["k_pe"]) if call.shape.qk_rope_head_dim > 0
                    else cache.new_empty((*cache.shape[:2], 0)))
            return cache, rope
        return cache[..., :latent], cache[..., latent:]

    # ---- the messages -------------------------------------------------------------------------------------------------

    def run(self, call):
        state = self.prepare(call)
        out, lse = self.as_asked(state, *self.compute(state))
        tensors = {"out": self.stored(out, call.shape.out_dtype)}
        if call.lse is not None:
            tensors["lse"] = self.stored(lse, call.lse)
        return self.plan_text(), tensors

    def as_asked(self, state, out, lse):
        """The kernel's results in the protocol's shapes and conventions. Not timed: who calls the kernel takes its own."""
        return out, lse

    def plan_text(self):
        return self.name

    def time(self, call, rules):
        torch = self.torch
        gpu = self.device.type == "cuda"
        if rules.graph and not gpu:
            raise Unsupported("graphs are a GPU's: ask for plain calls")
        states = [self.prepare(call)]
        if rules.cold:
            bytes_of_one = sum(len(data) for _, _, data in call.tensors.values())
            wanted = rules.rotate_bytes or (2 * torch.cuda.get_device_properties(0).L2_cache_size if gpu
                                            else CPU_CACHE_BYTES)
            copies = max(2, -(-wanted // bytes_of_one))
            if copies > 2048:
                raise Unsupported(f"{copies} copies of {bytes_of_one} bytes would be needed to leave the cache")
            states += [self.prepare(call) for _ in range(copies - 1)]
        calls = [lambda s=s: self.compute(s) for s in states]
        # Every copy at least once: what a kernel does at its first call of a state (a plan that it keeps) is no part of the
        # time, and captured it would be replayed each time.
        for i in range(max(len(calls), rules.warmup)):
            calls[i % len(calls)]()
        calls_in_sample = 1
        if rules.graph:
            graph, calls_in_sample = self.capture_rounds(calls)
            calls = [graph.replay]
            graph.replay()
        measure = self.event_sample if gpu else self.wall_sample
        start = time.perf_counter()
        while time.perf_counter() - start < rules.preheat:
            measure(calls[0], rules.graph)
        samples, start = [], time.perf_counter()
        while len(samples) < rules.samples and (not samples or time.perf_counter() - start < rules.max_time):
            samples.append(measure(calls[len(samples) % len(calls)], rules.graph) / calls_in_sample)
        return {"samples_us": samples, "timer": "graph" if rules.graph else "event" if gpu else "wall",
                "copies": len(states), "plan": self.plan_text()}

    def capture_rounds(self, calls):
        """A graph of whole rounds through the copies, long enough that its launch does not show, and its number of calls: as
        mla-bench times its own backends."""
        torch = self.torch
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for call in calls:
            call()
        torch.cuda.synchronize()
        rounds = max(1, min(ROUNDS_AT_MOST, math.ceil(ROUND_SECONDS / (time.perf_counter() - begin))))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(rounds):
                for call in calls:
                    call()
        return graph, rounds * len(calls)

    def event_sample(self, call, graph):
        torch = self.torch
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        if graph:
            # Work of the same kind while the host enqueues: without it the launch's own delay would be measured, and after
            # an idle wait a card at its power limit is faster than it stays.
            call()
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3

    @staticmethod
    def wall_sample(call, _):
        begin = time.perf_counter()
        call()
        return (time.perf_counter() - begin) * 1e6


class PaddedTorchPeer(TorchPeer):
    """Requests of a ragged batch side by side, padded to the longest: what plain PyTorch can do without a kernel of its own."""

    def supports(self, shape, splits):
        if splits > 1:
            return f"{splits} splits were forced, but this peer does not split"
        if shape.topk > 0:
            return "an explicit index may name a key twice, which a mask cannot say"
        if shape.q_dtype not in NAMES:
            return f"q of type {shape.q_dtype}, but this peer takes f64, f32, f16 and bf16"
        if shape.cache.removesuffix("_split") != shape.q_dtype:
            return f"cache {shape.cache} with q of type {shape.q_dtype}: this peer converts nothing"
        if shape.out_dtype != shape.q_dtype:
            return f"out of type {shape.out_dtype} from q of type {shape.q_dtype}: this peer converts nothing"
        padded = len(shape.q_lens) * shape.num_heads * max(shape.q_lens) * max(max(shape.kv_lens), 1)
        if padded > 1 << 28:
            return f"{padded} scores of the padded batch, but this peer makes at most {1 << 28}"
        return None

    def prepare(self, call):
        torch, shape, state = self.torch, call.shape, {}
        c_kv, k_pe = self.latent_and_rope(call)
        cu, lengths = (call.tensors[name] for name in ("cu_seqlens_q", "seq_lens"))
        cu, lengths = self.tensor(cu).cpu().tolist(), self.tensor(lengths).cpu().tolist()
        table = self.tensor(call.tensors["block_table"]).cpu()
        batch, most_q = len(lengths), max(b - a for a, b in zip(cu, cu[1:]))
        most_k, size = max(max(lengths), 1), shape.block_size
        slots = torch.zeros((batch, most_k), dtype=torch.int64)
        held = torch.zeros((batch, most_k), dtype=torch.bool)
        mask = torch.zeros((batch, 1, most_q, most_k), dtype=torch.bool)
        tokens = torch.zeros((batch, most_q), dtype=torch.int64)
        rows = []
        for b, n in enumerate(lengths):
            q_len = cu[b + 1] - cu[b]
            j = torch.arange(n)
            slots[b, :n] = table[b, j // size].to(torch.int64) * size + j % size
            held[b, :n] = True
            p = (n - q_len + torch.arange(q_len))[:, None]
            sees = (j <= p) if shape.causal else torch.ones((q_len, n), dtype=torch.bool)
            if shape.causal and shape.window is not None:
                sees = sees & ((j > p - shape.window) | (j < shape.sink))
            mask[b, 0, :q_len, :n] = sees
            tokens[b, :q_len] = torch.arange(cu[b], cu[b + 1])
            rows += [b * most_q + i for i in range(q_len)]
        for name, value in (("slots", slots), ("held", held[..., None]), ("mask", mask), ("tokens", tokens),
                            ("rows", torch.tensor(rows, dtype=torch.int64)), ("empty", ~mask.any(-1, keepdim=True))):
            state[name] = value.to(self.device)
        state.update(q=self.tensor(call.tensors["q"]), c_kv=c_kv, k_pe=k_pe, scale=call.softmax_scale, shape=shape,
                     lse=call.lse)
        if shape.space == "head":
            state.update(w_uk=self.tensor(call.tensors["w_uk"]), w_uv=self.tensor(call.tensors["w_uv"]))
        return state

    def gather(self, s):
        """q [batch, H, S, width], c_kv [batch, N, L], k_pe [batch, N, R]; what no key occupies becomes 0."""
        torch = self.torch
        q = s["q"][s["tokens"]].transpose(1, 2)
        parts = []
        for pool in (s["c_kv"], s["k_pe"]):
            flat = pool.flatten(0, 1)[s["slots"]]
            parts.append(torch.where(s["held"], flat, torch.zeros((), dtype=flat.dtype, device=flat.device)))
        return q, parts[0], parts[1]

    def finish(self, s, out, lse):
        """[batch, H, S, width] back to [tokens, H, width]; rows without keys become 0 and -inf."""
        torch = self.torch
        out = torch.where(s["empty"], torch.zeros((), dtype=out.dtype, device=out.device), out)
        out = out.transpose(1, 2).flatten(0, 1)[s["rows"]]
        if lse is not None:
            lse = lse.transpose(1, 2).flatten(0, 1)[s["rows"]]
        return out, lse

    def scores(self, q, k, s):
        """Scaled and masked scores in single precision (double for double), from inputs as they are."""
        torch = self.torch
        wide = torch.float64 if q.dtype == torch.float64 else torch.float32
        scores = torch.matmul(q.to(wide), k.to(wide).transpose(-1, -2)) * s["scale"]
        return scores.masked_fill(~s["mask"], float("-inf"))
