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

}  // namespace

std::vector<std::string> idle_flags(const RequestOptions& options, const Question& question) {
  const RequestOptions usual;
  const ModelConfig& model = question.model;
  const capacity::EngineRules& engine = question.request.engine;
  std::vector<std::string> out;
  const auto say = [&](const Given& given, const std::string& why) {
    if (given.any()) out.push_back(fmt::format("{} {} nothing here: {}", given.text(), given.verb(), why));
  };
  const bool shared = engine.pools == PoolKind::kSharedBlocks;
  const bool states = shared && model.count(AttentionKind::kRecurrent) > 0;
  const bool windows = std::ranges::any_of(model.layers, [](const LayerCache& l) { return l.window > 0; });
  const bool chunks = windows && engine.window == WindowRule::kWithChunk;

  if (!options.cache_bytes.empty()) {
    say(Given()
            .flag("--utilization", !options.utilization.empty())
            .flag("--weights", !options.weights.empty())
            .flag("--expert-weights", !options.expert_weights.empty())
            .flag("--weight-bytes", !options.weight_bytes.empty())
            .flag("--safetensors-index", !options.index.empty())
            .flag("--activations", !options.activations.empty())
            .flag("--graphs", !options.graphs.empty())
            .flag("--non-torch", !options.other.empty()),
        "--kv-memory is the cache's budget already");
  } else {
    if (!options.weight_bytes.empty()) {
      say(Given()
              .flag("--weights", !options.weights.empty())
              .flag("--expert-weights", !options.expert_weights.empty()),
          "--weight-bytes is their size already");
    }
    if (engine.runtime_outside_share) {
      say(Given()
              .flag("--activations", !options.activations.empty())
              .flag("--graphs", !options.graphs.empty()),
          fmt::format("{} keeps them outside the share of --utilization", engine.name));
    }
    if (!options.activations.empty() && !chunks) {
      say(Given().flag("--batched-tokens", options.batched_tokens != usual.batched_tokens),
          "--activations is the memory of such a step already");
    }
  }
  if (!model.moe)
    say(Given().flag("--expert-weights", !options.expert_weights.empty()),
        fmt::format("{} has no routed experts", model.name));
  if (!model.mla)
    say(Given().flag("--mla-storage", !options.mla_storage.empty()),
        fmt::format("{} has no MLA layers", model.name));
  if (model.mla && caches_latent(model, engine) &&
      stored_mla(model, engine).storage == capacity::MlaStorage::kLatent &&
      model.count(AttentionKind::kMla) ==
          static_cast<int>(std::ranges::count_if(model.layers, [](const LayerCache& l) { return !l.mtp; }))) {
    say(Given().flag("--cache-v", !options.cache_v.empty()), "a latent row is K and V in one");
  }
  if (model.num_mtp_layers == 0)
    say(Given().flag("--mtp", options.mtp), fmt::format("{} has no prediction layers", model.name));
  if (!states) {
    say(Given()
            .flag("--state-blocks", options.state_blocks != usual.state_blocks)
            .flag("--speculative-tokens", !options.speculative.empty()),
        shared ? fmt::format("{} has no recurrent layers", model.name)
               : fmt::format("{} does not keep states in its blocks", engine.name));
  }
  if (!windows || engine.window != WindowRule::kWithBatch) {
    say(Given()
            .flag("--micro-batch", options.micro_batch != usual.micro_batch)
            .flag("--window-sequences", options.window_sequences != usual.window_sequences),
        windows ? fmt::format("{} does not size windows by them", engine.name)
                : fmt::format("{} has no window layers", model.name));
  }
  return out;
}

}  // namespace mla::memcalc
