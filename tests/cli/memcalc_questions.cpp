// SPDX-License-Identifier: Apache-2.0
// What the questions share: hand-over to mla-bench, real sizes of weights, words of the answers, and what is refused.
#include <cstdint>
#include <nlohmann/json.hpp>

#include "memcalc_fixture.hpp"

namespace {

using Json = nlohmann::json;
using mla::test::RunResult;

class MemcalcQuestions : public MemcalcTest {
 protected:
  [[nodiscard]] mla::test::RunResult bench(const Args& args, const std::string& spec) const {
    return mla::test::run_program(MLA_BENCH, args,
                                  {.stdin_text = spec,
                                   .env = {{"MLA_CONFIG_DIR", MLA_SOURCE_DIR "/configs"}},
                                   .directory = dir_.string()});
  }
  /// A one-tensor-per-name safetensors file; every tensor is bf16 and of that many elements.
  void write_shard(const std::string& name,
                   const std::vector<std::pair<std::string, std::int64_t>>& tensors) const {
    std::string header = "{";
    std::int64_t at = 0;
    for (const auto& [tensor, elements] : tensors) {
      if (at > 0) header += ", ";
      header += "\"" + tensor + "\": {\"dtype\": \"BF16\", \"shape\": [" + std::to_string(elements) +
                "], \"data_offsets\": [" + std::to_string(at) + ", " + std::to_string(at + 2 * elements) +
                "]}";
      at += 2 * elements;
    }
    header += "}";
    std::string bytes;
    for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 0xFF);
    write(name, bytes + header + std::string(static_cast<std::size_t>(at), '\0'));
  }
};

TEST_F(MemcalcQuestions, EmitSweepIsReadByTheBench) {
  const RunResult spec = memcalc({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--tp", "8",
                                  "--context", "64k", "--kv-memory", "20GiB", "--emit-sweep"});
  ASSERT_EQ(spec.exit_code, 0) << spec.err;
  // tp 8: 16 of 128 heads. 20 GiB / (61 x 64 x 1,152 B) = 4,775 blocks, one reserved: 4,774 / 1,024 = 4 sequences of 64k,
  // / 512 = 9 of 32k, / 256 = 18, / 128 = 37, / 64 = 74, / 32 = 149, and at most 256 at once from 1,024 keys on.
  expect_has(spec.out, "\"dims\": \"h16/l512/r64/p128/v128\"");
  expect_has(spec.out, "\"batch\": \"4q1s64k,9q1s32k,18q1s16k,37q1s8k,74q1s4k,149q1s2k,256q1s1k\"");
  const RunResult dry = bench({"run", "--dry-run", "--spec", "-", "--backend", "cpu-absorbed"}, spec.out);
  EXPECT_EQ(dry.exit_code, 0) << dry.err;
  expect_has(dry.out, "planned: 7 points");
  expect_has(dry.out, "h16 l512 r64 p128 v128 149q1s2k");
}

TEST_F(MemcalcQuestions, TimesOfTheBenchBecomeTokensPerSecond) {
  const std::string run = (dir_ / "with.jsonl").string();
  const auto record = [](const std::string& batch, const std::string& backend, double us,
                         const std::string& more) {
    return "{\"schema_version\":1,\"type\":\"point\",\"key\":\"decode head h16 l512 r64 p128 v128 " + batch +
           " causal b64 q:bf16 out:bf16 cache:bf16\",\"backend\":\"" + backend +
           "\",\"device\":\"NVIDIA "
           "H200\",\"cache_state\":\"cold\",\"timer\":\"graph\",\"status\":\"ok\",\"time_us\":" +
           std::to_string(us) + more + "}\n";
  };
  std::ofstream(run) << record("4q1s64k", "slow", 300, "") << record("4q1s64k", "fast", 100, "")
                     << record("4q1s64k", "forced", 1, ",\"num_splits\":4")
                     << record("256q1s1k", "fast", 400, "");
  const std::vector<std::string> plan{"plan", "deepseek-v3", "--gpu",     "h200", "--gpus",      "8",
                                      "--tp", "8",           "--context", "64k",  "--kv-memory", "20GiB"};
  std::vector<std::string> args = plan;
  args.insert(args.end(), {"--with", run});
  const RunResult r = memcalc(args);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  // Four sequences of 64k at 100 us x 61 layers: 6.10 ms, 655 tokens/s. 256 of 1k: 24.40 ms, 10,491.
  expect_has(r.out, "61 layers");
  expect_has(r.out, "6.10");
  expect_has(r.out, "655");
  expect_has(r.out, "24.40");
  expect_has(r.out, "10,491");
  EXPECT_EQ(r.out.find("forced"), std::string::npos);
  args = plan;
  args.insert(args.end(), {"--cache", "fp8", "--with", run});
  refused(args, {"no decode time for the cache format fp8", "--emit-sweep"});
  args = plan;
  args.insert(args.end(), {"--with", (dir_ / "nothing").string()});
  refused(args, {"nothing"});
}

