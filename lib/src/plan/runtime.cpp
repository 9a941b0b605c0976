// SPDX-License-Identifier: Apache-2.0
#include "plan/runtime.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "plan/arithmetic.hpp"

namespace mla::capacity {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr std::int64_t kGraphs = kGiB;         // captured graphs of a decode engine
constexpr std::int64_t kContext = kGiB;        // driver context, cuBLAS and attention workspaces
constexpr std::int64_t kCommunication = kGiB;  // NCCL channels and symmetric buffers, with several GPUs
constexpr std::int64_t kGgmlContext =
    kGiB * 7 / 10;  // driver context, cuBLAS: what llama.cpp calls unaccounted
constexpr std::int64_t kBf16 = 2;
constexpr std::int64_t kF32 = 4;
constexpr std::int64_t kHiddenCopies = 4;  // residual, normed input, output, communication buffer

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

/// The peak of a profiling run: the largest prefill step, and the sampler's logits.
Line prefill_step(const ModelConfig& model, const PlanRequest& request) {
  const std::int64_t attention = attention_width(model, request.layout.tp);
  const std::int64_t ffn = ffn_width(model, request.layout);
  const std::int64_t width = plus(times(kHiddenCopies, model.hidden_size), std::max(attention, ffn));
  const std::int64_t layers = times(times(request.max_batched_tokens, width), kBf16);
  const std::int64_t sampler = times(times(request.max_sequences, model.vocab_size), 2 * kF32);
  return line(
      "runtime.activations", "activations", plus(layers, sampler),
      fmt::format(
          "{} batched tokens x ({} x {} hidden + max({} attention, {} FFN)) x 2 B + {} sequences x {} "
          "logits x 2 x 4 B",
          num(request.max_batched_tokens), kHiddenCopies, num(std::int64_t{model.hidden_size}),
          num(attention), num(ffn), num(request.max_sequences), num(std::int64_t{model.vocab_size})),
      "assumption; --activations sets it");
}

/// llama.cpp's compute buffer: a graph of one micro-batch, in f32. Its peak lies at the head, whose logits are kept for
/// every token, or in a layer, where the attention mask of the whole context (f32, and f16 for flash attention) lies
/// beside the widest operation. Logs agree within 7 % (docs/capacity.md).
struct MicroBatch {
  std::int64_t head = 0;   ///< bytes while the logits are computed
  std::int64_t layer = 0;  ///< bytes in a layer, the mask left out
  std::int64_t mask = 0;   ///< bytes for each token of the context
  std::string head_text, layer_text;
};

MicroBatch micro_batch(const ModelConfig& model, const PlanRequest& request) {
  constexpr std::int64_t kMaskBytes = 4 + 2;
  const std::int64_t tokens = request.micro_batch;
  const std::int64_t widest = std::max(attention_width(model, 1), ffn_width(model, Layout{}));
  MicroBatch graph;
  graph.head = times(times(tokens, plus(model.vocab_size, model.hidden_size)), kF32);
  graph.layer = times(times(tokens, plus(times(kHiddenCopies, model.hidden_size), widest)), kF32);
  graph.mask = times(tokens, kMaskBytes);
  graph.head_text = fmt::format("({} logits + {} hidden) x 4 B", num(std::int64_t{model.vocab_size}),
                                num(std::int64_t{model.hidden_size}));
  graph.layer_text = fmt::format("({} mask x 6 B + ({} x {} hidden + {} widest) x 4 B)", num(request.context),
                                 kHiddenCopies, num(std::int64_t{model.hidden_size}), num(widest));
  return graph;
}

Line compute_buffer(const ModelConfig& model, const PlanRequest& request) {
  const MicroBatch graph = micro_batch(model, request);
  const std::int64_t layer = plus(graph.layer, times(graph.mask, request.context));
  return line("runtime.activations", "compute buffer", std::max(graph.head, layer),
              fmt::format("{} micro-batch x max({}, {})", num(request.micro_batch), graph.head_text,
                          graph.layer_text),
              "assumption, flash attention on; --activations sets it");
}

Line given_or(const std::optional<std::int64_t>& given, Line estimate) {
  if (!given) return estimate;
  estimate.value = *given;
  estimate.formula = "as given";
  estimate.source = "given";
  return estimate;
}

/// What the engine needs by its rule.
RuntimeBytes estimated(const ModelConfig& model, const PlanRequest& request) {
  RuntimeBytes runtime;
  const auto assumed = [](const char* key, const char* title, std::int64_t bytes, const char* formula,
                          const char* flag) {
    return line(fmt::format("runtime.{}", key), title, bytes, formula,
                fmt::format("assumption; {} sets it", flag));
  };
  switch (request.engine.runtime) {
    case RuntimeRule::kPrefillStep: {
      const bool several = request.layout.gpus() > 1;
      runtime.lines = {
          prefill_step(model, request), assumed("graphs", "captured graphs", kGraphs, "1 GiB", "--graphs"),
          assumed("other", "driver, libraries, communication", kContext + (several ? kCommunication : 0),
                  several ? "1 GiB + 1 GiB for communication" : "1 GiB", "--non-torch")};
      break;
    }
    case RuntimeRule::kMicroBatch:
      runtime.lines = {
          compute_buffer(model, request),
          assumed("graphs", "captured graphs", 0, "they hold no memory of their own", "--graphs"),
          assumed("other", "driver, libraries", kGgmlContext, "0.7 GiB", "--non-torch")};
      break;
    case RuntimeRule::kNone:
      runtime.lines = {assumed("activations", "activations", 0, "none where the cache lies", "--activations"),
                       assumed("graphs", "captured graphs", 0, "none where the cache lies", "--graphs"),
                       assumed("other", "driver, libraries", 0, "none where the cache lies", "--non-torch")};
      break;
  }
  return runtime;
}

}  // namespace

RuntimeBytes runtime_bytes(const ModelConfig& model, const PlanRequest& request) {
  RuntimeBytes runtime = estimated(model, request);
  const std::optional<std::int64_t>* given[] = {&request.runtime.activations, &request.runtime.graphs,
                                                &request.runtime.other};
  std::int64_t* sums[] = {&runtime.activations, &runtime.graphs, &runtime.other};
  for (std::size_t i = 0; i < runtime.lines.size(); ++i) {
    runtime.lines[i] = given_or(*given[i], std::move(runtime.lines[i]));
    *sums[i] = std::get<std::int64_t>(runtime.lines[i].value);
  }
  return runtime;
}

Scratch scratch_of(const ModelConfig& model, const PlanRequest& request) {
  const bool grows = request.engine.runtime == RuntimeRule::kMicroBatch && !request.runtime.activations &&
                     request.cache_bytes.empty();
  if (!grows) return {};
  const MicroBatch graph = micro_batch(model, request);
  return {.offset = graph.layer - graph.head, .per_token = graph.mask};
}

}  // namespace mla::capacity
