// SPDX-License-Identifier: Apache-2.0
#include "plan/runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "plan/arithmetic.hpp"

namespace mla::capacity {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kGraphs = kGiB;         // captured graphs of a decode engine
constexpr std::int64_t kContext = kGiB;        // driver context, cuBLAS and attention workspaces
constexpr std::int64_t kCommunication = kGiB;  // NCCL channels and symmetric buffers, with several GPUs
constexpr std::int64_t kBf16 = 2;

/// Widest attention working set of one token, in elements: queries, expanded keys, values and outputs of its
/// heads.
std::int64_t attention_width(const ModelConfig& model, int tp) {
  std::int64_t widest = 0;
  for (const LayerCache& layer : model.layers) {
    std::int64_t width = 0;
    if (layer.kind == AttentionKind::kMla && model.mla) {
      width = std::int64_t{model.mla->num_heads} * (2 * model.mla->head_width() + 2 * model.mla->v_head_dim);
    } else {
      const std::int64_t heads = layer.q_heads > 0 ? layer.q_heads : model.num_heads;
      width = heads * (layer.head_dim_k + layer.head_dim_v) +
              std::int64_t{layer.kv_heads} * (layer.head_dim_k + layer.head_dim_v);
    }
    widest = std::max(widest, width);
  }
  return ceil_div(widest, tp);
}

/// Widest FFN working set of one token: gate and up beside the input; with experts, for each chosen one.
std::int64_t ffn_width(const ModelConfig& model, const Layout& layout) {
  std::int64_t widest = 0;
  for (const LayerFfn& ffn : model.ffn) {
    std::int64_t width = ceil_div(std::int64_t{2} * ffn.dense_intermediate_size, layout.tp);
    if (ffn.moe && model.moe) {
      const int cut = layout.tp * layout.dp / std::max(1, layout.ep);
      const std::int64_t hidden = model.moe->latent_size > 0 ? model.moe->latent_size : model.hidden_size;
      width += model.moe->experts_per_token *
               (ceil_div(std::int64_t{2} * model.moe->moe_intermediate_size, cut) + hidden);
    }
    widest = std::max(widest, width);
  }
  return widest;
}

Line line(std::string key, std::string title, std::int64_t bytes, std::string formula, std::string source) {
  return {.key = std::move(key),
          .title = std::move(title),
          .value = bytes,
          .formula = std::move(formula),
          .source = std::move(source)};
}

}  // namespace

RuntimeBytes runtime_bytes(const ModelConfig& model, const PlanRequest& request) {
  constexpr std::int64_t kHiddenCopies = 4;  // residual, normed input, output, communication buffer
  RuntimeBytes runtime;
  const std::string given = "given";
  const std::string assumed = "assumption";
  if (request.runtime.activations) {
    runtime.activations = *request.runtime.activations;
    runtime.lines.push_back(
        line("runtime.activations", "activations", runtime.activations, "as given", given));
  } else {
    const std::int64_t attention = attention_width(model, request.layout.tp);
    const std::int64_t ffn = ffn_width(model, request.layout);
    const std::int64_t width = plus(times(kHiddenCopies, model.hidden_size), std::max(attention, ffn));
    const std::int64_t layers = times(times(request.max_batched_tokens, width), kBf16);
    const std::int64_t sampler = times(times(request.max_sequences, model.vocab_size), 2 * 4);
    runtime.activations = plus(layers, sampler);
    runtime.lines.push_back(
        line("runtime.activations", "activations", runtime.activations,
             fmt::format(
                 "{} batched tokens x ({} x {} hidden + max({} attention, {} FFN)) x 2 B + {} sequences x {} "
                 "logits x 2 x 4 B",
                 num(request.max_batched_tokens), kHiddenCopies, num(std::int64_t{model.hidden_size}),
                 num(attention), num(ffn), num(request.max_sequences), num(std::int64_t{model.vocab_size})),
             assumed + "; --activations sets it"));
  }
  const auto add = [&](std::int64_t& bytes, const std::optional<std::int64_t>& wanted, std::int64_t estimate,
                       const char* key, const char* title, const std::string& formula, const char* flag) {
    bytes = wanted.value_or(estimate);
    runtime.lines.push_back(line(fmt::format("runtime.{}", key), title, bytes, wanted ? "as given" : formula,
                                 wanted ? given : fmt::format("{}; {} sets it", assumed, flag)));
  };
  add(runtime.graphs, request.runtime.graphs, kGraphs, "graphs", "captured graphs", "1 GiB", "--graphs");
  const bool several = request.layout.gpus() > 1;
  add(runtime.other, request.runtime.other, kContext + (several ? kCommunication : 0), "other",
      "driver, libraries, communication", several ? "1 GiB + 1 GiB for communication" : "1 GiB",
      "--non-torch");
  return runtime;
}

}  // namespace mla::capacity
