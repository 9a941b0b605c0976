// SPDX-License-Identifier: Apache-2.0
#include "remedies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "mla/error.hpp"
#include "plan/hardware_rules.hpp"
#include "plan/search.hpp"
#include "view.hpp"

namespace mla::memcalc {
namespace {

using capacity::Binding;
using capacity::Layout;
using capacity::MemoryPlan;
using capacity::PlanRequest;

class Remedies {
 public:
  Remedies(const Question& question, const MemoryPlan& plan, std::string_view solved_for)
      : question_(question), plan_(plan), solved_for_(solved_for), request_(question.request) {
    request_.layout = plan.layout;
  }

  [[nodiscard]] std::string text() {
    const bool weights = plan_.binding == Binding::kWeights;
    if (!weights) offer_context("");
    if (!weights) offer_cache();
    if (weights) offer_weights();
    offer_batch();
    offer_utilization();
    offer_layout();
    offer_gpus();
    if (ways_.empty()) return {};
    const std::int64_t wanted = std::max<std::int64_t>(1, question_.request.concurrency);
    return fmt::format("{} {} with:  {}", counted(wanted, "sequence"), wanted == 1 ? "fits" : "fit", ways_);
  }

 private:
  void offer(const std::string& way) { ways_ += (ways_.empty() ? "" : "  |  ") + way; }

  /// Layouts of these GPUs that the flags leave open.
  [[nodiscard]] std::vector<Layout> layouts(const PlanRequest& request) const {
    if (question_.layout_given) return {plan_.layout};
    return possible_layouts(question_.model, request, question_.gpus, question_.space);
  }

  [[nodiscard]] bool holds(PlanRequest request, const std::vector<Layout>& layouts) const {
    if (layouts.empty()) return false;
    request.layout = best_layout(question_.model, request, layouts);
    return plan_memory(question_.model, request).fits;
  }

  /// A shorter context, beside other flags that alone do not do.
  void offer_context(const std::string& flags) {
    if (!flags.empty() && holds(request_, layouts(request_))) return offer(flags);
    if (solved_for_ == "context") return;
    // An eighth of what was asked for, and nobody asks for less than 1,024.
    const std::int64_t useful = std::max<std::int64_t>(1024, plan_.context / 8);
    const std::int64_t context = largest_context(question_.model, request_, layouts(request_)).answer;
    if (context >= useful && context < plan_.context)
      offer(fmt::format("{}{}--context {}", flags, flags.empty() ? "" : " ", context));
  }

  void offer_cache() {
    if (request_.cache.name != "bf16" && request_.cache.name != "f16") return;
    const bool ggml = request_.engine.pools == capacity::PoolKind::kCells;
    const char* smaller = ggml ? "q8_0" : "fp8";
    const std::size_t cautions = hardware_cautions(question_.model, request_).size();
    request_.cache = capacity::find_kv_format(smaller);
    try {
      // No advice that the plan itself would caution against.
      if (hardware_cautions(question_.model, request_).size() == cautions)
        offer_context(fmt::format("--cache {}", smaller));
    } catch (const Error& error) {  // no format for this model
      if (error.code() != ErrorCode::kInvalidArgument) throw;
    }
    request_.cache = question_.request.cache;
  }

  /// The first of the smaller weight formats that does, unless the sizes are given.
  void offer_weights() {
    if (request_.weight_bytes || !request_.weight_scales.empty()) return;
    PlanRequest request = request_;
    const bool gguf = request.engine.gguf;
    for (const char* name : {gguf ? "q8_0" : "fp8", gguf ? "q4_k_m" : "int4"}) {
      const capacity::WeightFormat format = capacity::find_weight_format(name);
      if (format.bits >= question_.request.weights.experts.bits ||
          format.bits >= question_.request.weights.dense.bits) {
        continue;
      }
      request.weights = capacity::uniform_scheme(format);
      if (holds(request, layouts(request))) return offer(fmt::format("--weights {}", name));
    }
  }

  /// More sequences at once, where the cache has room for them.
  void offer_batch() {
    if (plan_.binding != Binding::kBatch) return;
    PlanRequest request = request_;
    request.max_sequences = (question_.request.concurrency + plan_.replicas - 1) / plan_.replicas;
    if (holds(request, layouts(request))) offer(fmt::format("--max-seqs {}", request.max_sequences));
  }

