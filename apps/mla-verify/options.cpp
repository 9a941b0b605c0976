// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <fmt/format.h>

#include <charconv>

#include "../common/options.hpp"
#include "mla/error.hpp"
#include "spec/values.hpp"

namespace mla::verify_app {
namespace {

std::int64_t count_within(const std::string& text, const char* name, std::int64_t most,
                          std::int64_t least = 0) {
  const std::int64_t n = spec::parse_count(text, name);
  if (n >= least && n <= most) return n;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is {}, but must lie in {}..{}", name, n, least, most));
}

/// A whole number in our own grammar, so that errors speak one language.
template <class Number>
CLI::Option* count(CLI::App& app, const char* name, Number& value, std::int64_t most, const char* group,
                   const char* description, std::int64_t least = 0) {
  const auto read = [&value, name, most, least](const std::string& text) {
    value = static_cast<Number>(count_within(text, name, most, least));
  };
  return app.add_option_function<std::string>(name, read, description)
      ->type_name("COUNT")
      ->default_str(std::to_string(value))
      ->group(group);
}

CLI::Option* backends(CLI::App& app, std::string& value) {
  return cli::often(
      app.add_option("--backends", value, "Backends to judge, joined by commas, or all of this machine")
          ->type_name("BACKENDS")
          ->default_str(value)
          ->group("Backends"));
}

CLI::Option* plugins(CLI::App& app, std::vector<std::string>& files) {
  return app
      .add_option("--plugin", files,
                  "Add the backend of a shared object that speaks mla/plugin.h; may be repeated")
      ->type_name("FILE")
      ->allow_extra_args(false)
      ->group("Backends");
}

/// "90s", "10m", "2h", "90".
double parse_seconds(const std::string& text, const char* name) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string unit(end, text.data() + text.size());
  const double factor = unit.empty() || unit == "s" ? 1 : unit == "m" ? 60 : unit == "h" ? 3600 : 0;
  if (error != std::errc() || factor == 0 || !(value > 0 && value * factor <= 1e6)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is '{}', but must be a time such as 90s, 10m or 2h, at most 1e6 seconds",
                            name, text));
  }
  return value * factor;
}

void peers(CLI::App& app, std::vector<std::string>& commands) {
  cli::often(app.add_option("--peer", commands,
                            "A kernel in another process (peers/PROTOCOL.md): a program, with its "
                            "arguments; judged alone unless "
                            "--backends names others; may be repeated")
                 ->type_name("FILE")
                 ->allow_extra_args(false)
                 ->group("Backends"));
}

void add_timeout(CLI::App& app, double& seconds) {
  app.add_option_function<std::string>(
         "--timeout", [&seconds](const std::string& text) { seconds = parse_seconds(text, "--timeout"); },
         "A call of a backend that takes longer is a hang and a failure")
      ->type_name("TIME")
      ->default_str("2m")
      ->group("Failures");
}

/// "2/3": the second of three parts.
verify::Shard parse_shard(const std::string& text) {
  const auto fail = [&text] {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "--shard is '{}', but must be a part and their number, such as 1/3 for the first of three "
            "(at most 1000)",
            text));
  };
  const std::size_t slash = text.find('/');
  std::size_t part = 0, parts = 0;
  const auto read = [](std::string_view digits, std::size_t& value) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    return error == std::errc() && end == digits.data() + digits.size();
  };
  if (slash == std::string::npos || !read(std::string_view(text).substr(0, slash), part) ||
      !read(std::string_view(text).substr(slash + 1), parts) || part < 1 || part > parts || parts > 1000) {
    fail();
  }
  return {part - 1, parts};
}

void add_golden(CLI::App& root, GoldenRequest& request) {
  CLI::App* app = root.add_subcommand(
      "golden",
      "Check golden vectors of another implementation: every set, every tensor, every way to compute it");
  cli::set_examples(*app, {"mla-verify golden tests/golden", "mla-verify golden tests/golden --summary",
                           "mla-verify golden tests/golden --set v3_yarn,v2lite -o json"});
  app->add_option("dir", request.dir, "Folder with manifest.json and the *.safetensors it names")
      ->type_name("DIR")
      ->required()
      ->group("Vectors");
  cli::often(app->add_option("--set", request.sets, "Only these sets")
                 ->type_name("NAMES")
                 ->delimiter(',')
                 ->group("Vectors"));
  backends(*app, request.backends);
  cli::often(
      app->add_flag("--summary", request.summary, "One line a set instead of one a tensor")->group("Output"));
  cli::add_output_options(*app, request.output);
}