TEST_F(MemcalcQuestions, EmptySlotsAreThoseOfTheUnitThatAllRanksShare) {
  // With dcp 8 a request takes units of 64 x 8 tokens: 1200 -> 1536 and 5300 -> 5632, so 668 of 7168 stay empty.
  write("trace.csv", "1000,200\n5000,300\n");
  const RunResult r = memcalc({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "8k",
                               "--tp", "8", "--dcp", "8", "--lengths", (dir_ / "trace.csv").string()});
  ASSERT_EQ(r.exit_code, 0) << r.err;
  expect_has(r.out, "empty slots of last blocks, %          9.32");
}

TEST_F(MemcalcQuestions, WhatRunsAsManyAsItHasCellsForSaysSo) {
  const RunResult r = memcalc({"plan", "llama-3.1-8b", "--gpu", "h100", "--gpus", "1", "--context", "512",
                               "--engine", "llama.cpp", "--max-seqs", "4"});
  EXPECT_EQ(r.exit_code, 0) << r.err;
  expect_has(r.out + r.err, "a limit of 4 sequences (--max-seqs) changes nothing with llama.cpp");
  expect_has(r.out + r.err, "runs at most 256 of them at once (LLAMA_MAX_SEQ)");
  std::string trace;
  for (int i = 0; i < 400; ++i) trace += "400,100\n";
  write("trace.csv", trace);
  const RunResult lengths =
      memcalc({"plan", "llama-3.1-8b", "--gpu", "h200", "--gpus", "1", "--context", "512", "--engine",
               "llama.cpp", "--lengths", (dir_ / "trace.csv").string()});
  expect_has(lengths.out, "as many as LLAMA_MAX_SEQ lets run");
  refused({"plan", "deepseek-v3", "--gpu", "h200", "--engine", "vllm@2025-13"},
          {"'2025-13' is neither a version nor a month of vllm"});
}

TEST_F(MemcalcQuestions, WhatDoesNotFitSaysAlsoWhatRunsAtOnce) {
  const RunResult r = memcalc({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "128k",
                               "--max-seqs", "16", "--concurrency", "400"});
  EXPECT_EQ(r.exit_code, 1) << r.err;
  expect_has(r.out, "400 sequences do not fit, only ");
  expect_has(r.out.substr(0, r.out.find('\n')), "at most 16 of them at once (--max-seqs)");
}

