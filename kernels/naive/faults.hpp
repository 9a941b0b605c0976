// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Deliberate faults of cuda-naive, for the verifier's trial. They exist only in a build with MLA_CUDA_MUTANTS, in a
/// library of its own: in libmla every question below is a constant false and leaves nothing behind.
namespace mla::kernels {

enum class NaiveFault : int {
  kNone,
  kScale,           ///< the scale is 1 % too large
  kDropNewest,      ///< the newest key is not seen
  kDropOldest,      ///< key 0 is not seen
  kMaskLater,       ///< with several queries each sees one key too many
  kMinusOneIsZero,  ///< index -1 reads key 0
  kTableRowZero,    ///< every request reads row 0 of the block table
  kNoRotary,        ///< k_pe is ignored
  kLastTileLost,    ///< the last tile is left out where there are several
  kHalfScores,      ///< scores are rounded to bf16
  kHalfWeights,     ///< P is rounded to bf16
  kNoMaximum,       ///< exp without the maximum
  kNoRescale,       ///< sums are not rescaled when the maximum grows
  kNoBarrier,       ///< weights are read while other warps still write them: a true race
  kLseBase2,        ///< the LSE is in base 2
  kLseUnwritten,    ///< the LSE is not stored
  kEmptyUnwritten,  ///< rows without keys keep what stood there
  kEmptyLse,        ///< their LSE is +inf
  kHeadTile,        ///< heads past a multiple of 16 repeat the one before
  kPackedQuery,     ///< the strides of q are ignored
  kWritesPadding,   ///< it writes behind the last channel of a row
  kIllegal,         ///< requests with more than 5 keys read an address that is none
  kEndless,         ///< head 1 of such a request never ends
};

}  // namespace mla::kernels

#ifdef MLA_NAIVE_FAULTS
namespace mla::kernels {
/// Which fault the next launch has. Host side, one thread at a time.
NaiveFault& active_naive_fault();
}  // namespace mla::kernels
#endif
