// SPDX-License-Identifier: Apache-2.0
#include "spec/bench_spec.hpp"

#include <fmt/format.h>

#include "core/count.hpp"
#include "mla/cache.hpp"
#include "mla/error.hpp"
#include "spec/sweep.hpp"

namespace mla::spec {

std::string bench_spec(const capacity::BenchShapes& shapes, const std::string& question) {
  try {
    static_cast<void>(parse_cache_format(shapes.cache));
  } catch (const Error&) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("mla-bench has no rows of cache format {}", shapes.cache),
                "bf16, f16, fp8 and fp8_ds_mla have");
  }
  const MlaDims& d = shapes.dims;
  std::string batches;
  for (const capacity::BenchShape& shape : shapes.shapes) {
    batches += fmt::format("{}{}q1s{}", batches.empty() ? "" : ",", shape.requests,
                           text::format_count(shape.kv_len));
  }
  SweepSpec spec = default_spec();
  spec.name = "planned";
  spec.question = question;
  const auto set = [&](std::string_view key, const std::string& value) {
    override_setting(spec, key, value, Level::kFile, "mla-memcalc --emit-sweep");
  };
  set("dims", fmt::format("h{}/l{}/r{}/p{}/v{}", d.num_heads, d.kv_lora_rank, d.qk_rope_head_dim,
                          d.qk_nope_head_dim, d.v_head_dim));
  set("batch", batches);
  set("block_size", fmt::format("{}", shapes.block));
  set("cache", shapes.cache);
  if (shapes.topk > 0) set("topk", fmt::format("{}", shapes.topk));
  return print_spec(spec);
}

}  // namespace mla::spec
