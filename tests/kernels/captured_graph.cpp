// SPDX-License-Identifier: Apache-2.0
#include "captured_graph.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "device_graph.hpp"
#include "verify/expected.hpp"
#include "verify/run_case.hpp"
#include "verify/stage.hpp"

namespace mla::testing {
namespace {

using namespace mla::verify;

/// The problem with the first `lens[b]` keys of each request: what the reference must be asked.
struct Shortened {
  AttentionShape shape;
  std::vector<double> latent;

  Shortened(const Problem& problem, const std::vector<std::int32_t>& lens) : shape(problem.shape()) {
    const auto width = static_cast<std::size_t>(shape.dims.latent_width());
    std::size_t first = 0;
    for (std::size_t b = 0; b < lens.size(); ++b) {
      const auto row = problem.values().latent.begin() + static_cast<std::ptrdiff_t>(first * width);
      latent.insert(latent.end(), row,
                    row + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(lens[b]) * width));
      first += static_cast<std::size_t>(shape.batch[b].kv_len);
      shape.batch[b].kv_len = lens[b];
    }
  }

  [[nodiscard]] reference::AttentionOutput attend(const Problem& problem, bool expanded) const {
    reference::MlaProblem p = problem.reference_problem();
    p.batch = shape.batch;
    p.latent = latent;
    reference::Options options;
    options.row_stats = true;
    if (shape.space == QuerySpace::kLatent) return reference::mla_latent(p, options);
    return expanded ? reference::mla_expanded(p, options) : reference::mla_absorbed(p, options);
  }
};

std::string judge(const Backend& backend, const Problem& problem, const std::vector<std::int32_t>& lens,
                  const Stage& stage) {
  const Shortened shortened(problem, lens);
  const reference::AttentionOutput want = shortened.attend(problem, backend.info().strategy != "absorbed");
  const std::vector<RowBudget> budgets = row_budgets(want, want.stats, backend.rounding(problem.shape()),
                                                     shortened.shape, problem.values().softmax_scale);
  const std::vector<double> out = load(stage.read_out());
  const std::vector<double> lse = load(stage.read_lse());
  CompareOptions options;
  options.num_heads = problem.shape().dims.num_heads;
  options.cu_seqlens_q = problem.cu_seqlens_q();
  const ErrorReport report = compare_rows(out, want.out, lse, want.lse, output_width(problem.shape()),
                                          budgets, problem.shape().out_dtype, options);
  return report.passed() ? std::string() : to_text(report, options.num_heads);
}

}  // namespace

std::vector<std::string> replay_with_other_lengths(const Participant& participant, const Case& shape) {
  const Backend& backend = *participant.backend;
  DeviceMemory& memory = *participant.machine.memory;
  const Problem problem(shape);
  Stage stage(problem, memory);
  const std::unique_ptr<Plan> plan =
      backend.plan(problem.shape(), participant.machine.device, plan_options(shape));
  const std::span<std::byte> workspace = stage.workspace(plan->workspace_bytes());
  const auto run = [&](Stream stream) { backend.run(*plan, stage.args(), workspace, stream); };
  run({});  // whatever a first call sets up must not happen in the capture
  memory.synchronize();
  DeviceGraph graph(run);

  std::vector<std::string> failures;
  const std::vector<std::int32_t> full = problem.seq_lens();
  std::vector<std::vector<std::int32_t>> rounds(3, full);
  for (std::size_t b = 0; b < full.size(); ++b) {
    const std::int32_t queries = shape.shape.batch[b].q_len;
    rounds[0][b] = std::max(std::min(queries, full[b]), full[b] / 2);
    // A request that is empty stays so: no block is its.
    rounds[1][b] = b % 2 == 0 || full[b] == 0 ? 0 : std::max(queries, full[b] - 1);
  }
  for (const std::vector<std::int32_t>& lens : rounds) {
    auto* device_lens = const_cast<std::int32_t*>(stage.args().seq_lens.data);
    memory.to_device(device_lens, lens.data(), lens.size() * sizeof(std::int32_t));
    stage.reset_outputs();
    graph.replay();
    if (std::string wrong = judge(backend, problem, lens, stage); !wrong.empty()) {
      failures.push_back(fmt::format("replay with lengths {}: {}", fmt::join(lens, ","), wrong));
    }
    const std::vector<std::byte> replayed = stage.read_out().bytes;
    stage.reset_outputs();
    run({});
    memory.synchronize();
    if (stage.read_out().bytes != replayed) {
      failures.push_back(fmt::format("lengths {}: replay and call differ", fmt::join(lens, ",")));
    }
  }
  return failures;
}

}  // namespace mla::testing
