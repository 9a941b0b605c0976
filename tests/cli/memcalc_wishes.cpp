// SPDX-License-Identifier: Apache-2.0
// What users fix and what they wish for: flags of a layout in a search, more sequences than an engine runs at once, contexts
// beyond a model's maximum, and what they are told when it does not fit.
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "memcalc_fixture.hpp"

namespace {

using Json = nlohmann::json;
using mla::test::RunResult;

class MemcalcWishes : public MemcalcTest {
 protected:
  [[nodiscard]] std::string out_of(const Args& args, int code = 0) const {
    const RunResult run = memcalc(args);
    EXPECT_EQ(run.exit_code, code) << spelled(args) << '\n' << run.out << run.err;
    return run.out;
  }
  [[nodiscard]] std::vector<std::string> said(const Args& args, int code = 0) const {
    std::vector<std::string> all = lines(out_of(args, code));
    all.resize(std::max<std::size_t>(all.size(), 3));
    return all;
  }
  [[nodiscard]] Json json_of(Args args, int code = 0) const {
    args.insert(args.end(), {"-o", "json"});
    return Json::parse(out_of(args, code), nullptr, false);
  }
  static Args with(Args args, const Args& more) {
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
};

// ---- layouts ------------------------------------------------------------------------------------------------------------

/// Llama-3.1-70B in 20 GiB a GPU, 32k: 16 x 327,680 B a block, so n ranks that split it hold 4,096 n blocks, one reserved, of
/// which a sequence takes 2,048: 1, 3, 7 and 15 on 1, 2, 4 and 8.
const std::vector<std::string> kLlama{"solve", "llama-3.1-70b", "--gpu", "h200",  "--kv-memory",
                                      "20GiB", "--context",     "32k",   "--for", "gpus"};

TEST_F(MemcalcWishes, FlagsOfALayoutHoldInASearchForGpus) {
  const auto answer = [&](const char* wanted, const Args& flags) {
    return said(with(with(kLlama, {"--concurrency", wanted}), flags)).at(0);
  };
  // Heads alone: four ranks are the least that hold six.
  expect_has(answer("6", {"--attention", "tp"}),
             "with --attention tp: 4 x NVIDIA H200 SXM 141 GB (TP4), which hold 7");
  expect_has(answer("6", {"--attention", "dp"}),
             "with --attention dp: 6 x NVIDIA H200 SXM 141 GB (DP6), which hold 6");
  // tp 4 holds 7, two stages of it 15, three replicas 21.
  expect_has(answer("15", {"--tp", "4"}), "with --tp 4: 8 x NVIDIA H200 SXM 141 GB (PP2xTP4), which hold 15");
  expect_has(answer("15", {"--tp", "4", "--pp", "1"}),
             "12 x NVIDIA H200 SXM 141 GB (DP3xTP4), which hold 21");
  expect_has(answer("15", {"--tp", "8"}), "8 x NVIDIA H200 SXM 141 GB (TP8), which hold 15");
  // Two stages of two ranks hold 7, of two replicas 6.
  expect_has(answer("6", {"--pp", "2"}), "with --pp 2: 4 x NVIDIA H200 SXM 141 GB (PP2xTP2), which hold 7");
  // Two replicas of two ranks hold 3 each.
  expect_has(answer("6", {"--dp", "2"}), "with --dp 2: 4 x NVIDIA H200 SXM 141 GB (DP2xTP2), which hold 6");
  // No tp inside a node holds 16: exit 1, the nearest, and a layout that does.
  const std::vector<std::string> none = said(with(kLlama, {"--concurrency", "16", "--attention", "tp"}), 1);
  expect_has(none.at(0),
             "no number up to 4,096 of NVIDIA H200 SXM 141 GB holds 16 sequences of 32,768 tokens with "
             "--attention tp; the nearest, TP8, holds 15");
  expect_has(none.at(1), "16 sequences fit with:  ");
  expect_has(none.at(1), ", without --attention)");
  // What --gpus says is asked for, and so is not looked at.
  expect_has(answer("6", {"--attention", "tp", "--gpus", "2"}), "(TP4), which hold 7");
}

TEST_F(MemcalcWishes, FlagsThatNoNumberOfGpusCanMeet) {
  const Args solve{"solve", "deepseek-v3", "--gpu", "h200", "--context", "32k", "--for", "gpus"};
  refused(with(solve, {"--tp", "3"}), {"tp 3 does not divide the 128 attention heads of deepseek-v3"});
  refused(with(solve, {"--tp", "16"}), {"tp 16 is more than the 8 GPUs of a node"});
  refused(with(solve, {"--pp", "62"}), {"pp 62 is more than the 61 layers of deepseek-v3"});
  refused(with(solve, {"--ep", "512"}), {"ep 512 is more than the 256 routed experts"});
  refused(with(solve, {"--tp", "8", "--dcp", "3"}), {"dcp 3 does not divide tp 8"});
  refused(with(solve, {"--dcp", "3"}), {"no number of GPUs up to 4,096 has a layout with --dcp 3"});
  refused({"solve", "llama-3.1-8b", "--gpu", "h200", "--engine", "llama.cpp", "--context", "8k", "--for",
           "gpus", "--dp", "2"},
          {"llama.cpp has no data parallelism, but dp is 2"});
  refused({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "1", "--tp", "8"},
          {"tp 8 x dp 1 x pp 1 are 8 GPUs, but --gpus is 1"});
  refused({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "16", "--tp", "8", "--attention", "tp"},
          {"tp 8 x dp 1 x pp 1 are 8 GPUs, but --gpus is 16"});
  refused({"plan", "deepseek-v3", "--gpu", "h200", "--tp", "65536", "--dp", "65536"},
          {"are 4,294,967,296 GPUs; at most 65536 are planned for"});
}

TEST_F(MemcalcWishes, CountsOfGpusThatPeopleHave) {
  // Three stages of at most 27 layers hold 20 GiB / (27 x 4,096 x 16) B = 12,136 blocks: 5 sequences.
  const std::vector<std::string> odd = said(with(kLlama, {"--concurrency", "5"}));
  expect_has(odd.at(0), ": 3 x NVIDIA H200 SXM 141 GB (PP3), which hold 5");
  expect_has(odd.at(1), "in a part of a node of 8 that divides it: 4 (TP4), which hold 7");
  const std::vector<std::string> nodes = said(
      {"solve", "deepseek-v3", "--gpu", "h200", "--context", "128k", "--concurrency", "64", "--for", "gpus"});
  expect_has(nodes.at(0), ": 11 x NVIDIA H200 SXM 141 GB (PP11)");
  expect_has(nodes.at(1), "in whole nodes of 8: 16 (");
  // A hint offers nothing else, and the memory that the engine leaves alone.
  const std::vector<std::string> hint = said(
      {"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "128k", "--concurrency", "42"}, 1);
  expect_has(hint.at(1), "--gpus 16 (");
  expect_lacks(hint.at(1), "PP11");
  // 139.81 GiB x 0.95 are 6.99 GiB more than the 41.89 GiB that hold 39: 45.
  expect_has(hint.at(1), "--utilization 0.9");
}

TEST_F(MemcalcWishes, LayoutsThatEnginesRefuseAreNotChosen) {
  // 256 experts cannot lie whole on 512 ranks, and parts of 2,048 / 512 = 4 are no blocks of 128.
  const Args plan{"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "512", "--context", "64k"};
  const std::string automatic = out_of(plan);
  expect_lacks(automatic, "engines refuse");
  expect_has(lines(automatic).at(0), "EP256");
  const char* refusal =
      "routed experts of 2,048 cut into 512 parts are 4 wide, no multiple of the 128 weights";
  expect_has(out_of(with(plan, {"--attention", "dp"})), refusal);
  const Json ranked =
      json_of({"compare", "deepseek-v3", "--gpu", "h200", "--gpus", "512", "--context", "64k", "--top", "0"});
  for (const Json& row : ranked.at("tables").at("layouts"))
    expect_has(row.at("layout").get<std::string>(), "PP");  // one stage would have 512 ranks
  const std::string named =
      out_of({"sweep", "deepseek-v3", "--gpu", "h200", "--layout", "dp512", "--context", "64k"});
  expect_has(named, "warning: DP512: " + std::string(refusal));
  // Unequal parts are refused in any format; kernels of mxfp4 pad 2,880 / 8 = 360 to whole blocks of 32.
  expect_has(out_of({"plan", "glm-4.7-flash", "--gpu", "h200", "--dp", "5", "--ep", "0", "--context", "8k"}),
             "routed experts of 1,536 cannot be cut into 5 equal parts: engines refuse this; ep keeps "
             "experts whole");
  expect_lacks(out_of({"plan", "gpt-oss-120b", "--gpu", "h100-sxm", "--tp", "8", "--context", "8k"}),
               "engines refuse");
}

TEST_F(MemcalcWishes, FlagsThatCannotStandTogether) {
  const Args plan{"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8"};
  refused(with(plan, {"--pp", "3"}),
          {"--gpus 8 cannot be split: the layout given takes them by 3 (tp 1 x dp 1 x pp 3)"});
  refused(with(plan, {"--tp", "3"}), {"takes them by 3 (tp 3 x dp 1 x pp 1)"});
  for (const Args& other : {Args{"--versus", "mha"}, Args{"--lengths", "trace.csv"}, Args{"--formulas"},
                            Args{"--plot", "x.svg"}, Args{"--concurrency", "4"}, Args{"--output", "csv"}}) {
    refused(with(with(plan, {"--emit-sweep"}), other),
            {"--emit-sweep prints a spec and nothing else, but " + other.front() + " is given"});
  }
  EXPECT_EQ(memcalc(with(plan, {"--emit-sweep", "-o", "json"})).exit_code, 0) << "that is what it prints";
  refused({"sweep", "deepseek-v3", "--gpu", "h200", "--layout", "tp8,all"}, {"--layout all stands alone"});
}

TEST_F(MemcalcWishes, ALayoutNamedInASweepSaysHowManyGpus) {
  const Json rows =
      json_of({"sweep", "deepseek-v3", "--gpu", "h200", "--layout", "tp8,dp16", "--context", "8k"})
          .at("tables")
          .at("plans");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows.at(0).at("gpus"), 8);
  EXPECT_EQ(rows.at(1).at("gpus"), 16);
}

// ---- sequences at once --------------------------------------------------------------------------------------------------

TEST_F(MemcalcWishes, MoreSequencesThanRunAtOnceDoNotFit) {
  // Llama-3.1-8B takes 131,072 B a token: 40 GiB are 20,480 blocks of 16, one reserved, 64 for 1k: 319 sequences.
  const Args plan{"plan", "llama-3.1-8b", "--gpu", "h200", "--kv-memory", "40GiB", "--context", "1k"};
  const auto asked = [&](const char* wanted, const Args& more, int code) {
    return said(with(with(plan, {"--concurrency", wanted}), more), code);
  };
  expect_has(asked("256", {}, 0).at(0), "256 sequences fit, up to 319; it runs at most 256 of them at once");
  const std::vector<std::string> more = asked("300", {}, 1);
  expect_has(more.at(0),
             "300 sequences fit, but only 256 run at once: the engine runs at most 256 (--max-seqs)");
  expect_has(more.at(1), "300 sequences fit with:  --max-seqs 300  |  --gpus 2 (DP2)");
  expect_has(asked("300", {"--max-seqs", "300"}, 0).at(0), "300 sequences fit, up to 319");
  expect_has(asked("320", {"--max-seqs", "400"}, 1).at(0), "320 sequences do not fit, only 319");
  expect_has(asked("512", {"--attention", "dp", "--gpus", "2"}, 0).at(0), "512 sequences fit, up to 638");
  expect_has(asked("513", {"--attention", "dp", "--gpus", "2"}, 1).at(0),
             "513 sequences fit, but only 512 run at once: a replica at most 256 (--max-seqs)");
  // llama.cpp runs as many as it was given cells for, but never more than it was built for.
  const std::vector<std::string> cells = asked("300", {"--engine", "llama.cpp"}, 1);
  expect_has(cells.at(0),
             "300 sequences fit, but only 256 run at once: the engine runs at most 256 (LLAMA_MAX_SEQ)");
  expect_has(asked("256", {"--engine", "llama.cpp"}, 0).at(0), "256 sequences fit");
}

TEST_F(MemcalcWishes, EveryQuestionKnowsHowManyRunAtOnce) {
  const Args base{"llama-3.1-8b", "--gpu", "h200", "--kv-memory", "40GiB", "--context", "1k"};
  const auto ask = [&](const char* command, const Args& more) { return with(with({command}, base), more); };
  const Json solved = json_of(ask("solve", {"--for", "concurrency"}));
  EXPECT_EQ(solved.at("facts").at("value"), 256);
  expect_has(said(ask("solve", {"--for", "concurrency"})).at(0),
             "256 sequences of 1,024 tokens at once, as many as --max-seqs lets the engine run; 319 fit");
  const std::vector<std::string> gpus = said(ask("solve", {"--for", "gpus", "--concurrency", "600"}));
  expect_has(gpus.at(0), "3 x NVIDIA H200 SXM 141 GB (DP3), which hold 957 and run 768 at once (--max-seqs)");
  expect_has(gpus.at(1), "with --max-seqs 600: 2 (");
  const std::vector<std::string> none = said(ask("solve", {"--for", "context", "--concurrency", "300"}), 1);
  expect_has(none.at(0), "300 sequences fit at no context: the engine runs at most 256 at once (--max-seqs)");
  expect_has(none.at(1), "--max-seqs 300");
  EXPECT_EQ(memcalc(ask("compare", {"--concurrency", "300"})).exit_code, 1);
  EXPECT_EQ(memcalc(ask("sweep", {"--concurrency", "300"})).exit_code, 1);
  // Of eight GPUs replicas run most: 8 x 256.
  expect_has(said(ask("compare", {"--gpus", "8"})).at(0),
             "DP8 runs most at once, 2,048 sequences (it holds 2,552, --max-seqs is 256 a replica)");
}

TEST_F(MemcalcWishes, WhatIsSolvedForIsNotLookedAt) {
  const Args base{"solve", "llama-3.1-8b", "--gpu", "h200", "--context", "8k"};
  const auto row = [&](const Args& more) {
    return json_of(with(base, more)).at("tables").at("layouts").at(0);
  };
  EXPECT_EQ(row({"--for", "concurrency"}), row({"--for", "concurrency", "--concurrency", "100000"}));
  EXPECT_EQ(row({"--for", "utilization"}), row({"--for", "utilization", "--utilization", "0.2"}));
  EXPECT_EQ(row({"--for", "gpus"}), row({"--for", "gpus", "--gpus", "8"}));
  const auto longest = [&](const Args& more) {
    return json_of(with({"solve", "llama-3.1-8b", "--gpu", "l4", "--for", "context"}, more));
  };
  for (const char* context : {"1k", "1m"})
    EXPECT_EQ(longest({}).at("facts").at("value"), longest({"--context", context}).at("facts").at("value"));
  const RunResult warned =
      memcalc({"solve", "llama-3.1-8b", "--gpu", "h200", "--for", "context", "--context", "1m"});
  expect_has(warned.out, "warning: --context changes nothing here: it is what is solved for");
  expect_has(lines(warned.out).at(0), "up to 131,072 tokens, the model's own maximum");
}

TEST_F(MemcalcWishes, AGivenBudgetHasNoUtilization) {
  refused({"solve", "llama-3.1-8b", "--gpu", "h200", "--kv-memory", "40GiB", "--for", "utilization"},
          {"--kv-memory is the cache's budget already: no utilization changes what fits"});
}

// ---- contexts beyond the model ------------------------------------------------------------------------------------------

TEST_F(MemcalcWishes, AContextBeyondTheModelIsSaidFirst) {
  const std::string beyond = "1m context (beyond the model's own 163,840)";
  const std::string warning =
      "warning: context 1,048,576 is beyond the 163,840 positions of deepseek-v3: engines refuse it";
  const Args gpus{"--gpu", "h200", "--gpus", "8", "--context", "1m"};
  for (const char* command : {"plan", "compare"}) {
    const std::string out = out_of(with({command, "deepseek-v3"}, gpus));
    expect_has(lines(out).at(0), beyond);
    expect_has(out, warning);
  }
  expect_has(said({"savings", "deepseek-v3", "--context", "1m"}).at(0), beyond);
  expect_has(out_of({"savings", "deepseek-v3", "--context", "1m"}), warning);
  for (const char* unknown : {"concurrency", "gpus", "utilization"}) {
    const std::string out = out_of(with(with({"solve", "deepseek-v3"}, gpus), {"--for", unknown}));
    expect_has(lines(out).at(0), "of 1,048,576 tokens (beyond the model's own 163,840)");
    expect_has(out, warning);
  }
  const Json plan = json_of(with({"plan", "deepseek-v3"}, gpus));
  EXPECT_EQ(plan.at("facts").at("longest_context"), 163840) << "as long as the model takes, not as asked";
  EXPECT_EQ(plan.at("facts").at("sequences"), 4) << "64 x 1,048,576 / 4,096 of 640,126 blocks";
  const Json sweep =
      json_of({"sweep", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "128k,1m"});
  EXPECT_EQ(sweep.at("tables").at("plans").at(0).at("beyond_model_maximum"), false);
  EXPECT_EQ(sweep.at("tables").at("plans").at(1).at("beyond_model_maximum"), true);
  EXPECT_EQ(sweep.at("tables").at("plans").at(1).at("longest_context"), 163840);
  const RunResult csv =
      memcalc({"sweep", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "1m", "-o", "csv"});
  expect_has(csv.err, "context 1,048,576 is beyond");
  expect_has(said({"sweep", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "128k,1m"}).at(0),
             "2 plans: 2 fit, 0 not, 0 impossible; 1 beyond the model's own maximum");
  expect_lacks(out_of({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8"}), "beyond");
}

// ---- real lengths -------------------------------------------------------------------------------------------------------

TEST_F(MemcalcWishes, RealLengthsSpeakOfTheRequestsThatAreServed) {
  write("trace.csv", "100,50\n2000,500\n0,0\n300000,5\n");
  const Args plan{"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8"};
  const std::string said = lines(out_of(with(plan, {"--lengths", "trace.csv"}))).at(2);
  // (150 + 2,500) / 2; and no more at once than --max-seqs.
  expect_has(said,
             "real lengths (2 of 4 requests, mean 1,325 tokens): about 256 at once, 256 with 99 % certainty");
  expect_has(said, "as many as --max-seqs lets run");
  expect_has(said, "; 1 is longer than the context of 163,840, 1 has no token");
  const Json table =
      json_of(with(plan, {"--lengths", "trace.csv", "--max-seqs", "7"})).at("tables").at("lengths");
  for (const Json& row : table) {
    if (!row.at("what").get<std::string>().starts_with("at once")) continue;
    EXPECT_LE(row.at("replica"), 7) << row;
  }
  const auto none = [&](const std::string& text) {
    write("none.txt", text);
    return lines(out_of(with(plan, {"--lengths", "none.txt"}))).at(2);
  };
  expect_has(none("0 0\n"), "none of 1 request can be served: 1 has no token");
  expect_has(none("200000 1\n0 0\n0 0\n"),
             "none of 3 requests can be served: 1 is longer than the context of 163,840, 2 have no token");
  write("good.csv", "100,50\n");
  expect_has(lines(out_of(with(plan, {"--lengths", "good.csv"}))).at(2),
             "real lengths (1 request, mean 150 tokens)");
}

// ---- what does not fit --------------------------------------------------------------------------------------------------

TEST_F(MemcalcWishes, AFailedSolveShowsWhatPlanShowsAndWhatHelps) {
  const Args small{"deepseek-v3", "--gpu", "h100-sxm", "--gpus", "8", "--context", "64k"};
  const Json plan = json_of(with({"plan"}, small), 1);
  for (const char* unknown : {"context", "concurrency", "utilization"}) {
    const Args solve = with(with({"solve"}, small), {"--for", unknown});
    EXPECT_EQ(json_of(solve, 1).at("tables").at("layouts").at(0).at("layout"), plan.at("facts").at("layout"))
        << unknown;
    const std::string ways = said(solve, 1).at(1);
    // 78.1 GiB of fp8 weights a GPU do not fit 71.3 GiB; half of them do, and so does twice the number of GPUs.
    expect_has(ways, "--weights int4");
    expect_has(ways, "--gpus 16 (");
  }
  expect_has(said(with(with({"compare"}, small), {}), 1).at(1), "--gpus 16 (");
}

TEST_F(MemcalcWishes, ARemedyThatTheModelCannotHaveIsNotOffered) {
  // DeepSeek-V4 has one cache format in vLLM; in llama.cpp it has smaller ones.
  const Args wish{"plan", "deepseek-v4-flash", "--gpu", "b200", "--context", "33333", "--concurrency", "100"};
  expect_has(said(with(wish, {"--gpus", "2"}), 1).at(1), "100 sequences fit with:  --gpus ");
  expect_has(said(with(wish, {"--engine", "llama.cpp", "--weights", "q4_k_m"}), 1).at(1), "--cache q8_0");
}

TEST_F(MemcalcWishes, EveryRemedyHelps) {
  const Args plan{"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8"};
  const std::pair<const char*, const char*> wishes[] = {
      {"128k", "42"}, {"128k", "60"}, {"32k", "300"}, {"160k", "500"}};
  for (const auto& [context, wanted] : wishes) {
    const Args asked = with(plan, {"--context", context, "--concurrency", wanted});
    const std::string line = said(asked, 1).at(1);
    std::istringstream ways(line.substr(line.find(":  ") + 3));
    int tried = 0;
    for (std::string way; std::getline(ways, way, '|'); ++tried) {
      // The last of two equal flags would be refused, so it replaces the first.
      Args args = asked;
      std::istringstream words(way.substr(0, way.find('(')));
      for (std::string flag, value; words >> flag >> value;) {
        const auto given = std::find(args.begin(), args.end(), flag);
        if (given != args.end()) args.erase(given, given + 2);
        args.insert(args.end(), {flag, value});
      }
      EXPECT_EQ(memcalc(args).exit_code, 0) << way << '\n' << spelled(args);
    }
    EXPECT_GE(tried, 1) << line;
  }
}

TEST_F(MemcalcWishes, GivenStagesLeaveTheRestOfTheLayoutOpen) {
  // Two stages of four ranks: tp 4 holds 7 sequences, four replicas 6 each, tp 4 with four context ranks 30.
  const Args two{"deepseek-v3", "--gpu", "h200", "--gpus", "8", "--pp", "2"};
  const std::vector<std::string> plan = said(with(with({"plan"}, two), {"--concurrency", "20"}));
  expect_has(plan.at(0), "(PP2xTP4+DCP4), 160k context: 20 sequences fit, up to 30");
  expect_has(plan.at(1), "other layouts: PP2xTP4 holds 7, PP2xDP4+EP4 holds 24");
  expect_has(said({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--stages", "31,30"}).at(0),
             "(PP2xTP4+DCP4), 160k context: fits 30 sequences");
  expect_has(said(with(with({"solve"}, two), {"--for", "concurrency"})).at(0),
             "(PP2xTP4+DCP4): 30 sequences");
  // One that is given whole keeps what it says, and is shown beside those with its stages.
  const std::vector<std::string> heads = said(with(with({"plan"}, two), {"--tp", "4"}));
  expect_has(heads.at(0), "(PP2xTP4), 160k context: fits 7 sequences");
  expect_has(heads.at(1), "other layouts: PP2xTP4+DCP4 holds 30, PP2xDP4+EP4 holds 24");
}

TEST_F(MemcalcWishes, AnotherLayoutThatHoldsMoreSaysWhyItWasNotChosen) {
  const Args plan{"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "8k"};
  // Two replicas run 2 x 256 of their 2 x 290, eight context ranks of one replica 256 of the 621 that they hold.
  const std::vector<std::string> capped = said(plan);
  expect_has(capped.at(0), "(DP2xTP4+DCP4+EP8), 8k context: fits 580 sequences");
  expect_has(capped.at(1), "TP8+DCP8 holds 621 but runs 256 at once (--max-seqs), DP8+EP8 holds 368 (");
  const std::vector<std::string> free = said(with(plan, {"--max-seqs", "1000"}));
  expect_has(free.at(0), "(TP8+DCP8)");
  expect_lacks(free.at(1), "--max-seqs");
}

TEST_F(MemcalcWishes, AdviceOfALayoutIsFlagsToPaste) {
  // 24 of 128k are what eight replicas hold; tp 8 with eight context ranks holds 39.
  const Args wish{"plan", "deepseek-v3", "--gpu", "h200",         "--gpus",
                  "8",    "--context",   "128k",  "--concurrency"};
  expect_has(said(with(wish, {"36", "--attention", "dp"}), 1).at(1),
             "--tp 8 --dcp 8 (TP8+DCP8, without --attention)");
  EXPECT_EQ(memcalc(with(wish, {"36", "--tp", "8", "--dcp", "8"})).exit_code, 0);
  expect_has(said(with(wish, {"36", "--dp", "4", "--tp", "2", "--ep", "8"}), 1).at(1),
             "--tp 8 --dcp 8 (TP8+DCP8, without --dp and --ep)");
}

TEST_F(MemcalcWishes, AdviceOfMoreGpusGivesTheLayoutItNames) {
  const Args asked{"plan",  "kimi-k2", "--gpu",     "h200", "--gpus",        "8",  "--tp", "8",
                   "--dcp", "8",       "--context", "128k", "--concurrency", "100"};
  const std::string line = said(asked, 1).at(1);
  expect_has(line, "--gpus 16 --pp 2 (PP2xTP8+DCP8)");
  expect_has(said({"plan", "kimi-k2", "--gpu", "h200", "--gpus", "16", "--tp", "8", "--dcp", "8", "--pp", "2",
                   "--context", "128k", "--concurrency", "100"})
                 .at(0),
             "(PP2xTP8+DCP8), 128k context: 100 sequences fit");
}

// ---- numbers and their names --------------------------------------------------------------------------------------------

TEST_F(MemcalcWishes, OfAPipelineAllStagesAreSummed) {
  const Json plan = json_of(
      {"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "16", "--tp", "8", "--pp", "2", "--context", "64k"});
  double weights = 0;
  double cache = 0;
  for (const Json& stage : plan.at("tables").at("stages")) {
    weights += 8 * stage.at("weights_gib_per_gpu").get<double>();
    cache += 8 * stage.at("cache_gib_per_gpu").get<double>();
  }
  std::map<std::string, Json> rows;
  for (const Json& row : plan.at("tables").at("memory")) rows[row.at("part")] = row;
  EXPECT_NEAR(rows.at("weights").at("cluster_gib"), weights, 1e-6);
  EXPECT_NEAR(rows.at("left for the cache").at("cluster_gib"), cache, 1e-6);
  EXPECT_NEAR(rows.at("memory of a GPU").at("cluster_gib"), 16 * 150119383040.0 / (1 << 30), 1e-6);
  // 58 layers: 256 routed experts and a shared one lie on one rank each or are cut, 3 x 2048 x 7168 B with a scale of 4 B
  // for every 128 x 128; the router (256 x 7168 in bf16) is on every rank of a stage.
  const double expert = 3 * (2048.0 * 7168 + 4.0 * 16 * 56);
  const double experts = 58 * (257 * expert + 8 * 256.0 * 7168 * 2);
  EXPECT_NEAR(rows.at("  experts").at("cluster_gib"), experts / (1 << 30), 0.01);
  double parts = 0;
  for (const auto& [part, row] : rows) {
    if (part.starts_with("  ")) parts += row.at("cluster_gib").get<double>();
  }
  EXPECT_NEAR(parts, weights, 1e-6);
}

TEST_F(MemcalcWishes, NumbersOfOneGpuAreNamedSo) {
  // TP8+DCP8 keeps an eighth of the tokens: 70,272 / 8 B of a token on a GPU.
  const Args setting{"deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "64k"};
  const Json row = json_of(with({"compare"}, setting)).at("tables").at("layouts").at(0);
  EXPECT_EQ(row.at("layout"), "TP8+DCP8");
  EXPECT_EQ(row.at("bytes_per_token_per_gpu"), 8784);
  EXPECT_NEAR(row.at("weights_gib_per_gpu"), 79.312 + 0.238, 0.01);  // stored, and kv_b in 16 bits
  for (const char* command : {"compare", "sweep", "solve"}) {
    const std::string head = lines(out_of(with(with({command}, setting), {"-o", "csv"}))).at(0);
    expect_has(head, "weights_gib_per_gpu,cache_gib_per_gpu");
    expect_has(head, "bytes_per_token_per_gpu");
    expect_lacks(head, ",bytes_per_token,");
  }
}

TEST_F(MemcalcWishes, AnotherMemoryIsAnotherGpu) {
  const std::string cut =
      said({"plan", "llama-3.1-8b", "--gpu", "h200", "--gpu-memory", "80GiB", "--context", "8k"}).at(0);
  expect_has(cut, "on 1 x NVIDIA H200 SXM with 80GiB (--gpu-memory) (TP1)");
  expect_lacks(cut, "141 GB");
  expect_has(said({"plan", "llama-3.1-8b", "--gpu-memory", "80GiB", "--context", "8k"}).at(0),
             "on 1 x GPU with 80GiB (--gpu-memory)");
  refused({"plan", "llama-3.1-8b", "--gpu", "l4", "--kv-memory", "1000GiB"},
          {"--kv-memory 1000GiB is more than the", "of a GPU"});
  refused({"plan", "llama-3.1-8b", "--gpu", "h200", "--gpu-memory", "80GiB", "--kv-memory", "100GiB"},
          {"--kv-memory 100GiB is more than the 80.0 GiB of a GPU"});
}

TEST_F(MemcalcWishes, ABudgetThatCannotStandBesideTheWeightsIsDoubted) {
  // 626.9 GiB of weights on one GPU; an eighth of them and 20 GiB fit 139.8 GiB.
  const Args plan{"plan", "deepseek-v3", "--gpu", "h200", "--kv-memory", "20GiB", "--context", "32k"};
  expect_has(out_of(plan), "and the cache budget given (20.00 GiB) are more than the 139.81 GiB of a GPU");
  expect_lacks(out_of(with(plan, {"--gpus", "8", "--attention", "tp"})), "cache budget given");
}

TEST_F(MemcalcWishes, TheShortHelpNamesTheFlagsUsedMost) {
  const std::string help = out_of({"-h"});
  for (const char* flag : {"--gpu GPU", "--gpus COUNT", "--context COUNT", "--concurrency COUNT",
                           "--cache FORMAT", "--engine ENGINE", "--formulas", "--output"})
    expect_has(help, flag);
  expect_lacks(help, "--micro-batch");
}

}  // namespace
