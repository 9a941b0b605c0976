// SPDX-License-Identifier: Apache-2.0
#include "two_streams.hpp"

#include <memory>
#include <vector>

#include "device_graph.hpp"
#include "verify/problem.hpp"
#include "verify/run_case.hpp"
#include "verify/stage.hpp"

namespace mla::testing {
namespace {

using namespace mla::verify;

constexpr int kCalls = 20;    // of a graph
constexpr int kReplays = 20;  // enqueued at once

/// One stream's side.
struct Side {
  Side(const Participant& participant, const Problem& problem)
      : stage(problem, *participant.machine.memory),
        plan(participant.backend->plan(problem.shape(), participant.machine.device,
                                       plan_options(problem.get_case()))),
        workspace(stage.workspace(plan->workspace_bytes())) {
    const auto run = [&](Stream stream) { participant.backend->run(*plan, stage.args(), workspace, stream); };
    stage.reset_outputs();
    run({});
    participant.machine.memory->synchronize();
    alone = stage.read_out().bytes;
    stage.reset_outputs();
    graph = std::make_unique<DeviceGraph>([&](Stream stream) {
      for (int i = 0; i < kCalls; ++i) run(stream);
    });
  }

  Stage stage;
  std::unique_ptr<Plan> plan;
  std::span<std::byte> workspace;
  std::vector<std::byte> alone;
  std::unique_ptr<DeviceGraph> graph;
};

}  // namespace

std::string run_on_two_streams(const Participant& participant, const Case& shape) {
  const Problem problem(shape);
  Side one(participant, problem);
  Side other(participant, problem);
  for (int i = 0; i < kReplays; ++i) {
    one.graph->start();
    other.graph->start();
  }
  one.graph->wait();
  other.graph->wait();
  if (one.stage.read_out().bytes != one.alone) return "the first stream's result is not that of a call alone";
  if (other.stage.read_out().bytes != other.alone)
    return "the second stream's result is not that of a call alone";
  return {};
}

}  // namespace mla::testing
