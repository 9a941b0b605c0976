// SPDX-License-Identifier: Apache-2.0
#include "run/work.hpp"

#include <algorithm>

#include "core/shared_prefix.hpp"
#include "mla/cache.hpp"
#include "mla/dtype.hpp"

namespace mla::run {
namespace {

/// Keys the query at position p of n keys may see.
std::int64_t visible(const Mask& mask, std::int64_t p, std::int64_t n) {
  if (!mask.causal) return n;
  if (!mask.window) return p + 1;
  const std::int64_t in_window = std::min<std::int64_t>(p + 1, *mask.window);
  const std::int64_t first_in_window = p + 1 - in_window;
  return in_window + std::min<std::int64_t>(mask.sink, first_in_window);
}

/// Keys that at least one of the request's queries sees: the union of windows of consecutive positions, and
/// the sink.
std::int64_t distinct_rows(const AttentionShape& shape, std::size_t index) {
  const Mask& mask = shape.mask;
  const Request& request = shape.batch[index];
  const std::int64_t n = request.kv_len;
  if (request.q_len == 0 || n == 0) return 0;
  // Keys of a shared prefix are the first member's. (With a window, which leaves most of it out, they are counted again.)
  if (!mask.causal || !mask.window) return n - borrowed_keys(shape, index);
  const std::int64_t first_position = n - request.q_len;
  const std::int64_t first_in_window = std::max<std::int64_t>(0, first_position - *mask.window + 1);
  return n - first_in_window + std::min<std::int64_t>(mask.sink, first_in_window);
}

}  // namespace

double Work::least_flops() const noexcept {
  return expanded_flops > 0 ? std::min(absorbed_flops, expanded_flops) : absorbed_flops;
}

double Work::flops_of(std::string_view strategy) const noexcept {
  return strategy == "expanded" && expanded_flops > 0 ? expanded_flops : absorbed_flops;
}

Work count_work(const AttentionShape& shape) {
  Work work;
  for (std::size_t b = 0; b < shape.batch.size(); ++b) {
    const Request& request = shape.batch[b];
    const std::int64_t n = request.kv_len;
    if (shape.topk > 0) {
      work.pairs += request.q_len * std::min<std::int64_t>(shape.topk, n);
      work.rows += std::min<std::int64_t>(n, static_cast<std::int64_t>(request.q_len) * shape.topk);
      continue;
    }
    for (std::int64_t i = 0; i < request.q_len; ++i)
      work.pairs += visible(shape.mask, n - request.q_len + i, n);
    work.rows += distinct_rows(shape, b);
  }
  const MlaDims& dims = shape.dims;
  const auto heads = static_cast<double>(dims.num_heads);
  const auto tokens = static_cast<double>(shape.num_tokens());
  const auto pairs = static_cast<double>(work.pairs);
  const auto rows = static_cast<double>(work.rows);
  const bool head_space = shape.space == QuerySpace::kHead;
  const double per_head_weights =
      static_cast<double>(dims.kv_lora_rank) * (dims.qk_nope_head_dim + dims.v_head_dim);

  const int q_width = head_space ? dims.head_width() : dims.latent_width();
  const int out_width = head_space ? dims.v_head_dim : dims.kv_lora_rank;
  const auto q_size = static_cast<double>(size_of(shape.q_dtype));
  work.bytes =
      rows * static_cast<double>(cache_layout(shape.cache, dims).bytes_per_token()) +
      tokens * heads * (q_width * q_size + out_width * static_cast<double>(size_of(shape.out_dtype)) + 4);
  work.absorbed_flops = 2 * heads * pairs * (2.0 * dims.kv_lora_rank + dims.qk_rope_head_dim);
  if (head_space) {
    work.bytes += heads * per_head_weights * q_size;
    work.absorbed_flops += 2 * heads * tokens * per_head_weights;
    work.expanded_flops =
        2 * heads * pairs * (dims.head_width() + dims.v_head_dim) + 2 * heads * rows * per_head_weights;
  }
  return work;
}

}  // namespace mla::run
