// SPDX-License-Identifier: Apache-2.0
// Whatever a user may get wrong: one clear sentence on stderr, nothing on stdout, the right exit code.
#include "memcalc_fixture.hpp"

namespace {

using mla::test::RunOptions;
using mla::test::RunResult;

class MemcalcErrors : public MemcalcTest {
 protected:
  /// Expects exit code `code`, an empty stdout and each of `says` in one sentence (and perhaps a hint) on stderr.
  void expect(const Args& args, int code, const std::vector<std::string>& says,
              const RunOptions& options = {}) const {
    const RunResult r = memcalc(args, options);
    SCOPED_TRACE(spelled(args) + "\nstderr: " + r.err);
    EXPECT_EQ(r.exit_code, code);
    EXPECT_EQ(r.out, "");
    EXPECT_TRUE(r.err.starts_with("mla-memcalc: error: "));
    for (const std::string& part : says) EXPECT_NE(r.err.find(part), std::string::npos) << part;
    const std::vector<std::string> said = lines(r.err);
    EXPECT_LE(said.size(), 2U) << "one sentence and a hint";
    if (said.size() == 2) {
      EXPECT_TRUE(said[1].starts_with("hint: ")) << said[1];
    }
    for (const std::string& line : said) EXPECT_LE(line.size(), 500U) << line;
    for (const char c : r.err) EXPECT_TRUE(c == '\n' || (c >= ' ' && c != '\x7f')) << int{c};
  }
  /// The same after `mla-memcalc plan deepseek-v3 --gpu h200 --gpus 8`.
  void expect_plan(const Args& more, const std::vector<std::string>& says) const {
    Args args{"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8"};
    args.insert(args.end(), more.begin(), more.end());
    expect(args, 2, says);
  }
  /// A config of DeepSeek-V3's own fields with one of them replaced or, given as "", left out.
  static std::string config_with(const std::string& key, const std::string& value) {
    const std::vector<std::pair<std::string, std::string>> fields{
        {"architectures", R"(["DeepseekV3ForCausalLM"])"},
        {"model_type", R"("deepseek_v3")"},
        {"hidden_size", "7168"},
        {"num_hidden_layers", "61"},
        {"num_attention_heads", "128"},
        {"num_key_value_heads", "128"},
        {"q_lora_rank", "1536"},
        {"kv_lora_rank", "512"},
        {"qk_nope_head_dim", "128"},
        {"qk_rope_head_dim", "64"},
        {"v_head_dim", "128"},
        {"first_k_dense_replace", "3"},
        {"n_routed_experts", "256"},
        {"n_shared_experts", "1"},
        {"num_experts_per_tok", "8"},
        {"moe_intermediate_size", "2048"},
        {"intermediate_size", "18432"},
        {"vocab_size", "129280"},
        {"max_position_embeddings", "163840"}};
    std::string text;
    for (const auto& [name, usual] : fields) {
      const std::string& chosen = name == key ? value : usual;
      if (!chosen.empty()) text += (text.empty() ? "{\"" : ", \"") + name + "\": " + chosen;
    }
    return text + "}";
  }
};

TEST_F(MemcalcErrors, DeepSeekV4KeepsOnlyFp8InVllm) {
  const std::vector<std::string> says{"supports only the fp8 cache for DeepSeek-V4", "bf16"};
  expect({"plan", "deepseek-v4-flash", "--gpu", "h200", "--gpus", "8", "--cache", "bf16"}, 2, says);
  const RunResult sweep =
      memcalc({"sweep", "deepseek-v4-flash", "--gpu", "h200", "--gpus", "8", "--cache", "bf16"});
  EXPECT_NE((sweep.out + sweep.err).find(says.front()), std::string::npos) << sweep.out << sweep.err;
}

TEST_F(MemcalcErrors, Usage) {
  expect({}, 2, {"a command is missing: plan, solve,"});
  expect({"plann"}, 2, {"'plann'", "plan"});
  expect({"plan", "deepseek-v3", "--gpu", "h200", "--contex", "128k"}, 2, {"'--contex'", "--context"});
  expect({"--contex", "3"}, 2, {"'--contex'", "mla-memcalc -h"});
  expect({"plan", "deepseek-v3", "stray", "--gpu", "h200"}, 2, {"'stray'"});
  expect({"plan", "deepseek-v3", "--gpu"}, 2, {"--gpu"});
  expect({"plan", "deepseek-v3", "--gpu", "h200", "--gpu", "h100-sxm"}, 2, {"--gpu"});
  expect({"plan", "deepseek-v3", "--gpu", "h200", "-z"}, 2, {"'-z'"});
  expect({"plan"}, 2, {"model"});
  expect({"solve"}, 2, {"model"});
  expect({"compare"}, 2, {"model"});
  expect({"check"}, 2, {"cases"});
  expect({"list"}, 2, {"what"});
  expect({"list", "planets"}, 2, {"'planets'", "models"});
  expect({"list", "model"}, 2, {"'model'", "models"});
  expect({"list", "gpus", "-o", "xml"}, 2, {"'xml'", "csv"});
  expect({"list", "gpus", "--color", "red"}, 2, {"'red'", "never"});
  expect({"--completion", "tcsh"}, 2, {"'tcsh'", "bash"});
  expect({"--config-dir", "/nonexistent", "list", "gpus"}, 2, {"/nonexistent"});
  expect({"list", "gpus", "--config-dir", "/nonexistent"}, 2, {"/nonexistent"});
}

TEST_F(MemcalcErrors, NamesOfModels) {
  expect({"plan", "deepseek-v33", "--gpu", "h200"}, 2, {"'deepseek-v33'", "did you mean 'deepseek-v3'?"});
  expect({"plan", "", "--gpu", "h200"}, 2, {"model"});
  expect({"plan", "nothing-like-it", "--gpu", "h200"}, 2, {"'nothing-like-it'", "config.json"});
  expect({"plan", "./none/config.json", "--gpu", "h200"}, 2, {"'./none/config.json'"});
  expect({"plan", ".", "--gpu", "h200"}, 2, {"'.'", "config.json"});
  expect({"plan", "/dev/null", "--gpu", "h200"}, 2, {"/dev/null"});
  expect({"plan", "/dev/zero", "--gpu", "h200"}, 2, {"/dev/zero", "larger"});
  expect({"table", "deepseek-v3", "kimi-k3x"}, 2, {"'kimi-k3x'"});
  expect({"explain", "--model", "deepsek-v3", "-"}, 2, {"'deepsek-v3'", "deepseek-v3"},
         {.stdin_text = "INFO GPU KV cache size: 715,072 tokens\n"});
  expect({"plan", std::string("deep\x1b[2Jseek"), "--gpu", "h200"}, 2, {"\\x1b"});
  expect({"plan", std::string(100000, 'x'), "--gpu", "h200"}, 2, {"xxx"});
}

TEST_F(MemcalcErrors, Configs) {
  const auto from_stdin = [&](const std::string& text, const std::vector<std::string>& says) {
    expect({"plan", "-", "--gpu", "h200"}, 2, says, {.stdin_text = text});
  };
  const std::string whole = config_with("", "");
  EXPECT_EQ(memcalc({"table", "-"}, {.stdin_text = whole}).exit_code, 0) << "the config itself is fine";
  from_stdin("", {"standard input"});
  from_stdin("{", {"standard input", "line 1"});
  from_stdin(whole.substr(0, whole.size() / 2), {"standard input", "not valid JSON", "line 1, column"});
  from_stdin("[]", {"standard input"});
  from_stdin("null", {"standard input"});
  from_stdin("not json at all", {"standard input"});
  from_stdin(std::string("\xff\xfe\0\x01", 4), {"standard input"});
  from_stdin(std::string(5000, '['), {"nested deeper"});
  from_stdin("{}", {"standard input"});
  from_stdin(whole + whole, {"standard input"});
  // MLA by name, but a field that matters is null, absent or of another kind: never read as GQA in silence.
  for (const char* field : {"kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "num_attention_heads",
                            "num_hidden_layers", "hidden_size"}) {
    for (const char* value : {"null", "\"many\"", "{}", "[1]", "true", "-1", "NaN", "Infinity", "1e400",
                              "99999999999999999999999", "1.5"}) {
      from_stdin(config_with(field, value), {field, "standard input"});
    }
    from_stdin(config_with(field, ""), {field});
  }
  for (const char* field : {"kv_lora_rank", "num_attention_heads", "num_hidden_layers", "hidden_size"}) {
    from_stdin(config_with(field, "0"), {field, "0"});
  }
  for (const char* field : {"moe_intermediate_size", "intermediate_size", "n_routed_experts", "vocab_size",
                            "max_position_embeddings", "first_k_dense_replace", "n_shared_experts"}) {
    from_stdin(config_with(field, "\"many\""), {field, "'many'"});
    from_stdin(config_with(field, "9223372036854775807"), {field});
  }
  from_stdin(R"({"kv_lora_rank": 512, "kv_lora_rank": 64})", {"'kv_lora_rank'", "twice"});
  write("config.json", whole.substr(0, 100));
  expect({"plan", "config.json", "--gpu", "h200"}, 2, {"config.json", "line 1"});
  expect({"plan", ".", "--gpu", "h200"}, 2, {"config.json", "line 1"});
  expect({"table", "config.json"}, 2, {"config.json"});
}

TEST_F(MemcalcErrors, Gpus) {
  expect({"plan", "deepseek-v3"}, 2, {"--gpu", "list gpus"});
  expect({"plan", "deepseek-v3", "--gpu", "h2000"}, 2, {"'h2000'", "did you mean 'h200'?"});
  expect({"plan", "deepseek-v3", "--gpu", "./none.json"}, 2, {"none.json"});
  expect({"plan", "deepseek-v3", "--gpu", "."}, 2, {"'.'"});
  write("cut.json", R"({"name": "x", "memory_bytes": )");
  write("kind.json", R"({"name": "x", "memory_bytes": "lots"})");
  write("list.json", "[]");
  expect({"plan", "deepseek-v3", "--gpu", "./cut.json"}, 2, {"cut.json", "line 1"});
  expect({"plan", "deepseek-v3", "--gpu", "./kind.json"}, 2, {"kind.json"});
  expect({"plan", "deepseek-v3", "--gpu", "./list.json"}, 2, {"list.json"});
  const auto memory = [&](const std::string& size, const std::vector<std::string>& says) {
    expect({"plan", "deepseek-v3", "--gpu-memory", size}, 2, says);
  };
  memory("0GiB", {"--gpu-memory", "more than 0"});
  memory("-1GiB", {"--gpu-memory", "'-1GiB'"});
  memory("80", {"--gpu-memory", "GiB or GB?"});
  memory("80Gb", {"--gpu-memory", "'Gb'"});
  memory("nanGiB", {"--gpu-memory", "'nanGiB'"});
  memory("infGiB", {"--gpu-memory", "'infGiB'"});
  memory("1e30GiB", {"--gpu-memory", "1e30GiB"});
  memory("99999999999999999999999GiB", {"--gpu-memory", "too large"});
  memory("8000PiB", {"--gpu-memory is 8000PiB; it must be 0 to 1024TiB"});
  memory("", {"--gpu-memory is empty"});
  for (const char* bad : {"0", "-8", "1m", "x", "8.5", "1e30", "99999999999999999999", ""}) {
    expect({"plan", "deepseek-v3", "--gpu", "h200", "--gpus", bad}, 2, {"--gpus"});
    expect({"plan", "deepseek-v3", "--gpu", "h200", "--gpus-per-node", bad}, 2, {"--gpus-per-node"});
  }
}

TEST_F(MemcalcErrors, Layouts) {
  expect_plan({"--attention", "mixed"}, {"'mixed'", "auto, tp and dp"});
  expect_plan({"--tp", "3"}, {"--gpus 8 cannot be split", "by 3 (tp 3 x dp 1 x pp 1)"});
  expect({"plan", "deepseek-v3", "--gpu", "h200", "--tp", "3"}, 2, {"tp 3", "128 attention heads"});
  expect({"plan", "llama-3.1-70b", "--gpu", "h200", "--tp", "3"}, 2, {"tp 3", "64 attention heads"});
  expect({"plan", "gemma-3-27b", "--gpu", "h200", "--tp", "2", "--dcp", "2"}, 2, {"dcp 2", "window"});
  expect_plan({"--tp", "8", "--dcp", "3"}, {"dcp 3", "tp 8"});
  expect_plan({"--tp", "8", "--dcp", "16"}, {"dcp 16", "tp 8"});
  expect_plan({"--attention", "dp", "--ep", "3"}, {"ep 3", "8 ranks"});
  expect_plan({"--attention", "dp", "--ep", "-1"}, {"--ep", "-1"});
  expect({"plan", "llama-3.1-70b", "--gpu", "h200", "--gpus", "8", "--ep", "8"}, 2, {"ep 8", "no routed"});
  expect_plan({"--pp", "2", "--stages", "30,30"}, {"60 layers"});
  expect_plan({"--pp", "2", "--stages", "61"}, {"1 stage", "pp 2"});
  expect_plan({"--stages", "30,x"}, {"--stages", "'x'"});
  expect_plan({"--stages", "61,0"}, {"0 layers"});
  for (const char* flag : {"--attention", "--tp", "--dp", "--pp", "--dcp", "--ep", "--stages"}) {
    expect_plan({flag, ""}, {std::string(flag) + " is empty"});
  }
  expect({"plan", "deepseek-v3", "--gpu", "h200", "--pp", "62"}, 2, {"pp 62", "61 layers"});
  for (const char* flag : {"--tp", "--dp", "--pp", "--dcp"}) {
    for (const char* bad : {"0", "-2", "two", "nan", "1m", "99999999999999999999"}) {
      expect_plan({flag, bad}, {flag});
    }
  }
  expect({"compare", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--tp", "8"}, 2,
         {"compare tries all layouts", "--tp"});
  expect({"compare", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--top", "many"}, 2, {"--top", "'many'"});
  expect({"compare", "deepseek-v3", "--gpu", "h200", "--gpus", "8", "--top", "-1"}, 2, {"--top", "-1"});
}

TEST_F(MemcalcErrors, CacheAndEngine) {
  expect_plan({"--cache", "bf17"}, {"'bf17'", "bf16"});
  expect_plan({"--cache", ""}, {"--cache is empty"});
  expect_plan({"--cache-v", "q9"}, {"'q9'"});
  expect_plan({"--cache", "fp8_ds_mla", "--cache-v", "q8_0"}, {"fp8_ds_mla"});
  expect({"plan", "llama-3.1-70b", "--gpu", "h200", "--gpus", "8", "--cache", "fp8_ds_mla"}, 2,
         {"fp8_ds_mla", "llama-3.1-70b"});
  expect({"plan", "minicpm3-4b", "--gpu", "h200", "--cache", "fp8_ds_mla"}, 2, {"fp8_ds_mla"});
  expect_plan({"--block", "20"}, {"vllm has no block size 20", "1, 8, 16, 32"});
  expect({"plan", "deepseek-v3.2", "--gpu", "h200", "--gpus", "8", "--block", "16"}, 2,
         {"block size 64 only", "not 16"});
  for (const char* bad : {"0", "-64", "many", "1.5", "99999999999999999999"})
    expect_plan({"--block", bad}, {"--block"});
  expect_plan({"--engine", "vlm"}, {"'vlm'", "vllm"});
  expect_plan({"--engine", "vllm@new"}, {"new"});
  expect_plan({"--engine", "vllm@"}, {"vllm"});
  expect_plan({"--engine", "vllm@-1"}, {"-1"});
  expect_plan({"--engine", "none@3"}, {"none"});
  expect_plan({"--engine", ""}, {"--engine is empty"});
  expect_plan({"--state-blocks", "some"}, {"'some'", "one, aligned and all"});
  for (const char* flag : {"--speculative-tokens", "--micro-batch", "--window-sequences"}) {
    for (const char* bad : {"0", "-1", "many", "nan", "99999999999999999999", ""})
      expect_plan({flag, bad}, {flag});
  }
  expect_plan({"--mla-storage", "twice"}, {"'twice'", "latent+value"});
}

TEST_F(MemcalcErrors, Memory) {
  for (const char* bad : {"1.5", "150%", "0", "0%", "-0.5", "nan", "inf", "high", "0.9x", "1e-400"}) {
    expect_plan({"--utilization", bad}, {"--utilization", bad});
  }
  expect_plan({"--weights", "fp3"}, {"'fp3'"});
  expect_plan({"--expert-weights", "fp3"}, {"'fp3'"});
  for (const char* flag : {"--weight-bytes", "--activations", "--graphs", "--non-torch", "--kv-memory"}) {
    expect_plan({flag, "80"}, {flag, "GiB or GB?"});
    expect_plan({flag, "-80GiB"}, {flag, "'-80GiB'"});
    expect_plan({flag, "2Gib"}, {flag, "'Gib'"});
    expect_plan({flag, "NaN"}, {flag, "'NaN'"});
    expect_plan({flag, "99999999999999999999GiB"}, {flag, "too large"});
  }
  for (const char* flag : {"--weight-bytes", "--activations", "--graphs", "--non-torch", "--gpu-memory"})
    expect_plan({flag, "4096PiB"}, {flag, "is 4096PiB; it must be 0 to 1024TiB"});
  expect_plan({"--kv-memory", "1000GiB"}, {"--kv-memory 1000GiB is more than the 140 GiB of a GPU"});
  expect_plan({"--kv-memory", "1GiB,2GiB"}, {"2 cache budgets", "1 pipeline stage"});
  expect_plan({"--kv-memory", "1GiB,,2GiB"}, {"--kv-memory", "empty item"});
  for (const char* bad : {"0", "-1", "12x", "4.5k", "nan", "99999999999999999999", "9000000000000000000"}) {
    for (const char* flag : {"--context", "--concurrency", "--batched-tokens", "--max-seqs"}) {
      expect_plan({flag, bad}, {flag, std::string(bad).substr(0, 12)});
    }
  }
}

TEST_F(MemcalcErrors, Questions) {
  expect({"solve", "deepseek-v3", "--gpu", "h200", "--for", "price"}, 2,
         {"--for", "'price'", "context, concurrency, gpus"});
  expect({"solve", "deepseek-v3", "--gpu", "h200", "--for", "contxt"}, 2, {"'contxt'", "'context'"});
  write("empty.csv", "");
  write("words.csv", "a,b\n1,2\n");
  write("cut.jsonl", "{\"prompt_len\": 5, \"output_len\": 3}\n{\"prompt_len\": 5, \"out");
  write("minus.csv", "5,3\n5,-3\n");
  write("huge.csv", "5,99999999999999999999\n");
  write("nan.csv", "5,nan\n");
  write("one.csv", "5\n");
  write("bytes.csv", std::string("\xff\xfe\0\x01\n", 5));
  expect_plan({"--lengths", "none.csv"}, {"'none.csv'"});
  expect_plan({"--lengths", "."}, {"'.'", "folder"});
  expect_plan({"--lengths", "empty.csv"}, {"empty.csv", "no request"});
  expect_plan({"--lengths", "words.csv"}, {"words.csv", "line 1", "'a,b'"});
  expect_plan({"--lengths", "cut.jsonl"}, {"cut.jsonl", "line 2"});
  expect_plan({"--lengths", "minus.csv"}, {"minus.csv", "line 2", "'-3'"});
  expect_plan({"--lengths", "huge.csv"}, {"huge.csv", "line 1", "9999"});
  expect_plan({"--lengths", "nan.csv"}, {"nan.csv", "line 1", "'nan'"});
  expect_plan({"--lengths", "one.csv"}, {"one.csv", "line 1"});
  expect_plan({"--lengths", "bytes.csv"}, {"bytes.csv", "line 1"});
  expect_plan({"--lengths", "/dev/zero"}, {"/dev/zero", "larger"});
}

TEST_F(MemcalcErrors, CasesAndLogs) {
  write("cut.json", R"([{"id": "x", )");
  write("number.json", "7");
  write("key.json", R"([{"id": "x", "modle": "v3"}])");
  write("model.json",
        R"([{"id": "x", "model": "v3", "config": {"attention": "mla"}, "engine": {"name": "vllm"},
    "inputs": {}, "expected": {"bytes_per_token": 1}}])");
  expect({"check", "none.json"}, 2, {"'none.json'"});
  expect({"check", "/"}, 2, {"folder"});
  expect({"check", "cut.json"}, 2, {"cut.json", "line 1"});
  expect({"check", "number.json"}, 2, {"number.json"});
  expect({"check", "key.json"}, 2, {"key.json"});
  expect({"check", "model.json"}, 2, {"x", "num_hidden_layers"});
  expect({"check", "-"}, 2, {"standard input"});
  expect({"explain", "none.log"}, 2, {"'none.log'"});
  expect({"explain", "."}, 2, {"'.'", "folder"});
}

TEST_F(MemcalcErrors, AnAnswerOfNoIsExitOneNotAnError) {
  const RunResult weights = memcalc({"plan", "deepseek-v3", "--gpu", "h200", "--context", "4k"});
  EXPECT_EQ(weights.exit_code, 1);
  EXPECT_EQ(weights.err, "");
  expect_has(lines(weights.out).at(0), "does not fit");
  EXPECT_EQ(memcalc({"solve", "deepseek-v3", "--gpu", "l4", "--for", "utilization"}).exit_code, 1);
  EXPECT_EQ(memcalc({"compare", "deepseek-v3", "--gpu", "l4", "--context", "4k"}).exit_code, 1);
}

TEST_F(MemcalcErrors, AFullOrClosedStdoutIsNotSilence) {
  for (const Args& args :
       {Args{"list", "engines"}, Args{"list", "gpus", "--names"}, Args{"-h"}, Args{"--help"},
        Args{"--version"}, Args{"--man"}, Args{"plan", "--help"}, Args{"--completion", "bash"},
        Args{"table", "deepseek-v3", "-o", "csv"}, Args{"examples", "-o", "json"},
        Args{"plan", "deepseek-v3", "--gpu", "h200", "--gpus", "8"}}) {
    const RunResult r = memcalc(args, {.stdout_path = "/dev/full"});
    EXPECT_EQ(r.exit_code, 2) << spelled(args);
    EXPECT_NE(r.err.find("standard output: No space left on device"), std::string::npos) << r.err;
  }
  const auto shell = [&](const std::string& line) {
    return mla::test::run_program("/bin/bash", {"-c", line},
                                  {.env = {{"MLA_CONFIG_DIR", MLA_SOURCE_DIR "/configs"}}});
  };
  const RunResult closed = shell(std::string("'") + MLA_MEMCALC + "' list engines >&-");
  EXPECT_EQ(closed.exit_code, 2) << closed.err;
  EXPECT_NE(closed.err.find("standard output"), std::string::npos) << closed.err;
  // A reader that leaves: quiet, with the code of tools that die of it.
  const RunResult left =
      shell(std::string("'") + MLA_MEMCALC + "' table --formulas | true; echo ${PIPESTATUS[0]}");
  EXPECT_TRUE(left.out == "141\n" || left.out == "0\n") << left.out << left.err;
  EXPECT_EQ(left.err, "");
}

TEST_F(MemcalcErrors, ClosedOrEndlessStdinIsAnError) {
  const auto shell = [&](const std::string& line) {
    return mla::test::run_program("/bin/bash", {"-c", line},
                                  {.env = {{"MLA_CONFIG_DIR", MLA_SOURCE_DIR "/configs"}}});
  };
  const RunResult closed = shell(std::string("'") + MLA_MEMCALC + "' plan - --gpu h200 <&-");
  EXPECT_EQ(closed.exit_code, 2) << closed.err;
  EXPECT_NE(closed.err.find("standard input"), std::string::npos) << closed.err;
  const RunResult endless = shell(std::string("'") + MLA_MEMCALC + "' plan - --gpu h200 </dev/zero");
  EXPECT_EQ(endless.exit_code, 2) << endless.err;
  EXPECT_NE(endless.err.find("standard input"), std::string::npos) << endless.err;
}

}  // namespace
