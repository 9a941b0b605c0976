// SPDX-License-Identifier: Apache-2.0
// One question asked in different words has one answer, and an answer holds when it is asked back: plan, solve, compare and
// sweep of ten models on several GPUs and engines.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "memcalc_fixture.hpp"

namespace {

using Json = nlohmann::json;
using mla::test::RunResult;

struct Setting {
  const char* model;
  const char* gpu;
  const char* gpus;
  const char* context;
  const char* concurrency;
  std::vector<std::string> more = {};
};

void PrintTo(const Setting& setting, std::ostream* out) {
  *out << setting.model;
}

class MemcalcAgreement : public MemcalcTest, public testing::WithParamInterface<Setting> {
 protected:
  [[nodiscard]] Args command(const char* name, const Args& more) const {
    const Setting& setting = GetParam();
    Args args{name, setting.model, "--gpu", setting.gpu};
    args.insert(args.end(), setting.more.begin(), setting.more.end());
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  /// As it is said to programs; null and a failure where nothing is said.
  [[nodiscard]] Json ask(const char* name, Args more) const {
    more.insert(more.end(), {"-o", "json"});
    const RunResult run = memcalc(command(name, more));
    EXPECT_LE(run.exit_code, 1) << spelled(command(name, more)) << '\n' << run.err;
    return Json::parse(run.out, nullptr, false);
  }
  [[nodiscard]] Args here(const Args& more) const {
    Args args{"--gpus", GetParam().gpus, "--context", GetParam().context};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  void expect_fits(bool fits, const Args& more) const {
    EXPECT_EQ(memcalc(command("plan", more)).exit_code, fits ? 0 : 1) << spelled(command("plan", more));
  }
};

TEST_P(MemcalcAgreement, PlanSolveCompareAndSweepSayTheSame) {
  const Json plan = ask("plan", here({})).at("facts");
  const Json best = ask("compare", here({})).at("tables").at("layouts").at(0);
  const Json row = ask("sweep", here({})).at("tables").at("plans").at(0);
  for (const char* key : {"layout", "sequences", "at_once", "longest_context", "fits"}) {
    EXPECT_EQ(plan.at(key), best.at(key)) << key;
    EXPECT_EQ(plan.at(key), row.at(key)) << key;
  }
  const std::int64_t most = plan.at("at_once");
  EXPECT_EQ(ask("solve", here({"--for", "concurrency"})).at("facts").at("value"), most);
  if (most > 0) expect_fits(true, here({"--concurrency", std::to_string(most)}));
  expect_fits(false, here({"--concurrency", std::to_string(most + 1)}));
  for (const Json& other : ask("compare", here({"--top", "0"})).at("tables").at("layouts"))
    EXPECT_LE(other.at("at_once"), most) << other.at("layout");
}

TEST_P(MemcalcAgreement, MoreMemoryHoldsNoLess) {
  std::int64_t last = 0;
  for (const char* memory : {"40GiB", "80GiB", "141GiB", "192GiB", "288GiB"}) {
    const std::int64_t now = ask("plan", here({"--gpu-memory", memory})).at("facts").at("sequences");
    EXPECT_GE(now, last) << memory;
    last = now;
  }
  EXPECT_GT(last, 0);
}

TEST_P(MemcalcAgreement, TheLongestContextFitsAndALongerOneDoesNot) {
  const Args wanted{"--gpus", GetParam().gpus, "--concurrency", GetParam().concurrency};
  const auto with = [&](const Args& more) {
    Args args = wanted;
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  const std::int64_t longest = ask("solve", with({"--for", "context"})).at("facts").at("value");
  const std::int64_t maximum = ask("plan", {}).at("facts").at("context");
  EXPECT_LE(longest, maximum);
  if (longest > 0) expect_fits(true, with({"--context", std::to_string(longest)}));
  if (longest < maximum) expect_fits(false, with({"--context", std::to_string(longest + 1)}));
}

TEST_P(MemcalcAgreement, TheLeastShareFitsAndLessDoesNot) {
  const Args wanted = here({"--concurrency", GetParam().concurrency});
  const auto with = [&](const Args& more) {
    Args args = wanted;
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  const Json facts = ask("solve", with({"--for", "utilization"})).at("facts");
  if (!facts.at("found").get<bool>()) return expect_fits(false, with({"--utilization", "1"}));
  const double least = facts.at("value");
  expect_fits(true, with({"--utilization", std::to_string(least)}));
  if (least > 0.0015) expect_fits(false, with({"--utilization", std::to_string(least - 0.001)}));
}

TEST_P(MemcalcAgreement, TheFewestGpusFitAndFewerDoNot) {
  const Args wanted{"--context", GetParam().context, "--concurrency", GetParam().concurrency};
  const auto with = [&](const Args& more) {
    Args args = wanted;
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  const std::int64_t least = ask("solve", with({"--for", "gpus"})).at("facts").at("value");
  expect_fits(true, with({"--gpus", std::to_string(least)}));
  for (std::int64_t fewer = least - 1; fewer > 0 && fewer >= least - 8; --fewer)
    expect_fits(false, with({"--gpus", std::to_string(fewer)}));
}

INSTANTIATE_TEST_SUITE_P(
    , MemcalcAgreement,
    testing::Values(
        Setting{"deepseek-v3", "h200", "8", "128k", "30"},
        Setting{"deepseek-v3.2", "b200", "8", "64k", "40", {"--cache", "fp8"}},
        Setting{"kimi-k2", "h200", "16", "64k", "200", {"--max-seqs", "16"}},
        Setting{"glm-5.2", "b200", "16", "100000", "20", {"--engine", "sglang"}},
        Setting{"kimi-linear", "h200", "2", "128k", "300"},
        Setting{"glm-4.7-flash", "h100-sxm", "4", "33333", "64", {"--mtp"}},
        Setting{"minicpm3-4b", "l40s", "1", "16k", "5", {"--engine", "llama.cpp", "--weights", "q4_k_m"}},
        Setting{"llama-3.1-70b", "h100-sxm", "4", "32k", "24", {"--engine", "tensorrt-llm"}},
        Setting{"gemma-3-27b", "a100-80gb", "2", "32k", "16"},
        Setting{"gemma-3-27b", "h200", "6", "8k", "300", {"--engine", "tensorrt-llm"}},
        Setting{"gpt-oss-120b", "h100-sxm", "6", "32k", "100", {"--gpus-per-node", "2"}}),
    [](const auto& setting) {
      std::string name =
          std::string(setting.param.model) + "_" + setting.param.gpu + "x" + setting.param.gpus;
      for (char& c : name) c = c == '-' || c == '.' ? '_' : c;
      return name;
    });

}  // namespace
