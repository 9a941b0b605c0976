// SPDX-License-Identifier: Apache-2.0
// Who works on which keys. Everything is derived on the device from the lengths as they are at run time, so a
// captured graph can be replayed with others.
//
// The keys that a row group of a request sees are a list (two runs with a window), cut into groups of 32
// entries. CTAs get them in one of three ways:
//
//   own CTAs       request b has CTAs b n .. b n + n - 1; its groups are dealt to them in turn: which page a
//                  CTA needs first does not depend on the length, so the two loads go out together
//   even shares    |--- request 0 ---|-- request 1 --|- 2 -|------- request 3 -------|    N groups
//                  |------ CTA 0 ------|------ CTA 1 ------|------ CTA 2 ------|   N c / C .. the next
//
//   fixed parts    each request is cut by its own length alone and the parts of all are laid end to end and
//                  shared out: the order of a request's sums, and so its bits, are the same in any batch
//
// A piece is a CTA's share of one request, or one of its parts. A request without keys counts as one group, so that somebody
// writes its rows.
#pragma once

#include <cstdint>

#include "common/visible.cuh"
#include "latent/lengths.cuh"

namespace mla::MLA_ARCH_NS::latent {

inline constexpr int kGroup = 32;  // entries

/// Rows first .. first + kRows - 1 of a request, as far as it has them.
struct RowGroup : Lengths {
  KeyRuns runs;             // keys that any of the group's queries sees
  std::int32_t groups = 0;  // of 32 entries; 0: the request has no such rows

  __device__ __forceinline__ RowGroup() {}
  __device__ __forceinline__ RowGroup(const Params& p, const Lengths& lengths, std::int32_t first_row,
                                      std::int32_t row_count)
      : Lengths(lengths) {
    const kernels::AttentionParams& a = p.attention;
    const std::int32_t rows = queries * a.num_heads;
    const std::int32_t last_row = min(first_row + row_count, rows) - 1;
    runs = visible_keys(a, position(p.by_heads.quotient(first_row)),
                        position(p.by_heads.quotient(max(last_row, 0))), keys);
    groups = first_row < rows ? max(1, (runs.count + kGroup - 1) / kGroup) : 0;
  }
  /// Position of query i.
  __device__ __forceinline__ std::int32_t position(std::int32_t i) const { return keys - queries + i; }
};

/// One CTA's share of a request: groups base, base + stride, ... below `end`.
struct Piece {
  RowGroup rows;
  std::int32_t request = 0;
  std::int32_t base = 0, stride = 1, end = 0;
  std::int32_t parts = 1;  // pieces of the request
  std::int32_t part = 0;   // this one
  std::int32_t first = 0;  // the CTA of part 0; with fixed parts, how many parts come before it
  bool last = true;        // of the CTA's pieces

  [[nodiscard]] __device__ __forceinline__ std::int32_t groups(const Params& p) const {
    return base < end ? p.by_stride.quotient(end - base - 1) + 1 : 0;
  }
  /// First entry of group j.
  [[nodiscard]] __device__ __forceinline__ std::int32_t entry(std::int32_t j) const {
    return (base + j * stride) * kGroup;
  }
};

/// Sum over the warp, and the inclusive sum up to this lane in `x`.
__device__ __forceinline__ std::int32_t scan_warp(std::int32_t& x) {
#pragma unroll
  for (int d = 1; d < 32; d *= 2) {
    const std::int32_t y = __shfl_up_sync(0xffffffffU, x, d);
    if (static_cast<int>(threadIdx.x % 32) >= d) x += y;
  }
  return __shfl_sync(0xffffffffU, x, 31);
}

/// A CTA's pieces, one after the other; the same in all lanes of a warp.
class Walk {
 public:
  __device__ __forceinline__ explicit Walk(std::int32_t row_count)
      : row_count_(row_count),
        first_row_(static_cast<std::int32_t>(blockIdx.y) * row_count),
        cta_(static_cast<std::int32_t>(blockIdx.x)) {}

