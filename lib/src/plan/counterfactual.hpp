// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mla/capacity.hpp"

/// "What if this model cached K and V heads?": the same GPUs and the same memory left for the cache.
namespace mla::capacity {

struct Counterfactual {
  std::string name;            ///< "MHA", "GQA-8", "MQA"
  std::string format;          ///< cache format; rows that exist for latents only are compared in fp8
  double bytes_per_token = 0;  ///< all layers, no parallelism; window layers as long as the window fills
  double ratio = 0;            ///< to the model as it is, index keys included
  Layout layout;               ///< of those asked about, the one that holds most
  std::int64_t sequences = 0;  ///< whole ones of the context on the whole cluster
  std::int64_t longest_context = 0;
  Line line;  ///< the bytes of a token with their arithmetic
};

/// Bytes of a token as the model is: growing, index keys and window layers together.
[[nodiscard]] MLA_EXPORT double bytes_of_token(const CacheCost& cost);

/// `what`: "mha" (a KV head for each query head), "gqa:8" or "mqa". The layers keep K (P + R wide for mha; P for shared heads,
/// which rotate in place) and V of that many heads, an ordinary model's layers its own widths. Throws kInvalidArgument for
/// another word, for a number of heads that does not divide the query heads, and for models with compressed entries. `layouts` (not
/// empty) are tried with the memory that this model's own weights leave there.
[[nodiscard]] MLA_EXPORT Counterfactual counterfactual(const ModelConfig& model, const PlanRequest& request,
                                                       const std::vector<Layout>& layouts,
                                                       std::string_view what);

}  // namespace mla::capacity
