// SPDX-License-Identifier: Apache-2.0
#include "plan/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/drafter.hpp"
#include "plan/explain_sentences.hpp"
#include "plan/hypotheses.hpp"
#include "plan/plan_request.hpp"
#include "plan/trial.hpp"
#include "plan/weight_padding.hpp"
#include "plan/weight_parts.hpp"

namespace mla::capacity {
namespace {

struct Outcome {
  std::vector<Explained> numbers;
  int matches = 0, planned = 0;
  [[nodiscard]] bool all() const { return matches == planned; }
};

/// Numbers that lines of several ranks repeat are judged once.
bool same_number(const LogNumber& a, const LogNumber& b) {
  const auto fields = [](const LogNumber& one) {
    return std::tie(one.kind, one.value, one.half_digit, one.unit, one.length, one.streams, one.layers,
                    one.cache, one.free_memory);
  };
  return fields(a) == fields(b);
}

/// The log with as much as a search needs: each number once, and of very many the first. Budgets stay: they decide.
LogReading searched(const LogReading& log) {
  constexpr std::size_t kMost = 24;
  LogReading few = log;
  few.numbers.clear();
  std::size_t judged = 0;
  for (const LogNumber& number : log.numbers) {
    const bool budget = number.kind == LogKind::kBudget;
    const bool known = !budget && std::ranges::any_of(few.numbers, [&](const LogNumber& other) {
      return same_number(number, other);
    });
    if (known || (!budget && judged == kMost)) continue;
    judged += budget ? 0 : 1;
    few.numbers.push_back(number);
  }
  return few;
}

Outcome outcome_of(const LogReading& log, const Trial& trial) {
  Outcome outcome;
  for (const LogNumber& number : log.numbers) {
    const auto known = std::ranges::find_if(
        outcome.numbers, [&](const Explained& one) { return same_number(one.logged, number); });
    const bool near = number.kind == LogKind::kCacheBytes || number.kind == LogKind::kKeyBytes ||
                      number.kind == LogKind::kValueBytes;  // they follow from a line beside them
    Explained result = known != outcome.numbers.end() && !near ? *known : trial.judge(number);
    result.logged = number;
    outcome.planned += result.planned ? 1 : 0;
    outcome.matches += result.matches ? 1 : 0;
    outcome.numbers.push_back(std::move(result));
  }
  return outcome;
}

/// A search that ends: every hypothesis that is tried costs something of a fixed allowance.
class Search {
 public:
  Search(const LogReading& log, const ModelConfig& model) : log_(log), model_(model) {}

  /// The hypothesis' outcome; nothing if it is impossible.
  std::optional<Outcome> run(Hypothesis& hypothesis) {
    left_ -= std::ssize(model_.layers);
    if (!possible(hypothesis, model_, log_)) return std::nullopt;
    const Trial trial(log_, model_, hypothesis, Trial::Say::kNothing);
    left_ -= trial.work();
    return outcome_of(log_, trial);
  }
  [[nodiscard]] bool spent() const { return left_ <= 0; }

