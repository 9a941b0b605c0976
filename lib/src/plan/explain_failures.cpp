// SPDX-License-Identifier: Apache-2.0
// What an allocation that failed says: what was there at that time, and what would help.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/explain_sentences.hpp"
#include "plan/weight_padding.hpp"

namespace mla::capacity {
namespace {

bool before(const LogReading& log, int line, std::initializer_list<LogKind> kinds) {
  return std::ranges::any_of(log.numbers, [&](const LogNumber& number) {
    return number.line < line && std::ranges::find(kinds, number.kind) != kinds.end();
  });
}

std::string what_failed(const LogFailure& failure) {
  std::string text = fmt::format("line {}{}: {}", failure.line,
                                 failure.rank.empty() ? "" : fmt::format(" ({})", failure.rank),
                                 failure.share ? "nothing was left for the cache" : "out of memory");
  const auto size = [](double bytes) { return gib(static_cast<std::int64_t>(bytes)); };
  if (failure.wanted > 0) text += fmt::format(": {} more were wanted", size(failure.wanted));
  if (failure.total > 0) {
    text += failure.free > 0 ? fmt::format(", {} of {} were free", size(failure.free), size(failure.total))
                             : fmt::format(" of a GPU with {}", size(failure.total));
  }
  return text;
}

std::optional<std::int64_t> weights_of(const ModelConfig& model, const Hypothesis& best) {
  try {
    const WeightScheme scheme = scheme_of(model);
    return weights_on_rank(model, scheme, best.layout, 0, best.engine, best.with_mtp).bytes +
           absorbed_bytes(model, scheme, best.layout, 0, best.engine, best.with_mtp);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kInternal) throw;
    return std::nullopt;
  }
}

/// The weights and the largest step take what the engine may have, whatever else is free.
std::string of_the_share(const ModelConfig& model, const Hypothesis& best) {
  std::string text = "the weights and the largest prefill step take all of the engine's share of the memory";
  if (const auto weights = weights_of(model, best))
    text += fmt::format(" (as the config says, a rank of {} holds {} of weights)", to_text(best.layout),
                        gib(*weights));
  return text +
         fmt::format(": raise {}, use more GPUs or a smaller weight format",
                     best.engine.name == "sglang" ? "--mem-fraction-static" : "--gpu-memory-utilization");
}

/// The engine had not said yet that its weights are there.
std::string while_loading(const LogFailure& failure, const ModelConfig& model, const Hypothesis& best) {
  const std::optional<std::int64_t> weights = weights_of(model, best);
  if (!weights) return "nothing before it says how far the engine had come";
  std::string text = fmt::format(
      "no line before it says that the weights are loaded; as the config says, a rank of {} holds {}",
      to_text(best.layout), gib(*weights));
  if (failure.total <= 0) return text;
  if (static_cast<double>(*weights) > failure.total)
    return text + ", more than the GPU has: more GPUs or a smaller weight format are needed";
  return text + ", which the GPU has room for: another process holds memory there, or loading keeps copies";
}

}  // namespace

void add_failures(const LogReading& log, const ModelConfig& model, const Hypothesis& best, Explanation& out) {
  if (log.failures.empty()) return;
  const LogFailure& first = log.failures.front();
  std::string text = what_failed(first);
  if (log.failures.size() > 1) text += fmt::format(", and {} more such lines", log.failures.size() - 1);
  if (first.share) {
    text += "; " + of_the_share(model, best);
  } else if (before(log, first.line,
                    {LogKind::kTokens, LogKind::kBlocks, LogKind::kCacheBytes, LogKind::kKeyBytes})) {
    text +=
        "; the cache had been allocated, so activations, captured graphs or logits found too little outside "
        "it: lower "
        "the engine's share of memory, or let fewer sequences run at once";
  } else if (before(log, first.line, {LogKind::kWeights, LogKind::kBudget, LogKind::kDeficit})) {
    text +=
        "; the weights were loaded and the cache was not, so the largest prefill step did not fit beside "
        "them: shorten "
        "it, or use more GPUs";
  } else {
    text += "; " + while_loading(first, model, best);
  }
  out.sentences.push_back(std::move(text));
}

}  // namespace mla::capacity