CLI::App* add_run(CLI::App& root, RunRequest& request) {
  CLI::App* app = root.add_subcommand(
      "run", "Judge backends against the fp64 reference, row by row, with budgets computed from each case");
  cli::set_examples(
      *app, {"mla-verify run", "mla-verify run --backends cpu-absorbed --filter 'topk.*f64' --list-cases",
             "mla-verify run --case 'decode latent h16 2q1s65 causal b64 values=dominant splits=7'",
             "mla-verify run --suite full --time 10m --no-oracles", "mla-verify run --replay repro.json"});
  cli::often(app->add_option("--suite", request.suite,
                             "quick (a minute), full (minutes), or a file of cases, one a line")
                 ->type_name("quick|full|FILE")
                 ->default_str(request.suite)
                 ->group("Cases"));
  cli::often(
      app->add_option("--case", request.cases, "One case as text, as --list-cases prints it; may be repeated")
          ->type_name("CASE")
          ->allow_extra_args(false)
          ->group("Cases"));
  cli::often(app->add_option("--filter", request.filter, "Only cases whose text this expression finds")
                 ->type_name("REGEX")
                 ->group("Cases"));
  app->add_flag("--list-cases", request.list_cases, "Print the cases, one a line, and judge nothing")
      ->group("Cases");
  cli::often(app->add_option_function<std::string>(
                    "--seed",
                    [&request](const std::string& text) {
                      request.seed = static_cast<std::uint64_t>(count_within(text, "--seed", INT64_MAX));
                    },
                    "Which inputs: the same seed gives the same bits; a fuzzer takes the clock's")
                 ->type_name("COUNT")
                 ->default_str("1")
                 ->group("Cases"));
  cli::often(
      app->add_option_function<std::string>(
             "--time",
             [&request](const std::string& text) { request.fuzz_seconds = parse_seconds(text, "--time"); },
             "Random cases of the suite's kind for so long (90s, 10m, 2h) in place of the suite")
          ->type_name("TIME")
          ->group("Cases"));
  app->add_option_function<std::string>(
         "--shard", [&request](const std::string& text) { request.shard = parse_shard(text); },
         "One part of the suite and the oracles, for runs one after another or on several machines: 1/3, "
         "2/3, 3/3")
      ->type_name("PART/PARTS")
      ->group("Cases");
  cli::often(
      app->add_option("--replay", request.replay,
                      "Run a reduced failure again, alone and in this process (debuggers, compute-sanitizer)")
          ->type_name("FILE")
          ->group("Failures"));
  app->add_option(
         "--repro", request.repro,
         "Where the reduced failure is written; with several failing backends, their names are added")
      ->type_name("FILE")
      ->default_str(request.repro)
      ->group("Failures");
  app->add_flag("--no-shrink", request.no_shrink, "Leave failures as they are found")->group("Failures");
  add_timeout(*app, request.timeout);
  app->add_flag(
         "--in-process", request.in_process,
         "Judge in this process: faster to debug, but a crash or hang of a backend is one of this program")
      ->group("Failures");
  count(
      *app, "--jobs", request.jobs, 256, "Cases",
      "Judges side by side, each a process with its share of the processors; 0: one a processor, at most 8");
  app->add_flag("--no-oracles", request.no_oracles,
                "Leave out the checks that need no reference (see 'oracles')")
      ->group("Cases");
  count(*app, "--repeats", request.repeats, 1000, "Cases",
        "Runs of one call that must agree bit by bit; 0: 50 on a device, 20 on the host");
  backends(*app, request.backends);
  plugins(*app, request.plugins);
  peers(*app, request.peers);
  app->add_flag("--fail-fast", request.fail_fast, "Stop at the first failure")->group("Output");
  app->add_flag("--log-progress", request.log_progress,
                "A line on stderr every ten seconds, also where that is no terminal: how much is done and "
                "about how long "
                "the rest takes")
      ->group("Output");
  app->add_flag("--formulas", request.formulas,
                "Show the budget of each backend's worst row term by term, with its numbers")
      ->group("Output");
  count(*app, "--show", request.show, 1000000, "Output", "Passing cases shown in a table, worst first");
  app->add_option("--junit", request.junit, "Also write JUnit XML, for CI systems")
      ->type_name("FILE")
      ->group("Output");
  app->add_option("--html", request.html, "Also write a report: one file that needs no network")
      ->type_name("FILE")
      ->group("Output");
  cli::add_output_options(*app, request.output);
  return app;
}

