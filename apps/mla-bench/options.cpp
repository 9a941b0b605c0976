// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "../common/options.hpp"
#include "processes.hpp"
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
  cli::add_plugin_option(*app);
  app->add_option("--peer", request.peers,
                  "Also a kernel in another process (peers/PROTOCOL.md): a program, with its arguments")
      ->type_name("COMMAND")
      ->allow_extra_args(false)
      ->group("Workload");
  app->add_option("--filter", request.filter,
                  "Only points whose name matches this expression (-REGEX: does not)")
      ->type_name("REGEX")
      ->group("Workload");
  app->add_option("--gpu", request.gpu, "GPU to run device backends on, by number; none: CPU backends only")
      ->type_name("ORDINAL")
      ->default_str("the first there is")
      ->group("Workload");
  app->add_option("--device", request.device,
                  "Model a described GPU (its floors) instead of measuring this machine")
      ->type_name("GPU")
      ->group("Workload");
  app->add_option("--find-crossover", request.crossover,
                  "Bisect this axis to where one of two backends overtakes the other")
      ->type_name("kv|requests|window|q_len|heads")
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
  cli::often(app->add_flag("--explain", request.explain,
                           "Say of each row what bounds it and how far it is from that")
                 ->group(group));
  app->add_flag("--formulas", request.formulas, "Show the arithmetic behind the numbers of each row")
      ->group(group);
  app->add_flag("--dry-run", request.dry_run, "Show the points and what they need; measure nothing")
      ->group(group);
  // What a run of several processes starts them with; not for people.
  app->add_option("--as-process", request.process)->group("");
  app->add_option("--of-run", request.folder)->group("");
  app->add_flag("--print-spec", request.print_spec,
                "Print the sweep as it would run, with the origin of each value")
      ->group(group);
  cli::add_output_options(*app, request.output);
}

void add_comparison_options(CLI::App& app, std::string& threshold, std::string& fail_on) {
  app.add_option("--threshold", threshold, "Changes up to this do not matter")
      ->type_name("PERCENT")
      ->default_str("3%")
      ->group("Rule");
  app.add_option("--fail-on", fail_on, "What makes the exit code 1; broken points always count as slower")
      ->type_name("slower|any|none")
      ->default_str("slower")
      ->group("Rule");
}

void add_report(CLI::App& root, ReportRequest& request) {
  CLI::App* app = root.add_subcommand("report", "Tables, charts and a one-file HTML page from runs");
  cli::set_examples(*app,
                    {"mla-bench report results/host/2026-08-22-smoke -o html --to smoke.html",
                     "mla-bench report RUN --x kv --y gbps --by backend --facet batch -o svg --to kv.svg",
                     "mla-bench report RUN --where 'window=4k,kv>=32k' -o md"});
  app->add_option("runs", request.paths, "Files or folders of runs")
      ->type_name("PATH")
      ->required()
      ->group("What");
  cli::often(app->add_option("--where", request.where, "Only rows like this: 'window=4k,kv>=32k,backend!=x'")
                 ->type_name("CONDITIONS")
                 ->group("What"));
  app->add_option("--x", request.x, "Column across")
      ->type_name("COLUMN")
      ->default_str(request.x)
      ->group("Chart");
  app->add_option("--y", request.y, "Column up")->type_name("COLUMN")->default_str(request.y)->group("Chart");
  app->add_option("--by", request.by, "Columns that make lines: backend,cache")
      ->type_name("COLUMNS")
      ->default_str(request.by)
      ->group("Chart");
  app->add_option("--facet", request.facet, "Columns that make panels: heads,requests; or none")
      ->type_name("COLUMNS")
      ->default_str(request.facet)
      ->group("Chart");
  app->add_option("--chart", request.chart, "What svg and png show")
      ->type_name("lines|roofline|speedup")
      ->default_str(request.chart)
      ->group("Chart");
  cli::often(app->add_option("-o,--output", request.format, "Format")
                 ->type_name("table|json|csv|md|html|svg|png")
                 ->default_str(request.format)
                 ->group("Output"));
  app->add_flag("--explain", request.explain, "Say of each row what bounds it and how far it is from that")
      ->group("Output");
  app->add_flag("--formulas", request.formulas, "Show the arithmetic behind the numbers of each row")
      ->group("Output");
  app->add_flag("--pivot", request.pivot,
                "The chart as a table: x and panels down, lines across, y in the cells")
      ->group("Output");
  cli::often(app->add_option("--to", request.to, "File, never overwritten")
                 ->type_name("FILE")
                 ->default_str("stdout")
                 ->group("Output"));
}

void add_compare(CLI::App& root, CompareRequest& request) {
  CLI::App* app =
      root.add_subcommand("compare", "Two runs, point by point: SAME, FASTER, SLOWER, AMBIGUOUS or BROKEN");
  cli::set_examples(*app,
                    {"mla-bench compare base/ now/", "mla-bench compare base/ now/ --threshold 5% -o md"});
  app->add_option("base", request.base, "File or folder of the earlier run")
      ->type_name("PATH")
      ->required()
      ->group("What");
  app->add_option("now", request.now, "File or folder of the later run")
      ->type_name("PATH")
      ->required()
      ->group("What");
  app->add_option("--where", request.where, "Only rows like this: 'window=4k,kv>=32k'")
      ->type_name("CONDITIONS")
      ->group("What");
  add_comparison_options(*app, request.threshold, request.fail_on);
  cli::add_output_options(*app, request.output);
}

