// SPDX-License-Identifier: Apache-2.0
// How the CTAs that share a unit (rows of a request) agree on who adds up what.
//
// A result is cut into slices; part i's CTA would like to add up slice i, once all parts are in the workspace.
// It waits for that, but not for ever: launches on two streams could hold each other's multiprocessors. Who
// gives up says so, and the last part to arrive does the slices of those who gave up before. All of this is
// told by one word per unit, so it has one order for everybody:
//
//   bits 0-9 parts that arrived     10-19 parts that gave up     20-29 parts that need the word no more
//
// with a bit for each part that gave up in the words behind. All are 0 again at the end of the launch.
#pragma once

#include <cstdint>

#include "latent/table.hpp"
#include "ptx/global.cuh"

namespace mla::MLA_ARCH_NS::latent {

/// A part of a unit, as those who share the unit see it.
struct Part {
  std::uint32_t* words = nullptr;  // the unit's, kCounterWords of them where one may wait
  std::int32_t parts = 1;          // of the unit
  std::int32_t part = 0;           // this one
  std::int32_t slices = 1;         // of the result: part i wants slice i, if there is one
  bool patient = true;             // the CTA has nothing more urgent to do than to wait for the others
};

/// One thread's side of it.
class Arrival {
 public:
  /// Which slices to add up; kTired: the others are not there yet, see wait_arrival().
  enum class Todo : std::uint32_t { kNone, kOwn, kOwnAndLeft, kAll, kTired };

  __device__ __forceinline__ explicit Arrival(const Part& part) : part_(part) {}

  /// Counts this part, which all of the CTA has written. There is time for other work until finish_arrival().
  __device__ __forceinline__ void begin_arrival(bool may_wait) {
    waits_ = may_wait;
    has_slice_ = part_.part < part_.slices;
    const bool gives_up = waits_ && has_slice_ && !part_.patient;
    if (gives_up) flag();
    before_ = ptx::atomic_add_acq_rel(part_.words, kArrived + (gives_up ? kGaveUp : 0));
  }

  /// `left` receives, for kOwnAndLeft, the bits of the parts that gave up.
  __device__ __forceinline__ Todo finish_arrival(std::uint32_t* left) {
    const Todo todo = wait_arrival(left);
    return todo == Todo::kTired ? give_up() : todo;
  }
  /// The same but for kTired: then what others cannot read yet of this part must be written, and made known by
  /// a fence, before give_up().
  __device__ __forceinline__ Todo wait_arrival(std::uint32_t* left) {
    const auto parts = static_cast<std::uint32_t>(part_.parts);
    std::uint32_t* const words = part_.words;
    const bool last = arrived(before_) == parts - 1;
    if (!waits_) {
      if (!last) return Todo::kNone;
      *words = 0;
      return Todo::kAll;
    }
    if (last) {
      if (gave_up(before_) == 0) return has_slice_ ? Todo::kOwn : Todo::kNone;
      for (int i = 0; i < kernels::latent::kCounterWords - 1; ++i) left[i] = __ldcg(words + 1 + i);
      if (has_slice_ && !part_.patient) left[part_.part / 32] &= ~(1U << (part_.part % 32));
      __threadfence();  // a bit may be older than its count
      return Todo::kOwnAndLeft;
    }
    if (!has_slice_ || !part_.patient) return Todo::kNone;
#pragma unroll 1
    for (int i = 0; i < kPolls; ++i) {
      if (arrived(ptx::load_acquire(words)) == parts) return Todo::kOwn;
    }
    return Todo::kTired;
  }
  /// Others may do this part's slice, unless they have all arrived by now.
  __device__ __forceinline__ Todo give_up() {
    flag();
    const std::uint32_t before = ptx::atomic_add_acq_rel(part_.words, kGaveUp);
    return arrived(before) == static_cast<std::uint32_t>(part_.parts) ? Todo::kOwn : Todo::kNone;
  }

  /// After finish_arrival(): begins to say that this CTA needs the words no more.
  __device__ __forceinline__ void depart() {
    if (waits_) departed_before_ = ptx::atomic_add_relaxed(part_.words, kDeparted);
  }
  /// Ends it: the last to leave clears the words.
  __device__ __forceinline__ void finish() {
    if (!waits_ || departed_before_ >> 20 != static_cast<std::uint32_t>(part_.parts) - 1) return;
    for (int i = 0; i < kernels::latent::kCounterWords; ++i) part_.words[i] = 0;
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
    atomicOr(part_.words + 1 + part_.part / 32, 1U << (part_.part % 32));
  }

  Part part_;
  bool waits_ = false, has_slice_ = false;
  std::uint32_t before_ = 0, departed_before_ = 0;
};

}  // namespace mla::MLA_ARCH_NS::latent
