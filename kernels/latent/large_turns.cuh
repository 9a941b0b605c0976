// SPDX-License-Identifier: Apache-2.0
// Large work of cuda-latent: what a computing warpgroup does, block by block. Blocks go to the two in turn:
//
//   warpgroup 0   |--- S 0 ---|P 0|= P0 V0 =|      |--- S 2 ---|P 2|= P2 V2 =|
//                             |= P-1 V-1 =|                    |= P1 V1 =|
//   warpgroup 1                     |--- S 1 ---|P 1|= P1 V1 =|      |--- S 3 ---|P 3|
//                                               |= P0 V0 =|                      |= P2 V2 =|
//
// Each adds every block to its half of the output, in the order of the keys: the other's while it makes its own
// weights, so that the tensor cores need not wait for them.
#pragma once

#include <cstdint>

#include "latent/large_finish.cuh"
#include "latent/large_scores.cuh"
#include "latent/large_values.cuh"

namespace mla::MLA_ARCH_NS::latent::large {

template <class Config, int kGroup>
struct Turns {
  static constexpr int kOther = 1 - kGroup;

  const Call& p;
  Control& control;
  const Place place;
  Scores<Config, kGroup> scores;
  Values<Config, kGroup> values;

  __device__ __forceinline__ Turns(const Call& call, Control& c, std::uint32_t shared)
      : p(call), control(c), scores(call, c, shared, place), values(call, c, shared, place) {}

  static __device__ __forceinline__ bool plain(const Segment& s, std::int32_t j) {
    return j >= s.plain_begin && j < s.plain_end;
  }

  /// Block j, which the other has scored, as soon as its weights are here.
  __device__ __forceinline__ void other_block(const Segment& s, std::int32_t j, std::uint32_t parity) {
    const bool all = plain(s, j);
    weights_wait<kOther, 0>();
    ptx::mbarrier_wait(ptx::smem(&control.full[kOther][1]), parity);
    values.rescale(control.top[kOther][place.row()], control.top[kOther][place.row() + 8]);
    if (!all) values.clear_unseen(s, s.r.position(j), values.tile(kOther));
    values.multiply_other([] { weights_wait<kOther, 1>(); });
  }

  /// Own block j. The other's scores of the next block, if there is one, go first: its weights are waited for.
  __device__ __forceinline__ void own_block(const Segment& s, std::int32_t j, std::int32_t left,
                                            std::uint32_t parity, std::uint32_t next_parity) {
    const bool all = plain(s, j);
    scores.multiply(parity);
    if (left < 2 && place.lane() == 0) ptx::mbarrier_arrive(ptx::smem(&control.query_empty));
    __syncwarp();
    if (place.lane() == 0) ptx::mbarrier_arrive(ptx::smem(&control.scored[kGroup]));
    if (!all) scores.mask(s, s.r.position(j));
    scores.choose_top(values.top);
    scores.template weigh<0>();
    scores.template weigh<1>();
    scores.add_weights();
    values.rescale(scores.top[0], scores.top[1]);
    if (!all) values.clear_unseen(s, s.r.position(j), values.tile(kGroup));
    if (left > 0 && ptx::mbarrier_try_wait(ptx::smem(&control.full[kOther][1]), next_parity)) {
      ptx::mbarrier_wait(ptx::smem(&control.scored[kOther]), next_parity);
    }
    values.multiply_own(scores.weight);
  }

  /// The sum of all weights, over both warpgroups.
  __device__ __forceinline__ void add_up(int buffer) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float mine = scores.sum[h] * rescale_factor(scores.top[h], values.top[h]);
      mine += __shfl_xor_sync(kEveryLane, mine, 1);
      mine += __shfl_xor_sync(kEveryLane, mine, 2);
      if (place.lane() % 4 == 0)
        control.sum[buffer][kGroup][place.row() + 8 * static_cast<std::uint32_t>(h)] = mine;
    }
    both_groups_sync();
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const std::uint32_t row = place.row() + 8 * static_cast<std::uint32_t>(h);
      values.sum[h] = control.sum[buffer][0][row] + control.sum[buffer][1][row];
    }
  }

  /// Segment by segment.
  __device__ __forceinline__ void run() {
    std::uint32_t block = 0;  // counted over all segments: block % 2 is its slot and who scores it
    std::uint32_t query_parity = 0;
    int segment = 0;
    const auto parity_of = [](std::uint32_t x) { return x / 2 % 2; };
    while (true) {
      // The segment is written before its first block arrives.
      ptx::mbarrier_wait(ptx::smem(&control.full[block % 2][block % 2 == kGroup ? 0 : 1]), parity_of(block));
      const Segment& s = control.segments[segment];
      const std::int32_t first = s.first, steps = s.last - first;
      scores.start();
      values.start();
      ptx::mbarrier_wait(ptx::smem(&control.query_full), query_parity);
      const std::int32_t mine = block % 2 == kGroup ? 0 : 1;  // first own block of the segment
      if (mine >= steps && place.lane() == 0) ptx::mbarrier_arrive(ptx::smem(&control.query_empty));
      for (std::int32_t i = mine - 1; i < steps; i += 2) {
        const std::uint32_t x = block + static_cast<std::uint32_t>(i);
        if (i >= 0) other_block(s, first + i, parity_of(x));
        if (i + 1 < steps) own_block(s, first + i + 1, steps - i - 2, parity_of(x + 1), parity_of(x + 2));
      }
      add_up(static_cast<int>(query_parity));
      const bool more = s.more != 0;
      finish_segment(values, s);
      if (!more) break;
      block += static_cast<std::uint32_t>(steps);
      query_parity ^= 1;
      segment = segment + 1 == kSegments ? 0 : segment + 1;
    }
  }
};

}  // namespace mla::MLA_ARCH_NS::latent::large
