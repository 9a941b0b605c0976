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
  /// Which slices to add up.
  enum class Todo : std::uint32_t { kNone, kOwn, kOwnAndLeft, kAll };

  __device__ __forceinline__ Arrival(const Params& p, const Piece& piece)
      : words_(counter_of(p, piece)), parts_(static_cast<std::uint32_t>(piece.parts)), part_(piece.part) {}

  /// Counts this part, which all of the CTA has written. There is time for other work until finish_arrival().
  __device__ __forceinline__ void begin_arrival(const Params& p, const Piece& piece) {
    waits_ = p.may_wait;
    has_slice_ = part_ < slices_of(piece.parts);
    patient_ = piece.last;  // else the next piece is more urgent
    const bool gives_up = waits_ && has_slice_ && !patient_;
    if (gives_up) flag();
    before_ = ptx::atomic_add_acq_rel(words_, kArrived + (gives_up ? kGaveUp : 0));
  }

  /// `left` receives, for kOwnAndLeft, the bits of the parts that gave up.
  __device__ __forceinline__ Todo finish_arrival(std::uint32_t* left) {
    const bool last = arrived(before_) == parts_ - 1;
    if (!waits_) {
      if (!last) return Todo::kNone;
      *words_ = 0;
      return Todo::kAll;
    }
    if (last) {
      if (gave_up(before_) == 0) return has_slice_ ? Todo::kOwn : Todo::kNone;
      for (int i = 0; i < kernels::latent::kCounterWords - 1; ++i) left[i] = __ldcg(words_ + 1 + i);
      if (has_slice_ && !patient_) left[part_ / 32] &= ~(1U << (part_ % 32));
      return Todo::kOwnAndLeft;
    }
    if (!has_slice_ || !patient_) return Todo::kNone;
#pragma unroll 1
    for (int i = 0; i < kPolls; ++i) {
      if (arrived(ptx::load_acquire(words_)) == parts_) return Todo::kOwn;
    }
    flag();
    return arrived(ptx::atomic_add_acq_rel(words_, kGaveUp)) == parts_ ? Todo::kOwn : Todo::kNone;
  }

  /// After finish_arrival(): begins to say that this CTA needs the words no more.
  __device__ __forceinline__ void depart() {
    if (waits_) departed_before_ = ptx::atomic_add_relaxed(words_, kDeparted);
  }
  /// Ends it: the last to leave clears the words.
  __device__ __forceinline__ void finish() {
    if (!waits_ || departed_before_ >> 20 != parts_ - 1) return;
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
  bool waits_ = false, has_slice_ = false, patient_ = false;
  std::uint32_t before_ = 0, departed_before_ = 0;
};

}  // namespace mla::MLA_ARCH_NS::latent
