// SPDX-License-Identifier: Apache-2.0
#include "report/repetitions.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "run/stats.hpp"

namespace mla::report {
namespace {

using Real = std::optional<double> BenchRecord::*;
using Group = std::vector<const BenchRecord*>;

std::vector<double> values(const Group& group, Real member) {
  std::vector<double> found;
  for (const BenchRecord* record : group) {
    if (record->*member) found.push_back(*(record->*member));
  }
  std::ranges::sort(found);
  return found;
}

BenchRecord merged(const Group& group) {
  const auto bad = std::ranges::find_if(group, [](const BenchRecord* r) { return r->status != "ok"; });
  if (bad != group.end()) return **bad;
  BenchRecord all = *group.front();
  if (group.size() == 1) return all;
  const auto middle = [&](Real member) {
    const std::vector<double> found = values(group, member);
    if (!found.empty()) all.*member = run::quantile(found, 0.5);
  };
  for (const Real member :
       {&BenchRecord::time_us, &BenchRecord::time_p25_us, &BenchRecord::time_p75_us, &BenchRecord::plan_us,
        &BenchRecord::event_us, &BenchRecord::sm_clock_mhz, &BenchRecord::power_w, &BenchRecord::gbps,
        &BenchRecord::gflops, &BenchRecord::ceiling_gbps, &BenchRecord::ceiling_gflops,
        &BenchRecord::floor_us, &BenchRecord::of_floor, &BenchRecord::tokens_per_s})
    middle(member);
  for (const Real member : {&BenchRecord::time_low_us, &BenchRecord::time_min_us}) {
    if (const auto found = values(group, member); !found.empty()) all.*member = found.front();
  }
  for (const Real member : {&BenchRecord::time_high_us, &BenchRecord::error_share}) {
    if (const auto found = values(group, member); !found.empty()) all.*member = found.back();
  }
  all.repetition = (*std::ranges::min_element(group, {}, &BenchRecord::repetition))->repetition;
  all.repetitions = 0;
  all.n = 0;
  all.samples_us.clear();
  for (const BenchRecord* record : group) {
    all.repetitions += record->repetitions;
    all.n += record->n;
    all.samples_us.insert(all.samples_us.end(), record->samples_us.begin(), record->samples_us.end());
    for (const std::string& flag : record->flags) {
      if (std::ranges::find(all.flags, flag) == all.flags.end()) all.flags.push_back(flag);
    }
    if (all.slowed_by.empty()) all.slowed_by = record->slowed_by;
    if (all.verified == "earlier") all.verified = record->verified;
  }
  if (all.time_us && all.time_low_us && all.time_high_us && *all.time_us > 0)
    all.noise = (*all.time_high_us - *all.time_low_us) / (2 * *all.time_us);
  return all;
}

}  // namespace

std::vector<BenchRecord> merge_repetitions(std::span<const BenchRecord> records) {
  std::map<std::string, std::size_t> place;
  std::vector<Group> groups;
  for (const BenchRecord& record : records) {
    const auto [found, is_new] = place.try_emplace(identity(record), groups.size());
    if (is_new) groups.emplace_back();
    groups[found->second].push_back(&record);
  }
  std::vector<BenchRecord> result;
  for (const Group& group : groups) result.push_back(merged(group));
  return result;
}

}  // namespace mla::report
