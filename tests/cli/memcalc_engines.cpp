// SPDX-License-Identifier: Apache-2.0
// What engines, their versions and GPUs bring along: drafters, whole windows, chunks in flight, blocks, formats.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "memcalc_fixture.hpp"

namespace {

using Json = nlohmann::json;
using mla::test::RunResult;

class MemcalcEngines : public MemcalcTest {
 protected:
  [[nodiscard]] std::string out_of(const Args& args, int code = 0) const {
    const RunResult run = memcalc(args);
    EXPECT_EQ(run.exit_code, code) << spelled(args) << '\n' << run.out << run.err;
    return run.out;
  }
  /// A number of the formulas, by key.
  [[nodiscard]] double number(Args args, const std::string& key) const {
    args.insert(args.end(), {"--formulas", "-o", "json"});
    const Json document = Json::parse(out_of(args), nullptr, false);
    for (const Json& row : document.at("tables").at("formulas")) {
      if (row.at("number") == key) return row.at("value").get<double>();
    }
    ADD_FAILURE() << key << " is not among the formulas of " << spelled(args);
    return -1;
  }
};

const std::vector<std::string> kV3{"plan", "deepseek-v3", "--gpu", "h200", "--tp", "8", "--context", "32k"};
const std::vector<std::string> kOss{"plan", "gpt-oss-120b", "--gpu", "h200", "--context", "32k"};

std::vector<std::string> with(std::vector<std::string> args, const std::vector<std::string>& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST_F(MemcalcEngines, DraftersKeepACacheAndHaveWeights) {
  // 61 layers of 1,152 B; a drafter's are as theirs, and take the place of the prediction layer unless it is asked for too.
  const auto token = [&](const std::vector<std::string>& more) {
    return number(with(kV3, more), "cache.bytes_per_token");
  };
  EXPECT_EQ(token({}), 61 * 1152);
  EXPECT_EQ(token({"--mtp"}), 62 * 1152);
  EXPECT_EQ(token({"--draft-layers", "1"}), 62 * 1152);
  EXPECT_EQ(token({"--draft-layers", "2"}), 63 * 1152);
  EXPECT_EQ(token({"--draft-layers", "1", "--mtp"}), 63 * 1152);
  // Llama-3.1-8B with EAGLE-3: 33 layers of 2 x 8 x 128 x 2 B. Its layer: q, k, v and o of 4096 x (4096 + 1024 + 1024 + 4096),
  // an FFN of 3 x 4096 x 14336, the joint 8192 -> 4096 and norms of 5 x 4096, bf16.
  const std::vector<std::string> llama{"plan", "llama-3.1-8b", "--gpu", "h100-sxm"};
  EXPECT_EQ(number(with(llama, {"--draft-layers", "1"}), "cache.bytes_per_token"), 33 * 4096);
  EXPECT_EQ(number(with(llama, {"--draft-layers", "1"}), "weights.total") - number(llama, "weights.total"),
            2.0 * (4096.0 * (4096 + 1024 + 1024 + 4096) + 3.0 * 4096 * 14336 + 8192.0 * 4096 + 5 * 4096));
  // Every question takes them: 10 GiB / (33 x 4,096 x 16 B) = 4,964 blocks, 9 sequences of 512 with one block reserved.
  expect_has(out_of({"solve", "llama-3.1-8b", "--gpu", "h100-sxm", "--for", "concurrency", "--context", "8k",
                     "--kv-memory", "10GiB", "--draft-layers", "1"}),
             "9 sequences");
  refused(with(kV3, {"--draft-layers", "0"}), {"--draft-layers is 0; it must be 1 to 64"});
  refused(with(kV3, {"--draft-layers", "many"}), {"--draft-layers", "'many'"});
  refused({"plan", "deepseek-v4-flash", "--gpu", "h200", "--gpus", "4", "--draft-layers", "1"},
          {"no full-length attention layer that a drafter could copy"});
}

TEST_F(MemcalcEngines, WholeWindowsOfLlamaCpp) {
  // 18 full layers and 18 of window 128, 2,048 B a token each in f16: 768 cells (128 + 512, padded) or the whole context.
  const std::vector<std::string> ggml = with(kOss, {"--engine", "llama.cpp", "--kv-memory", "20GiB"});
  EXPECT_EQ(number(ggml, "cache.sequence_bytes"), 18.0 * 2048 * (32768 + 768));
  EXPECT_EQ(number(with(ggml, {"--swa-full"}), "cache.sequence_bytes"), 36.0 * 2048 * 32768);
  expect_has(out_of(with(kOss, {"--swa-full"})), "--swa-full changes nothing here: it is llama.cpp's, vllm");
  expect_has(out_of({"plan", "llama-3.1-8b", "--gpu", "h200", "--engine", "llama.cpp", "--swa-full"}),
             "--swa-full changes nothing here: llama-3.1-8b has no window layers");
}

TEST_F(MemcalcEngines, ChunksInFlight) {
  // (2,048 + 521 or 1,033) blocks of 18 x 16 x 2,048 B; activations stay those of one step.
  EXPECT_EQ(number(kOss, "cache.sequence_bytes"), 2569.0 * 18 * 16 * 2048);
  const std::vector<std::string> two = with(kOss, {"--prefill-chunks", "2"});
  EXPECT_EQ(number(two, "cache.sequence_bytes"), 3081.0 * 18 * 16 * 2048);
  EXPECT_EQ(number(two, "runtime.activations"), number(kOss, "runtime.activations"));
  expect_has(out_of(with(kV3, {"--prefill-chunks", "2"})),
             "--prefill-chunks changes nothing here: deepseek-v3 has no window layers");
  refused(with(kOss, {"--prefill-chunks", "0"}), {"--prefill-chunks is 0; it must be 1 to 16"});
}

TEST_F(MemcalcEngines, VllmBeforeMla) {
  const std::vector<std::string> old{"plan", "deepseek-v2-lite", "--gpu",   "h100-sxm", "--context",
                                     "8k",   "--engine",         "vllm@0.6"};
  EXPECT_EQ(number(old, "cache.bytes_per_token"), 27.0 * 16 * 2 * 256 * 2);
  expect_has(out_of(old), "it had no MLA before 0.7.1");
  expect_has(out_of(old), "vllm@0.6");
  expect_has(out_of({"plan", "llama-3.1-8b", "--gpu", "h200", "--engine", "vllm@0.5"}), "vllm@0.5");
  expect_has(out_of({"plan", "deepseek-v3.2", "--gpu", "h200", "--gpus", "8", "--context", "8k", "--engine",
                     "vllm@0.8"}),
             "vllm 0.8 runs no models with a top-k indexer, which came with 0.11");
  EXPECT_EQ(number(with(old, {"--mla-storage", "latent"}), "cache.bytes_per_token"), 27.0 * 576 * 2);
  refused({"plan", "deepseek-v3", "--gpu", "h200", "--dp", "8", "--engine", "vllm@0.6"},
          {"vllm 0.6 has no data parallelism"});
  const std::string ranked = out_of(
      {"compare", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--engine", "vllm@0.6", "--context", "32k"});
  expect_lacks(ranked, "DP");
}

// An engine that would not start is no "fits".
TEST_F(MemcalcEngines, ACacheFormatThatNoKernelReadsIsRefused) {
  for (const char* command : {"plan", "compare", "solve"}) {
    Args args{command, "deepseek-v3", "--gpu", "a100-80gb", "--gpus",
              "32",    "--cache",     "fp8",   "--context", "8k"};
    if (args.front() == "solve") args.insert(args.end(), {"--for", "concurrency"});
    refused(args, {"cache format fp8 on a100-80gb", "vllm would not start"});
  }
  refused({"plan", "llama-3.1-8b", "--gpu", "h200", "--cache", "nvfp4"},
          {"cache format nvfp4 on h200: only NVIDIA's Blackwell reads it"});
  // fp8 of a top-k sparse model is vLLM's 656-byte row.
  refused({"plan", "deepseek-v3.2", "--gpu", "a100-80gb", "--gpus", "16", "--cache", "fp8"},
          {"cache format fp8_ds_mla on a100-80gb"});
  const std::string rows = out_of({"sweep", "deepseek-v3", "--gpu", "h200,a100-80gb", "--gpus", "32",
                                   "--cache", "fp8", "--context", "8k"});
  expect_has(rows, "2 plans: 1 fit, 0 not, 1 impossible");
  // Memory alone, and an engine that converts.
  expect_has(out_of({"plan", "deepseek-v3", "--gpu", "a100-80gb", "--gpus", "32", "--cache", "fp8",
                     "--context", "8k", "--engine", "none"}),
             "fits ");
  expect_has(out_of({"plan", "llama-3.1-8b", "--gpu", "a100-80gb", "--cache", "fp8"}), "stored as e5m2");
}

TEST_F(MemcalcEngines, CautionsOfTheHardware) {
  expect_has(out_of({"plan", "llama-3.1-8b", "--gpu", "a100-80gb", "--cache", "fp8"}),
             "ampere does not multiply fp8");
  expect_has(out_of({"plan", "llama-3.1-8b", "--gpu", "mi300x", "--weights", "nvfp4"}),
             "weights: nvfp4 on mi300x");
  expect_lacks(out_of({"plan", "llama-3.1-8b", "--gpu", "b200", "--cache", "nvfp4", "--weights", "nvfp4"}),
               "does not multiply");
  // No advice that a plan would caution against.
  expect_lacks(out_of({"plan", "deepseek-v3", "--gpu", "a100-80gb", "--gpus", "16", "--context", "128k",
                       "--concurrency", "90"},
                      1),
               "--cache fp8");
  expect_has(out_of({"plan", "llama-3.1-70b", "--gpu", "h100-sxm", "--gpus", "4", "--context", "128k",
                     "--concurrency", "8"},
                    1),
             "--cache fp8");
  expect_has(out_of(with(kV3, {"--block", "1"})), "vllm's flag takes it, but");
  refused(with(kV3, {"--block", "24"}), {"vllm has no block size 24: its sizes are 1, 8, 16"});
}

TEST_F(MemcalcEngines, AFormatThatTheLogsEngineHasNot) {
  const std::string log =
      "INFO [core.py:93] Initializing a V1 LLM engine (v0.11.0) with config: "
      "model='deepseek-ai/DeepSeek-V3', tensor_parallel_size=8\n"
      "Available KV cache memory: 46.80 GiB\nGPU KV cache size: 715,072 tokens\n";
  refused({"explain", "--cache", "q8_0", "-"}, {"vllm has no cache format q8_0", "it takes bf16"}, log);
  refused({"explain", "--cache", "fp8_ds_mla", "-"}, {"top-k indexer alone, and deepseek-v3 has none"}, log);
  const RunResult run = memcalc({"explain", "--cache", "bf16", "-"}, {.stdin_text = log});
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
}

TEST_F(MemcalcEngines, TheTableSaysWhoseBytesTheyAre) {
  // 21 layers with an entry of 584 B for 4 tokens, 20 with one for 128: 3,157.25 B.
  const std::string flash = out_of({"table", "deepseek-v4-flash"});
  expect_has(flash, "the bf16 bytes are arithmetic, no engine's");
  expect_has(flash, "there a token takes 3157.2 B + 693 B of index keys");
  expect_lacks(out_of({"table", "deepseek-v3"}), "no engine's");
}

TEST_F(MemcalcEngines, DeepSeekV4SaysHowSureItIs) {
  expect_has(out_of({"plan", "deepseek-v4-flash", "--gpu", "h200", "--gpus", "4"}), "as within 7 %");
  expect_lacks(out_of({"plan", "deepseek-v4-flash", "--gpu", "h200", "--gpus", "4", "--engine", "vllm@0.22"}),
               "as within 7 %");
}

}  // namespace
