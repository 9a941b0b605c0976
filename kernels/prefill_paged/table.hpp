// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/params.hpp"
#include "expand/table.hpp"

namespace mla::kernels::prefill_paged {

/// The attention of the expanded form with K and V made from the pages, a tile at a time. `attend` holds
/// queries, result and mask; its dense K and V are not used.
struct Params {
  expand::AttendParams attend;
  CacheParams cache;
  std::int64_t table_columns = 0;
  std::int32_t latent = 0;
  const void* w_uk = nullptr;  // [H, P, L]
  std::int64_t w_uk_head = 0, w_uk_row = 0;
  const void* w_uv = nullptr;  // [H, V, L]
  std::int64_t w_uv_head = 0, w_uv_row = 0;
};

/// What one architecture's object offers; `stream` is a cudaStream_t.
struct Table {
  void (*attend)(const Params&, expand::Widths widths, DType dtype, void* stream);
  expand::Tile (*tile)(expand::Widths widths);
};

/// Widest P of each compiled width: the rest of q.k is rotary.
[[nodiscard]] constexpr int widest_nope(expand::Widths widths) {
  switch (widths) {
    case expand::Widths::k96x64:
      return 64;
    case expand::Widths::k128x128:
    case expand::Widths::k192x128:
      return 128;
    case expand::Widths::k256x256:
      return 256;
  }
  return 0;
}

}  // namespace mla::kernels::prefill_paged
