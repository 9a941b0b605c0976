// SPDX-License-Identifier: Apache-2.0
// How the CTAs that share a row group of a request agree on who adds up what.
//
// A result is cut into slices; part i's CTA would like to add up slice i, once all parts are in the workspace.
// It waits for that, but not for ever: launches on two streams could hold each other's multiprocessors. Who
// gives up says so, and the last part to arrive does the slices of those who gave up before. All of this is
// told by one word per row group and request, so it has one order for everybody:
//
//   bits 0-9 parts that arrived     10-19 parts that gave up     20-29 parts that need the word no more
//
// with a bit for each part that gave up in the words behind. All are 0 again at the end of the launch.
#pragma once

#include "latent/small_traits.cuh"
#include "ptx/global.cuh"

namespace mla::MLA_ARCH_NS::latent {

/// Slices of a result that `parts` CTAs share: the largest power of two. Its logarithm.
__device__ __forceinline__ int log_slices_of(std::int32_t parts) {
  return 31 - __clz(parts);
}
__device__ __forceinline__ std::int32_t slices_of(std::int32_t parts) {
  return 1 << log_slices_of(parts);
}

/// One thread's side of it.
class Arrival {
 public:
  /// Which slices to add up after arrive().
  enum class Todo : std::uint32_t { kNone, kOwn, kOwnAndLeft, kAll };

  __device__ __forceinline__ Arrival(const Params& p, const Piece& piece)
      : words_(counter_of(p, piece)), parts_(static_cast<std::uint32_t>(piece.parts)), part_(piece.part) {}

  /// Counts this part, which all of the CTA has written. `left` receives, for kOwnAndLeft, the bits of the
  /// parts that gave up.
  __device__ __forceinline__ Todo arrive(const Params& p, const Piece& piece, std::uint32_t* left) {
    if (!p.may_wait) {
      if (arrived(ptx::atomic_add_acq_rel(words_, kArrived)) != parts_ - 1) return Todo::kNone;
      *words_ = 0;
      return Todo::kAll;
    }
    departs_ = true;
    const bool has_slice = part_ < slices_of(piece.parts);
    const bool patient = piece.last;  // else the next piece is more urgent
    if (has_slice && !patient) flag();
    const std::uint32_t before =
        ptx::atomic_add_acq_rel(words_, kArrived + (has_slice && !patient ? kGaveUp : 0));
    if (arrived(before) == parts_ - 1) {
      if (gave_up(before) == 0) return has_slice ? Todo::kOwn : Todo::kNone;
      for (int i = 0; i < kernels::latent::kCounterWords - 1; ++i) left[i] = __ldcg(words_ + 1 + i);
      if (has_slice && !patient) left[part_ / 32] &= ~(1U << (part_ % 32));
      return Todo::kOwnAndLeft;
    }
    if (!has_slice || !patient) return Todo::kNone;
#pragma unroll 1
    for (int i = 0; i < kPolls; ++i) {
      if (arrived(ptx::load_acquire(words_)) == parts_) return Todo::kOwn;
    }
    flag();
    return arrived(ptx::atomic_add_acq_rel(words_, kGaveUp)) == parts_ ? Todo::kOwn : Todo::kNone;
  }

  /// After arrive(): begins to say that this CTA needs the words no more.
  __device__ __forceinline__ void depart() {
    if (departs_) departed_before_ = ptx::atomic_add_relaxed(words_, kDeparted);
  }
  /// Ends it: the last to leave clears the words.
  __device__ __forceinline__ void finish() {
    if (!departs_ || departed_before_ >> 20 != parts_ - 1) return;
    for (int i = 0; i < kernels::latent::kCounterWords; ++i) words_[i] = 0;
  }

 private:
  static constexpr std::uint32_t kArrived = 1, kGaveUp = 1U << 10, kDeparted = 1U << 20;
  static constexpr int kPolls = 64;  // some 40 us

  static __device__ __forceinline__ std::uint32_t arrived(std::uint32_t word) {
    return word & 1023;
  }
  static __device__ __forceinline__ std::uint32_t gave_up(std::uint32_t word) {
    return word >> 10 & 1023;
  }
  /// Before it is counted as having given up.
  __device__ __forceinline__ void flag() {
    atomicOr(words_ + 1 + part_ / 32, 1U << (part_ % 32));
  }

  std::uint32_t* words_;
  std::uint32_t parts_;
  std::int32_t part_;
  bool departs_ = false;
  std::uint32_t departed_before_ = 0;
};

}  // namespace mla::MLA_ARCH_NS::latent
