// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

/// The names of element types and cache formats, apart from what can be done with them (<mla/dtype.hpp>,
/// <mla/cache.hpp>), because device code reads this header and nvcc reads it four times a file.
namespace mla {

/// Element types of tensors. The names are those that appear in shape texts and on command lines.
enum class DType : std::uint8_t { kF64, kF32, kF16, kBF16, kE4M3, kE8M0, kI64, kI32, kU8 };

/// How one token's [c_kv L | k_pe R] lies in the paged cache. One table (cache_layout) serves planner,
/// reference and kernels alike, so the bytes that mla-memcalc counts are the bytes the kernels read.
enum class CacheFormat : std::uint8_t {
  kF64,        ///< one row of L+R f64; CPU only, for proofs
  kF32,        ///< one row of L+R f32
  kBF16,       ///< one row of L+R bf16: what vLLM, SGLang and FlashMLA call the MLA cache
  kF16,        ///< one row of L+R f16
  kBF16Split,  ///< c_kv [L] and k_pe [R] in two pools, bf16 (FlashInfer)
  kF16Split,   ///< the same in f16
  kFp8,        ///< one row of L+R e4m3 with one scale for the whole tensor: value = e4m3 * scale
  kFp8DsMla,   ///< L e4m3 + L/128 f32 scales + R bf16: 656 B for 512+64 (FlashMLA sparse, vLLM "fp8_ds_mla")
};

}  // namespace mla
