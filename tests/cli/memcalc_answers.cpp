// SPDX-License-Identifier: Apache-2.0
// mla-memcalc as a user meets it: answers, formats, exit codes.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "run_program.hpp"

namespace {

using mla::test::run_program;
using mla::test::RunResult;

RunResult memcalc(const std::vector<std::string>& arguments, const std::string& stdin_text = {}) {
  std::vector<std::string> all = arguments;
  all.insert(all.end(), {"--config-dir", MLA_SOURCE_DIR "/configs"});
  return run_program(MLA_MEMCALC, all, {.stdin_text = stdin_text});
}

std::string line_of(const std::string& text, std::size_t number) {
  std::istringstream in(text);
  std::string line;
  for (std::size_t i = 0; i <= number && std::getline(in, line); ++i) {
  }
  return line;
}

std::string file_text(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "\"" << part << "\" is not in:\n" << text;
}

TEST(MemcalcPlan, AnswersOnTheFirstLine) {
  const RunResult run = memcalc({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "128k"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  // The layout that compare ranks first.
  expect_has(line_of(run.out, 0),
             "8 x NVIDIA H200 SXM 141 GB (TP8+DCP8), 128k context: fits 38 sequences, limited by");
  expect_has(line_of(run.out, 1), "other layouts: TP8 holds 4, DP8+EP8 holds 16");
  const RunResult replicas = memcalc(
      {"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "128k", "--attention", "dp"});
  expect_has(line_of(replicas.out, 0),
             "fits 16 sequences (2 on each of 8 replicas), limited by the KV cache");
  expect_has(run.out, "GiB a GPU");
  expect_has(run.out, "GB a GPU");
}

TEST(MemcalcPlan, WarnsWhereTensorParallelismReplicatesTheLatent) {
  const RunResult run = memcalc(
      {"plan", "deepseek-v3", "--gpu", "H200", "--gpus", "8", "--context", "128k", "--attention", "tp"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  expect_has(line_of(run.out, 0), "fits 4 sequences");
  expect_has(line_of(run.out, 1), "DP8+EP8 holds 16");
  expect_has(run.out, "warning: tp 8 replicates the latent cache");
}

TEST(MemcalcPlan, SaysWhatWouldMakeTheWishFit) {
  const RunResult run = memcalc({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "128k",
                                 "--concurrency", "64", "--attention", "dp"});
  EXPECT_EQ(run.exit_code, 1);
  expect_has(line_of(run.out, 0), "64 sequences do not fit, only 16");
  expect_has(line_of(run.out, 1), "64 sequences fit with:");
  expect_has(line_of(run.out, 1), "--context ");
  expect_has(line_of(run.out, 1), "--cache fp8 --context ");
  expect_has(line_of(run.out, 1), "--gpus 16 (DP16+EP16)");  // 7 on each of 16: 112; 13 are no whole nodes
  const RunResult fits = memcalc({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "128k",
                                  "--concurrency", "16", "--attention", "dp"});
  EXPECT_EQ(fits.exit_code, 0);
  expect_has(line_of(fits.out, 0), "16 sequences fit");
}

TEST(MemcalcPlan, DoesNotFitIsExitOne) {
  const RunResult weights = memcalc({"plan", "deepseek-v3", "--gpu", "h200", "--context", "4k"});
  EXPECT_EQ(weights.exit_code, 1);
  expect_has(line_of(weights.out, 0), "does not fit. Weights");
  const RunResult sequence = memcalc(
      {"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--attention", "tp", "--kv-memory", "1GiB"});
  EXPECT_EQ(sequence.exit_code, 1);
  expect_has(line_of(sequence.out, 0), "not one such sequence fits; the longest is 15,");
}

TEST(MemcalcPlan, ReproducesALoggedPool) {
  // vllm#20665
  const RunResult run = memcalc({"plan",        "deepseek-v2-lite",
                                 "--gpu",       "l4",
                                 "--gpus",      "4",
                                 "--tp",        "2",
                                 "--pp",        "2",
                                 "--block",     "16",
                                 "--kv-memory", "12.13GiB,11.33GiB",
                                 "--context",   "1k",
                                 "--engine",    "vllm@0.9",
                                 "-o",          "json"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  expect_has(run.out, "\"schema_version\"");
  expect_has(run.out, "\"kind\": \"memcalc.plan\"");
  expect_has(run.out, "\"layout\": \"PP2xTP2\"");
  expect_has(run.out, "\"stages\"");
}

TEST(MemcalcPlan, FormulasShowEveryNumber) {
  const RunResult run = memcalc({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "128k",
                                 "--attention", "dp", "--formulas"});
  EXPECT_EQ(run.exit_code, 0);
  for (const char* part :
       {"61 layers x (512 + 64) x 2 B", "floor(0.9 x 150,119,383,040)", "8 replicas x 2",
        "weights.attention.q_b", "58 layers x 32 experts x 3 x", "assumption", "ceil(131,072 / 64)"}) {
    expect_has(run.out, part);
  }
}

TEST(MemcalcPlan, RealLengthsInsteadOfFullContexts) {
  const RunResult run = memcalc({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--attention", "dp",
                                 "--context", "128k", "--lengths", MLA_TEST_DATA "/data/lengths.csv"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  expect_has(run.out, "Real lengths");
  expect_has(run.out, "at once, 99 % certain");
  const RunResult missing =
      memcalc({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--lengths", "/no/such"});
  EXPECT_EQ(missing.exit_code, 2);
  expect_has(missing.err, "/no/such");
}

TEST(MemcalcPlan, ReadsAConfigFromStdin) {
  const std::string config =
      R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32,
    "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "vocab_size": 128256, "max_position_embeddings": 131072, "torch_dtype": "bfloat16"})";
  const RunResult run = memcalc({"plan", "-", "--gpu", "l40s", "--context", "8k"}, config);
  EXPECT_EQ(run.exit_code, 0) << run.err;
  expect_has(line_of(run.out, 0), "fits ");
}

TEST(MemcalcSolve, AnswersEachQuestion) {
  const std::vector<std::string> base = {"solve",     "deepseek-v3", "--gpu",         "h200",
                                         "--gpus",    "8",           "--attention",   "dp",
                                         "--context", "128k",        "--concurrency", "16"};
  const auto ask = [&](const std::string& unknown) {
    std::vector<std::string> arguments = base;
    arguments.insert(arguments.end(), {"--for", unknown});
    return memcalc(arguments);
  };
  const RunResult context = ask("context");
  EXPECT_EQ(context.exit_code, 0) << context.err;
  expect_has(line_of(context.out, 0), "16 sequences fit up to ");
  expect_has(line_of(ask("concurrency").out, 0), "16 sequences of 131,072 tokens fit");
  expect_has(line_of(ask("gpus").out, 0), "8 x NVIDIA H200");
  expect_has(line_of(ask("utilization").out, 0), "fit from utilization 0.8");
  const RunResult none =
      memcalc({"solve", "deepseek-v3", "--gpu", "l4", "--context", "128k", "--for", "utilization"});
  EXPECT_EQ(none.exit_code, 1);
}

TEST(MemcalcCompare, RanksLayouts) {
  const RunResult run =
      memcalc({"compare", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "128k"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  expect_has(line_of(run.out, 0), "TP8+DCP8 holds most, 38 sequences");
  EXPECT_LT(run.out.find("TP8+DCP8", run.out.find('\n')), run.out.find("DP8+EP8"));
}

TEST(MemcalcTable, CsvIsGolden) {
  const RunResult run =
      memcalc({"table", "deepseek-v3", "deepseek-v3.2", "kimi-k2", "glm-5.2", "kimi-linear", "glm-4.7-flash",
               "minicpm3-4b", "llama-3.1-70b", "gemma-3-27b", "gpt-oss-120b", "-o", "csv"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, file_text(MLA_TEST_DATA "/cli/golden/memcalc_table.csv"));
}

TEST(MemcalcTable, AllModelsWithoutAName) {
  const RunResult run = memcalc({"table"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  expect_has(line_of(run.out, 0), "A token takes from ");
  for (const char* model :
       {"deepseek-v3", "kimi-k3", "longcat-flash", "mistral-small-4", "deepseek-v4-flash"}) {
    expect_has(run.out, model);
  }
  const RunResult formulas = memcalc({"table", "deepseek-v3.2", "--formulas", "-o", "md"});
  expect_has(formulas.out, "61 layers x (128 + 4 scale) B");
  expect_has(formulas.out, "128 heads x (192 + 128) x 2 B");
}

TEST(MemcalcExamples, BothLinesAreShown) {
  const RunResult run = memcalc({"examples"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  expect_has(run.out, "document prints");
  expect_has(run.out, "corrected");
  expect_has(run.out, "32,768 B");
  expect_has(run.out, "81,920 B");
  for (const char* format : {"json", "csv", "md"}) {
    EXPECT_EQ(memcalc({"examples", "-o", format, "--formulas"}).exit_code, 0) << format;
  }
}

TEST(MemcalcList, NamesEverything) {
  expect_has(memcalc({"list", "models"}).out, "deepseek-v3");
  expect_has(memcalc({"list", "gpus"}).out, "NVIDIA H200");
  expect_has(memcalc({"list", "engines"}).out, "tensorrt-llm");
  expect_has(memcalc({"list", "formats"}).out, "fp8_ds_mla");
  const RunResult names = memcalc({"list", "gpus", "--names"});
  EXPECT_EQ(names.exit_code, 0);
  expect_has(names.out, "\nh200\n");
}

TEST(MemcalcCheck, PublishedCasesAgree) {
  const RunResult run = memcalc({"check", MLA_TEST_DATA "/data/capacity-cases.json"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  expect_has(line_of(run.out, 0),
             "41 cases with 82 logged numbers: 76 agree, 2 explained, 4 not judged, 0 differ");
  expect_has(run.out, "the 8.11 GiB line is from another rank");
  expect_has(line_of(run.out, 1), "of those that agree");
  expect_has(run.out, "agrees by tolerance");  // 240,816 tokens, 0.9 % beyond 242,976..243,072
}

TEST(MemcalcCheck, ADifferenceIsExitOne) {
  const std::string one =
      R"([{"id": "wrong", "model": "v3", "config": {"attention": "mla", "num_hidden_layers": 61,
    "num_attention_heads": 128, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128}, "engine": {"name": "vllm"}, "inputs": {}, "expected": {"bytes_per_token": 70273}}])";
  const RunResult run = memcalc({"check", "-"}, one);
  EXPECT_EQ(run.exit_code, 1) << run.err;
  expect_has(run.out, "DIFFERS");
  expect_has(run.out, "61 layers x (512 + 64) x 2 B");
}

TEST(MemcalcExplain, AMangledNumberIsNotDroppedInSilence) {
  const std::string good =
      "INFO Available KV cache memory: 46.80 GiB\nINFO GPU KV cache size: 715,072 tokens\n";
  const std::vector<std::string> explain{"explain", "-", "--model", "kimi-k2", "--tp", "8"};
  const RunResult whole = memcalc(explain, good);
  EXPECT_EQ(whole.exit_code, 0) << whole.out << whole.err;
  EXPECT_EQ(whole.out.find("not readable"), std::string::npos);
  for (const char* bad : {"INFO GPU KV cache size: 99999999999999999999999 tokens\n",
                          "INFO Available KV cache memory: abc GiB\n"}) {
    const RunResult run = memcalc(explain, good + bad);
    EXPECT_EQ(run.exit_code, 1) << run.out << run.err;
    expect_has(run.out, "Line 3 is not readable");
    expect_has(memcalc(explain, bad).out, "Line 1 is not readable");
  }
}

TEST(MemcalcExplain, ReadsALogFromAFileAndFromStdin) {
  const std::string file = MLA_TEST_DATA "/data/logs/vllm_kimi_linear_tp2.log";
  const RunResult run = memcalc({"explain", file});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  expect_has(run.out, "do not contradict each other");
  EXPECT_EQ(memcalc({"explain"}, file_text(file)).out, run.out);
  const RunResult nothing = memcalc({"explain", MLA_TEST_DATA "/data/logs/rubbish.log"});
  EXPECT_EQ(nothing.exit_code, 1);
  expect_has(line_of(nothing.out, 0), "Nothing found");
  const RunResult unnamed = memcalc({"explain", MLA_TEST_DATA "/data/logs/vllm_cut_line.log"});
  EXPECT_EQ(unnamed.exit_code, 2);
  expect_has(unnamed.err, "names no model");
}

}  // namespace
