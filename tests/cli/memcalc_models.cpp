// SPDX-License-Identifier: Apache-2.0
// Every question for ten models, against numbers worked out here from the models' published widths and vLLM's rules for blocks,
// with nothing from the library: one GPU keeps floor(budget / bytes of a block) blocks, one of them never usable, and whole
// sequences only.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "memcalc_fixture.hpp"

namespace {

using Json = nlohmann::json;
using mla::test::RunResult;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kContext = 32768;
constexpr std::int64_t kStep = 8192;  // vLLM's prefill chunk: a window layer holds window - 1 + chunk tokens

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

/// A model as one GPU's block pool sees it.
struct Model {
  const char* name;
  std::int64_t max_position;
  std::int64_t block;        ///< tokens a block of the full-length layers
  std::int64_t block_bytes;  ///< one block id: all layers that it backs
  std::int64_t groups;       ///< block tables that share the pool
  std::int64_t window = 0;   ///< of the window groups
  std::int64_t window_groups = 0, state_groups = 0;
  std::int64_t token_bytes;  ///< all layers, index keys too, windows while they fill
  std::int64_t mha_bytes;    ///< the same layers with a KV head for each query head
  std::int64_t state_bytes = 0;

  /// Blocks of one sequence; windows start anywhere in a block, hence one more.
  [[nodiscard]] std::int64_t sequence(std::int64_t context, std::int64_t dcp = 1) const {
    const std::int64_t held = std::min(window - 1 + kStep, context);
    return ceil_div(ceil_div(context, dcp), block) + window_groups * (ceil_div(held, block) + 1) +
           state_groups;
  }
  [[nodiscard]] std::int64_t usable(std::int64_t budget) const { return budget / block_bytes - 1; }
  [[nodiscard]] std::int64_t sequences(std::int64_t budget, std::int64_t context = kContext) const {
    return usable(budget) / sequence(context);
  }
};

// MLA keeps (kv_lora_rank + qk_rope_head_dim) x 2 B a token and layer in blocks of 64; the sparse models add 128 + 4 B for index
// keys on each layer that has an indexer of its own.
constexpr std::int64_t kRow = (512 + 64) * 2;
constexpr std::int64_t kKey = 128 + 4;

const Model kModels[] = {
    {.name = "deepseek-v3",
     .max_position = 163840,
     .block = 64,
     .block_bytes = 61 * 64 * kRow,
     .groups = 1,
     .token_bytes = 61 * kRow,
     .mha_bytes = 61 * 128 * (128 + 64 + 128) * 2},
    {.name = "deepseek-v3.2",
     .max_position = 163840,
     .block = 64,
     .block_bytes = 61 * 64 * (kRow + kKey),
     .groups = 1,
     .token_bytes = 61 * (kRow + kKey),
     .mha_bytes = 61 * 128 * (128 + 64 + 128) * 2},
    {.name = "kimi-k2",
     .max_position = 131072,
     .block = 64,
     .block_bytes = 61 * 64 * kRow,
     .groups = 1,
     .token_bytes = 61 * kRow,
     .mha_bytes = 61 * 64 * (128 + 64 + 128) * 2},
    // 21 of 78 layers compute index keys, the others share them.
    {.name = "glm-5.2",
     .max_position = 1048576,
     .block = 64,
     .block_bytes = 78 * 64 * kRow + 21 * 64 * kKey,
     .groups = 1,
     .token_bytes = 78 * kRow + 21 * kKey,
     .mha_bytes = 78 * 64 * (192 + 64 + 256) * 2},
    // 7 MLA and 20 KDA layers. A KDA layer keeps 32 heads x 128 x 128 f32 of state and 3 inputs of a convolution over
    // 3 x 32 x 128 channels in bf16: 2,097,152 + 73,728 B. The MLA block grows in steps of 64 tokens until its page holds that:
    // 1,885 tokens -> 1,920. Groups of 7 layers: one of MLA, three of KDA (one layer is padding).
    {.name = "kimi-linear-48b-a3b",
     .max_position = 1048576,
     .block = 1920,
     .block_bytes = 7 * 1920 * kRow,
     .groups = 4,
     .state_groups = 3,
     .token_bytes = 7 * kRow,
     .mha_bytes = 7 * 32 * (128 + 64 + 128) * 2,
     .state_bytes = 20 * (32 * 128 * 128 * 4 + 3 * 3 * 32 * 128 * 2)},
    {.name = "glm-4.7-flash",
     .max_position = 202752,
     .block = 64,
     .block_bytes = 47 * 64 * kRow,
     .groups = 1,
     .token_bytes = 47 * kRow,
     .mha_bytes = 47 * 20 * (192 + 64 + 256) * 2},
    // vLLM's class for it keeps 40 K and V heads, V padded from 64 to K's 96.
    {.name = "minicpm3-4b",
     .max_position = 32768,
     .block = 16,
     .block_bytes = 62 * 16 * 40 * (96 + 96) * 2,
     .groups = 1,
     .token_bytes = 62 * 40 * (96 + 96) * 2,
     .mha_bytes = 62 * 40 * (64 + 32 + 64) * 2},
    {.name = "llama-3.1-70b",
     .max_position = 131072,
     .block = 16,
     .block_bytes = 80 * 16 * 8 * (128 + 128) * 2,
     .groups = 1,
     .token_bytes = 80 * 8 * (128 + 128) * 2,
     .mha_bytes = 80 * 64 * (128 + 128) * 2},
    // 10 full and 52 window layers: groups of 10, so 6 window groups (8 layers of padding).
    {.name = "gemma-3-27b",
     .max_position = 131072,
     .block = 16,
     .block_bytes = 10 * 16 * 16 * (128 + 128) * 2,
     .groups = 7,
     .window = 1024,
     .window_groups = 6,
     .token_bytes = 62 * 16 * (128 + 128) * 2,
     .mha_bytes = 62 * 32 * (128 + 128) * 2},
    {.name = "gpt-oss-120b",
     .max_position = 131072,
     .block = 16,
     .block_bytes = 18 * 16 * 8 * (64 + 64) * 2,
     .groups = 2,
     .window = 128,
     .window_groups = 1,
     .token_bytes = 36 * 8 * (64 + 64) * 2,
     .mha_bytes = 36 * 64 * (64 + 64) * 2},
};

void PrintTo(const Model& model, std::ostream* out) {
  *out << model.name;
}

class MemcalcModels : public MemcalcTest, public testing::WithParamInterface<Model> {
 protected:
  /// The JSON answer to `command MODEL more...` on GPUs of 400 GiB.
  [[nodiscard]] Json ask(const std::string& command, const Args& more, int code = 0) const {
    Args args{command, GetParam().name};
    if (command != "savings") args.insert(args.end(), {"--gpu-memory", "400GiB"});
    args.insert(args.end(), {"--cache", "bf16", "-o", "json"});
    args.insert(args.end(), more.begin(), more.end());
    const RunResult run = memcalc(args);
    EXPECT_EQ(run.exit_code, code) << spelled(args) << '\n' << run.err << run.out;
    return Json::parse(run.out, nullptr, false);
  }
  /// The row of a table whose first text is `first`.
  static Json row(const Json& answer, const char* table, const std::string& key, const std::string& value) {
    for (const Json& one : answer.at("tables").at(table)) {
      if (one.at(key) == value) return one;
    }
    ADD_FAILURE() << "no row " << value << " in " << answer.dump(1);
    return {};
  }
  static std::string text(std::int64_t value) { return std::to_string(value); }
};

TEST_P(MemcalcModels, Plan) {
  const Model& m = GetParam();
  const Json answer = ask("plan", {"--kv-memory", "40GiB", "--context", text(kContext)});
  EXPECT_EQ(answer.at("facts").at("sequences"), m.sequences(40 * kGiB));
  const std::int64_t blocks = 40 * kGiB / m.block_bytes;
  // vLLM before 0.22 logs blocks // groups x block, later ones int(concurrency x context).
  EXPECT_EQ(row(answer, "capacity", "what", "tokens, blocks x block size").at("replica"),
            blocks / m.groups * m.block);
  const double concurrency = static_cast<double>(blocks) / static_cast<double>(m.sequence(kContext));
  EXPECT_EQ(row(answer, "capacity", "what", "tokens, concurrency x context").at("replica"),
            static_cast<std::int64_t>(concurrency * kContext));
  EXPECT_NEAR(row(answer, "capacity", "what", "concurrency as logged").at("replica"), concurrency, 1e-9);
}

TEST_P(MemcalcModels, SolveForContext) {
  const Model& m = GetParam();
  const std::int64_t n = 3;
  const Json answer = ask("solve", {"--kv-memory", "40GiB", "--concurrency", text(n), "--for", "context"});
  const std::int64_t blocks = m.usable(40 * kGiB) / n;  // of one sequence
  // Windows are full at such lengths.
  const std::int64_t fixed = m.window_groups * (ceil_div(m.window - 1 + kStep, m.block) + 1) + m.state_groups;
  const std::int64_t context = std::min((blocks - fixed) * m.block, m.max_position);
  EXPECT_EQ(answer.at("facts").at("value"), context);
}

TEST_P(MemcalcModels, SolveForConcurrencyAndGpus) {
  const Model& m = GetParam();
  // 32k of MiniCPM3's heads are 29 GiB.
  const std::int64_t context = std::string(m.name) == "minicpm3-4b" ? 8192 : kContext;
  const std::int64_t one = m.sequences(20 * kGiB, context);
  ASSERT_GT(one, 0);
  const Json concurrency = ask("solve", {"--kv-memory", "20GiB", "--context", text(context), "--gpus", "4",
                                         "--attention", "dp", "--for", "concurrency"});
  EXPECT_EQ(concurrency.at("facts").at("value"), 4 * one);
  // One more than five GPUs hold takes a sixth: replicas do not share.
  const Json gpus = ask("solve", {"--kv-memory", "20GiB", "--context", text(context), "--attention", "dp",
                                  "--concurrency", text(5 * one + 1), "--for", "gpus"});
  EXPECT_EQ(gpus.at("facts").at("value"), 6);
}

TEST_P(MemcalcModels, SolveForUtilization) {
  const Model& m = GetParam();
  const std::int64_t n = 4;
  const Json answer =
      ask("solve", {"--weight-bytes", "40GiB", "--activations", "0B", "--graphs", "0B", "--non-torch", "0B",
                    "--context", text(kContext), "--concurrency", text(n), "--for", "utilization"});
  const std::int64_t bytes =
      (n * m.sequence(kContext) + 1) * m.block_bytes;  // and the block that is never usable
  std::int64_t step = 1;
  while (400 * kGiB * step / 1000 - 40 * kGiB < bytes) ++step;
  EXPECT_NEAR(answer.at("facts").at("value"), static_cast<double>(step) / 1000, 1e-9);
}

TEST_P(MemcalcModels, CompareLayoutsOfFour) {
  const Model& m = GetParam();
  const std::string name = m.name;
  const Json answer =
      ask("compare", {"--kv-memory", "20GiB", "--context", text(kContext), "--gpus", "4", "--top", "0"});
  const auto sequences = [&](const std::string& layout) -> std::int64_t {
    return row(answer, "layouts", "layout", layout).at("sequences");
  };
  const bool experts = name != "llama-3.1-70b" && name != "gemma-3-27b" && name != "minicpm3-4b";
  EXPECT_EQ(sequences(experts ? "DP4+EP4" : "DP4"), 4 * m.sequences(20 * kGiB));
  const bool latent =
      name != "llama-3.1-70b" && name != "gemma-3-27b" && name != "gpt-oss-120b" && name != "minicpm3-4b";
  const std::int64_t budget = 20 * kGiB;
  if (!latent) {  // KV heads are split: a block costs a quarter
    EXPECT_EQ(sequences("TP4"), (budget / (m.block_bytes / 4) - 1) / m.sequence(kContext));
    return;
  }
  if (name == "kimi-linear-48b-a3b") {
    // A quarter of the state: 542,720 B in pages of 1,152 B a token: 471.1 -> 512 tokens.
    const std::int64_t block = 512;
    EXPECT_EQ(sequences("TP4"), (budget / (7 * block * kRow) - 1) / (ceil_div(kContext, block) + 3));
    return;
  }
  EXPECT_EQ(sequences("TP4"), m.sequences(budget)) << "every rank keeps the whole latent";
  EXPECT_EQ(sequences("TP4+DCP4"), m.usable(budget) / m.sequence(kContext, 4));
  EXPECT_EQ(row(answer, "layouts", "layout", "TP4").at("latent_copies"), 4);
  EXPECT_EQ(row(answer, "layouts", "layout", "TP4+DCP4").at("latent_copies"), 1);
  bool warned = false;
  for (const Json& note : answer.at("notes")) {
    warned = warned || note.get<std::string>().find("TP4 keeps the same latent rows on all 4 ranks") !=
                           std::string::npos;
  }
  EXPECT_TRUE(warned);
}

TEST_P(MemcalcModels, RealLengths) {
  const Model& m = GetParam();
  // All requests alike, and each moment of an answer in the same block: 8000 prompt tokens and one of answer.
  write("same.csv", "prompt_len,output_len\n8000,1\n8000,1\n8000,1\n");
  const Json answer =
      ask("plan", {"--kv-memory", "40GiB", "--context", text(kContext), "--lengths", "same.csv"});
  // A replica runs at most --max-seqs of them.
  const std::int64_t count = std::min<std::int64_t>(256, m.usable(40 * kGiB) / m.sequence(8001));
  EXPECT_EQ(row(answer, "lengths", "what", "at once, a random moment").at("replica"), count);
  EXPECT_EQ(row(answer, "lengths", "what", "at once, 99 % certain").at("replica"), count);
  EXPECT_EQ(row(answer, "lengths", "what", "at once, all at full length").at("replica"), count);
  const double slots = static_cast<double>(ceil_div(8001, m.block) * m.block);
  EXPECT_NEAR(row(answer, "lengths", "what", "empty slots of last blocks, %").at("replica"),
              100 * (1 - 8001 / slots), 1e-9);
}

TEST_P(MemcalcModels, CounterfactualHeads) {
  const Model& m = GetParam();
  const Json answer =
      ask("plan", {"--kv-memory", "40GiB", "--context", text(kContext), "--versus", "mha,mqa"});
  const Json mha = row(answer, "versus", "attention", "MHA");
  EXPECT_EQ(mha.at("bytes_per_token"), m.mha_bytes);
  EXPECT_NEAR(mha.at("ratio"), static_cast<double>(m.mha_bytes) / static_cast<double>(m.token_bytes), 1e-12);
  EXPECT_EQ(row(answer, "versus", "attention", "as it is").at("bytes_per_token"), m.token_bytes);
  if (m.groups == 1) {  // one uniform pool: blocks of 16 tokens
    const std::int64_t blocks = 40 * kGiB / (16 * m.mha_bytes) - 1;
    EXPECT_EQ(mha.at("sequences"), std::max<std::int64_t>(0, blocks) / ceil_div(kContext, 16));
  }
}

TEST_P(MemcalcModels, SavingsOfReadsAndOfMemory) {
  const Model& m = GetParam();
  const std::string name = m.name;
  const auto total = [](const Json& answer, const char* key) {
    double sum = 0;
    for (const Json& one : answer.at("tables").at("layers")) {
      if (one.at("reads") != "all") sum += one.at(key).get<double>() * static_cast<double>(kGiB);
    }
    return sum;
  };
  const auto full = static_cast<double>(m.token_bytes * kContext + m.state_bytes);
  if (name == "deepseek-v3.2" || name == "glm-5.2") {
    // 2,048 rows a layer and every index key are read; a ring cannot drop a row that may be picked later.
    const Json answer = ask("savings", {"--context", text(kContext)});
    const std::int64_t layers = name == "glm-5.2" ? 78 : 61;
    const std::int64_t keys = name == "glm-5.2" ? 21 : 61;
    EXPECT_NEAR(total(answer, "read_gib"), static_cast<double>(layers * 2048 * kRow + keys * kContext * kKey),
                1);
    EXPECT_NEAR(total(answer, "full_gib"), full, 1);
    EXPECT_NEAR(total(answer, "ring_gib"), full, 1);
    return;
  }
  if (m.window > 0) {
    // Its own windows; both lengths are whole blocks.
    const Json answer = ask("savings", {"--context", text(kContext)});
    const std::int64_t windows = name == "gemma-3-27b" ? 52 : 18;
    const std::int64_t layers = name == "gemma-3-27b" ? 62 : 36;
    const std::int64_t layer = m.token_bytes / layers;
    const auto kept = static_cast<double>(layer * (windows * m.window + (layers - windows) * kContext));
    EXPECT_NEAR(total(answer, "read_gib"), kept, 1);
    EXPECT_NEAR(total(answer, "full_gib"), full, 1);
    EXPECT_NEAR(total(answer, "ring_gib"), kept, 1);
    return;
  }
  // A window of 4,000 and 100 sinks: 4,100 tokens are read. The window starts at 28,768, in block floor(28,768 / b); with the
  // sinks' blocks a ring keeps whole ones of b = 64 (K and V heads: 16) tokens.
  const Json answer = ask("savings", {"--context", text(kContext), "--window", "4000", "--sink", "100"});
  const std::int64_t b = name == "llama-3.1-70b" || name == "minicpm3-4b" ? 16 : 64;
  const std::int64_t ring = (kContext / b - 28768 / b + ceil_div(100, b)) * b;
  EXPECT_NEAR(total(answer, "read_gib"), static_cast<double>(4100 * m.token_bytes + m.state_bytes), 1);
  EXPECT_NEAR(total(answer, "full_gib"), full, 1) << "an index over a full cache frees nothing";
  EXPECT_NEAR(total(answer, "ring_gib"), static_cast<double>(ring * m.token_bytes + m.state_bytes), 1);
}

TEST_P(MemcalcModels, ExplainedFromItsLog) {
  // What vLLM 0.20 would log for 40 GiB: blocks // groups x block, blocks / blocks of a sequence.
  const Model& m = GetParam();
  const std::int64_t blocks = 40 * kGiB / m.block_bytes;
  char concurrency[32];
  std::snprintf(concurrency, sizeof concurrency, "%.2f",
                static_cast<double>(blocks) / static_cast<double>(m.sequence(kContext)));
  const auto log = [&](std::int64_t tokens) {
    return "(APIServer pid=1) INFO 05-01 20:45:03 [api_server.py:1] vLLM API server version 0.20.0\n"
           "non-default args: {'tensor_parallel_size': 1, 'max_model_len': 32768, 'max_num_batched_tokens': "
           "8192}\n"
           "\x1b[36m(EngineCore pid=187)\x1b[0m INFO [gpu_worker.py:440] Available KV cache memory: 40.00 "
           "GiB\n"
           "INFO [kv_cache_utils.py:1711] GPU KV cache size: " +
           text(tokens) + " tokens\nINFO Maximum concurrency for 32,768 tokens per request: " + concurrency +
           "x\n";
  };
  const auto explained = [&](std::int64_t tokens, int code) {
    const RunResult run =
        memcalc({"explain", "-", "--model", m.name, "-o", "json"}, {.stdin_text = log(tokens)});
    EXPECT_EQ(run.exit_code, code) << run.err << run.out;
    return Json::parse(run.out, nullptr, false).at("facts").at("explained").get<bool>();
  };
  const std::int64_t tokens = blocks / m.groups * m.block;
  EXPECT_TRUE(explained(tokens, 0));
  EXPECT_FALSE(explained(tokens + tokens / 30, 1)) << "3 % more than 40 GiB hold";
}

TEST_P(MemcalcModels, ShapesForTheBench) {
  const Model& m = GetParam();
  const std::string name = m.name;
  const RunResult run = memcalc({"plan", name, "--gpu-memory", "400GiB", "--kv-memory", "20GiB", "--tp", "1",
                                 "--context", "32k", "--cache", "bf16", "--emit-sweep"});
  if (name == "llama-3.1-70b" || name == "gemma-3-27b" || name == "gpt-oss-120b" || name == "minicpm3-4b") {
    EXPECT_EQ(run.exit_code, 2) << "no latent cache, no shape: " << run.out;
    return;
  }
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const int heads = name == "kimi-k2" || name == "glm-5.2" ? 64
                    : name == "kimi-linear-48b-a3b"        ? 32
                    : name == "glm-4.7-flash"              ? 20
                                                           : 128;
  expect_has(run.out, "\"dims\": \"h" + std::to_string(heads) + "/l512/r64/");
  const std::int64_t requests = std::min<std::int64_t>(256, m.sequences(20 * kGiB));
  expect_has(run.out, "\"batch\": \"" + text(requests) + "q1s32k");
}

TEST_P(MemcalcModels, SweepToCsv) {
  const Model& m = GetParam();
  const RunResult run =
      memcalc({"sweep", m.name, "--gpu-memory", "400GiB", "--kv-memory", "40GiB", "--context", "16k..32k:x2",
               "--cache", "bf16,fp8", "--gpus", "1,2", "--layout", "dp1,dp2", "-o", "csv"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const std::vector<std::string> rows = lines(run.out);
  ASSERT_EQ(rows.size(), 1U + 2 * 2 * 2 * 2);
  EXPECT_TRUE(rows[0].starts_with(
      "model,gpu,gpus,layout,cache_format,context,fits,sequences,sequences_per_replica,"));
  int checked = 0;
  for (const std::int64_t context : {std::int64_t{16384}, kContext}) {
    const std::int64_t one = m.sequences(40 * kGiB, context);
    const std::string start =
        std::string(m.name) + ",--gpu-memory 400GiB,1,TP1,bf16," + text(context) + ",true," + text(one) + ",";
    checked += static_cast<int>(
        std::ranges::count_if(rows, [&](const std::string& r) { return r.starts_with(start); }));
  }
  EXPECT_EQ(checked, 2) << run.out;
  // Two replicas on one GPU cannot be, and the row says why.
  EXPECT_NE(run.out.find(" takes 2 GPUs, not 1"), std::string::npos) << run.out;
}

INSTANTIATE_TEST_SUITE_P(, MemcalcModels, testing::ValuesIn(kModels), [](const auto& model) {
  std::string name = model.param.name;
  std::ranges::replace_if(
      name, [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
});

}  // namespace
