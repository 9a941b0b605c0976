// SPDX-License-Identifier: Apache-2.0
#include "plan/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"

namespace mla::capacity {
namespace {

/// Parts of a model that a checkpoint's names tell apart.
enum class Part : std::uint8_t { kAttention, kDense, kExperts, kEmbeddings, kNorms, kMtp, kOther };
constexpr std::array<std::string_view, 7> kPrefixes{"weights.attention",  "weights.dense", "weights.experts",
                                                    "weights.embeddings", "weights.norms", "weights.mtp",
                                                    "weights.other"};

bool has(std::string_view name, std::string_view word) {
  return name.find(word) != std::string_view::npos;
}

/// The number behind "layers." or -1.
int layer_of(std::string_view name) {
  const std::size_t at = name.find("layers.");
  if (at == std::string_view::npos) return -1;
  int layer = -1;
  const std::string_view digits = name.substr(at + 7);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), layer);
  return error == std::errc{} ? layer : -1;
}

Part part_of(std::string_view name, const ModelConfig& model) {
  for (const char* tower : {"vision", "visual", "audio", "mm_projector", "multi_modal_projector", "image_"}) {
    if (has(name, tower)) return Part::kOther;
  }
  const int layer = layer_of(name);
  if (layer >= model.num_layers || name.starts_with("mtp.") || has(name, ".mtp.")) return Part::kMtp;
  if (layer < 0) {
    if (has(name, "embed") || has(name, "lm_head") || name.starts_with("output.")) return Part::kEmbeddings;
    return has(name, "norm") ? Part::kNorms : Part::kOther;
  }
  if (has(name, "norm")) return Part::kNorms;
  if (has(name, "attn") || has(name, "attention") || has(name, "mixer")) return Part::kAttention;
  const bool expert =
      has(name, "expert") || has(name, ".gate.") || has(name, ".router.") || has(name, "block_sparse_moe");
  if (expert) return Part::kExperts;
  const bool dense = has(name, "mlp") || has(name, "feed_forward") || has(name, "ffn");
  return dense ? Part::kDense : Part::kOther;
}

using Sums = std::array<std::int64_t, kPrefixes.size()>;

std::int64_t& at(Sums& sums, Part part) {
  return sums[static_cast<std::size_t>(part)];
}

/// What the config implies for the whole model, without the rope table.
Sums estimated(const ModelConfig& model, const WeightScheme& scheme, bool with_mtp) {
  Sums sums{};
  const WeightPlan whole = weights_on_rank(model, scheme, {}, 0, find_engine("none"), with_mtp);
  for (const Line& line : whole.lines) {
    const auto found = std::ranges::find_if(
        kPrefixes, [&](std::string_view prefix) { return line.key.starts_with(prefix); });
    if (found == kPrefixes.end()) continue;
    auto& sum = sums[static_cast<std::size_t>(found - kPrefixes.begin())];
    sum = plus(sum, std::get<std::int64_t>(line.value));
  }
  return sums;
}

std::int64_t sum_of(const Sums& sums) {
  std::int64_t total = 0;
  for (const std::int64_t bytes : sums) total = plus(total, bytes);
  return total;
}

void check_likeness(const ModelConfig& model, const Checkpoint& checkpoint, std::int64_t implied) {
  constexpr double kMost = 10;
  const double ratio =
      static_cast<double>(checkpoint.total) / static_cast<double>(std::max<std::int64_t>(1, implied));
  if (ratio <= kMost && ratio >= 1 / kMost) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} holds {}, but {} takes {} by its config", checkpoint.source,
                          gib(checkpoint.total), model.name, gib(implied)),
              "is it the index of another model?");
}

}  // namespace

std::vector<WeightScale> weight_scales(const ModelConfig& model, const WeightScheme& scheme,
                                       const Checkpoint& checkpoint) {
  Sums real{};
  bool layers = false;
  bool mtp = false;
  for (const StoredTensor& tensor : checkpoint.tensors) {
    const Part part = part_of(tensor.name, model);
    layers = layers || layer_of(tensor.name) >= 0;
    mtp = mtp || part == Part::kMtp;
    if (checkpoint.sizes_known) at(real, part) = plus(at(real, part), tensor.bytes);
  }
  if (!layers) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} names no tensor of a layer (such as 'model.layers.0...')", checkpoint.source));
  }
  Sums implied = estimated(model, scheme, false);
  const std::int64_t main_model = sum_of(implied);
  const std::int64_t whole = mtp ? sum_of(estimated(model, scheme, true)) : main_model;
  check_likeness(model, checkpoint, whole);
  if (!checkpoint.sizes_known) return {{"weights.", checkpoint.total, whole, checkpoint.source}};
  at(implied, Part::kMtp) = whole - main_model;
  std::vector<WeightScale> scales;
  for (std::size_t i = 0; i < kPrefixes.size(); ++i) {
    // Prediction layers that the config does not know are not loaded; those not stored are left as they are.
    const bool mtp_part = i == static_cast<std::size_t>(Part::kMtp);
    if (mtp_part && (!mtp || implied[i] == 0)) continue;
    if (real[i] == 0 && implied[i] == 0) continue;
    scales.push_back({std::string(kPrefixes[i]), real[i], implied[i], checkpoint.source});
  }
  return scales;
}

void apply_scales(WeightPlan& plan, const std::vector<WeightScale>& scales) {
  if (scales.empty()) return;
  for (Line& line : plan.lines) {
    if (line.key == "weights.rope") continue;
    const auto scale = std::ranges::find_if(
        scales, [&](const WeightScale& one) { return line.key.starts_with(one.prefix); });
    if (scale == scales.end() || scale->estimated == 0) continue;
    const double factor = static_cast<double>(scale->real) / static_cast<double>(scale->estimated);
    line.value = static_cast<std::int64_t>(
        std::llround(factor * static_cast<double>(std::get<std::int64_t>(line.value))));
    line.formula += fmt::format(" x {} / {} as stored", num(scale->real), num(scale->estimated));
    line.source += "; " + scale->source;
  }
  for (const WeightScale& scale : scales) {
    if (scale.estimated != 0 || scale.real == 0) continue;
    plan.lines.push_back({.key = scale.prefix,
                          .title = "tensors the config does not describe",
                          .value = scale.real,
                          .formula = "as stored, whole on every rank",
                          .source = scale.source});
  }
  plan.bytes = 0;
  for (const Line& line : plan.lines) plan.bytes = plus(plan.bytes, std::get<std::int64_t>(line.value));
}

}  // namespace mla::capacity
