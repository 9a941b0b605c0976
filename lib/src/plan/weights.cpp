// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "mla/capacity.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"
#include "plan/weight_parts.hpp"

namespace mla::capacity {
namespace {

const WeightFormat& format_of(const WeightScheme& scheme, Role role) {
  static const WeightFormat bf16;
  switch (role) {
    case Role::kAttention:
      return scheme.attention;
    case Role::kDense:
      return scheme.dense;
    case Role::kShared:
      return scheme.shared;
    case Role::kExperts:
      return scheme.experts;
    case Role::kHead:
      return scheme.head;
    case Role::kRouter:
      return scheme.router;
    case Role::kEmbedding:
      return scheme.embedding;
    case Role::kVector:
    case Role::kTower:
      return bf16;
  }
  return bf16;
}

/// "2 B", "1 B + 4 B per 128 x 128", "4 bit + 20 bit per 128".
std::string format_text(const WeightFormat& format) {
  const auto size = [](int bits) {
    return bits % 8 == 0 ? fmt::format("{} B", bits / 8) : fmt::format("{} bit", bits);
  };
  std::string text = size(format.bits);
  if (format.scale_bits == 0) return text;
  text += " + " + size(format.scale_bits) + " per ";
  if (format.block_rows == 0) return text + "matrix";
  if (format.block_cols == 0) return text + "row";
  return format.block_rows == 1 ? text + fmt::format("{}", format.block_cols)
                                : text + fmt::format("{} x {}", format.block_rows, format.block_cols);
}

/// How many ranks share one matrix of a part, and how many of its copies a rank keeps.
struct Share {
  std::int64_t copies = 1;
  std::int64_t shards = 1;
};

Share share_of(const WeightPart& part, const Layout& layout, const ModelConfig& model) {
  switch (part.cut) {
    case Cut::kWhole:
      return {part.copies, 1};
    case Cut::kTensor:
    case Cut::kVocab:
      return {part.copies, layout.tp};
    case Cut::kKvHeads:
      return {part.copies, std::min(layout.tp, std::max(1, part.kv_heads))};
    case Cut::kExperts: {
      const int ranks = layout.tp * layout.dp;
      const int ep = std::max(1, layout.ep);
      const std::int64_t experts = model.moe ? model.moe->num_experts : 1;
      const std::int64_t matrices = experts > 0 ? part.copies / experts : 1;
      return {ceil_div(experts, ep) * matrices, ranks / ep};
    }
  }
  return {part.copies, 1};
}

/// Parts of one shape in several layers, counted together so that a formula reads "58 layers x ...".
class Ledger {
 public:
  Ledger(const ModelConfig& model, const WeightScheme& scheme, const Layout& layout)
      : model_(model), scheme_(scheme), layout_(layout) {}

  void add(const WeightPart& part) {
    const auto same = std::find_if(entries_.begin(), entries_.end(),
                                   [&](const Entry& entry) { return entry.part == part; });
    if (same != entries_.end()) {
      ++same->layers;
    } else {
      entries_.push_back({part, 1});
    }
  }

  void write_to(WeightPlan& plan) const {
    for (const Entry& entry : entries_) plan.lines.push_back(line_of(entry));
    std::stable_sort(plan.lines.begin(), plan.lines.end(),
                     [](const Line& a, const Line& b) { return order_of(a.key) < order_of(b.key); });
    for (const Line& line : plan.lines) plan.bytes = plus(plan.bytes, std::get<std::int64_t>(line.value));
  }

  [[nodiscard]] std::int64_t bytes() const {
    std::int64_t sum = 0;
    for (const Entry& entry : entries_) sum = plus(sum, bytes_of(entry));
    return sum;
  }

 private:
  struct Entry {
    WeightPart part;
    int layers = 0;
  };

  [[nodiscard]] std::int64_t bytes_of(const Entry& entry) const {
    const Share share = share_of(entry.part, layout_, model_);
    const std::int64_t matrix =
        matrix_bytes(format_of(scheme_, entry.part.role), entry.part.rows, entry.part.cols);
    return times(times(entry.layers, share.copies), ceil_div(matrix, share.shards));
  }

  static int order_of(std::string_view key) {
    constexpr std::string_view kOrder[] = {"weights.attention", "weights.dense", "weights.experts",
                                           "weights.mtp",       "weights.norms", "weights.embeddings",
                                           "weights.rope"};
    int order = 0;
    for (const std::string_view prefix : kOrder) {
      if (key.starts_with(prefix)) return order;
      ++order;
    }
    return order;
  }