 private:
  static constexpr std::int64_t kAllowance = 1'000'000;
  const LogReading& log_;
  const ModelConfig& model_;
  std::int64_t left_ = kAllowance;
};

/// Layouts whose weights a line may mean: the hypothesis', and where the log says nothing of tp others too.
std::vector<Layout> weighed_layouts(const LogReading& log, const ModelConfig& model, const Hypothesis& best) {
  std::vector<Layout> layouts{best.layout};
  const bool open = log.tp == 0 && log.last_tp_rank < 0 && log.pp == 0 && best.layout.tp == 1;
  for (const int tp : {2, 4, 8, 16}) {
    Layout layout = best.layout;
    layout.tp = tp;
    if (open && possible(layout, model, best.engine)) layouts.push_back(layout);
  }
  return layouts;
}

/// What a vision tower takes more on a rank that keeps all of it.
std::int64_t tower_rest(const ModelConfig& model, const Layout& layout) {
  std::int64_t bytes = 0;
  for (const WeightPart& part : tower_weights(model)) {
    const std::int64_t whole = times(part.copies, times(std::int64_t{2} * part.rows, part.cols));
    if (part.cut == Cut::kTensor) bytes = plus(bytes, whole - ceil_div(whole, layout.tp));
  }
  return bytes;
}

/// Weights: which storage comes nearest on any stage.
void explain_weights(const LogReading& log, const ModelConfig& model, const Hypothesis& best,
                     Explained& result) {
  constexpr double kTolerance = 0.005;
  const double logged = result.logged.value * result.logged.unit;
  double nearest = -1;
  bool four_bits = false;  // in the nearest
  const auto matched = [&] { return nearest >= 0 && std::abs(nearest - logged) <= kTolerance * logged; };
  const auto consider = [&](double bytes, const WeightScheme& scheme, const Layout& layout, int stage,
                            std::string how) {
    if (nearest >= 0 && std::abs(bytes - logged) >= std::abs(nearest - logged)) return;
    nearest = bytes;
    four_bits = scheme.experts.bits <= 4 || scheme.dense.bits <= 4;
    if (layout.tp != best.layout.tp) how += fmt::format(" on a rank of TP{}", layout.tp);
    result.how = how + (best.layout.pp > 1 ? fmt::format(", stage {}", stage) : std::string());
  };
  const auto weigh = [&](const WeightScheme& scheme, const std::string& name, const Layout& base) {
    for (int stage = 0; stage < base.pp; ++stage) {
      for (const int ep : {base.ep, 0, base.tp * base.dp}) {
        Layout layout = base;
        layout.ep = model.moe ? ep : 0;
        const WeightPlan plan = weights_on_rank(model, scheme, layout, stage, best.engine, best.with_mtp);
        const std::int64_t copies = absorbed_bytes(model, scheme, layout, stage, best.engine, best.with_mtp);
        const std::int64_t bytes = plus(plan.bytes, copies);
        const std::string stored =
            fmt::format("weights {}{}", name, copies > 0 ? ", kv_b in 16 bits beside them" : "");
        consider(static_cast<double>(bytes), scheme, base, stage, stored);
        if (const auto padded = padded_experts(model, scheme, layout, plan)) {
          consider(static_cast<double>(plus(bytes, padded->extra_bytes)), scheme, base, stage,
                   fmt::format("{}, experts padded to {} x {} by Marlin's kernels", stored,
                               num(padded->intermediate), num(padded->hidden)));
        }
        // vLLM's --mm-encoder-tp-mode data keeps the tower whole on every rank.
        if (model.tower && layout.tp > 1 && stage == 0) {
          consider(static_cast<double>(plus(bytes, tower_rest(model, layout))), scheme, base, stage,
                   stored + ", the vision tower whole on every rank");
        }
      }
    }
  };
  // What the config says comes first: no other storage is looked for where that matches.
  for (const Layout& layout : weighed_layouts(log, model, best)) {
    if (!matched()) weigh(scheme_of(model), "as the config says", layout);
  }
  for (const WeightFormat& format : all_weight_formats()) {
    const WeightFiles others = best.engine.gguf ? WeightFiles::kSafetensors : WeightFiles::kGguf;
    if (!matched() && format.files != others) weigh(uniform_scheme(format), format.name, best.layout);
  }
  result.planned = nearest >= 0;
  result.low = result.high = nearest / result.logged.unit;
  result.gap = logged > 0 ? (logged - nearest) / logged : 0;
  result.matches = std::abs(result.gap) <= kTolerance;
  if (!result.matches && four_bits && result.gap > 0 && result.gap < 0.15)
    result.how += "; 4-bit kernels pad matrices";
  if (!result.matches && result.gap > 0 && result.gap < 0.15 && model.multimodal && !model.tower)
    result.how += "; the vision or audio tower is not counted";
  if (!result.matches && result.gap > 0 && result.gap < 0.15 && best.engine.weights_by_free_memory)
    result.how += "; the line is what loading took of the GPU's free memory, scraps of the allocator too";
}

/// Whether `format` is one that the log's own word may mean: "fp8" is fp8_ds_mla too where the model has an index.
/// True where the log says nothing.
bool as_asked(const LogReading& log, const KvFormat& format) {
  if (log.cache_dtype.empty() || text::to_lower(log.cache_dtype) == "auto") return true;
  try {
    const std::string_view asked = find_kv_format(log.cache_dtype).name;
    return format.name.starts_with(asked) || asked.starts_with(format.name);
  } catch (const Error&) {
    return true;  // a word that names no format here
  }
}

/// The simplest hypothesis in the format that the log asks for, other layouts included, that explains every number;
/// empty if none does.
std::optional<Hypothesis> explains_as_asked(const LogReading& log, const ModelConfig& model, Search& search) {
  for (Hypothesis& hypothesis : hypotheses(log, model, 2)) {
    if (search.spent()) break;
    if (!as_asked(log, hypothesis.format)) continue;
    const std::optional<Outcome> one = search.run(hypothesis);
    if (one && one->matches > 0 && one->all()) return hypothesis;
  }
  return std::nullopt;
}

/// Whether no number of bytes is there: counts only follow from each other, whatever a token takes.
bool only_counts(const LogReading& log, const Hypothesis& best) {
  if (best.engine.pools == PoolKind::kCells) return false;
  return std::ranges::all_of(log.numbers, [](const LogNumber& number) {
    return number.kind == LogKind::kTokens || number.kind == LogKind::kBlocks ||
           number.kind == LogKind::kConcurrency || number.kind == LogKind::kEstimate;
  });
}

/// Which rule of model or engine what the log says breaks; empty if it breaks none.
std::string why_impossible(const LogReading& log, const ModelConfig& model) {
  const std::vector<Hypothesis> said = hypotheses(log, model, 0);
  if (said.empty()) return {};
  const Hypothesis& first = said.front();
  try {
    validate(first.layout, model, first.engine);
    static_cast<void>(pool_geometry(first.inputs(model, log), 0));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    return fmt::format(": {}", error.what());
  }
  return {};
}

/// A request longer than the model can read: another model's log, or a mistake of whoever started the engine.
void add_too_long(const LogReading& log, const ModelConfig& model, Explanation& out) {
  if (log.engine == "llama.cpp" || log.engine == "ik_llama.cpp")
    return;  // its context is all sequences' together
  std::int64_t length = log.max_length;
  for (const LogNumber& number : log.numbers) {
    if (number.kind == LogKind::kConcurrency) length = std::max(length, number.length);
  }
  if (model.max_position <= 0 || length <= model.max_position) return;
  out.sentences.push_back(
      fmt::format("{} tokens a request exceed the {} that {} can have: another model, or a raised maximum",
                  num(length), num(model.max_position), model.title));
}

Explanation explain_model(const LogReading& log, const ModelConfig& model) {
  Explanation out;
  const LogReading few = searched(log);
  Search search(few, model);
  std::optional<Hypothesis> best;
  Outcome outcome;
  for (int breadth = 0; breadth < 3 && !search.spent(); ++breadth) {
    out.others.clear();
    for (Hypothesis& hypothesis : hypotheses(few, model, breadth)) {
      const bool settled = best && outcome.matches > 0 && outcome.all();
      if (settled && hypothesis.cost > best->cost + 2) break;  // they are sorted: nothing simpler follows
      if (search.spent()) break;
      std::optional<Outcome> one = search.run(hypothesis);
      if (!one) continue;
      if (!best || one->matches > outcome.matches) {
        best = hypothesis;
        outcome = std::move(*one);
        out.others.clear();
      } else if (one->matches == outcome.matches && outcome.matches > 0 &&
                 hypothesis.cost <= best->cost + 2) {
        const std::string text = to_text(hypothesis);
        if (std::find(out.others.begin(), out.others.end(), text) == out.others.end())
          out.others.push_back(text);
      }
    }
    if (best && outcome.all()) break;
  }
  if (!best) {
    out.sentences.push_back(fmt::format("no cache layout that {} can have agrees with the engine{}",
                                        model.title, why_impossible(few, model)));
    return out;
  }
  bool contradicts =
      !as_asked(log, best->format) && outcome.matches > 0 && outcome.all() && !only_counts(log, *best);
  if (contradicts) {  // a layout that the log does not say explains more than a format that it denies
    if (const std::optional<Hypothesis> other = explains_as_asked(few, model, search)) {
      best = other;
      contradicts = false;
    }
  }
  outcome = outcome_of(log, Trial(log, model, *best));
  out.hypothesis = to_text(*best);
  std::erase(out.others, out.hypothesis);
  out.numbers = std::move(outcome.numbers);
  for (Explained& number : out.numbers) {
    if (number.logged.kind == LogKind::kWeights) explain_weights(log, model, *best, number);
  }
  int planned = 0;
  int matches = 0;
  for (const Explained& number : out.numbers) {
    planned += number.planned ? 1 : 0;
    matches += number.matches ? 1 : 0;
  }
  out.explained = planned > 0 && matches == planned && !contradicts;
  const bool tested_nothing = planned > 0 && matches == planned && only_counts(log, *best);
  if (tested_nothing) {
    out.explained = false;
    out.hypothesis = "not determined";
    out.others.clear();
    out.sentences.emplace_back(
        "only the ratio of tokens or blocks to concurrency could be checked, and it holds for any model: "
        "cache "
        "format, layout and model are not determined; a line with GiB would");
    add_failures(log, model, *best, out);
    add_too_long(log, model, out);
    add_sentences(log, model, *best, false, out);
    return out;
  }
  if (contradicts) {
    out.sentences.push_back(fmt::format("cache format {} was asked for, but the pool is {}-sized",
                                        log.cache_dtype, best->format.name));
  }
  if (planned == 0 && (first_of(log, LogKind::kDeficit) != nullptr || !log.failures.empty())) {
    // said below
  } else if (planned == 0) {
    out.sentences.push_back(
        "the numbers found do not follow from each other: a line with tokens, blocks or bytes needs "
        "the one with the memory or the context it came from");
  } else if (matches == planned) {
    out.sentences.push_back(planned == 1
                                ? fmt::format("the number follows from {}", out.hypothesis)
                                : fmt::format("all {} numbers follow from {}", planned, out.hypothesis));
  } else {
    out.sentences.push_back(fmt::format("{} of {} numbers follow from {}", matches, planned, out.hypothesis));
  }
  if (search.spent() && matches < planned)
    out.sentences.emplace_back("the search was given up before every layout and format had been tried");
  if (log.cut)
    out.sentences.push_back(fmt::format("only the first {} numbers were read", log.numbers.size()));
  add_failures(log, model, *best, out);
  add_too_long(log, model, out);
  add_sentences(log, model, *best, planned > 0, out);
  return out;
}

}  // namespace

Explanation explain(const LogReading& log, const ModelConfig& model) {
  Explanation alone = explain_model(log, model);
  const bool drafter = log.eagle && log.engine == "vllm" && !alone.explained && !alone.numbers.empty();
  if (!drafter) return alone;
  // In place of the model's own prediction layers one layer of an EAGLE drafter, in the model's pool.
  ModelConfig drafting = model;
  try {
    drop_prediction_layers(drafting);
    add_drafter(drafting, 1);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    return alone;
  }
  Explanation both = explain_model(log, drafting);
  if (!both.explained) return alone;
  both.sentences.emplace_back("the log names an EAGLE drafter: its layer keeps a cache beside the model's");
  return both;
}

std::vector<std::string> model_names(const std::string& logged) {
  std::string name = text::to_lower(logged);
  // The Hub's cache: .../models--deepseek-ai--DeepSeek-V3/snapshots/<commit>
  constexpr std::string_view kHub = "models--";
  if (const std::size_t hub = name.find(kHub); hub != std::string::npos) {
    name = name.substr(hub + kHub.size());
    name = name.substr(0, name.find('/'));
    if (const std::size_t organisation = name.find("--"); organisation != std::string::npos)
      name = name.substr(organisation + 2);
  }
  while (!name.empty() && name.back() == '/') name.pop_back();
  const std::size_t slash = name.rfind('/');
  if (slash != std::string::npos) name = name.substr(slash + 1);
  if (const std::size_t dot = name.rfind(".gguf"); dot != std::string::npos) name = name.substr(0, dot);
  std::ranges::replace(name, ' ', '-');  // "DeepSeek V2 Lite Chat", as GGUF files call themselves
  std::vector<std::string> names;
  const auto add_shortened = [&](std::string shortened) {
    while (!shortened.empty()) {
      names.push_back(shortened);
      const std::size_t cut = shortened.find_last_of("-_");
      if (cut == std::string::npos) break;
      shortened = shortened.substr(0, cut);
    }
  };
  add_shortened(name);
  constexpr std::string_view kVendor = "meta-";  // in titles and file names, not in the models' own names
  if (name.starts_with(kVendor)) add_shortened(name.substr(kVendor.size()));
  return names;
}

}  // namespace mla::capacity
