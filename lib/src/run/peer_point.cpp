// SPDX-License-Identifier: Apache-2.0
#include "run/peer_point.hpp"

#include <algorithm>
#include <numeric>

#include "mla/error.hpp"
#include "run/fill_record.hpp"

namespace mla::run {
namespace {

/// A peer cannot be asked between two samples, so it takes a fixed number.
constexpr int kSamples = 50;

peer::TimeAnswer ask(const peer::PeerBackend& backend, const Plan& plan, const AttentionArgs& args,
                     peer::TimeRules rules, bool gpu) {
  rules.graph = gpu;
  try {
    return backend.time(plan, args, rules);
  } catch (const Error& error) {
    if (!gpu || error.code() != ErrorCode::kUnsupported) throw;
  }
  rules.graph = false;
  return backend.time(plan, args, rules);
}

}  // namespace

void time_peer(const peer::PeerBackend& backend, const Plan& plan, const AttentionArgs& args,
               const spec::SweepPoint& point, const spec::Measure& measure, const PeerRules& where,
               report::BenchRecord& record) {
  peer::TimeRules rules;
  if (where.gpu) rules.preheat = measure.preheat;
  rules.samples = std::clamp(kSamples, measure.rule.min_samples, measure.rule.max_samples);
  rules.max_time = measure.rule.max_time;
  rules.cold = point.caches == spec::Caches::kCold;
  rules.rotate_bytes = where.rotate_bytes;
  const peer::TimeAnswer answer = ask(backend, plan, args, rules, where.gpu);
  record.timer = answer.timer;
  record.input_sets = answer.copies;
  if (!answer.plan.empty()) record.plan = answer.plan;
  if (where.gpu && answer.timer != "graph") record.flags.emplace_back("no-graph");
  Samples samples;
  samples.seconds = answer.seconds;
  samples.summary = summarize(samples.seconds);
  samples.converged = samples.summary.noise <= measure.rule.noise;
  add_samples(record, samples, point.shape.num_tokens());
}

}  // namespace mla::run