CLI::App* add_capabilities(CLI::App& root, CapabilitiesRequest& request) {
  CLI::App* app = root.add_subcommand("capabilities",
                                      "What each backend says it supports, tried, and found true or false");
  cli::set_examples(*app, {"mla-verify capabilities", "mla-verify capabilities --backends cpu-absorbed -o md",
                           "mla-verify capabilities --plugin ./mine.so --backends mine",
                           "mla-verify capabilities --peer ./kernel.py"});
  backends(*app, request.backends);
  plugins(*app, request.plugins);
  peers(*app, request.peers);
  count(*app, "--seed", request.seed, INT64_MAX, "Cases", "Which inputs");
  add_timeout(*app, request.timeout);
  cli::add_output_options(*app, request.output);
  return app;
}

/// Started by this program only.
CLI::App* add_worker(CLI::App& root, WorkerRequest& request) {
  CLI::App* app = root.add_subcommand("worker", "Judges beside another process: lines in, lines out");
  app->group("");
  backends(*app, request.backends);
  plugins(*app, request.plugins);
  count(*app, "--threads", request.threads, 100000, "Cases", "Threads of the reference; 0: all");
  count(*app, "--parent", request.parent, 1 << 30, "Cases", "Process that started it")->required();
  return app;
}

CLI::App* add_mutants(CLI::App& root, MutantsRequest& request) {
  CLI::App* app = root.add_subcommand(
      "mutants",
      "Put the verifier on trial: are deliberately wrong kernels caught, and right ones left alone?");
  cli::set_examples(*app, {"mla-verify mutants", "mla-verify mutants --ideal-seeds 10000 -o md"});
  app->add_option("--suite", request.suite, "Cases that have to kill them")
      ->type_name("quick|full")
      ->default_str(request.suite)
      ->group("Cases");
  count(*app, "--seed", request.seed, INT64_MAX, "Cases", "Which inputs");
  app->add_option("--backend", request.backend,
                  "Wrong variants of this device kernel (cuda-naive) in place of those of the host")
      ->type_name("BACKEND")
      ->group("Cases");
  count(*app, "--ideal-seeds", request.ideal_seeds, 100000000, "Cases",
        "Random cases on which ideal kernels must not be accused");
  cli::add_output_options(*app, request.output);
  return app;
}

