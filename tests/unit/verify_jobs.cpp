// SPDX-License-Identifier: Apache-2.0
// Several judges side by side, and runs cut into parts: nothing is asked twice, left out or found otherwise.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>

#include "mla/error.hpp"
#include "verify/emulated_kernel.hpp"
#include "verify/judge.hpp"
#include "verify/oracles.hpp"
#include "verify/suite.hpp"
#include "verify/task_queue.hpp"
#include "verify/threads.hpp"

namespace mla::verify {
namespace {

TEST(TaskQueue, EveryTaskOnceAndOneBulkyOneAtATime) {
  std::vector<bool> bulky(200);
  for (std::size_t i = 0; i < bulky.size(); i += 3) bulky[i] = true;
  TaskQueue queue(bulky, {});
  std::vector<std::atomic<int>> runs(bulky.size());
  std::atomic<int> bulky_now{0}, most{0};
  share_out(queue, 5, [&](std::size_t, std::size_t task) {
    ++runs[task];
    if (!bulky[task]) return;
    int now = ++bulky_now;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    std::this_thread::yield();
    --bulky_now;
  });
  for (const std::atomic<int>& n : runs) EXPECT_EQ(n, 1);
  EXPECT_EQ(most, 1);
}

TEST(TaskQueue, OneWorkerKeepsTheOrder) {
  TaskQueue queue({true, false, true, true, false}, {});
  std::vector<std::size_t> order;
  share_out(queue, 1, [&](std::size_t worker, std::size_t task) {
    EXPECT_EQ(worker, 0U);
    order.push_back(task);
  });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4}));
}

TEST(TaskQueue, StopsWhenToldTo) {
  int left = 3;
  TaskQueue queue(std::vector<bool>(10), [&left] { return left-- > 0; });
  int done = 0;
  share_out(queue, 1, [&](std::size_t, std::size_t) { ++done; });
  EXPECT_EQ(done, 3);
}

TEST(TaskQueue, WhatAWorkerThrowsIsThrown) {
  TaskQueue queue(std::vector<bool>(100), {});
  EXPECT_THROW(share_out(queue, 4,
                         [](std::size_t, std::size_t task) {
                           if (task == 7) throw std::runtime_error("seven");
                         }),
               std::runtime_error);
}

std::vector<std::unique_ptr<Judge>> team(std::size_t n) {
  std::vector<std::unique_ptr<Judge>> judges;
  for (std::size_t i = 0; i < n; ++i) judges.push_back(std::make_unique<LocalJudge>());
  return judges;
}

TEST(Jobs, SeveralJudgesFindWhatOneFinds) {
  const EmulatedKernel kernel({"kernel", {}, 32, 1});
  const Participant participants[] = {{&kernel, machine_for(kernel), {}}};
  const Backend* backend = &kernel;
  std::vector<Case> cases = make_suite("quick", {&backend, 1}, 1).cases;
  std::erase_if(cases, [](const Case& c) { return is_bulky(c) || work_of(c) > 2e6; });
  ASSERT_GT(cases.size(), 20U);
  const SuiteRun one = run_suite(cases, participants, {}, team(1));
  const SuiteRun three = run_suite(cases, participants, {}, team(3));
  ASSERT_EQ(one.verdicts.size(), three.verdicts.size());
  EXPECT_EQ(one.cases, static_cast<std::int64_t>(cases.size()));
  for (std::size_t i = 0; i < one.verdicts.size(); ++i) {
    EXPECT_EQ(one.verdicts[i].c, three.verdicts[i].c);
    EXPECT_EQ(one.verdicts[i].outcome, three.verdicts[i].outcome);
    EXPECT_EQ(one.verdicts[i].share(), three.verdicts[i].share());
  }
}

TEST(Jobs, AFuzzersCasesFollowFromItsSeed) {
  const EmulatedKernel kernel({"kernel", {}, 32, 1});
  const Participant participants[] = {{&kernel, machine_for(kernel), {}}};
  const Backend* backend = &kernel;
  const CaseSource source(false, {&backend, 1}, 1e5);
  RunHooks hooks;
  int left = 20;
  hooks.stop = [&left] { return left-- <= 0; };
  const auto all = [](const Case&) { return true; };
  const SuiteRun run = run_fuzzer(source, 5, 3600, all, participants, hooks, team(3));
  ASSERT_GT(run.verdicts.size(), 10U);
  for (std::size_t i = 0; i < run.verdicts.size(); ++i)
    EXPECT_EQ(run.verdicts[i].c, source.random_case(5 + i));
}

