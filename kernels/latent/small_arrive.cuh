// SPDX-License-Identifier: Apache-2.0
// Small work: a piece as a part of its request's row group (arrival.cuh).
#pragma once

#include "latent/arrival.cuh"
#include "latent/small_traits.cuh"

namespace mla::MLA_ARCH_NS::latent {

/// Slices of a result that `parts` CTAs share: the largest power of two. Its logarithm.
__device__ __forceinline__ int log_slices_of(std::int32_t parts) {
  return 31 - __clz(parts);
}
__device__ __forceinline__ std::int32_t slices_of(std::int32_t parts) {
  return 1 << log_slices_of(parts);
}

/// A piece that is not its CTA's last does not wait: the next one is more urgent.
__device__ __forceinline__ Part part_of(const Params& p, const Piece& piece) {
  return {.words = counter_of(p, piece),
          .parts = piece.parts,
          .part = piece.part,
          .slices = slices_of(piece.parts),
          .patient = piece.last};
}

}  // namespace mla::MLA_ARCH_NS::latent
