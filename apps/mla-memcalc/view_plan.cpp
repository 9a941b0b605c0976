// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "figures.hpp"
#include "mla/error.hpp"
#include "plan/bench_shapes.hpp"
#include "plan/plan_request.hpp"
#include "remedies.hpp"
#include "spec/bench_spec.hpp"
#include "view.hpp"

namespace mla::memcalc {
namespace {

using capacity::Binding;
using capacity::MemoryPlan;
using capacity::StagePlan;
using report::Cell;

const StagePlan& limiting(const MemoryPlan& plan) {
  return plan.stages[static_cast<std::size_t>(plan.limiting_stage)];
}

std::string gib_text(std::int64_t bytes) {
  return fmt::format("{:.1f} GiB", to_gib(static_cast<double>(bytes)));
}

std::string limit_text(const MemoryPlan& plan) {
  return plan.binding == Binding::kCache ? "limited by the KV cache"
                                         : fmt::format("limited by {}", name_of(plan.binding));
}

/// What of it an engine does not run at once.
std::string at_once_text(const Question& question, const MemoryPlan& plan) {
  if (plan.at_once == plan.sequences) return {};
  const capacity::BatchLimit limit = batch_limit(question.request);
  return fmt::format("; {}runs at most {} of them at once ({})", plan.replicas > 1 ? "a replica " : "it ",
                     report::with_thousands(limit.sequences), limit.name);
}

/// By how much a stage lacks memory for any cache, as its engine reckons: the parts are those that make up the excess.
std::string excess_text(const Question& question, const MemoryPlan& plan) {
  const StagePlan& stage = limiting(plan);
  const capacity::EngineRules& engine = question.request.engine;
  const bool of_free = engine.budget == capacity::Budget::kShareOfFree;
  return fmt::format("Weights ({}) and {} ({}) exceed the {} {} by {}", gib_text(stage.weight_bytes),
                     engine.runtime_outside_share ? "libraries" : "runtime", gib_text(stage.charged_bytes),
                     gib_text(of_free ? plan.gpu_memory_bytes : plan.budget_bytes),
                     of_free ? "of a GPU" : "a GPU may use", gib_text(-stage.cache_budget));
}

/// "vllm@0.24", and of an engine with several rule sets the oldest as "vllm@0.5"; "sglang".
std::string engine_text(const capacity::EngineRules& engine) {
  const bool several =
      std::ranges::count(capacity::all_engines(), engine.name, &capacity::EngineRules::name) > 1;
  const std::string_view since = engine.since.empty() && several ? engine.oldest : engine.since;
  return since.empty() ? std::string(engine.name) : fmt::format("{}@{}", engine.name, since);
}

/// The answer in one sentence.
std::string headline(const Question& question, const MemoryPlan& plan) {
  const std::string setting =
      fmt::format("{} on {} ({}), {}", question.model.title, gpus_text(question, plan.layout.gpus()),
                  to_text(plan.layout), context_text(question.model, plan.context));
  const std::string where = replicas_text(plan);
  const std::string spread = where.empty() ? "" : fmt::format(" ({})", where);
  switch (plan.binding) {
    case Binding::kWeights:
      return fmt::format("{}: does not fit. {}", setting, excess_text(question, plan));
    case Binding::kSequence:
      return fmt::format("{}: not one such sequence fits; the longest is {} tokens", setting,
                         report::with_thousands(plan.longest_context));
    case Binding::kNothing:
      return fmt::format("{}: {} {}, up to {}{}{}", setting,
                         counted(question.request.concurrency, "sequence"),
                         question.request.concurrency == 1 ? "fits" : "fit",
                         report::with_thousands(plan.sequences), spread, at_once_text(question, plan));
    case Binding::kBatch:
      return fmt::format("{}: {} fit, but only {} run at once: {} at most {} ({})", setting,
                         counted(question.request.concurrency, "sequence"),
                         report::with_thousands(plan.at_once),
                         plan.replicas > 1 ? "a replica" : "the engine runs",
                         report::with_thousands(batch_limit(question.request).sequences),
                         batch_limit(question.request).name);
    case Binding::kCache:
      break;
  }
  if (question.request.concurrency > plan.sequences) {
    return fmt::format(
        "{}: {} do not fit, only {}{}, {}{}", setting, counted(question.request.concurrency, "sequence"),
        report::with_thousands(plan.sequences), spread, limit_text(plan), at_once_text(question, plan));
  }
  return fmt::format("{}: fits {}{}, {}{}", setting, counted(plan.sequences, "sequence"), spread,
                     limit_text(plan), at_once_text(question, plan));
}

/// What the same GPUs hold in the other simple layouts: the choice that decides most for MLA.
std::string other_layouts(const Question& question, const MemoryPlan& plan) {
  if (plan.layout.gpus() == 1) return {};
  std::string text;
  bool any = plan.sequences > 0;
  for (const capacity::Layout& layout : rival_layouts(question, plan.layout.gpus())) {
    if (layout == plan.layout) continue;
    capacity::PlanRequest request = question.request;
    request.layout = layout;
    const MemoryPlan other = plan_memory(question.model, request);
    any = any || other.sequences > 0;
    if (!text.empty()) text += ", ";
    text += fmt::format("{} holds {}", to_text(layout), report::with_thousands(other.sequences));
    // It holds more and was not chosen, as no more of them run.
    if (other.sequences > plan.sequences && other.at_once < other.sequences)
      text += fmt::format(" but runs {} at once ({})", report::with_thousands(other.at_once),
                          batch_limit(question.request).name);
  }
  if (text.empty() || !any) return {};
  const bool replicated = latent_copies(question, {.tp = 2}) > 1;
  return fmt::format("other layouts: {}{}", text,
                     replicated ? " (tp alone keeps the whole latent cache on every rank)" : "");
}

/// Weight lines summed by their part of the model.
std::vector<std::pair<std::string, std::int64_t>> weight_groups(const StagePlan& stage) {
  constexpr std::pair<std::string_view, std::string_view> kGroups[] = {
      {"weights.attention", "attention"},
      {"weights.absorbed", "kv_b in 16 bits, for absorbed decoding"},
      {"weights.dense", "dense FFN"},
      {"weights.experts", "experts"},
      {"weights.embeddings", "embedding and head"},
      {"weights.other", "vision tower, other tensors"},
      {"weights.", "norms, rope table, prediction layers"}};
  std::vector<std::pair<std::string, std::int64_t>> sums;
  for (const auto& [prefix, title] : kGroups) sums.emplace_back(title, 0);
  for (const capacity::Line& line : stage.weights.lines) {
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (!line.key.starts_with(kGroups[i].first)) continue;
      sums[i].second += std::get<std::int64_t>(line.value);
      break;
    }
  }
  return sums;
}

std::int64_t runtime_part(const StagePlan& stage, const std::string& key) {
  const auto line = std::ranges::find(stage.runtime, key, &capacity::Line::key);
  return line == stage.runtime.end() ? 0 : std::get<std::int64_t>(line->value);
}

/// A GPU of the stage that decides, and all GPUs: stages differ in their layers, and so in all but their memory.
report::Table memory_table(const Question& question, const MemoryPlan& plan) {
  const std::int64_t gpus = plan.layout.gpus();
  report::Table table{.name = "memory", .title = "Memory of a GPU", .columns = {}, .rows = {}};
  if (plan.layout.pp > 1)
    table.title += fmt::format(" of stage {}, which decides, and of all", plan.limiting_stage);
  table.columns = {{.key = "part", .title = "part"},
                   {.key = "gib_per_gpu", .title = "GiB a GPU"},
                   {.key = "gb_per_gpu", .title = "GB a GPU"},
                   {.key = "bytes_per_gpu", .title = "bytes a GPU", .thousands = true},
                   {.key = "cluster_gib", .title = fmt::format("GiB on {}", counted(gpus, "GPU"))},
                   {.key = "how", .title = "how"}};
  /// `bytes_of` gives those of a GPU of a stage.
  const auto add = [&](const std::string& part, const std::string& how, auto bytes_of) {
    const std::int64_t bytes = bytes_of(limiting(plan));
    double cluster = 0;
    for (const StagePlan& stage : plan.stages)
      cluster += static_cast<double>(bytes_of(stage)) * static_cast<double>(gpus / plan.layout.pp);
    const auto value = static_cast<double>(bytes);
    table.rows.push_back({part, to_gib(value), to_gb(value), bytes, to_gib(cluster), how});
  };
  const auto alike = [](std::int64_t bytes) { return [bytes](const StagePlan&) { return bytes; }; };
  for (const capacity::Line& line : plan.lines) {
    if (question.request.engine.off_gpu && line.key != "cache.budget") continue;
    if (line.key == "weights.total") {
      add("weights", question.request.weights.source,
          [](const StagePlan& stage) { return stage.weight_bytes; });
      if (question.request.weight_bytes) continue;
      const auto groups = weight_groups(limiting(plan));
      for (std::size_t i = 0; i < groups.size(); ++i) {
        const auto bytes_of = [i](const StagePlan& stage) { return weight_groups(stage)[i].second; };
        if (std::ranges::any_of(plan.stages, [&](const StagePlan& stage) { return bytes_of(stage) > 0; }))
          add("  " + groups[i].first, "", bytes_of);
      }
    } else if (line.key == "memory.gpu" || line.key == "memory.budget") {
      add(line.title, line.formula, alike(std::get<std::int64_t>(line.value)));
    } else if (line.key == "cache.budget") {
      add(line.title, line.formula, [](const StagePlan& stage) { return stage.cache_budget; });
    } else if (line.key.starts_with("runtime.")) {
      add(line.title, line.source, [&](const StagePlan& stage) { return runtime_part(stage, line.key); });
    }
  }
  return table;
}

report::Table capacity_table(const MemoryPlan& plan, const capacity::PlanRequest& request) {
  report::Table table{.name = "capacity", .title = "What fits", .columns = {}, .rows = {}};
  table.columns = {
      {.key = "what", .title = "what"},
      {.key = "replica", .title = plan.replicas == 1 ? "all GPUs" : "a replica", .thousands = true},
      {.key = "cluster", .title = "cluster", .thousands = true},
      {.key = "how", .title = "how"}};
  if (plan.replicas == 1) table.columns.erase(table.columns.begin() + 2);
  const auto add = [&](const std::string& what, Cell replica, Cell cluster, const std::string& how) {
    std::vector<Cell> row{what, std::move(replica)};
    if (plan.replicas > 1) row.push_back(std::move(cluster));
    row.emplace_back(how);
    table.rows.push_back(std::move(row));
  };
  const std::string context = length_text(plan.context);
  const auto times_over = [&](std::int64_t value) { return Cell(value * plan.replicas); };
  add(fmt::format("sequences of {}", context), plan.sequences_per_replica, plan.sequences,
      "whole sequences only");
  if (request.engine.pools == capacity::PoolKind::kCells) {
    add("tokens, whole sequences x cells", plan.tokens_logged, times_over(plan.tokens_logged),
        fmt::format("--ctx-size of {}, in blocks of {} cells", request.engine.name, plan.block));
  } else if (request.engine.name == "none" || request.engine.off_gpu) {  // nothing of them is logged
    add("concurrency", plan.concurrency_logged, Cell(), "cache / cache of one sequence");
    add("tokens", plan.tokens_by_blocks, times_over(plan.tokens_by_blocks),
        plan.block == 1 ? "cache / cache of one token" : fmt::format("in chunks of {} tokens", plan.block));
  } else {
    add("concurrency as logged", plan.concurrency_logged, Cell(),
        fmt::format("{}: blocks / blocks of one sequence", request.engine.name));
    add("tokens, blocks x block size", plan.tokens_by_blocks, times_over(plan.tokens_by_blocks),
        fmt::format("what {} logs{}", request.engine.name,
                    request.engine.token_count == capacity::TokenCount::kBlocks ? "" : " before 0.22"));
    add("tokens, concurrency x context", plan.tokens_by_concurrency, times_over(plan.tokens_by_concurrency),
        request.engine.token_count == capacity::TokenCount::kConcurrency
            ? fmt::format("what {} logs", request.engine.name)
            : "the same pool in sequences of this context");
  }
  add("longest single sequence", plan.longest_context, Cell(), "tokens, at most the model's maximum");
  add("cache of one token, bytes a GPU", bytes_cell(plan.cache_bytes_per_token), Cell(),
      fmt::format("format {}, block {}", request.cache.name, plan.block));
  add("cache of one sequence, GiB a GPU", to_gib(static_cast<double>(plan.bytes_per_sequence)), Cell(),
      "whole blocks");
  return table;
}

report::Table stages_table(const MemoryPlan& plan) {
  report::Table table{.name = "stages", .title = "Pipeline stages", .columns = {}, .rows = {}};
  table.columns = {{.key = "stage", .title = "stage"},
                   {.key = "layers", .title = "layers"},
                   {.key = "weights_gib_per_gpu", .title = "weights GiB a GPU"},
                   {.key = "cache_gib_per_gpu", .title = "cache GiB a GPU"},
                   {.key = "blocks", .title = "blocks", .thousands = true},
                   {.key = "sequences", .title = "sequences", .thousands = true},
                   {.key = "decides", .title = "decides"}};
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    const StagePlan& stage = plan.stages[i];
    table.rows.push_back(
        {static_cast<std::int64_t>(i),
         fmt::format("{}..{}", stage.layers.first, stage.layers.first + stage.layers.count - 1),
         to_gib(static_cast<double>(stage.weight_bytes)), to_gib(static_cast<double>(stage.cache_budget)),
         stage.pools.empty() ? Cell() : Cell(stage.pools.front().blocks), stage.sequences,
         static_cast<int>(i) == plan.limiting_stage});
  }
  return table;
}

