// SPDX-License-Identifier: Apache-2.0
#include "plan/case_inputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"

namespace mla::capacity {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
constexpr double kHalfDigit = 0.005;  // engines print GiB to two decimals

/// The word before a blank, slash or bracket, in lower case: "fp16/bf16" -> "fp16".
std::string first_word(std::string_view text) {
  const std::size_t end = text.find_first_of(" /(");
  return text::to_lower(text.substr(0, end));
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::int64_t to_count(double value, std::string_view what) {
  constexpr double kMost = 9e15;
  if (!(value >= 0) || value > kMost) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{} {} is not a count", what, value));
  }
  return static_cast<std::int64_t>(std::llround(value));
}

}  // namespace

std::optional<double> CaseInputs::number(std::initializer_list<std::string_view> keys,
                                         std::size_t index) const {
  for (const std::string_view key : keys) {
    const auto found = case_->numbers.find(std::string(key));
    if (found == case_->numbers.end() || found->second.empty()) continue;
    return found->second[std::min(index, found->second.size() - 1)];
  }
  return std::nullopt;
}

double CaseInputs::need(std::initializer_list<std::string_view> keys, std::size_t index) const {
  if (const std::optional<double> value = number(keys, index)) return *value;
  std::vector<std::string> names;
  for (const std::string_view key : keys) names.emplace_back(key);
  throw Error(ErrorCode::kInvalidArgument, fmt::format("the inputs lack {}", text::join_or(names)));
}

std::int64_t CaseInputs::count(std::initializer_list<std::string_view> keys, std::int64_t fallback) const {
  const std::optional<double> value = number(keys);
  return value ? to_count(*value, *keys.begin()) : fallback;
}

std::string CaseInputs::word(std::string_view key) const {
  const auto found = case_->words.find(std::string(key));
  return found == case_->words.end() ? std::string() : found->second;
}

bool CaseInputs::flag(std::string_view key, bool fallback) const {
  const std::optional<double> value = number({key});
  return value ? *value != 0 : fallback;
}

std::size_t CaseInputs::size(std::string_view key) const {
  const auto found = case_->numbers.find(std::string(key));
  return found == case_->numbers.end() ? 0 : found->second.size();
}

Layout CaseInputs::layout() const {
  const auto size_of = [&](std::string_view key, int fallback, int least) {
    constexpr std::int64_t kMost = 65536;
    const std::int64_t size = count({key}, fallback);
    if (size < least || size > kMost) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("inputs: {} is {}; it must be {} to {}", key, size, least, kMost));
    }
    return static_cast<int>(size);
  };
  Layout layout;
  layout.tp = size_of("tp", 1, 1);
  layout.dp = size_of("dp", 1, 1);
  layout.pp = size_of("pp", 1, 1);
  layout.dcp = size_of("dcp", 1, 1);
  layout.ep = size_of("ep", 0, 0);
  if (const int replicas = size_of("dp_attention", 1, 1); replicas > 1) {
    if (layout.tp % replicas != 0) {
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("dp_attention {} does not divide tp {}: attention replicas are taken from the tp "
                      "group",
                      replicas, layout.tp));
    }
    layout.tp /= replicas;  // SGLang: the tp group is divided into attention replicas
    layout.dp *= replicas;
  }
  const auto stages = case_->numbers.find("pp_layers");
  if (stages != case_->numbers.end()) {
    for (const double layers : stages->second) {
      layout.stage_layers.push_back(
          static_cast<int>(std::min<std::int64_t>(to_count(layers, "pp_layers"), 65536)));
    }
  }
  return layout;
}

KvFormat CaseInputs::cache_format() const {
  const std::string layout = word("kv_layout");
  if (layout.starts_with("656") || layout.starts_with("fp8_ds_mla")) {
    const bool compressed = case_->model.count(AttentionKind::kCompressed) > 0;
    return find_kv_format(compressed ? "fp8" : "fp8_ds_mla");
  }
  if (!layout.empty()) return find_kv_format(first_word(layout));
  if (const std::string k = word("type_k"); !k.empty()) {
    const std::string v = word("type_v");
    return mixed_kv_format(find_kv_format(first_word(k)),
                           find_kv_format(v.empty() ? first_word(k) : first_word(v)));
  }
  const std::string dtype = word("kv_dtype");
  return find_kv_format(dtype.empty() ? "bf16" : first_word(dtype));
}

