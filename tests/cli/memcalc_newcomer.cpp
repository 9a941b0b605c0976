// SPDX-License-Identifier: Apache-2.0
// What users met who had only --help: configs that leave things open, engines that lack things, flags that contradict or do
// nothing, and answers that must agree with each other.
#include <cstdint>
#include <nlohmann/json.hpp>

#include "memcalc_fixture.hpp"

namespace {

using Json = nlohmann::json;
using mla::test::RunResult;

/// An MLA model of 4 layers, 16 heads, 512 + 64; fields replaced or (given as "") left out.
std::string config_with(const std::vector<std::pair<std::string, std::string>>& changes) {
  const std::vector<std::pair<std::string, std::string>> fields{
      {"architectures", R"(["DeepseekV3ForCausalLM"])"},
      {"model_type", R"("deepseek_v3")"},
      {"torch_dtype", R"("bfloat16")"},
      {"num_hidden_layers", "4"},
      {"hidden_size", "1024"},
      {"num_attention_heads", "16"},
      {"q_lora_rank", "384"},
      {"kv_lora_rank", "512"},
      {"qk_nope_head_dim", "128"},
      {"qk_rope_head_dim", "64"},
      {"v_head_dim", "128"},
      {"first_k_dense_replace", "1"},
      {"n_routed_experts", "64"},
      {"n_shared_experts", "2"},
      {"num_experts_per_tok", "6"},
      {"moe_intermediate_size", "512"},
      {"intermediate_size", "4096"},
      {"vocab_size", "32000"},
      {"quantization_config", ""},
      {"max_position_embeddings", "8192"}};
  std::string text;
  for (const auto& [name, usual] : fields) {
    std::string chosen = usual;
    for (const auto& [key, value] : changes) {
      if (key == name) chosen = value;
    }
    if (!chosen.empty()) text += (text.empty() ? "{\"" : ", \"") + name + "\": " + chosen;
  }
  return text + "}";
}

class MemcalcNewcomer : public MemcalcTest {
 protected:
  [[nodiscard]] std::string plan_of(const std::string& config, const Args& more = {}) const {
    Args args{"plan", "-", "--gpu", "h200"};
    args.insert(args.end(), more.begin(), more.end());
    const RunResult run = memcalc(args, {.stdin_text = config});
    EXPECT_EQ(run.exit_code, 0) << spelled(args) << run.err;
    return run.out;
  }
  [[nodiscard]] std::string out_of(const Args& args, int code = 0) const {
    const RunResult run = memcalc(args);
    EXPECT_EQ(run.exit_code, code) << spelled(args) << run.err;
    return run.out;
  }
};

// ---- configs that leave things open ---------------------------------------------------------------------------------------

TEST_F(MemcalcNewcomer, NoMaximumOfPositionsIsNoContextOfOneToken) {
  for (const char* value : {"null", ""}) {
    const std::string config = config_with({{"max_position_embeddings", value}});
    for (const char* command : {"plan", "solve", "compare"}) {
      refused({command, "-", "--gpu", "h200"}, {"no max_position_embeddings", "give --context"}, config);
    }
    refused({"savings", "-"}, {"no max_position_embeddings", "give --context"}, config);
    expect_has(lines(plan_of(config, {"--context", "4k"})).at(0), "4k context: fits ");
    // In a sweep it is a row beside others.
    write("config.json", config);
    const std::string sweep =
        out_of({"sweep", "deepseek-v2-lite", "config.json", "--gpu", "h200", "-o", "csv"});
    ASSERT_EQ(lines(sweep).size(), 3U);
    expect_has(lines(sweep)[2], "no max_position_embeddings");
    const RunResult solve = memcalc({"solve", "config.json", "--gpu", "h200", "--context", "4k"});
    expect_has(solve.out, "up to 4,096 tokens, as far as --context looks");
  }
}

TEST_F(MemcalcNewcomer, WhatIsGuessedIsSaid) {
  expect_lacks(plan_of(config_with({})), "warning: model_type");
  const std::string unknown =
      config_with({{"model_type", R"("brand_new")"}, {"architectures", R"(["BrandNewForCausalLM"])"}});
  expect_has(plan_of(unknown), "warning: model_type 'brand_new' is not an MLA class that was looked at");
  expect_has(
      plan_of(config_with({{"torch_dtype", R"("float13")"}})),
      "warning: weights: torch_dtype 'float13' is not known (allowed are bfloat16, float16 and float32)");
  const std::string quantised = config_with({{"quantization_config", R"({"quant_method": "aqlm"})"}});
  expect_has(plan_of(quantised), "warning: weights: quantization 'aqlm' cannot be read (known are fp8,");
  expect_lacks(plan_of(quantised, {"--weights", "int4"}), "aqlm");
  expect_has(plan_of(config_with({{"intermediate_size", ""}})),
             "warning: weights: no intermediate_size in the config");
  const std::string wordless = config_with({{"vocab_size", ""}});
  expect_has(plan_of(wordless), "warning: weights: no vocab_size in the config");
  expect_lacks(plan_of(wordless, {"--weight-bytes", "1GiB"}), "vocab_size");
  refused({"plan", "-", "--gpu", "h200"},
          {"first_k_dense_replace must be a whole number from 0 to 4, but is 99"},
          config_with({{"first_k_dense_replace", "99"}}));
}

// ---- engines and what they have -------------------------------------------------------------------------------------------

TEST_F(MemcalcNewcomer, MiniCPM3IsNoLatentCacheOnVllm) {
  // 40 heads, V padded from 64 to K's 96: 62 x 40 x 192 x 2 = 952,320 B a token; 20 GiB / 16 of them: 1,409 blocks.
  const Args vllm{"plan", "minicpm3-4b", "--gpu", "h200", "--kv-memory", "20GiB", "--context", "8k"};
  const std::string plan = out_of(vllm);
  expect_has(lines(plan).at(0), "fits 2 sequences");  // 1,408 / 512
  expect_has(plan, "952,320");
  expect_has(plan, "warning: vllm keeps K and V heads of minicpm3-4b");
  Args formulas = vllm;
  formulas.emplace_back("--formulas");
  expect_has(out_of(formulas), "62 layers x 40 heads x (96 + 96) x 2 B");
  Args sglang = vllm;
  sglang.insert(sglang.end(), {"--engine", "sglang"});
  // 35,712 B a token: 20 GiB / (64 x 35,712) = 9,395 pages, 128 a sequence.
  expect_has(lines(out_of(sglang)).at(0), "fits 73 sequences");
  expect_has(out_of({"table", "minicpm3-4b"}), "vllm 952,320 B, llama.cpp 793,600 B");
  // 40 GiB / 15,237,120 B: 2,818 blocks of 16 tokens.
  const RunResult log = memcalc({"explain", "-", "--model", "minicpm3-4b"},
                                {.stdin_text = "INFO Available KV cache memory: 40.00 GiB\n"
                                               "INFO GPU KV cache size: 45,088 tokens\n"});
  EXPECT_EQ(log.exit_code, 0) << log.out << log.err;
  expect_has(log.out, "a token takes 62 layers x 40 heads x (96 + 96) x 2 B");
  refused({"plan", "minicpm3-4b", "--gpu", "h200", "--emit-sweep"},
          {"K and V heads of minicpm3-4b", "sglang"});
}

TEST_F(MemcalcNewcomer, LlamaCppHasNoReplicasNorExpertRanksNorFp8Weights) {
  const Args base{"plan", "deepseek-v3", "--gpu",     "h200",      "--gpus",
                  "8",    "--engine",    "llama.cpp", "--context", "8k"};
  const auto with = [&](const Args& more) {
    Args args = base;
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  refused(base,
          {"the checkpoint of deepseek-v3 stores fp8 weights, which llama.cpp does not load", "q4_k_m"});
  refused(with({"--weights", "fp8"}), {"llama.cpp has no weight format fp8", "q8_0"});
  refused(with({"--weights", "q4_k_m", "--attention", "dp"}),
          {"llama.cpp has no data parallelism, but dp is 8"});
  refused(with({"--weights", "q4_k_m", "--tp", "8", "--ep", "8"}), {"no expert parallelism, but ep is 8"});
  refused(with({"--weights", "q4_k_m", "--tp", "8", "--dcp", "8"}), {"no decode context parallelism"});
  const std::string plan = out_of(with({"--weights", "q4_k_m"}));
  expect_has(lines(plan).at(0), "(PP8)");
  expect_has(plan, "cache_format  f16");
  expect_has(out_of(with({"--weights", "q4_k_m", "--tp", "8"})), "that is --pp 8, not tp 8");
  EXPECT_EQ(memcalc(with({"--weight-bytes", "40GiB"})).exit_code, 0) << "a size says enough";
  expect_has(
      out_of({"sweep", "deepseek-v3", "llama-3.1-8b", "--gpu", "h200", "--engine", "llama.cpp", "-o", "csv"}),
      "does not load");
  expect_has(lines(out_of({"solve", "llama-3.1-8b", "--gpu", "l4", "--engine", "llama.cpp", "--context", "8k",
                           "--concurrency", "1000", "--for", "gpus"},
                          1))
                 .at(0),
             "in one llama.cpp, which has no replicas");
  // What would help is in its own formats.
  const RunResult large =
      memcalc({"plan", "llama-3.1-70b", "--gpu", "a100-80gb", "--engine", "llama.cpp", "--context", "8k"});
  EXPECT_EQ(large.exit_code, 1);
  expect_has(lines(large.out).at(1), "--weights q8_0");
  const RunResult many = memcalc({"plan", "llama-3.1-8b", "--gpu", "h200", "--engine", "llama.cpp",
                                  "--context", "64k", "--concurrency", "30"});
  EXPECT_EQ(many.exit_code, 1);
  expect_has(lines(many.out).at(1), "--cache q8_0 --context ");
}

TEST_F(MemcalcNewcomer, TensorParallelismStaysInsideANode) {
  refused({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "16", "--tp", "16"},
          {"tp 16 is more than the 8 GPUs of a node", "--gpus-per-node 16"});
  refused(
      {"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--gpus-per-node", "4", "--attention", "tp"},
      {"tp 8 is more than the 4 GPUs of a node"});
  EXPECT_EQ(
      memcalc({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "16", "--tp", "16", "--gpus-per-node", "16"})
          .exit_code,
      0);
  expect_has(
      out_of({"sweep", "deepseek-v3", "--gpu", "h200", "--gpus", "16", "--layout", "tp16,dp16", "-o", "csv"}),
      "tp 16 is more than the 8 GPUs of a node");
  // 96 heads can be split by six, but nodes of eight cannot.
  refused({"plan", "kimi-k3", "--gpu", "h200", "--gpus", "42", "--pp", "7", "--tp", "6"},
          {"tp 6 does not divide the 8 GPUs of a node"});
  expect_lacks(
      out_of({"compare", "kimi-k3", "--gpu", "h200", "--gpus", "48", "--context", "64k", "--top", "0"}),
      "TP6");
  expect_lacks(out_of({"compare", "deepseek-v3", "--gpu", "h200", "--gpus", "16", "--gpus-per-node", "4",
                       "--top", "0"}),
               "TP8");
}

// ---- answers that agree ---------------------------------------------------------------------------------------------------

TEST_F(MemcalcNewcomer, PlanSolveAndSweepChooseWhatCompareRanksFirst) {
  for (const Args& setting : {Args{"deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "128k"},
                              Args{"kimi-k2", "--gpu", "h200", "--gpus", "16", "--context", "64k"},
                              Args{"llama-3.1-70b", "--gpu", "h100-sxm", "--gpus", "4", "--context", "32k"},
                              Args{"gpt-oss-120b", "--gpu", "h100-sxm", "--gpus", "6", "--context", "32k",
                                   "--gpus-per-node", "2"}}) {
    const auto ask = [&](const char* command, const Args& more) {
      Args args{command};
      args.insert(args.end(), setting.begin(), setting.end());
      args.insert(args.end(), more.begin(), more.end());
      args.insert(args.end(), {"-o", "json"});
      return Json::parse(out_of(args), nullptr, false);
    };
    const Json best = ask("compare", {}).at("tables").at("layouts").at(0);
    const Json plan = ask("plan", {}).at("facts");
    EXPECT_EQ(plan.at("layout"), best.at("layout"));
    EXPECT_EQ(plan.at("sequences"), best.at("sequences"));
    EXPECT_EQ(ask("solve", {"--for", "concurrency"}).at("facts").at("value"), best.at("sequences"));
    const Json sweep = ask("sweep", {}).at("tables").at("plans").at(0);
    EXPECT_EQ(sweep.at("layout"), best.at("layout"));
    EXPECT_EQ(ask("sweep", {"--layout", "all"}).at("tables").at("plans").size(),
              ask("compare", {"--top", "0"}).at("tables").at("layouts").size());
  }
}

TEST_F(MemcalcNewcomer, FewestGpusOfEveryLayout) {
  // 32 sequences of 64k of Kimi-K2: 958.5 GiB of fp8 weights leave too little on 16 H100; tp x dp alone would take 22.
  const RunResult run = memcalc(
      {"solve", "kimi-k2", "--gpu", "h100-sxm", "--context", "64k", "--concurrency", "32", "--for", "gpus"},
      {.timeout = std::chrono::seconds(60)});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  expect_has(lines(run.out).at(0), ": 18 x NVIDIA H100 SXM 80 GB (PP9xTP2+DCP2), which hold 43");
  for (const char* gpus : {"17", "16", "15"}) {
    EXPECT_EQ(memcalc({"compare", "kimi-k2", "--gpu", "h100-sxm", "--context", "64k", "--concurrency", "32",
                       "--gpus", gpus})
                  .exit_code,
              1)
        << gpus;
  }
}

TEST_F(MemcalcNewcomer, WhatFitsIsNotWhatRunsAtOnce) {
  const std::string first = lines(out_of({"plan", "llama-3.1-8b", "--gpu", "h200", "--context", "1k"})).at(0);
  expect_has(first, "; it runs at most 256 of them at once (--max-seqs)");
  const std::string replicas = lines(out_of({"plan", "llama-3.1-8b", "--gpu", "h200", "--context", "1k",
                                             "--gpus", "2", "--attention", "dp"}))
                                   .at(0);
  expect_has(replicas, "; a replica runs at most 256 of them at once (--max-seqs)");
  expect_lacks(
      lines(out_of({"plan", "llama-3.1-8b", "--gpu", "h200", "--context", "1k", "--max-seqs", "4k"})).at(0),
      "--max-seqs");
}

TEST_F(MemcalcNewcomer, SavingsBeginWithTheEnginesOwnNumber) {
  // Gemma-3-27B on vLLM: 2,048 + 6 x (ceil(9,215 / 16) + 1) = 5,510 blocks of 1,310,720 B at 32k: 6.73 GiB of the 15.5 of a
  // full cache (62 x 16 x 256 x 2 B x 32,768).
  const std::vector<std::string> said = lines(out_of({"savings", "gemma-3-27b", "--context", "32k"}));
  expect_has(said.at(1),
             "memory in vllm: 6.73 GiB a sequence in whole blocks, which saves 56.6 % of a full cache");
  // Kimi-Linear's groups of layers are padded: 18 blocks and 3 states of 15,482,880 B, 310 MiB.
  expect_has(lines(out_of({"savings", "kimi-linear", "--context", "32k"})).at(1),
             "310 MiB a sequence in whole blocks, 5.7 % more than a full cache");
  expect_lacks(out_of({"savings", "gemma-3-27b", "--engine", "none"}), "memory in none");
  // llama.cpp keeps window + micro-batch cells: 1,024 + 512 of 32,768 in 52 layers.
  // 16 x 256 x 2 B x (52 x 1,536 + 10 x 32,768) = 3.11 GiB.
  expect_has(lines(out_of({"savings", "gemma-3-27b", "--context", "32k", "--engine", "llama.cpp"})).at(1),
             "memory in llama.cpp: 3.11 GiB a sequence");
}

TEST_F(MemcalcNewcomer, BitsOfFormatsAreThoseOfTheirRows) {
  const Json formats = Json::parse(out_of({"list", "formats", "-o", "json"})).at("tables").at("formats");
  const auto bits = [&](const std::string& name, const std::string& use) -> double {
    for (const Json& row : formats) {
      if (row.at("name") == name && row.at("use") == use) return row.at("bits");
    }
    return -1;
  };
  EXPECT_NEAR(bits("fp8_ds_mla", "cache"), 656 * 8 / 576.0, 1e-9);    // 9.11
  EXPECT_NEAR(bits("nvfp4_ds_mla", "cache"), 432 * 8 / 576.0, 1e-9);  // 6
  EXPECT_NEAR(bits("fp8_per_token_head", "cache"), 8.25, 1e-9);       // a head of 128 and 4 B
  EXPECT_NEAR(bits("q8_0", "cache"), 8.5, 1e-9);
  EXPECT_NEAR(bits("q8_0", "weights"), 8.5, 1e-9);
  EXPECT_NEAR(bits("q4_k", "weights"), 4.5, 1e-9);
  EXPECT_NEAR(bits("q6_k", "weights"), 6.5625, 1e-9);
  EXPECT_NEAR(bits("nvfp4", "weights"), 4.5, 1e-9);
}

TEST_F(MemcalcNewcomer, RatiosOfSmallFormatsSayWhatTheyCompare) {
  const Args base{"plan", "deepseek-v3", "--gpu", "h200",     "--gpus",
                  "8",    "--versus",    "mha",   "--engine", "none"};
  const auto with = [&](const char* format) {
    Args args = base;
    args.insert(args.end(), {"--cache", format});
    return out_of(args);
  };
  // 128 x 320 B of fp8 against 656 B: 62.4; in bf16 81,920 against 1,152: 71.1.
  expect_has(with("fp8_ds_mla"), "MHA would take 62.4 times the bytes");
  expect_has(with("fp8_ds_mla"), "All in bf16: MHA 71.1 times");
  expect_lacks(with("fp8"), "All in bf16");
}

// ---- flags ----------------------------------------------------------------------------------------------------------------

TEST_F(MemcalcNewcomer, FlagsThatContradict) {
  const Args plan{"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8"};
  const auto refuse = [&](const Args& more, const std::vector<std::string>& says) {
    Args args = plan;
    args.insert(args.end(), more.begin(), more.end());
    refused(args, says);
  };
  refuse({"--attention", "dp", "--tp", "8"},
         {"--attention dp keeps whole attention replicas, but --tp 8 splits heads"});
  refuse({"--attention", "tp", "--dp", "2"}, {"--attention tp splits heads over all GPUs, but --dp 2"});
  refuse({"--gpu", "h100-sxm"}, {"--gpu is given 2 times, but takes one value"});
  refuse({"--tp", "2", "--pp", "2", "--dp", "1"}, {"tp 2 x dp 1 x pp 2 are 4 GPUs, but --gpus is 8"});
  refuse({"--tp", "1", "--pp", "1", "--dp", "1"}, {"are 1 GPU, but --gpus is 8"});
  refuse({"--kv-memory", "1GiB,2GiB"},
         {"2 cache budgets are given for 1 pipeline stage", "as many as --pp says"});
  refuse({"--context"}, {"--context needs a value: COUNT"});
  refuse({"--context", "--mtp"}, {"--context needs a value, but is followed by '--mtp'"});
  refused({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "-1"},
          {"--gpus is '-1'; it must be 1 to 65536"});
}

TEST_F(MemcalcNewcomer, FlagsWithoutEffectWarn) {
  const auto warned = [&](const Args& args, const std::string& sentence) {
    const RunResult run = memcalc(args);
    EXPECT_LE(run.exit_code, 1) << run.err;
    expect_has(run.out, "warning: " + sentence);
  };
  const auto plan = [](const char* model, const Args& more) {
    Args args{"plan", model, "--gpu", "h200", "--context", "4k"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  warned(plan("llama-3.1-8b", {"--mtp"}),
         "--mtp changes nothing here: llama-3.1-8b has no prediction layers");
  warned(plan("llama-3.1-8b", {"--mla-storage", "latent"}), "--mla-storage changes nothing here");
  warned(plan("llama-3.1-8b", {"--expert-weights", "fp8"}), "--expert-weights changes nothing here");
  warned(plan("llama-3.1-8b", {"--state-blocks", "all", "--speculative-tokens", "3"}),
         "--state-blocks and --speculative-tokens change nothing here: llama-3.1-8b has no recurrent layers");
  warned(plan("llama-3.1-8b", {"--micro-batch", "64"}), "--micro-batch changes nothing here");
  warned(plan("gemma-3-27b", {"--micro-batch", "64"}),
         "--micro-batch changes nothing here: vllm does not size");
  warned(plan("llama-3.1-8b", {"--kv-memory", "20GiB", "--weights", "fp8", "--utilization", "0.8"}),
         "--utilization and --weights change nothing here: --kv-memory is the cache's budget already");
  warned(plan("llama-3.1-8b", {"--weight-bytes", "8GiB", "--weights", "fp8"}),
         "--weights changes nothing here");
  warned(plan("llama-3.1-8b", {"--activations", "1GiB", "--batched-tokens", "16k"}),
         "--batched-tokens changes");
  warned(plan("llama-3.1-8b", {"--engine", "sglang", "--graphs", "2GiB"}),
         "--graphs changes nothing here: sglang");
  warned(plan("deepseek-v2-lite", {"--engine", "llama.cpp", "--cache-v", "q8_0"}),
         "--cache-v changes nothing here: a latent row");
  const Args solve{"solve", "llama-3.1-8b", "--gpu", "h200", "--context", "4k"};
  const auto solved = [&](const Args& more) {
    Args args = solve;
    args.insert(args.end(), more.begin(), more.end());
    return args;
  };
  warned(solved({"--for", "concurrency", "--concurrency", "3"}), "--concurrency changes nothing here");
  warned(solved({"--for", "utilization", "--utilization", "0.5"}), "--utilization changes nothing here");
  warned(solved({"--for", "gpus", "--gpus", "8"}), "--gpus changes nothing here");
  // And those that do something do not.
  for (const Args& args :
       {plan("deepseek-v3", {"--gpus", "8", "--mtp"}), plan("gemma-3-27b", {"--batched-tokens", "16k"}),
        plan("kimi-linear", {"--state-blocks", "all", "--speculative-tokens", "3"}),
        plan("gemma-3-27b", {"--engine", "llama.cpp", "--micro-batch", "64"}),
        plan("llama-3.1-8b", {"--utilization", "0.8", "--weights", "fp8"}),
        plan("llama-3.1-8b", {"--engine", "llama.cpp", "--cache-v", "q8_0"})}) {
    expect_lacks(out_of(args), "nothing here");
  }
}

// ---- engines --------------------------------------------------------------------------------------------------------------

TEST_F(MemcalcNewcomer, FormatsAnEngineLacksAreRefusedAlikeEverywhere) {
  const auto refuse = [&](const Args& more, const std::vector<std::string>& says) {
    for (const char* command : {"plan", "solve", "compare"}) {
      Args args{command, "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "4k"};
      args.insert(args.end(), more.begin(), more.end());
      refused(args, says);
    }
  };
  refuse({"--cache", "q8_0"}, {"vllm has no cache format q8_0", "it takes bf16, f16,"});
  refuse({"--engine", "llama.cpp", "--weights", "q4_k_m", "--cache", "fp8"},
         {"llama.cpp has no cache format fp8", "or iq4_nl"});
  refuse({"--cache", "fp8_ds_mla"},
         {"top-k indexer alone, and deepseek-v3 has none", "its 8-bit format is fp8"});
  refuse({"--cache-v", "fp8"}, {"vllm stores K and V in one format, not in bf16 and fp8"});
}

TEST_F(MemcalcNewcomer, WhatDoesNotFitIsSaidInPartsThatAddUp) {
  const auto said = [&](const Args& more) {
    Args args{"plan", "deepseek-v3", "--gpu", "h100-sxm", "--gpus", "8", "--tp", "8", "--context", "32k"};
    args.insert(args.end(), more.begin(), more.end());
    return out_of(args, 1);
  };
  // 79.6 + 4.6 - 71.3, 79.3 + 2.0 - 69.7 and 79.3 + 4.6 - 79.2, each rounded once.
  expect_has(said({}),
             "Weights (79.6 GiB) and runtime (4.6 GiB) exceed the 71.3 GiB a GPU may use by 12.9 GiB");
  expect_has(said({"--engine", "sglang"}),
             "Weights (79.3 GiB) and libraries (2.0 GiB) exceed the 69.7 GiB a GPU may use by 11.6 GiB");
  const std::string trt = said({"--engine", "tensorrt-llm"});
  expect_has(trt, "Weights (79.3 GiB) and runtime (4.6 GiB) exceed the 79.2 GiB of a GPU by 4.7 GiB");
  expect_has(trt, "memory - weights - runtime: nothing to take 0.9 of");
}

TEST_F(MemcalcNewcomer, EnginesThatServeNothingSaySo) {
  expect_has(out_of({"plan", "llama-3.1-8b", "--gpu", "h200", "--engine", "none"}),
             "warning: engine none: tokens are counted one by one");
  refused({"plan", "llama-3.1-8b", "--gpu", "h200", "--engine", "lmcache"},
          {"lmcache keeps the cache in host memory or on disk", "give --kv-memory"});
  // 64 GiB / (131,072 B x 256) are 2,048 chunks: 4 sequences of 128k.
  const std::string chunks =
      out_of({"plan", "llama-3.1-8b", "--gpu", "h200", "--engine", "lmcache", "--kv-memory", "64GiB"});
  expect_has(chunks, "fits 4 sequences");
  expect_has(chunks, "in chunks of 256 tokens");
  expect_lacks(chunks, "captured graphs");
}

TEST_F(MemcalcNewcomer, ExplainTakesWhatTheLogDoesNotSay) {
  // Qwen3-30B-A3B keeps 48 layers x 2 heads x 128 x 2 x 2 B a token on each of two ranks: 98,304 B / 2.
  const std::string log = "Available KV cache memory: 10.00 GiB\nGPU KV cache size: 218,448 tokens\n";
  const auto answer = [&](const Args& more) {
    Args args{"explain", "-", "--model", "qwen3-30b-a3b", "-o", "json"};
    args.insert(args.end(), more.begin(), more.end());
    const RunResult run = memcalc(args, {.stdin_text = log});
    EXPECT_LE(run.exit_code, 1) << run.err;
    return Json::parse(run.out);
  };
  EXPECT_EQ(answer({"--tp", "2"})["facts"]["explained"], true);
  expect_has(answer({"--tp", "2"})["facts"]["hypothesis"].get<std::string>(),
             "cache format bf16, blocks of 16, TP2");
  EXPECT_EQ(answer({"--tp", "4", "--cache", "bf16"})["facts"]["explained"], false);
  expect_has(answer({"--engine", "vllm@0.11", "--tp", "2"})["facts"]["hypothesis"].get<std::string>(),
             "vllm 0.10");
  refused({"explain", "-", "--model", "qwen3-30b-a3b", "--tp", "0"}, {"--tp is 0; it must be 1 to 65536"});
  refused({"explain", "-", "--model", "qwen3-30b-a3b", "--cache", "bf17"}, {"'bf17'"});
  refused({"explain", "-", "--model", "qwen3-30b-a3b", "--engine", "vlm"}, {"'vlm'", "'vllm'"});
}

TEST_F(MemcalcNewcomer, TheTableSaysWhatAnEnginesPlanCounts) {
  const std::string table = out_of({"table", "minicpm3-4b"});
  const std::size_t note = table.find("the 35,712 B are latent rows");
  ASSERT_NE(note, std::string::npos) << table;
  EXPECT_LT(note, table.find("Bytes of a token, all layers")) << "before the table, with the answer";
  expect_has(table, "vllm 952,320 B");
  expect_has(out_of({"plan", "minicpm3-4b", "--gpu", "h200"}), "952,320");
}

// ---- exit codes and pipes -------------------------------------------------------------------------------------------------

TEST_F(MemcalcNewcomer, ASweepInWhichNothingFitsIsExitOne) {
  const std::string none = out_of({"sweep", "deepseek-v3", "--gpu", "l4", "--gpus", "1,2", "-o", "csv"}, 1);
  EXPECT_EQ(lines(none).size(), 3U) << "its rows are printed all the same";
  EXPECT_NE(out_of({"sweep", "deepseek-v3", "--gpu", "l4,h200", "--gpus", "8", "-o", "csv"}), "");
}

TEST_F(MemcalcNewcomer, WarningsOfRowsGoToStderr) {
  const RunResult run = memcalc({"sweep", "minicpm3-4b", "--gpu", "h200", "-o", "csv"});
  EXPECT_EQ(lines(run.out).size(), 2U);
  expect_lacks(run.out, "warning");
  EXPECT_TRUE(run.err.starts_with("mla-memcalc: warning: vllm keeps K and V heads of minicpm3-4b"))
      << run.err;
  EXPECT_EQ(memcalc({"sweep", "llama-3.1-8b", "--gpu", "h200", "-o", "csv"}).err, "");
}

TEST_F(MemcalcNewcomer, HelpSaysWhatExitCodesMean) {
  for (const char* command :
       {"plan", "solve", "compare", "sweep", "savings", "table", "examples", "explain", "check", "list"}) {
    expect_has(out_of({command, "--help"}), "exit codes: 0 ");
  }
  expect_has(out_of({"plan", "--help"}), "1 it does not fit");
  expect_has(out_of({"check", "--help"}), "1 one differs");
}

TEST_F(MemcalcNewcomer, OneIsSingular) {
  const std::string one = out_of({"plan", "llama-3.1-8b", "--gpu", "h200", "--context", "8k"});
  expect_has(one, "GiB on 1 GPU ");
  expect_lacks(one, "1 GPUs");
  expect_has(
      lines(out_of({"plan", "llama-3.1-8b", "--gpu", "h200", "--context", "8k", "--concurrency", "1"})).at(0),
      "1 sequence fits, up to ");
  const std::string context =
      lines(out_of({"solve", "llama-3.1-8b", "--gpu", "l40s", "--for", "context"})).at(0);
  expect_has(context, "1 sequence fits up to 131,072 tokens, the model's own maximum");
  expect_has(
      lines(out_of({"solve", "llama-3.1-8b", "--gpu", "h200", "--context", "8k", "--for", "gpus"})).at(0),
      "1 x NVIDIA H200 SXM 141 GB (TP1), which holds ");
}

TEST_F(MemcalcNewcomer, AGivenBudgetOfNothingIsNotTheWeightsFault) {
  const std::string plan =
      out_of({"plan", "llama-3.1-8b", "--gpu", "h200", "--context", "8k", "--kv-memory", "0GiB"}, 1);
  expect_has(lines(plan).at(0), "not one such sequence fits; the longest is 0 tokens");
  expect_lacks(plan, "does not fit. Weights");
}

TEST_F(MemcalcNewcomer, ComparesExtraRanksAreExplained) {
  const std::string all =
      out_of({"compare", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "128k", "--top", "3"});
  expect_has(all, "below rank 3: layouts people ask about by name");
  expect_lacks(out_of({"compare", "llama-3.1-8b", "--gpu", "h200", "--gpus", "1", "--context", "8k"}),
               "below rank");
}

}  // namespace
