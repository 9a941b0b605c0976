// SPDX-License-Identifier: Apache-2.0
// Questions that need many plans or more than a plan, against numbers worked out by hand.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "expect_error.hpp"
#include "plan/bench_shapes.hpp"
#include "plan/checkpoint.hpp"
#include "plan/counterfactual.hpp"
#include "plan/layout_text.hpp"
#include "plan/lengths.hpp"
#include "plan/savings.hpp"
#include "plan/search.hpp"
#include "plan_models.hpp"

namespace mla::capacity {
namespace {

using test::gib;

constexpr std::int64_t kBlock = 70272LL * 64;  // of DeepSeek-V3, all layers

// ---- real lengths -----------------------------------------------------------------------------------------

TEST(PlanLengths, EqualRequestsAreThePlan) {
  // 4032 prompt tokens are 63 blocks; every moment of the answer lies in the 64th.
  const PlanRequest request = test::logged_budget("vllm", gib(40), 4096);
  const std::vector<RequestLengths> trace(50, {4032, 64});
  const LengthReport report = plan_lengths(test::deepseek_v3(), request, trace);
  const std::int64_t usable = gib(40) / kBlock - 1;
  EXPECT_NEAR(report.at_full_length, static_cast<double>(usable) / 64, 1e-9);
  EXPECT_NEAR(report.expected, static_cast<double>(usable) / 64, 1e-9);
  EXPECT_EQ(report.certain, usable / 64);
  EXPECT_EQ(report.worst_case, usable / 64);
  EXPECT_EQ(report.paging_waste, 0);
  EXPECT_EQ(report.too_long, 0);
  EXPECT_EQ(report.p50, 4096);
}

TEST(PlanLengths, MixedRequestsByHand) {
  // Finished lengths 64 and 65 in blocks of 64: 1 and 2 blocks, mean 1.5; 129 tokens in 192 slots.
  const PlanRequest request = test::logged_budget("vllm", kBlock * 101, 4096);  // 100 usable blocks
  const std::vector<RequestLengths> trace{{60, 4}, {61, 4}};
  const LengthReport report = plan_lengths(test::deepseek_v3(), request, trace);
  EXPECT_DOUBLE_EQ(report.at_full_length, 100 / 1.5);
  EXPECT_DOUBLE_EQ(report.paging_waste, 1 - 129.0 / 192);
  EXPECT_DOUBLE_EQ(report.mean, 64.5);
  // The second holds 62, 63, 64 or 65 tokens as it answers: a second block for a quarter of the time. Mean 1 and 1.25.
  EXPECT_DOUBLE_EQ(report.expected, 100 / 1.125);
  const std::vector<RequestLengths> some{{4096, 1}, {10, 10}, {0, 0}};
  const LengthReport cut = plan_lengths(test::deepseek_v3(), request, some);
  EXPECT_EQ(cut.too_long, 1);
  EXPECT_EQ(cut.empty, 1);
  EXPECT_DOUBLE_EQ(cut.mean, 20);
  expect_error([&] { return plan_lengths(test::deepseek_v3(), request, {}); }, ErrorCode::kInvalidArgument,
               {"no request"});
  const std::vector<RequestLengths> negative{{-1, 5}};
  expect_error([&] { return plan_lengths(test::deepseek_v3(), request, negative); },
               ErrorCode::kInvalidArgument, {"-1"});
}

TEST(PlanLengths, LongAnswersAreSeenMoreOften) {
  // One block with an answer of 30, three blocks with an answer of 10: seen 3 to 1, so 1.5 blocks a request.
  const PlanRequest request = test::logged_budget("vllm", kBlock * 101, 4096);
  const std::vector<RequestLengths> trace{{10, 30}, {130, 10}};
  EXPECT_DOUBLE_EQ(plan_lengths(test::deepseek_v3(), request, trace).expected, 100 / 1.5);
}

TEST(PlanLengths, CertaintyIsTheBinomialTail) {
  // One or three blocks, each as likely: n requests take n + 2 K blocks, K binomial, of 100.
  const auto fits = [](int n) {  // P(n + 2 K <= 100)
    double term = std::pow(0.5, n);
    double sum = 0;
    for (int k = 0; k <= n && n + 2 * k <= 100; ++k) {
      sum += term;
      term *= static_cast<double>(n - k) / (k + 1);
    }
    return sum;
  };
  int exact = 1;
  while (fits(exact + 1) >= 0.99) ++exact;
  const PlanRequest request = test::logged_budget("vllm", kBlock * 101, 4096);
  const std::vector<RequestLengths> trace{{10, 50}, {129, 50}};
  const LengthReport report = plan_lengths(test::deepseek_v3(), request, trace);
  EXPECT_DOUBLE_EQ(report.expected, 50);
  EXPECT_NEAR(static_cast<double>(report.certain), exact, 1) << "drawn in 1000 trials";
  EXPECT_LT(report.certain, 45);
  EXPECT_EQ(plan_lengths(test::deepseek_v3(), request, trace).certain, report.certain) << "the same seed";
}

TEST(PlanLengths, ManyRequestsAreTheBinomialTailToo) {
  // One block, or with one answer in a hundred 41: mean 1.4, deviation 4 sqrt(0.99), a long tail. 10,000 blocks.
  const auto fits = [](int n) {  // P(n + 40 K <= 10000), K binomial(n, 0.01)
    double log_term = n * std::log(0.99);
    double sum = 0;
    for (int k = 0; k <= n && n + 40 * k <= 10000; ++k) {
      sum += std::exp(log_term);
      log_term += std::log(static_cast<double>(n - k) / (k + 1)) + std::log(0.01 / 0.99);
    }
    return sum;
  };
  int exact = 5000;
  while (fits(exact + 1) >= 0.99) ++exact;
  const PlanRequest request = test::logged_budget("vllm", kBlock * 10001, 4096);
  std::vector<RequestLengths> trace(99, {10, 20});
  trace.push_back({40 * 64 + 1, 20});
  const LengthReport report = plan_lengths(test::deepseek_v3(), request, trace);
  EXPECT_NEAR(report.expected, 10000 / 1.4, 1e-6);
  EXPECT_NEAR(static_cast<double>(report.certain), exact, 0.005 * exact);
}

TEST(PlanLengths, WindowsAndStatesCount) {
  // Gemma-3: 7 block tables share the pool; a request of 100 tokens takes 7 full and 6 x (7 + 1) window blocks.
  PlanRequest request = test::logged_budget("vllm", 10LL * 16 * 16 * 256 * 2 * 1001, 4096);
  const std::vector<RequestLengths> trace{{99, 1}};
  const LengthReport report = plan_lengths(test::gemma_3_27b(), request, trace);
  EXPECT_DOUBLE_EQ(report.expected, 1000.0 / (7 + 6 * 8));
}

// ---- layouts ----------------------------------------------------------------------------------------------

TEST(PlanSearch, LayoutsAsText) {
  const ModelConfig v3 = test::deepseek_v3();
  for (const Layout& layout : {Layout{.tp = 8}, Layout{.dp = 8, .ep = 8}, Layout{.tp = 4, .pp = 2},
                               Layout{.tp = 8, .dcp = 8}, Layout{.tp = 2, .dp = 4, .ep = 8}}) {
    EXPECT_EQ(layout_for(parse_layout(to_text(layout)), v3), layout) << to_text(layout);
  }
  EXPECT_EQ(layout_for(parse_layout("dp8"), v3), (Layout{.dp = 8, .ep = 8}));
  EXPECT_EQ(layout_for(parse_layout("ep0xdp8"), v3), (Layout{.dp = 8, .ep = 0}));
  EXPECT_EQ(layout_for(parse_layout("dp8"), test::llama_31_70b()), (Layout{.dp = 8}));
  for (const char* bad :
       {"", "tp", "8", "tp8x", "tp8tp8", "tp8+tp8", "zp8", "tp-8", "tp8.5", "tp99999999999999"}) {
    expect_error([&] { return parse_layout(bad); }, ErrorCode::kInvalidArgument, {"layout"});
  }
  expect_error([&] { return layout_for(parse_layout("tp3"), v3); }, ErrorCode::kInvalidArgument, {"tp 3"});
  expect_error([&] { return layout_for(parse_layout("tp0"), v3); }, ErrorCode::kInvalidArgument, {"tp is 0"});
}

PlanRequest with_fixed_weights(std::int64_t memory, std::int64_t weights, std::int64_t context) {
  PlanRequest request;
  request.gpu_name = "test";
  request.gpu_memory_bytes = memory;
  request.engine = find_engine("vllm");
  request.cache = find_kv_format("bf16");
  request.weight_bytes = weights;
  request.runtime = {.activations = 0, .graphs = 0, .other = 0};
  request.utilization = 1.0;
  request.context = context;
  return request;
}

TEST(PlanSearch, TheLongestContextChoosesItsLayout) {
  // Of four GPUs that each leave 1000 usable blocks: one sequence alone, or four in all.
  PlanRequest request = with_fixed_weights(kBlock * 1001, 0, 4096);
  const ModelConfig v3 = test::deepseek_v3();
  const std::vector<Layout> layouts{{.tp = 4}, {.dp = 4, .ep = 4}, {.tp = 4, .dcp = 4}};
  request.concurrency = 4;
  const auto four = largest_context(v3, request, layouts);
  EXPECT_EQ(four.answer, 1000 * 64) << "one on each replica, or four in quarters of 250 blocks";
  EXPECT_EQ(four.layout, layouts[2])
      << "of equal answers the one that ranks first: it holds a longer sequence";
  request.concurrency = 1;
  const auto one = largest_context(v3, request, layouts);
  EXPECT_EQ(one.layout, layouts[2]) << "with dcp 4 it is cut into quarters of at most 1000 blocks";
  EXPECT_EQ(one.answer, 163840) << "the model's own maximum: 4 x 64,000 are more";
}

TEST(PlanSearch, FewestGpusOverAllLayouts) {
  const ModelConfig v3 = test::deepseek_v3();
  // A context of 2000 blocks is more than the 1000 of a GPU: replicas never hold one, two stages do
  // (31 of 61 layers: 1001 x 61 / 31 = 1969 blocks are too few), three do, but pp is not in the simple space.
  const PlanRequest request = with_fixed_weights(kBlock * 1001, 0, 2000 * 64);
  EXPECT_FALSE(fewest_gpus(v3, request, LayoutSpace{.pipeline = false, .context_parallel = false}, 16));
  const auto staged = fewest_gpus(v3, request, LayoutSpace{.context_parallel = false}, 16);
  ASSERT_TRUE(staged);
  EXPECT_EQ(staged->layout, Layout{.pp = 3});
  const auto context = fewest_gpus(v3, request, LayoutSpace{.pipeline = false}, 16);
  ASSERT_TRUE(context);
  EXPECT_EQ(context->layout, (Layout{.tp = 2, .dcp = 2})) << "1000 blocks on each rank: exactly enough";
}

TEST(PlanSearch, TheLeastUtilizationChoosesItsLayout) {
  PlanRequest request = with_fixed_weights(1000 * kBlock, 0, 64 * 100);  // 100 blocks a sequence
  request.utilization.reset();
  request.concurrency = 4;
  const ModelConfig v3 = test::deepseek_v3();
  const auto best = smallest_utilization(v3, request, {{.tp = 4}, {.dp = 4, .ep = 4}});
  ASSERT_TRUE(best.answer);
  EXPECT_EQ(best.layout.dp, 4);
  EXPECT_NEAR(*best.answer, 0.101, 1e-12) << "101 of 1000 blocks, one of them reserved; tp 4 would take 401";
}

// ---- other kinds of attention -----------------------------------------------------------------------------

TEST(PlanCounterfactual, HeadsInsteadOfTheLatent) {
  const ModelConfig v3 = test::deepseek_v3();
  const PlanRequest request = test::logged_budget("vllm", gib(100), 4096);
  const Counterfactual mha = counterfactual(v3, request, {{}}, "MHA");
  EXPECT_EQ(mha.bytes_per_token, 61.0 * 128 * (192 + 128) * 2);
  EXPECT_NEAR(mha.ratio, 71.11, 0.005);
  const Counterfactual gqa = counterfactual(v3, request, {{}}, "gqa:8");
  EXPECT_EQ(gqa.bytes_per_token, 61.0 * 8 * (128 + 128) * 2);
  EXPECT_EQ(gqa.name, "GQA-8");
  const Counterfactual mqa = counterfactual(v3, request, {{}}, "mqa");
  EXPECT_NEAR(1 / mqa.ratio, 2.25, 1e-12) << "the paper's 2.25 groups";
  // Heads are cut by tp, the latent is not.
  const Counterfactual cut = counterfactual(v3, request, {{}, {.tp = 8}}, "mha");
  EXPECT_EQ(cut.layout.tp, 8);
  const std::int64_t blocks = gib(100) / (61LL * 16 * (192 + 128) * 2 * 16) - 1;
  EXPECT_EQ(cut.sequences, blocks / (4096 / 16));
  // Rows for latents alone are compared in fp8.
  PlanRequest rows = request;
  rows.engine = find_engine("none");
  rows.cache = find_kv_format("fp8_ds_mla");
  const Counterfactual fp8 = counterfactual(v3, rows, {{}}, "mha");
  EXPECT_EQ(fp8.format, "fp8");
  EXPECT_NEAR(fp8.ratio, 128.0 * 320 / 656, 1e-12);
}

TEST(PlanCounterfactual, OrdinaryModelsAndStates) {
  const PlanRequest request = test::logged_budget("vllm", gib(40), 4096);
  EXPECT_DOUBLE_EQ(counterfactual(test::llama_31_70b(), request, {{}}, "mha").ratio, 8);
  EXPECT_DOUBLE_EQ(counterfactual(test::llama_31_70b(), request, {{}}, "gqa:8").ratio, 1);
  EXPECT_DOUBLE_EQ(counterfactual(test::llama_31_70b(), request, {{}}, "mqa").ratio, 1.0 / 8);
  // Only the 7 MLA layers of Kimi-Linear change; its states stay.
  EXPECT_EQ(counterfactual(test::kimi_linear(), request, {{}}, "mha").bytes_per_token,
            7.0 * 32 * (192 + 128) * 2);
  const std::pair<const char*, const char*> words[] = {
      {"gqa:7", "128 query heads"}, {"gqa:x", "'x'"}, {"latent", "'latent'"}, {"", "''"}};
  for (const auto& [what, part] : words) {
    expect_error([&, w = what] { return counterfactual(test::deepseek_v3(), request, {{}}, w); },
                 ErrorCode::kInvalidArgument, {part});
  }
}

// ---- windows, sinks, indexes ------------------------------------------------------------------------------

SavingsRequest savings_request(std::int64_t context, std::int64_t window, std::int64_t sink, int block) {
  SavingsRequest request;
  request.context = context;
  request.window = window;
  request.sink = sink;
  request.block = block;
  request.format = find_kv_format("bf16");
  request.engine = find_engine("vllm");
  return request;
}

TEST(PlanSavings, ReadsAndMemoryAreTwoThings) {
  // The document's example: 100 tokens, window 32, 4 sinks: 36 are read, 64 % of the reads saved, and no memory at all.
  const Savings savings = plan_savings(test::deepseek_v3(), savings_request(100, 32, 4, 16));
  EXPECT_EQ(savings.layers.at(0).tokens_read, 36);
  EXPECT_DOUBLE_EQ(1 - savings.read_bytes / savings.full_read_bytes, 0.64);
  EXPECT_DOUBLE_EQ(savings.full_bytes, 100.0 * 70272);
  // A ring keeps the blocks from 68 on (block 4 to 6) and the sinks' block: 4 x 16 tokens.
  EXPECT_DOUBLE_EQ(savings.ring_bytes, 64.0 * 70272);
  // And 10,000 tokens in blocks of 16 with a window of 4,096 and 4 sinks: 257 of 625 blocks.
  const Savings longer = plan_savings(test::deepseek_v3(), savings_request(10000, 4096, 4, 16));
  EXPECT_EQ(longer.layers.at(0).blocks_read, 257);
  EXPECT_DOUBLE_EQ(longer.ring_bytes, 257.0 * 16 * 70272);
}

TEST(PlanSavings, ShortSequencesAndStates) {
  const Savings all = plan_savings(test::deepseek_v3(), savings_request(20, 4096, 0, 64));
  EXPECT_DOUBLE_EQ(all.read_bytes, all.full_read_bytes);
  EXPECT_DOUBLE_EQ(all.ring_bytes, all.full_bytes) << "a ring is never more than the full cache";
  // States are read and kept whatever the window is.
  const Savings hybrid = plan_savings(test::kimi_linear(), savings_request(65536, 4096, 0, 64));
  EXPECT_DOUBLE_EQ(hybrid.read_bytes, 4096.0 * 8064 + 43417600);
  EXPECT_DOUBLE_EQ(hybrid.full_bytes, 65536.0 * 8064 + 43417600);
}

TEST(PlanSavings, BadRequests) {
  const auto refused = [](const SavingsRequest& request, std::string_view part) {
    expect_error([&] { return plan_savings(test::deepseek_v3(), request); }, ErrorCode::kInvalidArgument,
                 {part});
  };
  refused(savings_request(0, 1, 0, 16), "context 0");
  refused(savings_request(10, -1, 0, 16), "window -1");
  refused(savings_request(10, 0, 4, 16), "sink 4");
  refused(savings_request(10, 4, 0, 0), "block 0");
}

// ---- shapes for the bench ---------------------------------------------------------------------------------

TEST(PlanBenchShapes, FullBatchesOfOneGpu) {
  PlanRequest request =
      test::logged_budget("vllm", kBlock * 1001, 8192);  // 1000 usable blocks, 128 a sequence
  request.layout = {.tp = 8};
  const BenchShapes shapes = bench_shapes(test::deepseek_v3(), request);
  EXPECT_EQ(shapes.dims.num_heads, 16);
  EXPECT_EQ(shapes.block, 64);
  ASSERT_EQ(shapes.shapes.size(), 4U);
  const std::pair<std::int64_t, std::int64_t> expected[] = {{7, 8192}, {15, 4096}, {31, 2048}, {62, 1024}};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(shapes.shapes[i].requests, expected[i].first);
    EXPECT_EQ(shapes.shapes[i].kv_len, expected[i].second);
  }
  request.layout.dcp = 8;
  EXPECT_EQ(bench_shapes(test::deepseek_v3(), request).shapes.at(0).kv_len, 1024)
      << "a rank's share of the keys";
  request.max_sequences = 4;
  EXPECT_EQ(bench_shapes(test::deepseek_v3(), request).shapes.size(), 1U) << "the batch cannot grow further";
  expect_error([&] { return bench_shapes(test::llama_31_70b(), request); }, ErrorCode::kInvalidArgument,
               {"mla-bench"});
}

// ---- checkpoints ------------------------------------------------------------------------------------------

TEST(PlanCheckpoint, OneFactorOrOneAPart) {
  const ModelConfig model = test::llama_31_70b();
  const WeightScheme scheme = uniform_scheme(find_weight_format("bf16"));
  const WeightPlan plain = weights_on_rank(model, scheme, {.tp = 2}, 0, find_engine("vllm"));
  const std::int64_t rope = std::get<std::int64_t>(plain.lines.back().value);
  const std::int64_t implied = 2 * parameter_count(model);  // bf16
  Checkpoint total;
  total.source = "index";
  total.total = implied / 2 * 3;
  total.tensors = {{"model.layers.0.self_attn.q_proj.weight"}};
  WeightPlan scaled = plain;
  apply_scales(scaled, weight_scales(model, scheme, total));
  EXPECT_NEAR(static_cast<double>(scaled.bytes - rope), 1.5 * static_cast<double>(plain.bytes - rope), 20)
      << "rounded line by line";
  EXPECT_NE(scaled.lines.front().formula.find("as stored"), std::string::npos);

  total.total = implied * 11;
  expect_error([&] { return weight_scales(model, scheme, total); }, ErrorCode::kInvalidArgument,
               {"1445.58 GiB", "131.42 GiB"});
  total.tensors = {{"wte.weight"}};
  expect_error([&] { return weight_scales(model, scheme, total); }, ErrorCode::kInvalidArgument,
               {"names no tensor"});
}

TEST(PlanLengths, ScratchIsPaidOnce) {
  // llama.cpp's mask grows with the context: what is left beside it holds cache budget / bytes of a sequence of them, and a
  // trace of such sequences finds as many.
  PlanRequest request = with_fixed_weights(gib(40), gib(15), 131072);
  request.engine = find_engine("llama.cpp");
  request.cache = find_kv_format("f16");
  request.runtime = {.activations = {}, .graphs = 0, .other = 0};
  const ModelConfig llama = test::llama_31_8b();
  const MemoryPlan plan = plan_memory(llama, request);
  const std::vector<RequestLengths> trace{{131071, 1}};
  const LengthReport report = plan_lengths(llama, request, trace);
  EXPECT_EQ(plan.bytes_per_sequence, 131072LL * 131072);
  EXPECT_DOUBLE_EQ(report.at_full_length, static_cast<double>(plan.stages[0].cache_budget) /
                                              static_cast<double>(plan.bytes_per_sequence));
}

}  // namespace
}  // namespace mla::capacity
