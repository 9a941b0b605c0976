// SPDX-License-Identifier: Apache-2.0
// A plan's questions turned round: which layout, how long, how many GPUs, how much of the memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "mla/capacity.hpp"
#include "plan/refused_cuts.hpp"
#include "plan/search.hpp"
#include "plan_models.hpp"

namespace mla::capacity {
namespace {

using test::gib;
using test::on_h200;
using test::refused;

TEST(PlanSearch, LayoutsOfEightGpus) {
  const EngineRules vllm = find_engine("vllm");
  const std::vector<Layout> simple =
      possible_layouts(test::deepseek_v3(), vllm, 8, {.pipeline = false, .context_parallel = false});
  EXPECT_EQ(simple.size(), 4u);  // tp 1, 2, 4, 8
  const std::vector<Layout> all = possible_layouts(test::deepseek_v3(), vllm, 8);
  EXPECT_GT(all.size(), simple.size());
  for (const Layout& layout : all) EXPECT_EQ(layout.gpus(), 8) << to_text(layout);
  const std::vector<MemoryPlan> ranked = rank_layouts(test::deepseek_v3(), on_h200({}, 131072), all);
  EXPECT_EQ(to_text(ranked.front().layout), "TP8+DCP8");
  EXPECT_EQ(best_layout(test::deepseek_v3(), on_h200({}, 131072), all), ranked.front().layout);
  for (std::size_t i = 1; i < ranked.size(); ++i) EXPECT_LE(ranked[i].sequences, ranked[i - 1].sequences);
  refused([&] { return possible_layouts(test::deepseek_v3(), vllm, 0); }, {"0 GPUs"});
}

TEST(PlanSearch, AnEngineHasTheLayoutsItHas) {
  const ModelConfig v3 = test::deepseek_v3();
  // llama.cpp spreads layers: 8 GPUs are 8 stages, or nothing.
  EXPECT_EQ(possible_layouts(v3, find_engine("llama.cpp"), 8), (std::vector<Layout>{{.pp = 8}}));
  for (const Layout& layout : possible_layouts(v3, find_engine("vllm@0.9"), 8)) EXPECT_EQ(layout.dcp, 1);
  const auto on = [&](const char* engine, const Layout& layout) {
    return [&v3, engine, layout] {
      PlanRequest request = on_h200(layout, 4096);
      request.engine = find_engine(engine);
      return plan_memory(v3, request);
    };
  };
  refused(on("llama.cpp", {.dp = 8}), {"llama.cpp has no data parallelism", "dp is 8"});
  refused(on("ik_llama.cpp", {.tp = 8, .ep = 8}), {"ik_llama.cpp has no expert parallelism", "ep is 8"});
  refused(on("llama.cpp", {.tp = 8, .dcp = 2}), {"no decode context parallelism", "dcp is 2"});
  refused(on("vllm@0.9", {.tp = 8, .dcp = 2}), {"vllm 0.8 has no decode context parallelism"});
  const std::vector<std::string> rows = on("llama.cpp", {.tp = 8})().warnings;
  EXPECT_TRUE(std::ranges::any_of(rows, [](const std::string& one) {
    return one.find("that is --pp 8, not tp 8") != std::string::npos;
  }));
}

TEST(PlanSearch, FewestGpusOfAllLayoutsAreThoseOfACount) {
  // Against trying every layout of every number of GPUs in turn.
  const struct {
    ModelConfig model;
    std::int64_t memory, context, wanted;
    int gpus_per_node;
    LayoutSpace given = {};
  } cases[] = {{test::deepseek_v3(), gib(80), 65536, 64, 8},
               {test::kimi_k2(), gib(80), 65536, 32, 8},
               {test::kimi_k2(), gib(141), 131072, 200, 8},
               {test::llama_31_70b(), gib(24), 32768, 40, 4},
               {test::deepseek_v2_lite(), gib(24), 4096, 1, 8},
               {test::gemma_3_27b(), gib(40), 65536, 100, 2},
               {test::deepseek_v2_lite(), gib(24), 131072, 200, 8, {.pp = 1}},
               {test::deepseek_v3(), gib(80), 65536, 64, 8, {.tp = 4, .dcp = 1}},
               {test::deepseek_v3(), gib(80), 65536, 30, 8, {.dp = 2}},
               {test::deepseek_v3(), gib(141), 65536, 300, 8, {.dcp = 1, .ep = 16}},
               {test::llama_31_70b(), gib(80), 32768, 6, 8, {.dp = 1, .pp = 1, .dcp = 1}},
               {test::llama_31_70b(), gib(24), 32768, 40, 8, {.pp = 4}}};
  for (const auto& c : cases) {
    PlanRequest request = on_h200({}, c.context);
    request.gpu_memory_bytes = c.memory;
    request.concurrency = c.wanted;
    LayoutSpace space = c.given;
    space.gpus_per_node = c.gpus_per_node;
    const auto answer = fewest_gpus(c.model, request, space, 512);
    std::optional<MemoryPlan> counted;
    for (int gpus = 1; !counted && gpus <= 512; ++gpus) {
      for (MemoryPlan& plan :
           rank_layouts(c.model, request, possible_layouts(c.model, request, gpus, space))) {
        if (plan.fits && !counted) counted = std::move(plan);
      }
    }
    ASSERT_TRUE(answer && counted) << c.model.name;
    EXPECT_EQ(answer->layout, counted->layout) << c.model.name << ' ' << to_text(answer->layout);
    EXPECT_EQ(answer->plan.sequences, counted->sequences);
  }
}

TEST(PlanSearch, WholeNodesAreTheLeastOfThem) {
  PlanRequest request = on_h200({}, 131072);
  request.concurrency = 64;
  const LayoutSpace space;
  const auto least = fewest_gpus(test::deepseek_v3(), request, space);
  const auto whole = fewest_whole_gpus(test::deepseek_v3(), request, space);
  ASSERT_TRUE(least && whole);
  EXPECT_EQ(least->layout.gpus(), 11);
  EXPECT_EQ(whole->layout.gpus(), 16);
  // 38 sequences at most on one node, so two; and what divides a node is taken as it is.
  request.concurrency = 38;
  EXPECT_EQ(fewest_whole_gpus(test::deepseek_v3(), request, space)->layout.gpus(), 8);
  request = test::logged_budget("vllm", gib(20), 32768);
  request.concurrency = 5;
  EXPECT_EQ(fewest_whole_gpus(test::llama_31_70b(), request, space)->layout.gpus(), 4);
  EXPECT_FALSE(fewest_whole_gpus(test::llama_31_70b(), request, space, 2));
}

TEST(PlanSearch, LayoutsWhoseCutsEnginesRefuse) {
  const ModelConfig v3 = test::deepseek_v3();
  const auto cuts = [&](const Layout& layout, const char* weights = "fp8") {
    PlanRequest request = on_h200(layout, 4096);
    request.weights = uniform_scheme(find_weight_format(weights));
    return refused_cuts(v3, request, layout).size();
  };
  EXPECT_EQ(cuts({.tp = 16}), 0U) << "2,048 / 16 = 128: one block";
  EXPECT_EQ(cuts({.tp = 32}), 3U) << "experts 64 wide, the shared one too, and dense 18,432 / 32 = 576";
  EXPECT_EQ(cuts({.tp = 32}, "bf16"), 0U) << "nothing shares a scale";
  EXPECT_EQ(cuts({.dp = 256, .ep = 256}), 0U) << "experts whole";
  EXPECT_EQ(cuts({.dp = 512}), 1U) << "2,048 / 512 = 4";
  EXPECT_EQ(cuts({.dp = 512}, "bf16"), 0U);
  EXPECT_EQ(cuts({.dp = 3}, "bf16"), 1U) << "2,048 / 3";
  EXPECT_EQ(cuts({.dp = 64}, "mxfp4"), 0U) << "padded";
  for (const Layout& layout : possible_layouts(v3, on_h200({}, 4096), 512)) EXPECT_GT(layout.pp, 1);
  PlanRequest files = on_h200({}, 4096);
  files.engine = find_engine("llama.cpp");
  EXPECT_TRUE(refused_cuts(v3, files, {.tp = 3}).empty()) << "it cuts rows where it likes";
}

TEST(PlanSearch, TheLargestContextIsTheLargest) {
  PlanRequest request = on_h200({.dp = 8, .ep = 8}, 0);
  for (const std::int64_t wanted : {8, 24, 64, 200}) {
    request.concurrency = wanted;
    const std::int64_t context = largest_context(test::deepseek_v3(), request);
    ASSERT_GT(context, 0);
    PlanRequest there = request;
    there.context = context;
    EXPECT_TRUE(plan_memory(test::deepseek_v3(), there).fits) << wanted;
    if (context == test::deepseek_v3().max_position) continue;
    there.context = context + 1;
    EXPECT_FALSE(plan_memory(test::deepseek_v3(), there).fits) << wanted;
  }
}

TEST(PlanSearch, TheFewestGpusAreTheFewest) {
  PlanRequest request = on_h200({}, 131072);
  request.concurrency = 64;
  const LayoutSpace replicas{.tp = 1, .pp = 1, .dcp = 1};
  const auto answer = fewest_gpus(test::deepseek_v3(), request, replicas);
  ASSERT_TRUE(answer.has_value());
  EXPECT_GE(answer->plan.sequences, 64);
  request.layout.dp = answer->layout.dp - 1;
  request.layout.ep = default_expert_ranks(test::deepseek_v3(), request.layout);
  EXPECT_LT(plan_memory(test::deepseek_v3(), request).sequences, 64);
  PlanRequest never = test::logged_budget("vllm", gib(0.1), 131072);
  EXPECT_FALSE(fewest_gpus(test::deepseek_v3(), never, replicas, 64).has_value());
}

TEST(PlanSearch, TheSmallestUtilizationIsTheSmallest) {
  PlanRequest request = on_h200({.dp = 8, .ep = 8}, 131072);
  request.concurrency = 24;
  const auto share = smallest_utilization(test::deepseek_v3(), request);
  ASSERT_TRUE(share.has_value());
  request.utilization = *share;
  EXPECT_TRUE(plan_memory(test::deepseek_v3(), request).fits);
  request.utilization = *share - 0.001;
  EXPECT_FALSE(plan_memory(test::deepseek_v3(), request).fits);
  request.concurrency = 1000000;
  EXPECT_FALSE(smallest_utilization(test::deepseek_v3(), request).has_value());
}

}  // namespace
}  // namespace mla::capacity