void add_rerun(CLI::App& root, RerunRequest& request) {
  CLI::App* app =
      root.add_subcommand("rerun", "Measure the points of a run again, with the same inputs, and compare");
  cli::set_examples(*app,
                    {"mla-bench rerun results/host/2026-08-22-smoke", "mla-bench rerun run.jsonl --row 3"});
  app->add_option("run", request.path, "File or folder of the run")
      ->type_name("PATH")
      ->required()
      ->group("What");
  cli::often(app->add_option("--row", request.row, "Only this record, counted from 1")
                 ->type_name("COUNT")
                 ->default_str("all")
                 ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 40))
                 ->group("What"));
  add_comparison_options(*app, request.threshold, request.fail_on);
  cli::add_plugin_option(*app);
  app->add_option("--gpu", request.gpu, "As in run")->type_name("ORDINAL")->group("Measurement");
  app->add_option("--noise", request.noise, "As in run")->type_name("PERCENT")->group("Measurement");
  app->add_option("--max-time", request.max_time, "As in run")->type_name("DURATION")->group("Measurement");
  app->add_option("--memory-limit", request.memory_limit, "As in run")
      ->type_name("SIZE")
      ->group("Measurement");
  app->add_option("--out", request.out, "Folder for the new records, never overwritten; none keeps nothing")
      ->type_name("DIR")
      ->default_str(request.out)
      ->group("Output");
  cli::add_output_options(*app, request.output);
}

void add_tune(CLI::App& root, TuneRequest& request) {
  CLI::App* app = root.add_subcommand(
      "tune", "From runs to a table of the fastest backend by region, which choose_backend reads");
  cli::set_examples(*app, {"mla-bench tune results/h200/2026-12-01-all --to h200.json",
                           "mla-bench list backends --explain --selector h200.json"});
  app->add_option("runs", request.paths, "Files or folders of runs")
      ->type_name("PATH")
      ->required()
      ->group("What");
  app->add_option("--where", request.where, "Only rows like this: 'phase=decode,kv>=32k'")
      ->type_name("CONDITIONS")
      ->group("What");
  cli::often(app->add_option("--to", request.to, "File for the table, never overwritten")
                 ->type_name("FILE")
                 ->default_str("only shown")
                 ->group("Output"));
  cli::add_output_options(*app, request.output);
}

void add_list(CLI::App& root, ListRequest& request) {
  CLI::App* app =
      root.add_subcommand("list", "Show what there is: backends, devices, models, gpus, specs or axes");
  cli::set_examples(*app,
                    {"mla-bench list backends --explain 'decode head h16 l512 r64 p128 v128 1q1s1k causal'",
                     "mla-bench list models -o csv"});
  app->add_option("what", request.what, "What to list")
      ->type_name("backends|devices|models|gpus|specs|axes")
      ->required()
      ->group("What");
  CLI::Option* explain =
      app->add_option("--explain", request.shape,
                      "Backends: can they do this shape (or decode with --model), if not, why")
          ->type_name("SHAPE")
          ->expected(0, 1)
          ->group("What");
  cli::often(explain);
  app->parse_complete_callback([&request, explain] { request.explain = explain->count() > 0; });
  app->add_option("--model", request.model,
                  "Backends: answer for one request of 4k keys decoded with this model")
      ->type_name("MODEL")
      ->group("What");
  app->add_option("--gpu", request.gpu, "Backends: a GPU here by number, or one that is only described")
      ->type_name("GPU")
      ->default_str("the first there is")
      ->group("What");
  app->add_option("--selector", request.selector, "Backends: mark what this table of 'tune' chooses")
      ->type_name("FILE")
      ->default_str("that of the config folder for the GPU")
      ->group("What");
  cli::add_plugin_option(*app);
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
  RunRequest run;
  ReportRequest report;
  CompareRequest compare;
  RerunRequest rerun;
  TuneRequest tune;
  ListRequest list;
  CLI::App app("", "mla-bench");
  cli::setup_root(
      app,
      "times MLA attention backends over sweeps of shapes, verified first, against this machine's limits",
      {"mla-bench run --spec smoke", "mla-bench list backends",
       "mla-bench run --backend all --batch 1q1s1k,8q1s1k --window full,256"});
  app.require_subcommand(1);
  add_run(app, run);
  add_report(app, report);
  add_compare(app, compare);
  add_rerun(app, rerun);
  add_tune(app, tune);
  add_list(app, list);

  std::vector<std::string> words = with_default_command(argc, argv);
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  exit_code = cli::parse(app, static_cast<int>(words.size()), pointers.data());
  // The program by its name: where it lay is nobody's business. Processes of a run say what started the run.
  run.words.assign(argv + 1, argv + argc);
  if (run.process >= 0) run.words.resize(run.words.size() - kProcessWords);
  const std::string line = fmt::format("mla-bench {}", fmt::join(run.words, " "));
  run.command_line = report.command_line = rerun.command_line = tune.command_line = line;
  if (app.got_subcommand("list")) return list;
  if (app.got_subcommand("tune")) return tune;
  if (app.got_subcommand("report")) return report;
  if (app.got_subcommand("compare")) return compare;
  if (app.got_subcommand("rerun")) return rerun;
  return run;
}

}  // namespace mla::bench
