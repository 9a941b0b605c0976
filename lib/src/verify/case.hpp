// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mla/backend.hpp"
#include "mla/shape.hpp"

/// mla-verify's machinery: cases, the problems made from them, the judgement of a backend on one, oracles,
/// suites.
namespace mla::verify {

/// What q, the cache rows and the weights hold.
enum class ValueKind : std::uint8_t {
  kNormal,    ///< standard normal, scores with standard deviation `score_std`
  kDominant,  ///< normal, and one key 40 above the rest: the first, middle, last, or at a block's or tile's
              ///< edge
  kSinks,     ///< normal, and the first four keys 10 above the rest
  kConstant,  ///< every row has the same latent, scores differ
  kAlternating,  ///< latents of alternating sign that nearly cancel
  kHeavyTail,    ///< one latent channel is 2^6 times larger
  kTiny,         ///< latents of about 2^-100: far below everything else, still normal numbers
  kDenormal,     ///< latents of about 2^-130: subnormal in bf16 and f32, and not to be flushed
  kExtreme,      ///< scores of +-1e4: exp overflows unless the maximum is subtracted
  kZeroQuery,    ///< query 0: every visible key counts the same
  kNan,  ///< normal, and the key in the middle of each request holds a NaN: it reaches the rows that see it
  kInfinity,  ///< the same with an infinite score: those rows are no numbers either
};
[[nodiscard]] std::string_view name_of(ValueKind kind) noexcept;

/// How the explicit index of a top-k case is filled (topk > 0).
enum class IndexKind : std::uint8_t {
  kPlain,       ///< distinct positions in random order; -1 behind when topk exceeds the sequence
  kFront,       ///< -1 in the first half
  kMiddle,      ///< -1 in the middle half
  kEnd,         ///< -1 in the second half
  kNone,        ///< nothing but -1: every row is empty
  kOutside,     ///< entries below -1 and at or past the end stand among valid ones
  kDuplicates,  ///< each valid position stands at least twice where there is room
};
[[nodiscard]] std::string_view name_of(IndexKind kind) noexcept;

/// What memory that no key occupies holds: rows past the end, unused blocks, gaps of strided tensors.
enum class Poison : std::uint8_t { kNan, kInfinity, kZero, kMaximum };
[[nodiscard]] std::string_view name_of(Poison poison) noexcept;

/// One thing to try: a shape and everything that decides the inputs bit by bit.
struct Case {
  AttentionShape shape;
  ValueKind values = ValueKind::kNormal;
  double score_std = 1.0;
  IndexKind index = IndexKind::kPlain;
  Poison poison = Poison::kNan;
  bool permuted = true;  ///< physical blocks in random order with unused ones between; else 0, 1, 2, ...
  bool strided = false;  ///< pool, table, q, out and index rows are not packed
  std::int32_t spare_columns = 1;  ///< columns of the block table beyond need, holding ids that do not exist
  std::int64_t first_block = 0;    ///< lowest physical block id: large ones pass 2^31 elements
  bool far_rows = false;           ///< tokens of q and out lie 2^30 elements apart: offsets pass 2^31
  bool lse = true;                 ///< ask for the LSE
  bool batch_invariant = false;    ///< ask for the same bits in any batch (PlanOptions)
  PrefixReads prefix_reads = PrefixReads::kAuto;  ///< of shared prefixes (PlanOptions)
  std::int32_t num_splits = 0;                    ///< forced number of splits, 0: the backend decides
  std::uint64_t seed = 1;
  friend bool operator==(const Case&, const Case&) = default;
};

/// One line from which parse_case makes the same case: the shape's text, then "key=value" words for what
/// differs from the defaults, e.g. "decode latent ... cache:bf16 values=dominant splits=7 seed=3".
[[nodiscard]] std::string to_text(const Case& c);
/// Throws kParse naming the word.
[[nodiscard]] Case parse_case(std::string_view text);
/// Throws kInvalidArgument: validate(shape) and the fields above.
void validate(const Case& c);

}  // namespace mla::verify
