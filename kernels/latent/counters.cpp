// SPDX-License-Identifier: Apache-2.0
#include "latent/counters.hpp"

#include <fmt/format.h>

#include <bitset>

#include "latent/table.hpp"
#include "mla/error.hpp"

namespace mla::kernels::latent {
namespace {

/// Which places are taken, by all plans of the process.
struct Pool {
  std::mutex mutex;
  std::bitset<kMostPlans> taken;
  std::size_t next = 0;  // after the last one given: a place rests as long as it can
};

Pool& pool() {
  static Pool one;
  return one;
}

std::int32_t take() {
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  for (std::size_t i = 0; i < p.taken.size(); ++i) {
    const std::size_t at = (p.next + i) % p.taken.size();
    if (p.taken[at]) continue;
    p.taken.set(at);
    p.next = at + 1;
    return static_cast<std::int32_t>(at);
  }
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("cuda-latent: {} pairs of a plan and a workspace are in use, which is all there may be",
                  kMostPlans));
}

}  // namespace

CounterPlaces::~CounterPlaces() {
  Pool& p = pool();
  const std::lock_guard lock(p.mutex);
  for (const Entry& entry : entries_) p.taken.reset(static_cast<std::size_t>(entry.place));
}

std::int32_t CounterPlaces::place_for(const std::byte* workspace) const {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    if (entry.workspace == workspace) return entry.place;
  }
  return entries_.emplace_back(Entry{workspace, take()}).place;
}

}  // namespace mla::kernels::latent