CLI::App* add_layer(CLI::App& root, LayerRequest& request) {
  CLI::App* app = root.add_subcommand(
      "layer", "Run one real MLA layer of a Hugging Face checkpoint through the reference and the backends");
  cli::set_examples(*app, {"mla-verify layer --weights DeepSeek-V2-Lite --layer 3",
                           "mla-verify layer --weights model.safetensors.index.json --layer 0 --tokens 64 "
                           "--cache bf16,fp8_ds_mla",
                           "mla-verify layer --weights model.safetensors --config minicpm3-4b --layer 1 "
                           "--hidden states.safetensors"});
  app->add_option("--weights", request.weights,
                  "A safetensors file, a model.safetensors.index.json, or the folder of one")
      ->type_name("FILE")
      ->required()
      ->group("Layer");
  cli::often(count(*app, "--layer", request.layer, 100000, "Layer", "Which decoder layer, from 0"))
      ->required();
  app->add_option_function<std::string>(
         "--block",
         [&request](const std::string& text) {
           request.block = static_cast<int>(count_within(text, "--block", 9));
         },
         "Which attention of the layer, where it has two (LongCat); otherwise all")
      ->type_name("COUNT")
      ->group("Layer");
  cli::often(
      app->add_option(
             "--config", request.config,
             "The model's config.json or a model that mla-memcalc knows; otherwise config.json beside the "
             "weights")
          ->type_name("MODEL")
          ->group("Layer"));
  app->add_option_function<std::string>(
         "--rope-rule",
         [&request](const std::string& text) {
           request.rule = text == "deepseek" ? YarnRule::kDeepSeek
                          : text == "vllm"   ? YarnRule::kVllm
                                             : YarnRule::kTransformers;
         },
         "Whose reading of a YaRN configuration (docs/numerics.md)")
      ->check(CLI::IsMember({"transformers", "deepseek", "vllm"}))
      ->type_name("transformers|deepseek|vllm")
      ->default_str("transformers")
      ->group("Layer");
  app->add_flag("--f32-angles", request.f32_angles,
                "Rotary angles in single precision, as engines compute them")
      ->group("Layer");
  app->add_option_function<double>(
         "--norm-eps",
         [&request](const double& eps) {
           if (!(eps > 0 && eps < 1)) {
             throw Error(ErrorCode::kInvalidArgument,
                         fmt::format("--norm-eps is {}, but must lie between 0 and 1", eps));
           }
           request.norm_eps = eps;
         },
         "Epsilon of the latent norms; otherwise rms_norm_eps of the configuration, as engines take it "
         "(transformers "
         "always takes 1e-6)")
      ->type_name("NUMBER")
      ->group("Layer");
  cli::often(app->add_option(
                    "--hidden", request.hidden,
                    "Hidden states: random, or a safetensors file with 'hidden' [tokens, hidden] and perhaps "
                    "'positions' and the expected 'out'")
                 ->type_name("random|FILE")
                 ->default_str(request.hidden)
                 ->group("Input"));
  cli::often(count(*app, "--tokens", request.tokens, 4096, "Input", "Random tokens", 1));
  count(*app, "--start", request.start, 1000000000, "Input", "Position of the first token");
  count(*app, "--seed", request.seed, INT64_MAX, "Input", "Which random tokens");
  app->add_option_function<std::string>(
         "--cache",
         [&request](const std::string& text) {
           request.caches.clear();
           for (const std::string& word : spec::parse_words(text, "--cache")) {
             request.caches.push_back(parse_cache_format(word));
           }
         },
         "Cache formats that the backends are tried with")
      ->type_name("FORMATS")
      ->default_str("f64,bf16")
      ->group("Backends");
  backends(*app, request.backends);
  app->add_option("--save", request.save,
                  "Write out, attention, lse, rows and q of the reference to a safetensors file")
      ->type_name("FILE")
      ->group("Output");
  cli::add_output_options(*app, request.output);
  return app;
}

CLI::App* add_index(CLI::App& root, IndexRequest& request) {
  CLI::App* app = root.add_subcommand(
      "index", "Check index builders, host and device, against their definitions and each other");
  cli::set_examples(*app, {"mla-verify index", "mla-verify index --cases 20000 --seed 7"});
  count(*app, "--cases", request.cases, 100000000, "Cases", "Random batches for each check", 1);
  count(*app, "--seed", request.seed, INT64_MAX, "Cases", "Seed of the first one");
  cli::add_output_options(*app, request.output);
  return app;
}

}  // namespace

Request read_command_line(int argc, char** argv, std::optional<int>& exit_code) {
  GoldenRequest golden;
  RunRequest run;
  OraclesRequest oracles;
  MutantsRequest mutants;
  LayerRequest layer;
  IndexRequest index;
  CapabilitiesRequest capabilities;
  WorkerRequest worker;
  CLI::App app("", "mla-verify");
  cli::setup_root(app, "Does this backend compute the attention it claims to?",
                  {"mla-verify golden tests/golden", "mla-verify run",
                   "mla-verify run --backends cpu-absorbed --show 100"});
  add_golden(app, golden);
  CLI::App* run_app = add_run(app, run);
  CLI::App* mutants_app = add_mutants(app, mutants);
  CLI::App* layer_app = add_layer(app, layer);
  CLI::App* index_app = add_index(app, index);
  CLI::App* capabilities_app = add_capabilities(app, capabilities);
  CLI::App* worker_app = add_worker(app, worker);
  CLI::App* oracles_app =
      app.add_subcommand("oracles", "List the checks that need no reference and what each expects");
  cli::add_output_options(*oracles_app, oracles.output);
  app.require_subcommand(1);
  exit_code = cli::parse(app, argc, argv);
  if (run_app->parsed()) return run;
  if (oracles_app->parsed()) return oracles;
  if (mutants_app->parsed()) return mutants;
  if (layer_app->parsed()) return layer;
  if (index_app->parsed()) return index;
  if (capabilities_app->parsed()) return capabilities;
  if (worker_app->parsed()) return worker;
  return golden;
}

}  // namespace mla::verify_app
