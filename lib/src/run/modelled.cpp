// SPDX-License-Identifier: Apache-2.0
#include "run/modelled.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/shared_prefix.hpp"
#include "core/text.hpp"
#include "mla/cache.hpp"
#include "mla/error.hpp"
#include "run/environment.hpp"
#include "run/work.hpp"

namespace mla::run {
namespace {

constexpr std::string_view kPrefix = "model-";

/// The type whose peak bounds the arithmetic: that of the query, or of a cache that multiplies as it lies
/// (plain fp8 with an fp8 query). Formats that are decoded first multiply in the query's type.
std::string_view arithmetic_type(const AttentionShape& shape) {
  return shape.q_dtype == DType::kE4M3 && shape.cache == CacheFormat::kFp8 ? name_of(DType::kE4M3)
         : shape.q_dtype == DType::kE4M3                                   ? name_of(DType::kBF16)
                                                                           : name_of(shape.q_dtype);
}

double cache_bytes(const AttentionShape& shape) {
  double keys = 0;
  for (std::size_t b = 0; b < shape.batch.size(); ++b) {
    keys += static_cast<double>(shape.batch[b].kv_len - borrowed_keys(shape, b));
  }
  return keys * static_cast<double>(cache_layout(shape.cache, shape.dims).bytes_per_token());
}

std::string obstacle(const AttentionShape& shape, const Device& device, bool expanded) {
  if (expanded && shape.space == QuerySpace::kLatent) return "in latent space there is nothing to expand";
  const std::string type(arithmetic_type(shape));
  if (!device.dense_flops.contains(type))
    return fmt::format("{} is described without a dense peak for {}", device.name, type);
  if (!(device.memory_bandwidth > 0))
    return fmt::format("{} is described without a memory bandwidth", device.name);
  if (const double bytes = cache_bytes(shape); bytes > static_cast<double>(device.memory_bytes)) {
    return fmt::format("one layer's cache of {} does not fit into the {} of {}", report::human_gb(bytes),
                       report::human_gb(static_cast<double>(device.memory_bytes)), device.name);
  }
  return {};
}

}  // namespace

std::vector<std::string> modelled_backends() {
  return {"model-absorbed", "model-expanded"};
}

report::BenchRecord model_point(const spec::SweepPoint& point, const Device& device,
                                const std::string& spec_name) {
  const std::vector<std::string> known = modelled_backends();
  if (std::ranges::find(known, point.backend) == known.end()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} cannot run on {}, which is only described", text::quoted(point.backend), device.name),
        fmt::format("modelled are {}", text::join_or(known)));
  }
  const AttentionShape& shape = point.shape;
  if (point.step)
    throw Error(ErrorCode::kInvalidArgument, "a whole step is not modelled", "--work attention is");
  const Work work = count_work(shape);
  report::BenchRecord record;
  record.key = to_text(shape);
  record.backend = point.backend;
  record.strategy = point.backend.substr(kPrefix.size());
  record.device = device.name;
  record.cache_state = "cold";
  record.timer = "modelled";
  record.model = point.model;
  record.spec = spec_name;
  record.command = fmt::format("mla-bench run --device {} --shape '{}' --backend {}", device.name, record.key,
                               record.backend);
  record.when = utc_now();
  record.verified = "no";
  record.flags = {"modelled"};
  record.bytes = work.bytes;
  record.flops = work.flops_of(record.strategy);
  record.least_flops = work.least_flops();
  record.reason = obstacle(shape, device, record.strategy == "expanded");
  record.status = record.reason.empty() ? "ok" : "unsupported";
  if (!record.reason.empty()) return record;

  const double rate = device.dense_flops.at(std::string(arithmetic_type(shape)));
  const double memory = work.bytes / device.memory_bandwidth;
  const double compute = *record.flops / rate;
  const double seconds = std::max(memory, compute);
  record.ceiling_gbps = device.memory_bandwidth / 1e9;
  record.ceiling_gflops = rate / 1e9;
  record.time_us = record.floor_us = seconds * 1e6;
  record.of_floor = 1.0;
  record.bound = memory > compute ? "memory" : "compute";
  record.gbps = work.bytes / seconds / 1e9;
  record.gflops = *record.flops / seconds / 1e9;
  record.tokens_per_s = static_cast<double>(shape.num_tokens()) / seconds;
  return record;
}

}  // namespace mla::run
