// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "mla/export.h"

namespace mla {

/// The widths of one MLA attention layer, in the field's own names. Single letters follow the documents:
/// H heads, P nope, R rope, V value, L latent.
struct MlaDims {
  int num_heads = 128;         ///< H, query heads on this rank
  int kv_lora_rank = 512;      ///< L, width of the compressed latent c_kv
  int qk_rope_head_dim = 64;   ///< R, width of the shared rotary key k_pe; 0 for models without one
  int qk_nope_head_dim = 128;  ///< P, width of the part of q and k without rotation
  int v_head_dim = 128;        ///< V, width of a value head

  /// Width of a cache row and of an absorbed query head: L + R.
  [[nodiscard]] constexpr int latent_width() const noexcept { return kv_lora_rank + qk_rope_head_dim; }
  /// Width of an expanded query or key head: P + R.
  [[nodiscard]] constexpr int head_width() const noexcept { return qk_nope_head_dim + qk_rope_head_dim; }
  friend constexpr bool operator==(const MlaDims&, const MlaDims&) = default;
};

/// (P + R)^-1/2: the softmax scale before any YaRN factor. The width is that of the *expanded* head, in the
/// absorbed form too (never (L + R)^-1/2): absorption rewrites the dot product, it does not change it.
[[nodiscard]] MLA_EXPORT double plain_softmax_scale(const MlaDims& dims);

/// Throws kInvalidArgument naming the field unless H, L, P, V >= 1, R >= 0 and even, and none is absurdly
/// large.
MLA_EXPORT void validate(const MlaDims& dims);

}  // namespace mla