  /// What is known of the first piece before any length is: where requests have their own CTAs, which groups
  /// it has. False if nothing is.
  __device__ __forceinline__ bool foresee(const Params& p, Piece& piece) const {
    if (p.per_request == 0) return false;
    piece.request = p.by_per_request.quotient(cta_);
    piece.first = piece.request * p.per_request;
    piece.base = piece.part = cta_ - piece.first;
    piece.stride = p.per_request;
    return p.attention.window == 0 && p.slices == nullptr;  // slices are written by the launch before
  }

  /// The first piece, after foresee(), `own` being the lengths of the CTA's request if it belongs to one;
  /// false if there is none (then `piece` may be anything).
  __device__ __forceinline__ bool first(const Params& p, const Lengths& own, Piece& piece) {
    if (p.per_request > 0) {
      piece.rows = RowGroup(p, own, first_row_, row_count_);
      piece.end = piece.rows.groups;
      piece.parts = min(p.per_request, piece.end);
      return piece.part < piece.parts;
    }
    share_out(p);
    return begin_ < end_ && find(p, piece);
  }

  /// The piece after `piece`, which was not the last.
  __device__ __forceinline__ void next(const Params& p, Piece& piece) {
    const std::int32_t units = units_of(p, piece.rows);
    if (p.part_groups > 0 && piece.part + 1 < units) {
      enter(p, piece, piece.part + 1);
      return;
    }
    do {
      ++piece.request;
      piece.rows = RowGroup(p, Lengths(p, piece.request), first_row_, row_count_);
    } while (piece.rows.groups == 0);
    request_begin_ += units;
    enter(p, piece, 0);
  }

 private:
  /// What is laid end to end: parts, where they are fixed, or groups.
  static __device__ __forceinline__ std::int32_t units_of(const Params& p, const RowGroup& rows) {
    if (p.part_groups == 0) return rows.groups;
    return min(kernels::latent::kMostFixedParts, (rows.groups + p.part_groups - 1) / p.part_groups);
  }

  /// total_, and this CTA's begin_ .. end_.
  __device__ __forceinline__ void share_out(const Params& p) {
    for (std::int32_t b = 0; b < p.attention.num_requests; b += 32) {
      own_ = units_of_lane(p, b);
      own_end_ = own_;
      total_ += scan_warp(own_end_);
    }
    used_ = max(1, min(p.clusters, total_));
    if (cta_ >= used_ || total_ == 0) return;
    each_ = total_ / used_;
    rest_ = total_ - each_ * used_;
    begin_ = begin_of(cta_);
    end_ = begin_of(cta_ + 1);
  }

  /// N c / C without 64 bits: C is at most a few hundred.
  [[nodiscard]] __device__ __forceinline__ std::int32_t begin_of(std::int32_t cta) const {
    return cta * each_ + cta * rest_ / used_;
  }

  __device__ __forceinline__ std::int32_t units_of_lane(const Params& p, std::int32_t b) const {
    const std::int32_t request = b + static_cast<std::int32_t>(threadIdx.x % 32);
    if (request >= p.attention.num_requests) return 0;
    return units_of(p, RowGroup(p, Lengths(p, request), first_row_, row_count_));
  }

  /// The request that unit begin_ belongs to.
  __device__ __forceinline__ bool find(const Params& p, Piece& piece) {
    std::int32_t before = 0;
    for (std::int32_t b = 0; b < p.attention.num_requests; b += 32) {
      std::int32_t sum = total_;
      if (p.attention.num_requests > 32) {  // else the first scan was the whole one
        own_ = units_of_lane(p, b);
        own_end_ = own_;
        sum = scan_warp(own_end_);
      }
      const unsigned beyond = __ballot_sync(0xffffffffU, before + own_end_ > begin_);
      if (beyond != 0) {
        const int lane = __ffs(static_cast<int>(beyond)) - 1;
        piece.request = b + lane;
        request_begin_ = before + __shfl_sync(0xffffffffU, own_end_ - own_, lane);
        piece.rows = RowGroup(p, Lengths(p, piece.request), first_row_, row_count_);
        enter(p, piece, begin_ - request_begin_);
        return true;
      }
      before += sum;
    }
    return false;
  }