/// People have read most of it in the headline; programs get all of it.
void add_facts(report::Document& document, const Question& question, const MemoryPlan& plan, bool all) {
  constexpr std::string_view kAlways[] = {"engine", "cache_format"};

  const auto fact = [&](const char* key, Cell value) {
    if (all || std::ranges::find(kAlways, key) != std::end(kAlways))
      document.facts.emplace_back(key, std::move(value));
  };
  fact("model", question.model.name);
  fact("gpu", question.request.gpu_name);
  fact("gpus", plan.layout.gpus());
  fact("layout", to_text(plan.layout));
  fact("engine", engine_text(question.request.engine));
  fact("cache_format", std::string(question.request.cache.name));
  fact("context", plan.context);
  fact("fits", plan.fits);
  fact("sequences", plan.sequences);
  fact("at_once", plan.at_once);
  fact("sequences_per_replica", plan.sequences_per_replica);
  fact("replicas", plan.replicas);
  fact("longest_context", plan.longest_context);
  fact("limited_by", std::string(name_of(plan.binding)));
}

/// The spec for mla-bench instead of an answer for people.
Answer sweep_spec(const Question& question, const Options& options) {
  const std::pair<const char*, bool> kOthers[] = {
      {"--versus", !options.versus.empty()},
      {"--lengths", !options.lengths.empty()},
      {"--formulas", options.formulas},
      {"--plot", !options.plot.empty()},
      {"--concurrency", question.request.concurrency > 0},
      {"--output", options.output.format != report::Format::kTable &&
                       options.output.format != report::Format::kJson}};  // a spec is JSON
  for (const auto& [flag, given] : kOthers) {
    if (!given) continue;
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--emit-sweep prints a spec and nothing else, but {} is given", flag),
                "leave one of them out");
  }
  Answer answer;
  const capacity::BenchShapes shapes = capacity::bench_shapes(question.model, question.request);
  if (shapes.shapes.empty()) {
    answer.complaint = fmt::format("not one sequence of {} fits on {} ({}): there is no shape to measure",
                                   question.model.title, gpus_text(question, question.request.layout.gpus()),
                                   to_text(question.request.layout));
    return answer;
  }
  answer.plain_text = spec::bench_spec(
      shapes,
      fmt::format("The decode batches of one GPU that fit: {} on {} ({})", question.model.title,
                  gpus_text(question, question.request.layout.gpus()), to_text(question.request.layout)));
  return answer;
}

}  // namespace