TEST_F(MemcalcQuestions, EmitSweepOfOtherShapes) {
  // dcp 4: each rank keeps a quarter of the keys. fp8 on a top-k model is vLLM's 656-byte row.
  const RunResult sparse = memcalc({"plan", "deepseek-v3.2", "--gpu", "h200", "--gpus", "8", "--tp", "8",
                                    "--dcp", "4", "--context", "64k", "--cache", "fp8", "--emit-sweep"});
  ASSERT_EQ(sparse.exit_code, 0) << sparse.err;
  expect_has(sparse.out, "\"cache\": \"fp8_ds_mla\"");
  expect_has(sparse.out, "\"topk\": \"2048\"");
  expect_has(sparse.out, "q1s16k");
  expect_has(sparse.out, "h64/l512");  // 128 / 8 of one rank, times 4: DCP gathers its group's queries
  EXPECT_EQ(bench({"run", "--dry-run", "--spec", "-"}, sparse.out).exit_code, 0);
  const RunResult none = memcalc({"plan", "deepseek-v3", "--gpu", "h200", "--emit-sweep"});
  EXPECT_EQ(none.exit_code, 1) << "the weights alone do not fit";
  EXPECT_EQ(none.out, "") << "nothing that a pipe could take for a spec";
  expect_has(none.err, "not one sequence");
  refused({"plan", "llama-3.1-70b", "--gpu", "h200", "--gpus", "2", "--emit-sweep"},
          {"llama-3.1-70b", "mla-bench"});
  refused({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--cache", "q8_0", "--emit-sweep"},
          {"q8_0", "bf16"});
}

TEST_F(MemcalcQuestions, TheFirstLinesAnswer) {
  const Args base{"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "128k"};
  const auto with = [&](const Args& more) {
    Args args = base;
    args.insert(args.end(), more.begin(), more.end());
    return lines(memcalc(args).out);
  };
  const std::vector<std::string> versus = with({"--versus", "mha"});
  expect_has(versus.at(2), "MHA would take 71.1 times the bytes");
  write("trace.csv", "100,50\n2000,500\n");
  expect_has(with({"--lengths", "trace.csv"}).at(2), "real lengths (2 requests, mean 1,325 tokens): about ");
  const RunResult piped = memcalc({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--lengths", "-"},
                                  {.stdin_text = "100 50\n"});
  EXPECT_EQ(piped.exit_code, 0) << piped.err;
  expect_has(piped.out, "real lengths (1 request,");

  const std::vector<std::string> savings =
      lines(memcalc({"savings", "deepseek-v3", "--context", "128k", "--window", "4k", "--sink", "128"}).out);
  expect_has(savings.at(0), "which saves 96.8 % of the reads");  // 4,224 of 131,072
  expect_has(savings.at(1), "memory in vllm: 8.58 GiB a sequence in whole blocks, as much as a full cache");
  expect_has(savings.at(2),
             "a full cache stores 8.58 GiB and saves nothing; a ring cache would store 283 MiB");

  const std::vector<std::string> compare = lines(memcalc({"compare", "deepseek-v3", "--gpu", "h200", "--gpus",
                                                          "8", "--context", "128k", "--concurrency", "30"})
                                                     .out);
  expect_has(compare.at(0), "layouts hold 30 sequences; TP8+DCP8 holds most, 38 sequences");
  const RunResult none = memcalc({"compare", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context",
                                  "128k", "--concurrency", "400"});
  EXPECT_EQ(none.exit_code, 1);
  expect_has(lines(none.out).at(0), "no layout holds 400 sequences");
}

TEST_F(MemcalcQuestions, TracesInTheFormsPeopleHave) {
  const char* texts[] = {
      "300,40\n500,60\n",
      "Timestamp,Model,Request tokens,Response tokens,Total "
      "tokens\n5,ChatGPT,300,40,340\n6,GPT-4,500,60,560\n",
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,300,40\n2023-11-16 18:15:47,500,60\n",
      "{\"timestamp\": 1, \"input_length\": 300, \"output_length\": 40}\n"
      "{\"timestamp\": 2, \"input_length\": 500, \"output_length\": 60}\n",
      "[{\"prompt_tokens\": 300, \"completion_tokens\": 40}, [500, 60]]"};
  for (const char* text : texts) {
    const RunResult run = memcalc({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--lengths", "-"},
                                  {.stdin_text = text});
    EXPECT_EQ(run.exit_code, 0) << text << run.err;
    expect_has(run.out, "real lengths (2 requests, mean 450 tokens)");
  }
  const auto bad = [&](const std::string& text, const std::string& part) {
    write("trace.json", text);
    refused({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--lengths", "trace.json"},
            {"trace.json", part});
  };
  bad("[[1, 2], [3", "not a whole JSON array");
  bad("[]", "holds no request");
  bad("[[1, 2], [3]]", "request 2");
  bad("[[1, 2.5]]", "request 1");
  bad("[[1, -2]]", "request 1 has 1 and -2 tokens");
  bad("[[1, NaN]]", "not a whole JSON array");
  bad("[{\"prompt_len\": 5}]", "output_len");
  bad("[{\"prompt_len\": 5, \"output_len\": null}]", "output_len");
}

TEST_F(MemcalcQuestions, NobodyIsOfferedAUselessContext) {
  // Kimi-K2 leaves 0.29 GiB on each of eight GPUs: a hundred sequences would have some 40 tokens each.
  const RunResult run = memcalc(
      {"plan", "kimi-k2", "--gpu", "h200", "--gpus", "8", "--context", "64k", "--concurrency", "100"});
  EXPECT_EQ(run.exit_code, 1);
  expect_has(lines(run.out).at(1), "100 sequences fit with:  ");
  expect_lacks(lines(run.out).at(1), "--context");
}

TEST_F(MemcalcQuestions, WeightsThatDoNotFitHaveRemediesToo) {
  // GLM-5.2 is 743 billion bf16 weights: 1,385 GiB are more than eight H200 have; a byte each is not.
  const RunResult run = memcalc({"plan", "glm-5.2", "--gpu", "h200", "--gpus", "8", "--context", "32k"});
  EXPECT_EQ(run.exit_code, 1);
  expect_has(lines(run.out).at(0), "does not fit. Weights");
  expect_has(lines(run.out).at(1), "1 sequence fits with:  --weights fp8  |  ");
  expect_has(lines(run.out).at(1), "--gpus 16 (");
  expect_lacks(run.out, "other layouts");  // all of them hold none
  EXPECT_EQ(
      memcalc({"plan", "glm-5.2", "--gpu", "h200", "--gpus", "8", "--context", "32k", "--weights", "fp8"})
          .exit_code,
      0);
}

TEST_F(MemcalcQuestions, TheTrapIsShownWhereverItRanks) {
  const RunResult run =
      memcalc({"compare", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--context", "128k", "--top", "3"});
  for (const char* layout : {"TP8 ", "TP8+DCP8", "DP8+EP8", "PP2xTP4 "}) expect_has(run.out, layout);
  expect_has(run.out,
             "TP8 keeps the same latent rows on all 8 ranks (MLA has one latent head) and holds 4 sequences");
  const RunResult ordinary = memcalc({"compare", "llama-3.1-70b", "--gpu", "h200", "--gpus", "8"});
  expect_lacks(ordinary.out, "same latent rows");
}

TEST_F(MemcalcQuestions, FewestGpusLooksAtAllLayouts) {
  // Llama-3.1-70B takes 131.4 GiB in bf16: replicas alone never fit an 80 GB GPU, splitting heads does.
  const RunResult run =
      memcalc({"solve", "llama-3.1-70b", "--gpu", "h100-sxm", "--context", "8k", "--for", "gpus"});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
  expect_has(lines(run.out).at(0), "2 x NVIDIA H100 SXM 80 GB (TP2)");
}

TEST_F(MemcalcQuestions, BadValues) {
  const Args plan{"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8"};
  const auto bad = [&](const Args& more, const std::vector<std::string>& says) {
    Args args = plan;
    args.insert(args.end(), more.begin(), more.end());
    refused(args, says);
  };
  bad({"--versus", "gqb"}, {"'gqb'", "mha, mqa and gqa:HEADS"});
  bad({"--versus", "gqa:3"}, {"gqa:3", "128 query heads"});
  bad({"--versus", "gqa:0"}, {"gqa", "'0'"});
  bad({"--versus", "mha,,mqa"}, {"--versus", "empty item"});
  bad({"--versus", ""}, {"--versus is empty"});
  refused({"plan", "deepseek-v4-flash", "--gpu", "h200", "--gpus", "8", "--versus", "mha"},
          {"compressed entries"});

  refused({"savings"}, {"model"});
  refused({"savings", "deepseek-v3", "--window", "0"}, {"--window is 0"});
  refused({"savings", "deepseek-v3", "--window", "-4"}, {"--window", "'-4'"});
  refused({"savings", "deepseek-v3", "--window", "4k", "--sink", "many"}, {"--sink", "'many'"});
  refused({"savings", "deepseek-v3", "--sink", "4"}, {"sink 4", "without a window"});
  refused({"savings", "deepseek-v3.2", "--window", "4k"}, {"top-k 2048", "--window"});
  refused({"savings", "deepseek-v4-flash"}, {"compressed entries"});
  refused({"savings", "deepseek-v3", "--context", "0"}, {"--context is 0"});
  refused({"savings", "deepseek-v3", "--context", "99999999999999999999"}, {"--context"});
  refused({"savings", "deepseek-v3", "--block", "0"}, {"--block is 0"});
  refused({"savings", "llama-3.1-70b", "--cache", "fp8_ds_mla"}, {"fp8_ds_mla"});

  refused({"sweep"}, {"models"});
  refused({"sweep", "deepseek-v3"}, {"--gpu"});
  refused({"sweep", "deepseek-v33", "--gpu", "h200"}, {"'deepseek-v33'"});
  refused({"sweep", "deepseek-v3", "--gpu", "h200,h2000"}, {"'h2000'"});
  refused({"sweep", "deepseek-v3", "--gpu", "h200", "--gpus", "8,x"}, {"--gpus", "'x'"});
  refused({"sweep", "deepseek-v3", "--gpu", "h200", "--gpus", "0"}, {"--gpus is 0"});
  refused({"sweep", "deepseek-v3", "--gpu", "h200", "--context", "8k..4k"}, {"--context", "'8k..4k'"});
  refused({"sweep", "deepseek-v3", "--gpu", "h200", "--context", "1..2m"}, {"more than 100000"});
  refused({"sweep", "deepseek-v3", "--gpu", "h200", "--context", "1..60k", "--gpus", "1,2"},
          {"points", "100000"});
  refused({"sweep", "deepseek-v3", "--gpu", "h200", "--cache", "bf16,bf17"}, {"'bf17'"});
  refused({"sweep", "deepseek-v3", "--gpu", "h200", "--layout", "tp8,zp2"}, {"'zp2'", "dp8+ep8"});
  refused({"sweep", "deepseek-v3", "--gpu", "h200", "--layout", "tp8xtp2"}, {"'tp2'"});
  refused({"sweep", "deepseek-v3", "--gpu", "h200", "--layout", "tp99999999999999"}, {"tp99999999999999"});
}

TEST_F(MemcalcQuestions, ASweepKeepsWhatCannotBe) {
  const RunResult run =
      memcalc({"sweep", "glm-4.7-flash", "minicpm3-4b", "--gpu", "h200", "--gpus", "8", "--layout", "tp8,dp8",
               "--cache", "fp8_ds_mla", "--context", "8k", "-o", "csv"});
  EXPECT_EQ(run.exit_code, 1) << run.err;
  const std::vector<std::string> rows = lines(run.out);
  ASSERT_EQ(rows.size(), 5U) << "every point is a row";
  expect_has(rows[1], "tp 8 does not divide the 20 attention heads of glm-4.7-flash");
  expect_has(rows[2], "top-k indexer alone, and glm-4.7-flash has none");
  expect_has(rows[3], "top-k indexer alone, and minicpm3-4b has none");
  expect_has(rows[4], "top-k indexer alone, and minicpm3-4b has none");
  const RunResult mixed = memcalc({"sweep", "glm-4.7-flash", "--gpu", "h200", "--gpus", "8", "--layout",
                                   "dp8", "--cache", "fp8,fp8_ds_mla", "--context", "8k", "-o", "csv"});
  EXPECT_EQ(mixed.exit_code, 0) << mixed.err;
  expect_has(mixed.out, "DP8+EP8,fp8,8192,true");
  const RunResult all =
      memcalc({"sweep", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--layout", "all", "-o", "csv"});
  for (const char* layout : {",TP8,", ",TP8+DCP8,", ",DP8+EP8,", ",PP2xTP4,", ",PP8,"})
    expect_has(all.out, layout);
}

// ---- real sizes of weights ----------------------------------------------------------------------------------------------

/// One decoder layer of 8 wide heads: 256 wide, 4 heads, dense FFN of 512, 1,000 words.
constexpr const char* kTiny =
    R"({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1,
  "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 4, "intermediate_size": 512, "vocab_size": 1000,
  "max_position_embeddings": 64, "torch_dtype": "bfloat16"})";

TEST_F(MemcalcQuestions, TheIndexAloneScalesToItsTotal) {
  write("config.json", kTiny);
  // By the config: attention 4 x 256 x 256, FFN 3 x 512 x 256, norms 3 x 256, embedding and head 2 x 1000 x 256, in bf16.
  const std::int64_t implied = 2 * (4 * 256 * 256 + 3 * 512 * 256 + 3 * 256 + 2 * 1000 * 256);
  const std::int64_t rope = 64 * 64 * 2;  // the engine makes it; it is in no file
  write("model.safetensors.index.json",
        "{\"metadata\": {\"total_size\": " + std::to_string(2 * implied) +
            "}, \"weight_map\": {\"model.layers.0.mlp.up_proj.weight\": \"a.safetensors\"}}");
  const RunResult run = memcalc({"plan", "config.json", "--gpu", "l4", "--safetensors-index",
                                 "model.safetensors.index.json", "-o", "json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json answer = Json::parse(run.out);
  EXPECT_EQ(answer.at("tables").at("memory").at(2).at("part"), "weights");
  EXPECT_EQ(answer.at("tables").at("memory").at(2).at("bytes_per_gpu"), 2 * implied + rope);
  expect_has(answer.at("tables").at("memory").at(2).at("how").get<std::string>(),
             "total of model.safetensors.index.json");
}

TEST_F(MemcalcQuestions, TheShardsBesideItGiveEachPart) {
  write("config.json", kTiny);
  write_shard("a.safetensors", {{"model.layers.0.self_attn.q_proj.weight", 1000},
                                {"model.layers.0.self_attn.o_proj.weight", 500},
                                {"model.layers.0.input_layernorm.weight", 256},
                                {"model.layers.0.mlp.up_proj.weight", 300000}});
  write_shard("b.safetensors",
              {{"model.embed_tokens.weight", 256000},
               {"lm_head.weight", 256000},
               {"vision_tower.patch.weight", 77},
               {"model.layers.1.eh_proj.weight", 5000}});  // a prediction layer the config does not know
  write(
      "index.json",
      R"({"metadata": {"total_size": 1}, "weight_map": {"model.layers.0.self_attn.q_proj.weight": "a.safetensors",
    "model.embed_tokens.weight": "b.safetensors"}})");
  const RunResult run = memcalc({"plan", "config.json", "--gpu", "l4", "--gpus", "2", "--tp", "2",
                                 "--safetensors-index", "index.json", "-o", "json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json memory = Json::parse(run.out).at("tables").at("memory");
  const auto bytes = [&](const std::string& part) -> std::int64_t {
    for (const Json& row : memory) {
      if (row.at("part") == part) return row.at("bytes_per_gpu");
    }
    return -1;
  };
  EXPECT_EQ(bytes("  attention"), 2 * 1500 / 2) << "cut over two ranks";
  EXPECT_EQ(bytes("  dense FFN"), 2 * 300000 / 2);
  EXPECT_EQ(bytes("  embedding and head"), 2 * 512000 / 2);
  // norms whole (256 of 768 stored), the rope table; the tower whole
  EXPECT_EQ(bytes("  norms, rope table, prediction layers"), 2 * 256 + 64 * 64 * 2);
  EXPECT_EQ(bytes("  vision tower, other tensors"), 2 * 77);
  const RunResult single =
      memcalc({"plan", "config.json", "--gpu", "l4", "--safetensors-index", "a.safetensors"});
  EXPECT_EQ(single.exit_code, 0) << single.err;
}

TEST_F(MemcalcQuestions, APublishedCheckpointIsWhatItsConfigImplies) {
  // The weight files of DeepSeek-V3 are 688,586,727,753 B: the main model, its prediction layer, and that layer's
  // copies of embedding and head. So the planner's 79.312 GiB a GPU at tp 8 stay what they are,
  // and kv_b in 16 bits, which no checkpoint holds, comes on top: 61 x 16 x 256 x 512 x 2 B = 0.238 GiB.
  write("index.json", R"({"metadata": {"total_size": 688586727753}, "weight_map": {
    "model.layers.0.self_attn.q_a_proj.weight": "a", "model.layers.61.eh_proj.weight": "b",
    "model.layers.61.embed_tokens.weight": "b", "model.layers.61.shared_head.head.weight": "b"}})");
  const RunResult run = memcalc({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--tp", "8",
                                 "--safetensors-index", "index.json", "-o", "json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json weights = Json::parse(run.out).at("tables").at("memory").at(2);
  EXPECT_NEAR(weights.at("gib_per_gpu").get<double>(), 79.312 + 0.238, 79.312 * 0.001);
}

TEST_F(MemcalcQuestions, BadIndexes) {
  write("config.json", kTiny);
  const auto bad = [&](const std::string& text, const std::vector<std::string>& says) {
    write("index.json", text);
    std::vector<std::string> parts = says;
    parts.emplace_back("index.json");
    refused({"plan", "config.json", "--gpu", "l4", "--safetensors-index", "index.json"}, parts);
  };
  const std::string map = R"("weight_map": {"model.layers.0.mlp.up_proj.weight": "a.safetensors"}})";
  bad("", {"not valid JSON"});
  bad("{\"metadata\": {\"total_s", {"not valid JSON", "line 1"});
  bad("[]", {"total_size"});
  bad("{" + map, {"'metadata.total_size' is not there"});
  for (const char* size :
       {"0", "-5", "\"many\"", "null", "NaN", "Infinity", "1e40", "99999999999999999999999", "[1]"}) {
    bad(std::string("{\"metadata\": {\"total_size\": ") + size + "}, " + map, {"'metadata.total_size' is "});
  }
  bad(R"({"metadata": {"total_size": 2000000}})", {"'weight_map' is not there"});
  bad(R"({"metadata": {"total_size": 2000000}, "weight_map": []})", {"'weight_map' is an array"});
  bad(R"({"metadata": {"total_size": 2000000}, "weight_map": {}})", {"names no tensor"});
  bad(R"({"metadata": {"total_size": 2000000}, "weight_map": {"x": 5}})", {"'x'", "5"});
  bad(R"({"metadata": {"total_size": 2000000}, "weight_map": {"x": "../../etc/passwd"}})",
      {"'x'", "same folder"});
  bad(R"({"metadata": {"total_size": 2000000}, "weight_map": {"x": "a"}, "weight_map": {}})", {"twice"});
  bad(R"({"metadata": {"total_size": 2000000}, "weight_map": {"transformer.wte": "a"}})",
      {"names no tensor of a layer"});
  bad(R"({"metadata": {"total_size": 900000000000}, "weight_map": {"model.layers.0.x": "a"}})",
      {"another model"});
  refused({"plan", "config.json", "--gpu", "l4", "--safetensors-index", "none.json"}, {"'none.json'"});
  refused({"plan", "config.json", "--gpu", "l4", "--safetensors-index", "."}, {"folder"});
  write("a.safetensors", "short");
  refused({"plan", "config.json", "--gpu", "l4", "--safetensors-index", "a.safetensors"}, {"a.safetensors"});
  write("index.json", "{\"metadata\": {\"total_size\": 2000000}, " + map);  // its shard is malformed
  refused({"plan", "config.json", "--gpu", "l4", "--safetensors-index", "index.json"}, {"a.safetensors"});
  write("a.safetensors", std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}");
  refused({"plan", "config.json", "--gpu", "l4", "--safetensors-index", "a.safetensors"}, {"a.safetensors"});
  write_shard("a.safetensors", {{"model.layers.0.mlp.down_proj.weight", 500000}});
  bad("{\"metadata\": {\"total_size\": 2000000}, " + map,
      {"'model.layers.0.mlp.up_proj.weight' is not in 'a.safetensors'"});
  refused({"plan", "config.json", "--gpu", "l4", "--safetensors-index", "a.safetensors", "--weight-bytes",
           "1GiB"},
          {"--safetensors-index", "--weight-bytes"});
}

}  // namespace
