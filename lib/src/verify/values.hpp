// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "verify/case.hpp"

namespace mla::verify {

/// The numbers of a case before they are rounded to the types of its tensors. Packed, row-major.
struct Values {
  double softmax_scale = 1.0;
  float cache_scale = 0;                  ///< kFp8: scale of the tensor; 0: the largest value becomes 448
  std::vector<double> q;                  ///< latent space [tokens, H, L+R]; head space [tokens, H, P+R]
  std::vector<double> latent;             ///< [sum kv_len, L+R], request after request
  std::vector<double> w_uk;               ///< head space [H, P, L], else empty
  std::vector<double> w_uv;               ///< head space [H, V, L], else empty
  std::vector<std::int32_t> token_index;  ///< [tokens, topk] or empty
};

/// Width of a query row of the case.
[[nodiscard]] int query_width(const AttentionShape& shape);
/// Width of an output row of the case.
[[nodiscard]] int output_width(const AttentionShape& shape);
/// Sum of kv_len.
[[nodiscard]] std::int64_t num_keys(const AttentionShape& shape);

/// A scale that is no backend's default: (P+R)^-1/2 times a factor such as YaRN's.
[[nodiscard]] double case_scale(const MlaDims& dims);

/// Inputs of the case's ValueKind and IndexKind; the same for the same case on every machine.
[[nodiscard]] Values make_values(const Case& c);

/// Writes the explicit index of a case ([tokens, topk]).
[[nodiscard]] std::vector<std::int32_t> make_token_index(const Case& c);

}  // namespace mla::verify