  /// The CTA that unit x belongs to: the largest c with N c / C <= x.
  [[nodiscard]] __device__ __forceinline__ std::int32_t owner(std::int32_t x) const {
    std::int32_t cta = min(x / each_, used_ - 1);  // not too small, since begin_of(c) >= c each
    while (begin_of(cta) > x) --cta;
    return cta;
  }

  /// The piece that begins with unit `from` of the request.
  __device__ __forceinline__ void enter(const Params& p, Piece& piece, std::int32_t from) const {
    piece.stride = 1;
    if (p.part_groups > 0) {
      piece.parts = units_of(p, piece.rows);
      piece.part = from;
      piece.first = request_begin_;
      const std::int32_t each = piece.rows.groups / piece.parts;
      const std::int32_t longer = piece.rows.groups - each * piece.parts;  // so many have one more
      piece.base = from * each + min(from, longer);
      piece.end = piece.base + each + (from < longer ? 1 : 0);
      piece.last = end_ <= request_begin_ + from + 1;
      return;
    }
    const std::int32_t request_end = request_begin_ + piece.rows.groups;
    piece.base = from;
    piece.end = min(end_, request_end) - request_begin_;
    piece.first = owner(request_begin_);
    piece.parts = owner(request_end - 1) - piece.first + 1;
    piece.part = cta_ - piece.first;
    piece.last = end_ <= request_end;
  }

  std::int32_t row_count_, first_row_, cta_;
  std::int32_t total_ = 0, used_ = 1;  // units of all requests; CTAs that have some
  std::int32_t each_ = 1, rest_ = 0;   // total_ = each_ used_ + rest_
  std::int32_t begin_ = 0, end_ = 0;   // this CTA's
  std::int32_t own_ = 0,
               own_end_ = 0;        // units of the lane's request in the last scan, and their sum up to there
  std::int32_t request_begin_ = 0;  // where the current request's units begin
};

/// Whether a CTA may end one request and begin another, so that it has two slots of the workspace.
__device__ __forceinline__ bool even_shares(const Params& p) {
  return p.per_request == 0 && p.part_groups == 0;
}

/// Slot of a part of a piece's request.
__device__ __forceinline__ std::int32_t slot_of(const Params& p, const Piece& piece, std::int32_t part) {
  const std::int32_t before = static_cast<std::int32_t>(blockIdx.y) * p.slots;
  const std::int32_t at = piece.first + part;
  return before + (even_shares(p) ? at * 2 + (part == 0 ? 1 : 0) : at);
}

/// Where the parts of a piece's request count themselves.
__device__ __forceinline__ std::uint32_t* counter_of(const Params& p, const Piece& piece) {
  const bool even = even_shares(p);
  const std::int32_t per_group = even ? p.clusters : p.attention.num_requests;
  const std::int32_t unit = even ? piece.first : piece.request;
  return reinterpret_cast<std::uint32_t*>(p.counters) +
         (static_cast<std::int32_t>(blockIdx.y) * per_group + unit) *
             (p.may_wait ? kernels::latent::kCounterWords : 1);
}

/// Which positions a row sees, as bounds that cost four comparisons.
struct Sight {
  std::int32_t last = -1;  // nothing beyond it; -1: nothing at all
  std::int32_t first = 0;  // of the window
  std::int32_t sink = 0;   // positions below it are seen beside the window

  __device__ __forceinline__ Sight() {}
  __device__ __forceinline__ Sight(const Params& p, const RowGroup& group, std::int32_t row) {
    const kernels::AttentionParams& a = p.attention;
    if (row >= group.queries * a.num_heads) return;
    last = group.keys - 1;
    if (!a.causal) return;
    last = group.position(p.by_heads.quotient(row));
    if (a.window <= 0) return;
    first = last - a.window + 1;
    sink = a.sink;
  }
  [[nodiscard]] __device__ __forceinline__ bool sees(std::int32_t position) const {
    return (position <= last) & ((position >= first) | (position < sink));  // no branches
  }
};

}  // namespace mla::MLA_ARCH_NS::latent
