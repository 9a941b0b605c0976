// SPDX-License-Identifier: Apache-2.0
#include "plan/bench_shapes.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/plan_request.hpp"

namespace mla::capacity {

BenchShapes bench_shapes(const ModelConfig& model, const PlanRequest& asked) {
  constexpr std::int64_t kShortest = 1024;
  if (!model.mla) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has no shapes for mla-bench: {}", model.name, is_mla(model).reason));
  }
  PlanRequest request = completed(model, asked);
  if (!caches_latent(model, request.engine)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} keeps K and V heads of {}: there is no latent cache for mla-bench to read",
                            request.engine.name, model.name),
                "name another --engine, such as sglang");
  }
  BenchShapes out{.dims = *model.mla};
  // The queries of a DCP group are gathered: each rank has its part of the keys for all heads of the group.
  out.dims.num_heads = out.dims.num_heads / request.layout.tp * request.layout.dcp;
  out.cache = std::string(request.cache.name);
  out.topk = model.indexer ? model.indexer->topk : 0;
  const std::int64_t longest = request.context;
  for (std::int64_t context = longest;; context /= 2) {
    request.context = context;
    const MemoryPlan plan = plan_memory(model, request);
    out.block = plan.block;
    const std::int64_t requests = run_at_once(request, plan.sequences_per_replica);
    const std::int64_t keys = ceil_div(context, request.layout.dcp);
    // Batches cut off by max_sequences differ in length alone; short ones of them are left out.
    const bool capped = !out.shapes.empty() && out.shapes.back().requests == requests;
    if (requests > 0 && !capped) out.shapes.push_back({requests, keys});
    if (context / 2 < kShortest || capped) break;
  }
  return out;
}

}  // namespace mla::capacity
