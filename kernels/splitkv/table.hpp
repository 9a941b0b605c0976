// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/params.hpp"

struct float2;

namespace mla::kernels::splitkv {

/// One call of cuda-splitkv. A *unit* is what is cut along its keys: a request, or with top-k a token. The
/// rows of a unit (query, head), head fastest, are cut into row groups of as many rows as a block holds.
struct Params {
  AttentionParams attention;
  float scale_log2 = 1.0F;   // softmax scale * log2(e), and the scale of a plain fp8 cache
  float value_scale = 1.0F;  // what the cache's values still have to be multiplied with
  std::int32_t units = 0;
  std::int32_t row_groups = 1;  // of the unit with most rows
  std::int32_t parts = 1;       // along the keys; a block is a (part, row group)
  std::int32_t splits =
      0;  // > 0: each unit has its own `splits` of the parts; 0: all keys are dealt out evenly
  std::int32_t stages = 2;  // tiles of the ring
  std::int32_t rows = 16;   // of a block
  std::int32_t tile = 32;   // keys
  // Strides of the cache in bytes, which fit 32 bits (a block is below 4 GiB): addresses cost a few
  // multiply-adds.
  std::uint32_t latent_block = 0, latent_row = 0, rope_block = 0, rope_row = 0;
  float* partial_out = nullptr;   // [slots, row_groups, rows, L] not yet divided by the sum
  float2* partial_sum = nullptr;  // [slots, row_groups, rows] (maximum of the scores * log2 e, sum)
};

/// A kernel: what it was compiled for, what it takes, how to start it.
struct Variant {
  std::int32_t rows = 0;        // queries x heads of a block
  std::int32_t tile = 0;        // keys of a step
  std::int32_t latent = 0;      // L
  DType dtype = DType::kBF16;   // of q and of the tile in shared memory
  bool fp8 = false;             // rows are e4m3, widened to `dtype` on the way
  std::int32_t blocks = 1;      // that a multiprocessor's registers hold
  std::size_t fixed_bytes = 0;  // shared memory beside the ring
  std::size_t stage_bytes = 0;  // of one tile of the ring
  void (*run)(const Params& params, void* stream) = nullptr;

  [[nodiscard]] constexpr std::size_t shared_bytes(int stages) const noexcept {
    return fixed_bytes + stage_bytes * static_cast<std::size_t>(stages);
  }
};

/// Entry points of one architecture.
struct Table {
  std::span<const Variant> (*variants[3])();  // a source file each: bf16, f16, fp8
  void (*merge)(const Params& params, void* stream);
};

/// Results of parts that a unit's other parts must be merged with. A part dealt out evenly may end one unit
/// and begin another: two slots; with splits a unit each it has one.
[[nodiscard]] constexpr std::int64_t slot_count(std::int64_t parts, bool own_splits) noexcept {
  return own_splits ? parts : 2 * parts;
}

}  // namespace mla::kernels::splitkv