Answer plan_answer(const Options& options) {
  Question question = read_question(options.request);
  question.request.layout = chosen_layout(question);
  if (options.emit_sweep) return sweep_spec(question, options);
  const MemoryPlan plan = plan_memory(question.model, question.request);
  Answer answer;
  answer.fits = plan.fits;
  report::Document& document = answer.document;
  document.kind = "memcalc.plan";
  document.headline.push_back(headline(question, plan));
  for (const std::string& more : {remedies(question, plan), other_layouts(question, plan)}) {
    if (!more.empty()) document.headline.push_back(more);
  }
  add_facts(document, question, plan, options.output.format == report::Format::kJson);
  document.tables.push_back(memory_table(question, plan));
  document.tables.push_back(capacity_table(plan, question.request));
  if (plan.stages.size() > 1) document.tables.push_back(stages_table(plan));
  std::vector<capacity::Line> lines = all_lines(plan);
  if (!options.versus.empty()) add_versus(document, question, plan, options.versus, lines);
  if (!options.lengths.empty()) add_lengths(document, question, options.lengths, lines);
  if (!options.with.empty() && plan.fits) add_measured(document, question, options.with);
  add_warnings(document, question.warnings);
  add_warnings(document, plan.warnings);
  if (options.formulas) document.tables.push_back(formulas_table(lines));
  if (draws(options)) document.figure = plan_figure(question, plan);
  return answer;
}

}  // namespace mla::memcalc
