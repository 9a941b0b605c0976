// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "../common/options.hpp"
#include "core/text.hpp"
#include "mla/error.hpp"

namespace mla::memcalc {
namespace {

CLI::Option* text(CLI::App& app, const char* name, std::string& value, const char* type, const char* group,
                  const char* description) {
  const auto take = [&value, name](const std::string& given) {
    if (given.empty()) throw Error(ErrorCode::kInvalidArgument, std::string(name) + " is empty");
    if (given.starts_with("--")) {
      throw Error(ErrorCode::kInvalidArgument,
                  std::string(name) + " needs a value, but is followed by " + mla::text::quoted(given));
    }
    value = given;
  };
  CLI::Option* option =
      app.add_option_function<std::string>(name, take, description)->type_name(type)->group(group);
  if (!value.empty()) option->default_str(value);
  return option;
}

void add_model(CLI::App& app, RequestOptions& request) {
  app.add_option("model", request.model,
                 "A name of 'list models', a config.json or params.json, its folder, or -")
      ->type_name("MODEL")
      ->required()
      ->group("Model");
}

void add_hardware(CLI::App& app, RequestOptions& request) {
  const char* group = "Hardware";
  cli::often(text(app, "--gpu", request.gpu, "GPU", group, "A name of 'list gpus' or a file"));
  cli::often(text(app, "--gpus", request.gpus, "COUNT", group,
                  "How many; without it as many as the layout takes, or one"));
  text(app, "--gpu-memory", request.gpu_memory, "SIZE", group,
       "Memory of one, instead of the file's: 141GB, 80GiB");
  text(app, "--gpus-per-node", request.gpus_per_node, "COUNT", group,
       "tp larger than it is refused, and no layout tried crosses a node with tp");
}

/// An empty group: taken, so that the command can say why it wants none, but not shown.
void add_layout(CLI::App& app, RequestOptions& request, const char* group = "Layout") {
  CLI::Option* attention =
      text(app, "--attention", request.attention, "auto|tp|dp", group,
           "Split attention heads (tp), replicate attention (dp), or of all layouts (with "
           "--pp or --stages: of those with these stages) the one that holds most (auto)");
  if (*group != '\0') cli::often(attention);
  text(app, "--tp", request.tp, "COUNT", group, "Tensor parallel size");
  text(app, "--dp", request.dp, "COUNT", group,
       "Attention replicas, each with requests and cache of its own");
  text(app, "--pp", request.pp, "COUNT", group, "Pipeline stages");
  text(app, "--dcp", request.dcp, "COUNT", group,
       "Decode context parallel ranks inside tp: each keeps 1/dcp of the tokens");
  text(app, "--ep", request.ep, "COUNT", group,
       "Ranks that keep routed experts whole; 0: cut over all ranks");
  text(app, "--stages", request.stages, "LIST", group, "Layers of each pipeline stage: 14,13");
}

void add_cache(CLI::App& app, RequestOptions& request, const char* type = "FORMAT") {
  const char* group = "Cache and engine";
  cli::often(text(
      app, "--cache", request.cache, type, group,
      "auto (what the checkpoint asks, else bf16; f16 for llama.cpp), bf16, fp8, fp8_ds_mla, q8_0, ..."));
  text(app, "--cache-v", request.cache_v, "FORMAT", group, "Format of V where it differs (llama.cpp)");
  text(app, "--block", request.block, "COUNT", group, "Tokens a block (page)");
  text(app, "--mla-storage", request.mla_storage, "latent|latent+value|expanded", group,
       "What MLA layers keep: ik_llama.cpp -mla 3, 1 and 0");
  cli::often(
      text(app, "--engine", request.engine, "ENGINE", group,
           "vllm, vllm@0.11, vllm@2025-10, sglang, tensorrt-llm, llama.cpp, ik_llama.cpp, lmcache (a store "
           "of kept prefixes: needs --kv-memory), none (nobody's pages)"));
  text(app, "--batched-tokens", request.batched_tokens, "COUNT", group, "Tokens of the largest prefill step");
  text(app, "--prefill-chunks", request.prefill_chunks, "COUNT", group,
       "Such steps that vLLM's window layers hold at once: 2 where it schedules one before the last is "
       "settled");
  text(app, "--max-seqs", request.max_sequences, "COUNT", group,
       "Sequences a replica runs at once, the engine's max_num_seqs: what more fits waits, and so "
       "--concurrency fits no more than these");
  text(app, "--speculative-tokens", request.speculative, "COUNT", group,
       "Tokens drafted at a time; without it one if --mtp or --draft-layers is given");
  text(app, "--state-blocks", request.state_blocks, "one|aligned|all", group,
       "Blocks of recurrent layers a sequence takes: vLLM's mamba_cache_mode none, align and all");
  text(app, "--micro-batch", request.micro_batch, "COUNT", group,
       "llama.cpp's n_ubatch: its window layers hold that much more");
  text(app, "--window-sequences", request.window_sequences, "COUNT", group,
       "llama.cpp's unified cache: sequences whose windows it holds");
  app.add_flag("--swa-full", request.swa_full, "llama.cpp's flag: window layers keep the whole context")
      ->group(group);
  app.add_flag("--mtp", request.mtp, "Count the model's prediction layers too")->group(group);
  text(app, "--draft-layers", request.draft_layers, "COUNT", group,
       "Layers of an EAGLE drafter: each keeps what a full-length layer of the model keeps, and has a dense "
       "FFN; it drafts in place of the prediction layers, unless --mtp is given too");
}

void add_memory(CLI::App& app, RequestOptions& request) {
  const char* group = "Memory of a GPU";
  text(app, "--utilization", request.utilization, "SHARE", group, "Share the engine may use: 0.9, 90%");
  text(app, "--weights", request.weights, "FORMAT", group,
       "Weight format instead of the config's: bf16, fp8, int4, nvfp4, GGUF's q8_0, q4_k_m, ...");
  text(app, "--expert-weights", request.expert_weights, "FORMAT", group, "The same, for routed experts only");
  text(app, "--safetensors-index", request.index, "FILE", group,
       "Real sizes: a model.safetensors.index.json (by tensor if its shards lie beside it, else by its "
       "total)");
  text(app, "--weight-bytes", request.weight_bytes, "SIZE", group, "Weights of a GPU as measured: 79.3GiB");
  text(app, "--activations", request.activations, "SIZE", group,
       "Peak of activations instead of the estimate");
  text(app, "--graphs", request.graphs, "SIZE", group, "Captured graphs instead of the assumed 1 GiB");
  text(app, "--non-torch", request.other, "SIZE", group,
       "Driver, libraries and communication instead of the assumption");
  text(app, "--kv-memory", request.cache_bytes, "SIZES", group,
       "Cache budget of a GPU as an engine logs it; one value, or one a stage: 12.13GiB,11.33GiB");
}

void add_workload(CLI::App& app, RequestOptions& request) {
  const char* group = "Workload";
  cli::often(text(app, "--context", request.context, "COUNT", group,
                  "Tokens of a sequence, prompt and answer: 32k"));
  cli::often(text(app, "--concurrency", request.concurrency, "COUNT", group,
                  "Sequences wanted at once; exit 1 if they do not fit"));
}

void add_output(CLI::App& app, Options& options) {
  cli::often(app.add_flag("--formulas", options.formulas,
                          "Print the arithmetic of every number and where it comes from")
                 ->group("Output"));
  cli::add_output_options(app, options.output);
}

void add_plot(CLI::App& app, Options& options, const char* what) {
  text(app, "--plot", options.plot, "FILE", "Output", what);
}

/// `yes` and `no` are what exit codes 0 and 1 say; an empty `no`: there is no 1.
CLI::App& command(CLI::App& root, Options& options, Command id, const char* name, const char* summary,
                  const char* yes, const char* no, std::vector<std::string> examples) {
  CLI::App& app = *root.add_subcommand(name, summary);
  constexpr Command kDrawing[] = {Command::kPlan, Command::kCompare, Command::kSweep, Command::kSavings,
                                  Command::kTable};
  const bool draws = std::ranges::find(kDrawing, id) != std::end(kDrawing);
  cli::set_exit_codes(
      app, fmt::format("0 {}{}{}, 2 usage or bad input, {}4 internal error", yes, *no == '\0' ? "" : ", 1 ",
                       no, draws ? "3 no gnuplot to draw with, " : ""));
  app.callback([&options, id] { options.command = id; });
  cli::set_examples(app, std::move(examples));
  return app;
}

void add_planning(CLI::App& app, Options& options, const char* layout_group = "Layout") {
  add_model(app, options.request);
  add_workload(app, options.request);
  add_hardware(app, options.request);
  add_layout(app, options.request, layout_group);
  add_cache(app, options.request);
  add_memory(app, options.request);
  add_output(app, options);
}

void add_sweep(CLI::App& app, Options& options) {
  RequestOptions& request = options.request;
  app.add_option("models", options.models, "Names of 'list models', config.json or params.json files")
      ->type_name("MODELS")
      ->required()
      ->group("Model");
  cli::often(text(app, "--context", request.context, "COUNTS", "Workload",
                  "Tokens of a sequence: 8k,32k or 8k..128k:x2"));
  text(app, "--concurrency", request.concurrency, "COUNT", "Workload", "Sequences wanted at once");
  cli::often(
      text(app, "--gpu", request.gpu, "GPUS", "Hardware", "Names of 'list gpus' or files, with commas"));
  cli::often(text(app, "--gpus", request.gpus, "COUNTS", "Hardware", "How many: 8,16; without it one"));
  text(app, "--gpu-memory", request.gpu_memory, "SIZE", "Hardware", "Memory of one, instead of the file's");
  text(app, "--gpus-per-node", request.gpus_per_node, "COUNT", "Hardware", "tp stays inside a node");
  cli::often(text(app, "--layout", options.layouts, "LAYOUTS", "Layout",
                  "auto (of all, the one that holds most), all, or a list: tp8,dp8+ep8,pp2xtp4,tp8+dcp8"));
  add_cache(app, request, "FORMATS");
  add_memory(app, request);
  cli::add_output_options(app, options.output);
  add_plot(app, options, "Draw tokens against context: FILE.svg or FILE.png");
}

void add_savings(CLI::App& app, Options& options) {
  RequestOptions& request = options.request;
  add_model(app, request);
  cli::often(text(app, "--context", request.context, "COUNT", "Workload", "Tokens of a sequence: 32k"));
  cli::often(text(app, "--window", options.window, "COUNT", "Question",
                  "Tokens that layers which now read everything would read"));
  cli::often(text(app, "--sink", options.sink, "COUNT", "Question", "First tokens read beside that window"));
  cli::often(text(app, "--cache", request.cache, "FORMAT", "Cache and engine", "bf16, fp8, fp8_ds_mla, ..."));
  text(app, "--block", request.block, "COUNT", "Cache and engine", "Tokens a block (page)");
  text(app, "--engine", request.engine, "ENGINE", "Cache and engine", "Whose rules say what is dropped");
  add_output(app, options);
  add_plot(app, options, "Draw reads and memory: FILE.svg or FILE.png");
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, Options& options) {
  CLI::App app("", "mla-memcalc");
  cli::setup_root(app,
                  "How much memory does a model's attention cache take, what fits on these GPUs, and why",
                  {"mla-memcalc plan deepseek-v3 --gpu h200 --gpus 8 --context 128k",
                   "mla-memcalc table deepseek-v3 kimi-k2 llama-3.1-70b --formulas",
                   "mla-memcalc plan ./config.json --gpu h100-sxm --gpus 16 --concurrency 64"});
  app.require_subcommand(1);

  CLI::App& plan = command(
      app, options, Command::kPlan, "plan", "What fits on these GPUs",
      "it fits (--concurrency sequences, or one)", "it does not fit",
      {"mla-memcalc plan deepseek-v3 --gpu h200 --gpus 8 --context 128k",
       "mla-memcalc plan kimi-k2 --gpu h200 --gpus 16 --context 64k --concurrency 100 --plot plan.svg",
       "mla-memcalc plan deepseek-v3 --gpu h200 --gpus 8 --emit-sweep | mla-bench run --spec -"});
  cli::often(text(plan, "--versus", options.versus, "LIST", "Question",
                  "The same GPUs if the model cached K and V heads: mha,gqa:8,mqa"));
  plan.add_flag(
          "--emit-sweep", options.emit_sweep,
          "Print the decode batches that fit as a sweep spec for 'mla-bench run --spec -', nothing else")
      ->group("Question");
  text(plan, "--with", options.with, "RUN", "Question",
       "A run of mla-bench (file or folder): tokens/s that its attention times allow at most, for what fits");
  add_planning(plan, options);
  text(plan, "--lengths", options.lengths, "FILE", "Workload",
       "A trace of real requests (prompt and output tokens a line), or -: paging waste, expected and certain "
       "concurrency");
  add_plot(plan, options, "Draw memory of a GPU and tokens against context: FILE.svg or FILE.png");

  CLI::App& solve =
      command(app, options, Command::kSolve, "solve",
              "The largest context, most sequences, fewest GPUs or least utilization", "found",
              "nothing is large or small enough",
              {"mla-memcalc solve deepseek-v3 --gpu h200 --gpus 8 --concurrency 64 --for context",
               "mla-memcalc solve deepseek-v3 --gpu h200 --context 128k --concurrency 64 --for gpus"});
  cli::often(text(solve, "--for", options.unknown, "context|concurrency|gpus|utilization", "Question",
                  "What is wanted; its own flag is not looked at, all others hold"));
  add_planning(solve, options);

  CLI::App& compare =
      command(app, options, Command::kCompare, "compare", "All layouts of these GPUs, ranked",
              "at least one layout holds what is wanted", "none does",
              {"mla-memcalc compare deepseek-v3 --gpu h200 --gpus 16 --context 128k",
               "mla-memcalc compare kimi-k2 --gpu h200 --gpus 8 --context 64k --concurrency 40"});
  add_planning(compare, options, "");
  text(compare, "--top", options.top, "COUNT", "Output", "Rows shown; 0: all");
  add_plot(compare, options, "Draw memory and tokens of the layouts: FILE.svg or FILE.png");

  CLI::App& sweep = command(
      app, options, Command::kSweep, "sweep", "Many plans as rows: models, GPUs, layouts, formats, contexts",
      "at least one plan fits", "none does",
      {"mla-memcalc sweep deepseek-v3 kimi-k2 --gpu h200 --gpus 8,16 --context 8k..128k:x2 -o csv",
       "mla-memcalc sweep glm-5.2 --gpu h200,b200 --gpus 8 --cache bf16,fp8 --layout tp8,tp8+dcp8,dp8+ep8"});
  add_sweep(sweep, options);

  CLI::App& savings =
      command(app, options, Command::kSavings, "savings",
              "What a window, sinks or a top-k index save: reads and memory, kept apart", "done", "",
              {"mla-memcalc savings deepseek-v3 --context 128k --window 4k --sink 128",
               "mla-memcalc savings gemma-3-27b --context 128k", "mla-memcalc savings deepseek-v3.2"});
  add_savings(savings, options);

  CLI::App& table = command(
      app, options, Command::kTable, "table", "Bytes of a token: MHA, GQA-8, MQA, MLA in every format",
      "done", "",
      {"mla-memcalc table", "mla-memcalc table deepseek-v3 kimi-k2 glm-5.2 llama-3.1-70b --plot models.svg",
       "mla-memcalc table ./config.json -o csv"});
  table.add_option("models", options.models, "Names or files; none: every MLA model known")
      ->type_name("MODELS")
      ->group("Model");
  add_output(table, options);
  add_plot(table, options, "Draw the models side by side: FILE.svg or FILE.png");

  CLI::App& examples = command(app, options, Command::kExamples, "examples",
                               "The source documents' worked numbers: their line and the corrected one",
                               "done", "", {"mla-memcalc examples -o md"});
  add_output(examples, options);

  CLI::App& explain = command(
      app, options, Command::kExplain, "explain", "What an engine's log says, and what explains its numbers",
      "numbers were found and explained", "nothing was found, or a number is not explained",
      {"mla-memcalc explain server.log --model deepseek-v3", "kubectl logs pod | mla-memcalc explain -"});
  explain.add_option("log", options.log, "A log of vLLM, SGLang, TensorRT-LLM or llama.cpp, or -")
      ->type_name("FILE")
      ->default_str("-")
      ->group("Question");
  cli::often(text(explain, "--model", options.request.model, "MODEL", "Question",
                  "Instead of the one the log names"));
  const char* run = "The run, where the log does not say or is wrong";
  text(explain, "--engine", options.log_engine, "ENGINE", run,
       "vllm, vllm@0.11, sglang, tensorrt-llm, llama.cpp, ...");
  text(explain, "--tp", options.request.tp, "COUNT", run, "Tensor parallel size");
  text(explain, "--dp", options.request.dp, "COUNT", run, "Attention replicas");
  text(explain, "--pp", options.request.pp, "COUNT", run, "Pipeline stages");
  text(explain, "--dcp", options.request.dcp, "COUNT", run, "Decode context parallel ranks");
  text(explain, "--cache", options.log_cache, "FORMAT", run,
       "Format of the cache: bf16, fp8, fp8_ds_mla, q8_0, ...");
  text(explain, "--block", options.request.block, "COUNT", run, "Tokens a block (page)");
  add_output(explain, options);

  CLI::App& check =
      command(app, options, Command::kCheck, "check", "Compare the planner with numbers that engines logged",
              "every number agrees or is marked as explained", "one differs",
              {"mla-memcalc check tests/data/capacity-cases.json", "mla-memcalc check my-run.json -o md"});
  check.add_option("cases", options.cases, "A file of cases (configs/schema/cases.schema.json), or -")
      ->type_name("FILE")
      ->required()
      ->group("Question");
  cli::add_output_options(check, options.output);

  CLI::App& list =
      command(app, options, Command::kList, "list", "What can be named: models, gpus, engines, formats",
              "done", "", {"mla-memcalc list models", "mla-memcalc list gpus -o json"});
  list.add_option("what", options.what, "models, gpus, engines or formats")
      ->type_name("models|gpus|engines|formats")
      ->required()
      ->group("Question");
  list.add_flag("--names", options.names, "Names alone, one a line")->group("Output");
  cli::add_output_options(list, options.output);

  return cli::parse(app, argc, argv);
}

}  // namespace mla::memcalc