  Line line_of(const Entry& entry) const {
    const WeightPart& part = entry.part;
    const WeightFormat& format = format_of(scheme_, part.role);
    const Share share = share_of(part, layout_, model_);
    std::string formula;
    if (entry.layers > 1) formula += fmt::format("{} layers x ", entry.layers);
    if (part.cut == Cut::kExperts && model_.moe && model_.moe->num_experts > 0) {
      const std::int64_t matrices = part.copies / model_.moe->num_experts;
      formula += fmt::format("{} experts x {} x ", num(share.copies / matrices), matrices);
    } else if (share.copies > 1) {
      formula += fmt::format("{} x ", num(share.copies));
    }
    formula += part.rows == 1 ? num(part.cols) : fmt::format("{} x {}", num(part.rows), num(part.cols));
    formula += fmt::format(" ({})", format_text(format));
    if (share.shards > 1) formula += fmt::format(" / {}", share.shards);
    return {.key = fmt::format("weights.{}", part.key),
            .title = std::string(part.title),
            .value = bytes_of(entry),
            .formula = std::move(formula),
            .source = fmt::format("shapes of {}; {}", model_.name, scheme_.source)};
  }

  const ModelConfig& model_;
  const WeightScheme& scheme_;
  const Layout& layout_;
  std::vector<Entry> entries_;
};

int rope_width(const ModelConfig& model) {
  if (model.compressed) return model.compressed->rope_head_dim;
  return model.mla ? model.rope.dim : static_cast<int>(model.head_dim * model.partial_rotary_factor);
}

std::int64_t rope_bytes(const ModelConfig& model, const EngineRules& engine) {
  return times(times(model.max_position, rope_width(model)), engine.rope_table_bytes);
}

/// The cos/sin table an engine keeps with the weights, on every rank.
Line rope_table(const ModelConfig& model, const EngineRules& engine) {
  return {.key = "weights.rope",
          .title = "rope cos/sin table",
          .value = rope_bytes(model, engine),
          .formula = fmt::format("{} positions x {} x {} B", num(model.max_position), rope_width(model),
                                 engine.rope_table_bytes),
          .source = fmt::format("max positions of {}; {} keeps it in {} B", model.name, engine.name,
                                engine.rope_table_bytes)};
}

std::int64_t params_of(const WeightPart& part) {
  return times(part.copies, times(part.rows, part.cols));
}

/// What lies on one rank of a stage.
Ledger ledger_of(const ModelConfig& model, const WeightScheme& scheme, const Layout& layout, int stage,
                 bool with_mtp) {
  const std::vector<StageLayers> stages = stage_layers(layout, model);
  if (stage < 0 || stage >= static_cast<int>(stages.size())) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("stage {} does not exist: the layout has {}", stage, stages.size()));
  }
  const StageLayers range = stages[static_cast<std::size_t>(stage)];
  const bool first = stage == 0;
  const bool last = stage + 1 == static_cast<int>(stages.size());
  Ledger ledger(model, scheme, layout);
  for (int layer = range.first; layer < range.first + range.count; ++layer) {
    for (const WeightPart& part : layer_weights(model, layer)) ledger.add(part);
  }
  if (first || (last && model.tie_word_embeddings)) ledger.add(embedding_weights(model));
  if (first) {
    for (const WeightPart& part : tower_weights(model)) ledger.add(part);
  }
  if (last && !model.tie_word_embeddings) ledger.add(head_weights(model));
  if (last) ledger.add(final_norm(model));
  if (last && with_mtp) {
    for (const WeightPart& part : mtp_weights(model)) ledger.add(part);
  }
  return ledger;
}

}  // namespace

std::int64_t weight_bytes_on_rank(const ModelConfig& model, const WeightScheme& scheme, const Layout& layout,
                                  int stage, const EngineRules& engine, bool with_mtp) {
  return plus(ledger_of(model, scheme, layout, stage, with_mtp).bytes(), rope_bytes(model, engine));
}

WeightPlan weights_on_rank(const ModelConfig& model, const WeightScheme& scheme, const Layout& layout,
                           int stage, const EngineRules& engine, bool with_mtp) {
  WeightPlan plan;
  ledger_of(model, scheme, layout, stage, with_mtp).write_to(plan);
  plan.lines.push_back(rope_table(model, engine));
  plan.bytes = plus(plan.bytes, std::get<std::int64_t>(plan.lines.back().value));
  plan.gaps = weight_gaps(model);
  return plan;
}

std::int64_t parameter_count(const ModelConfig& model, bool with_mtp) {
  std::int64_t count = params_of(embedding_weights(model)) + params_of(final_norm(model));
  if (!model.tie_word_embeddings) count = plus(count, params_of(head_weights(model)));
  for (int layer = 0; layer < model.num_layers; ++layer) {
    for (const WeightPart& part : layer_weights(model, layer)) count = plus(count, params_of(part));
  }
  if (with_mtp) {
    for (const WeightPart& part : mtp_weights(model)) count = plus(count, params_of(part));
  }
  return count;
}

}  // namespace mla::capacity
