// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mla/capacity.hpp"
#include "mla/dims.hpp"

namespace mla::capacity {

/// A full decode batch of one GPU: as many requests of that many keys as its pool holds.
struct BenchShape {
  std::int64_t requests = 0, kv_len = 0;
};
struct BenchShapes {
  MlaDims dims{};  ///< widths, and the query heads of one rank; with dcp those of its group, which it gathers
  std::int64_t topk = 0;
  int block = 0;
  std::string cache{};               ///< format, as the engine stores this model
  std::vector<BenchShape> shapes{};  ///< longest first
};

/// What a GPU of this plan would compute in decode steps: the context, its halves down to 1024 keys, each with the sequences that
/// fit (at most max_sequences); with dcp the keys are those of one rank. Empty shapes: not one sequence fits. Throws
/// kInvalidArgument for models without MLA.
[[nodiscard]] MLA_EXPORT BenchShapes bench_shapes(const ModelConfig& model, const PlanRequest& request);

}  // namespace mla::capacity
