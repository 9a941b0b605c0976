// SPDX-License-Identifier: Apache-2.0
#include "idle_flags.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace mla::memcalc {
namespace {

using capacity::PoolKind;
using capacity::WindowRule;

/// Names of the flags given, "--a, --b and --c"; empty if none is.
class Given {
 public:
  Given& flag(const char* name, bool given) {
    if (given) names_.emplace_back(name);
    return *this;
  }
  [[nodiscard]] std::string text() const {
    std::string out;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (i > 0) out += i + 1 == names_.size() ? " and " : ", ";
      out += names_[i];
    }
    return out;
  }
  [[nodiscard]] const char* verb() const { return names_.size() == 1 ? "changes" : "change"; }
  [[nodiscard]] bool any() const { return !names_.empty(); }

 private:
  std::vector<std::string> names_;
};

using Sentences = std::vector<std::string>;

void say(Sentences& out, const Given& given, const std::string& why) {
  if (given.any()) out.push_back(fmt::format("{} {} nothing here: {}", given.text(), given.verb(), why));
}

bool has_windows(const ModelConfig& model) {
  return std::ranges::any_of(model.layers, [](const LayerCache& layer) { return layer.window > 0; });
}

/// Parts of the memory of a GPU that another flag has settled.
void memory_flags(Sentences& out, const RequestOptions& options, const Question& question) {
  const capacity::EngineRules& engine = question.request.engine;
  if (!options.cache_bytes.empty()) {
    return say(out,
               Given()
                   .flag("--utilization", !options.utilization.empty())
                   .flag("--weights", !options.weights.empty())
                   .flag("--expert-weights", !options.expert_weights.empty())
                   .flag("--weight-bytes", !options.weight_bytes.empty())
                   .flag("--safetensors-index", !options.index.empty())
                   .flag("--activations", !options.activations.empty())
                   .flag("--graphs", !options.graphs.empty())
                   .flag("--non-torch", !options.other.empty()),
               "--kv-memory is the cache's budget already");
  }
  if (!options.weight_bytes.empty()) {
    say(out,
        Given()
            .flag("--weights", !options.weights.empty())
            .flag("--expert-weights", !options.expert_weights.empty()),
        "--weight-bytes is their size already");
  }
  if (engine.runtime_outside_share) {
    say(out,
        Given().flag("--activations", !options.activations.empty()).flag("--graphs", !options.graphs.empty()),
        fmt::format("{} keeps them outside the share of --utilization", engine.name));
  }
  const bool chunks = has_windows(question.model) && engine.window == WindowRule::kWithChunk;
  if (!options.activations.empty() && !chunks) {
    say(out, Given().flag("--batched-tokens", options.batched_tokens != RequestOptions().batched_tokens),
        "--activations is the memory of such a step already");
  }
}

/// Whether every layer keeps one latent row and nothing else.
bool latent_rows_alone(const ModelConfig& model, const capacity::EngineRules& engine) {
  return caches_latent(model, engine) && stored_mla(model, engine).storage == capacity::MlaStorage::kLatent &&
         std::ranges::all_of(model.layers,
                             [](const LayerCache& layer) { return layer.kind == AttentionKind::kMla; });
}

/// What the model or its engine does not have.
void model_flags(Sentences& out, const RequestOptions& options, const Question& question) {
  const RequestOptions usual;
  const ModelConfig& model = question.model;
  const capacity::EngineRules& engine = question.request.engine;
  const auto absent = [&](const char* flag, bool given, const char* what) {
    say(out, Given().flag(flag, given), fmt::format("{} has no {}", model.name, what));
  };
  if (!model.moe) absent("--expert-weights", !options.expert_weights.empty(), "routed experts");
  if (!model.mla) absent("--mla-storage", !options.mla_storage.empty(), "MLA layers");
  if (model.num_mtp_layers == 0) absent("--mtp", options.mtp, "prediction layers");
  if (latent_rows_alone(model, engine))
    say(out, Given().flag("--cache-v", !options.cache_v.empty()), "a latent row is K and V in one");
  const bool shared = engine.pools == PoolKind::kSharedBlocks;
  if (!shared || model.count(AttentionKind::kRecurrent) == 0) {
    say(out,
        Given()
            .flag("--state-blocks", options.state_blocks != usual.state_blocks)
            .flag("--speculative-tokens", !options.speculative.empty()),
        shared ? fmt::format("{} has no recurrent layers", model.name)
               : fmt::format("{} does not keep states in its blocks", engine.name));
  }
  const bool windows = has_windows(model);
  if (!windows || engine.window != WindowRule::kWithChunk) {
    say(out, Given().flag("--prefill-chunks", options.prefill_chunks != usual.prefill_chunks),
        windows ? fmt::format("{} does not size windows by them", engine.name)
                : fmt::format("{} has no window layers", model.name));
  }
  if (!windows || engine.pools != PoolKind::kCells) {
    say(out, Given().flag("--swa-full", options.swa_full),
        windows ? fmt::format("it is llama.cpp's, {} has no such flag", engine.name)
                : fmt::format("{} has no window layers", model.name));
  }
  if (!windows || engine.window != WindowRule::kWithBatch) {
    say(out,
        Given()
            .flag("--micro-batch", options.micro_batch != usual.micro_batch)
            .flag("--window-sequences", options.window_sequences != usual.window_sequences),
        windows ? fmt::format("{} does not size windows by them", engine.name)
                : fmt::format("{} has no window layers", model.name));
  }
}

}  // namespace

std::vector<std::string> idle_flags(const RequestOptions& options, const Question& question) {
  Sentences out;
  memory_flags(out, options, question);
  model_flags(out, options, question);
  return out;
}

}  // namespace mla::memcalc
