// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "../common/options.hpp"
#include "spec/sweep.hpp"

namespace mla::bench {
namespace {

std::string flag_name(std::string_view key) {
  std::string name = "--" + std::string(key);
  std::ranges::replace(name, '_', '-');
  return name;
}

/// Every key of a sweep is a flag; those said most often are shown by -h.
void add_sweep_flags(CLI::App& app, RunRequest& request) {
  constexpr std::string_view kOften[] = {"backend", "model", "batch", "window", "cache"};
  for (const spec::SweepKey& key : spec::sweep_keys()) {
    CLI::Option* option = app.add_option_function<std::string>(
        flag_name(key.name),
        [&request, name = std::string(key.name)](const std::string& text) {
          request.overrides.emplace_back(name, text);
        },
        std::string(key.what));
    option->type_name(std::string(key.type))
        ->group(key.section == spec::Section::kAxes ? "Workload" : "Measurement");
    if (!key.fallback.empty()) option->default_str(std::string(key.fallback));
    if (std::ranges::find(kOften, key.name) != std::end(kOften)) cli::often(option);
  }
}

void add_run(CLI::App& root, RunRequest& request) {
  CLI::App* app = root.add_subcommand("run", "Verify and time every point of a sweep");
  cli::set_examples(
      *app,
      {"mla-bench run --spec smoke",
       "mla-bench run --backend cpu-absorbed,cpu-expanded --model deepseek-v2-lite --batch 1q1s1k,4q1s1k",
       "mla-bench run --spec cpu --kv 1k..8k:x2 --dry-run"});
  cli::often(app->add_option("--spec", request.spec, "Sweep to start from; flags override it (- reads stdin)")
                 ->type_name("SPEC")
                 ->group("Workload"));
  add_sweep_flags(*app, request);
  app->add_option("--filter", request.filter,
                  "Only points whose name matches this expression (-REGEX: does not)")
      ->type_name("REGEX")
      ->group("Workload");
  app->add_option("--memory-limit", request.memory_limit, "Host memory the inputs may take")
      ->type_name("SIZE")
      ->default_str("half of what is free")
      ->group("Measurement");
  const char* group = "Output";
  cli::often(
      app->add_option("--out", request.out, "Folder for run.jsonl, never overwritten; none keeps nothing")
          ->type_name("DIR")
          ->default_str("results/<device>/<date>-<sweep>")
          ->group(group));
  app->add_flag("--resume", request.resume, "Continue the run in --out: measure what is missing")
      ->group(group);
  app->add_option("--gbench-json", request.gbench_json,
                  "Also write Google Benchmark's JSON, for its compare.py")
      ->type_name("FILE")
      ->group(group);
  app->add_flag("--dry-run", request.dry_run, "Show the points and what they need; measure nothing")
      ->group(group);
  app->add_flag("--print-spec", request.print_spec,
                "Print the sweep as it would run, with the origin of each value")
      ->group(group);
  cli::add_output_options(*app, request.output);
}

void add_list(CLI::App& root, ListRequest& request) {
  CLI::App* app = root.add_subcommand("list", "Show what there is: backends, models, gpus, specs or axes");
  cli::set_examples(*app,
                    {"mla-bench list backends --explain 'decode head h16 l512 r64 p128 v128 1q1s1k causal'",
                     "mla-bench list models -o csv"});
  app->add_option("what", request.what, "What to list")
      ->type_name("backends|models|gpus|specs|axes")
      ->required()
      ->group("What");
  cli::often(app->add_option("--explain", request.shape, "Backends: can they do this shape, and if not, why")
                 ->type_name("SHAPE")
                 ->group("What"));
  app->add_flag("--names", request.names, "Only names, one a line")->group("Output");
  cli::add_output_options(*app, request.output);
}

/// "mla-bench run" may be written "mla-bench": options in front of no command belong to run.
std::vector<std::string> with_default_command(int argc, char** argv) {
  std::vector<std::string> words(argv, argv + argc);
  constexpr std::string_view kOfRoot[] = {"-h",           "--help",       "--version", "--man",
                                          "--completion", "--config-dir", "--json"};
  const bool starts_with_option = words.size() > 1 && words[1].starts_with('-');
  const bool of_root = starts_with_option && std::ranges::any_of(kOfRoot, [&](std::string_view o) {
                         return words[1] == o || words[1].starts_with(std::string(o) + '=');
                       });
  if (starts_with_option && !of_root) words.insert(words.begin() + 1, "run");
  return words;
}

}  // namespace

Request read_command_line(int argc, char** argv, std::optional<int>& exit_code) {
  RunRequest run_request;
  ListRequest list_request;
  CLI::App app("", "mla-bench");
  cli::setup_root(
      app,
      "times MLA attention backends over sweeps of shapes, verified first, against this machine's limits",
      {"mla-bench run --spec smoke", "mla-bench list backends",
       "mla-bench run --backend all --batch 1q1s1k,8q1s1k --window full,256"});
  app.require_subcommand(1);
  add_run(app, run_request);
  add_list(app, list_request);

  std::vector<std::string> words = with_default_command(argc, argv);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  exit_code = cli::parse(app, static_cast<int>(words.size()), pointers.data());
  if (app.got_subcommand("list")) return list_request;
  for (int i = 0; i < argc; ++i) run_request.command_line += fmt::format("{}{}", i == 0 ? "" : " ", argv[i]);
  return run_request;
}

}  // namespace mla::bench