WeightScheme CaseInputs::weight_scheme() const {
  const std::string text = word("weight_dtype");
  if (text.empty()) return scheme_of(case_->model);
  const WeightFormat format = find_weight_format(first_word(text));
  if (!has(text, "experts")) return uniform_scheme(format);
  // "nvfp4 experts + fp8": what follows the plus is the rest's.
  WeightScheme scheme;
  const std::size_t plus = text.find('+');
  const std::size_t rest = plus == std::string::npos ? plus : text.find_first_not_of(' ', plus + 1);
  if (rest != std::string::npos)
    scheme = uniform_scheme(find_weight_format(first_word(std::string_view(text).substr(rest))));
  scheme.experts = format;
  scheme.source = text;
  return scheme;
}

EngineRules CaseInputs::rules() const {
  EngineRules rules = case_->rules;
  if (const std::optional<double> mode = number({"mla"})) {
    rules.mla_storage = *mode == 0   ? MlaStorage::kExpanded
                        : *mode == 1 ? MlaStorage::kLatentAndValue
                                     : MlaStorage::kLatent;
  }
  if (!flag("mla_enabled", true)) rules.mla_storage = MlaStorage::kExpanded;
  if (!flag("swa_cache", true) || !flag("hybrid_manager", true) || flag("swa_full", false))
    rules.window = WindowRule::kFullLength;
  if (has(word("layout"), "V-less") || has(word("layout"), "split")) rules.mla_storage = MlaStorage::kLatent;
  return rules;
}

StateBlocks CaseInputs::state_blocks() const {
  const std::string mode = word("mamba_cache_mode");
  if (mode == "all") return StateBlocks::kAll;
  if (mode == "align" || (mode.empty() && flag("prefix_caching", false))) return StateBlocks::kAligned;
  if (!mode.empty() && mode != "none") {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("mamba_cache_mode {} is not known; none, align and all are", text::quoted(mode)));
  }
  return StateBlocks::kOne;
}

std::int64_t CaseInputs::streams() const {
  return flag("kv_unified", false) ? 1 : std::max<std::int64_t>(1, count({"n_seq"}, 1));
}
std::int64_t CaseInputs::window_sequences() const {
  return flag("kv_unified", false) ? std::max<std::int64_t>(1, count({"n_seq"}, 1)) : 1;
}

int CaseInputs::block() const {
  return static_cast<int>(std::min<std::int64_t>(
      count({"block_size", "page_size", "tokens_per_block", "chunk_size"}, 0), 1 << 20));
}

CaseInputs::Budget CaseInputs::budget(std::size_t stage, std::size_t run) const {
  if (const std::optional<double> exact = number({"swap_space_gib"})) {
    const std::int64_t bytes = to_count(*exact * kGiB, "swap space of");
    return {bytes, bytes, fmt::format("{} GiB", *exact)};
  }
  const bool per_stage = size("pp_layers") > 1 && size("available_kv_gib_per_rank") == size("pp_layers");
  const std::size_t index = per_stage ? stage : run;
  double gib = 0;
  if (const std::optional<double> total = number({"available_kv_gib_total"}, index)) {
    gib = *total / static_cast<double>(layout().gpus());
  } else {
    gib = need({"available_kv_gib_per_rank", "available_kv_gib", "runs.available_kv_gib", "free_gib"}, index);
  }
  const double share = number({"kv_cache_free_gpu_mem_fraction"}).value_or(1.0);
  const auto bytes = [&](double value) {
    return to_count(std::max(0.0, value) * share * kGiB, "a budget of");
  };
  return {bytes(gib - kHalfDigit), bytes(gib + kHalfDigit),
          share == 1.0 ? fmt::format("{} GiB", gib) : fmt::format("{} x {} GiB", share, gib)};
}

std::int64_t CaseInputs::tokens(std::size_t index) const {
  return to_count(need({"kv_tokens", "n_ctx", "cells", "tokens", "full_tokens", "max_model_len"}, index),
                  "tokens");
}

}  // namespace mla::capacity