TEST(Shards, TogetherAreTheWholeAndShareNothing) {
  const EmulatedKernel kernel({"kernel", {}, 32, 1});
  const Participant participants[] = {{&kernel, machine_for(kernel), {}}};
  const auto names = [&](const Shard& shard) {
    std::multiset<std::string> found;
    for (const OracleQuestion& q : oracle_questions(participants, {1, 0, true, shard}))
      found.insert(std::string(q.oracle->name) + " " + to_text(q.base));
    return found;
  };
  const std::multiset<std::string> whole = names({});
  std::multiset<std::string> parts;
  for (std::size_t i = 0; i < 3; ++i) {
    const std::multiset<std::string> part = names({i, 3});
    EXPECT_NEAR(static_cast<double>(part.size()), static_cast<double>(whole.size()) / 3, 1);
    parts.insert(part.begin(), part.end());
  }
  EXPECT_GT(whole.size(), 100U);
  EXPECT_EQ(parts, whole);
}

/// Serves one query token a request, one width, pages of 64, no forced splits and little else, as many decode kernels do.
class Narrow final : public Backend {
 public:
  [[nodiscard]] const BackendInfo& info() const noexcept override { return kernel_.info(); }
  [[nodiscard]] RoundingProfile rounding(const AttentionShape& shape) const override {
    return kernel_.rounding(shape);
  }
  [[nodiscard]] Support supports(const AttentionShape& shape, const Device&) const override {
    const bool one = std::ranges::all_of(shape.batch, [](const Request& r) { return r.q_len == 1; });
    const bool wide = shape.dims.kv_lora_rank == 512 && shape.dims.qk_rope_head_dim == 64;
    return {one && wide && shape.block_size == 64 && shape.space == QuerySpace::kLatent && shape.topk == 0 &&
                !shape.mask.window && shape.q_dtype == DType::kBF16 && shape.out_dtype == DType::kBF16 &&
                shape.cache == CacheFormat::kBF16,
            "no"};
  }
  [[nodiscard]] std::unique_ptr<Plan> plan(const AttentionShape& shape, const Device& device,
                                           const PlanOptions& options) const override {
    if (options.num_splits > 1) throw Error(ErrorCode::kUnsupported, "it splits as it likes");
    return kernel_.plan(shape, device, options);
  }
  void run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
           Stream stream) const override {
    kernel_.run(plan, args, workspace, stream);
  }

 private:
  EmulatedKernel kernel_{{"narrow", {}, 32, 1}};
};

TEST(NarrowKernels, HaveOraclesAndSomeTensOfCases) {
  const Narrow kernel;
  const Backend* backend = &kernel;
  const Participant participants[] = {{backend, machine_for(kernel), {}}};
  EXPECT_GT(oracle_questions(participants, {}).size(), 10U);
  Suite suite = make_suite("quick", {&backend, 1}, 1);
  const std::function<bool(const Case&)> takes[] = {
      [&](const Case& c) { return is_taken(kernel, c, participants[0].machine.device); }};
  const auto taken = [&] { return std::ranges::count_if(suite.cases, takes[0]); };
  EXPECT_LT(taken(), 20);
  top_up(suite, suite_source("quick", {&backend, 1}), takes, 1);
  EXPECT_EQ(taken(), 40);
  std::set<std::string> different;
  for (const Case& c : suite.cases) different.insert(to_text(c));
  EXPECT_EQ(different.size(), suite.cases.size());
  EXPECT_TRUE(std::ranges::is_sorted(suite.cases, {}, work_of));
}

TEST(Repeats, AsAskedForOrByTheBackend) {
  const EmulatedKernel kernel({"kernel", {}, 32, 1});
  EXPECT_EQ(repeats_for(kernel, 7), 7);
  EXPECT_EQ(repeats_for(kernel, 0), 20);
}

TEST(Threads, AreLimitedForAll) {
  EXPECT_EQ(thread_limit(), 0);
  limit_threads(1);
  EXPECT_EQ(threads_to_use(), 1);
  limit_threads(0);
  EXPECT_GE(threads_to_use(), 1);
}

}  // namespace
}  // namespace mla::verify