  /// More of the memory, as far as engines are run in practice.
  void offer_utilization() {
    constexpr double kMost = 0.95;
    constexpr double kSteps = 100;
    if (solved_for_ == "utilization" || !request_.cache_bytes.empty()) return;
    const std::vector<Layout> all = layouts(request_);
    if (all.empty()) return;
    const auto least = smallest_utilization(question_.model, request_, all).answer;
    if (!least) return;
    const double share = std::ceil(*least * kSteps - 1e-9) / kSteps;
    if (share <= kMost && share > request_.utilization.value_or(request_.engine.utilization))
      offer(fmt::format("--utilization {:.2f}", share));
  }

  /// The same GPUs in a layout that the flags exclude.
  void offer_layout() {
    if (!question_.narrowed() || solved_for_ == "gpus" || budget_a_stage()) return;
    const std::vector<Layout> all = possible_layouts(question_.model, request_, question_.gpus, free_space());
    if (all.empty() || !holds(request_, all)) return;
    offer(instead(best_layout(question_.model, request_, all)));
  }

  void offer_gpus() {
    if (solved_for_ == "gpus") {
      if (!question_.narrowed() || budget_a_stage()) return;
      if (const auto answer = fewest_whole_gpus(question_.model, request_, free_space()))
        offer(instead(answer->layout));
      return;
    }
    auto answer = fewest_whole_gpus(question_.model, request_, question_.space);
    const bool within = answer.has_value();
    if (!answer && question_.narrowed() && !budget_a_stage())
      answer = fewest_whole_gpus(question_.model, request_, free_space());
    if (answer && answer->layout.gpus() != question_.gpus)
      offer(within ? gpus_within(answer->layout)
                   : fmt::format("--gpus {} {}", answer->layout.gpus(), instead(answer->layout)));
    if (plan_.binding == Binding::kBatch || request_.concurrency <= request_.max_sequences) return;
    PlanRequest request = request_;
    request.max_sequences = request.concurrency;
    const auto fewer = fewest_whole_gpus(question_.model, request, question_.space);
    if (fewer && (!answer || fewer->layout.gpus() < answer->layout.gpus()))
      offer(fmt::format("--max-seqs {} {}", request.max_sequences, gpus_within(fewer->layout)));
  }

  /// More GPUs beside the flags given: with those flags that the layout needs on top of them.
  [[nodiscard]] std::string gpus_within(const Layout& layout) const {
    const capacity::LayoutSpace& space = question_.space;
    std::string flags = fmt::format("--gpus {}", layout.gpus());
    if (question_.layout_given) {  // else the best of these GPUs is found again
      if (!space.pp && layout.pp > 1) flags += fmt::format(" --pp {}", layout.pp);
      if (!space.tp && !space.dp && layout.dp > 1) flags += fmt::format(" --dp {}", layout.dp);
    }
    return fmt::format("{} ({})", flags, to_text(layout));
  }

  /// The flags of a layout instead of those given, and which of these have no place beside them.
  [[nodiscard]] std::string instead(const Layout& layout) const {
    std::string flags;
    std::vector<std::string> left = question_.layout_flags;
    const auto add = [&](const char* flag, int size, bool needed) {
      if (!needed) return;
      flags += fmt::format("{}{} {}", flags.empty() ? "" : " ", flag, size);
      std::erase(left, flag);
    };
    add("--pp", layout.pp, layout.pp > 1);
    add("--dp", layout.dp, layout.dp > 1);
    add("--tp", layout.tp, layout.tp > 1 || flags.empty());
    add("--dcp", layout.dcp, layout.dcp > 1);
    add("--ep", layout.ep, layout.ep != capacity::default_expert_ranks(question_.model, layout));
    std::string without;
    for (const std::string& flag : left) without += (without.empty() ? ", without " : " and ") + flag;
    return fmt::format("{} ({}{})", flags, to_text(layout), without);
  }

  /// Budgets of given stages say nothing about other layouts.
  [[nodiscard]] bool budget_a_stage() const { return request_.cache_bytes.size() > 1; }

  [[nodiscard]] capacity::LayoutSpace free_space() const {
    return {.gpus_per_node = question_.gpus_per_node};
  }

  const Question& question_;
  const MemoryPlan& plan_;
  std::string_view solved_for_;
  PlanRequest request_;  ///< in the plan's layout
  std::string ways_;
};

}  // namespace

std::string remedies(const Question& question, const MemoryPlan& plan, std::string_view solved_for) {
  return plan.fits ? std::string() : Remedies(question, plan, solved_for).text();
}

}  // namespace mla::memcalc
