// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "model/reading.hpp"

namespace mla {
namespace {

constexpr Range kExperts{0, 1 << 16};
constexpr Range kShared{0, 256};

int shared_width(const Reading& reading, const Fields& fields, MoeConfig& moe) {
  const auto each = fields.integer("shared expert width",
                                   {"moe_shared_expert_intermediate_size", "shared_expert_intermediate_size",
                                    "share_expert_dim", "shared_intermediate_size"},
                                   {0, 1 << 20});
  if (each) {
    // One shared expert where only its width is given (Qwen: shared_expert_intermediate_size).
    if (moe.num_shared_experts == 0 && *each > 0 && !fields.present("n_shared_experts") &&
        !fields.present("num_shared_experts")) {
      moe.num_shared_experts = 1;
    }
    return moe.num_shared_experts * static_cast<int>(*each);
  }
  if (reading.is_type("llama4")) {
    moe.num_shared_experts = 1;
    fields.note("num_shared_experts", "1", "rule of Llama-4");
  }
  return moe.num_shared_experts * moe.moe_intermediate_size;
}

int expert_width(const Fields& fields, const ModelConfig& model) {
  const Keys keys = {"moe_intermediate_size", "expert_ffn_hidden_size", "expert_hidden_dim",
                     "expert_intermediate_size"};
  if (const auto width = fields.integer("moe_intermediate_size", keys, kWidth))
    return static_cast<int>(*width);
  if (model.intermediate_size == 0) fields.missing(keys, "the width of an expert");
  fields.note("moe_intermediate_size", fmt::format("{}", model.intermediate_size),
              "the file's only width: intermediate_size");
  return model.intermediate_size;
}

bool has_router_bias(const Reading& reading, const Fields& fields) {
  if (fields.string("topk_method", {"topk_method"}).value_or("") == "noaux_tc") return true;
  for (const char* key : {"use_routing_bias", "use_moe_router_bias", "moe_router_enable_expert_bias"}) {
    if (fields.boolean("router bias", {key}).value_or(false)) return true;
  }
  return reading.is_type("gpt_oss") || reading.is_type("kimi_linear") || reading.is_type("longcat");
}

}  // namespace

void read_moe(Reading& reading) {
  ModelConfig& model = *reading.model;
  const Fields& text = reading.text;
  model.intermediate_size = text.integer_or(
      "intermediate_size", {"intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "hidden_dim"},
      {0, 1 << 24}, 0, "absent: no dense feed-forward part can be counted");
  const Fields fields = reading.expert_fields();
  const auto experts = fields.integer(
      "num_experts",
      {"n_routed_experts", "num_experts", "num_local_experts", "num_routed_experts", "moe_num_experts"},
      kExperts);
  if (experts.value_or(0) == 0) return;
  MoeConfig moe;
  moe.num_experts = static_cast<int>(*experts);
  moe.experts_per_token = fields.required("experts_per_token",
                                          {"num_experts_per_tok", "num_experts_per_token", "moe_topk",
                                           "moe_top_k", "top_k_experts", "experts_per_token", "moe_k"},
                                          {1, moe.num_experts}, "how many of the experts a token uses");
  moe.num_shared_experts = static_cast<int>(
      fields.integer("num_shared_experts", {"n_shared_experts", "num_shared_experts"}, kShared).value_or(0));
  moe.moe_intermediate_size = expert_width(fields, model);
  moe.shared_intermediate_size = shared_width(reading, fields, moe);
  if (moe.shared_intermediate_size == 0) moe.num_shared_experts = 0;
  moe.latent_size = static_cast<int>(
      fields.integer("latent_size", {"routed_expert_hidden_size", "moe_latent_size"}, {0, 1 << 20})
          .value_or(0));
  moe.zero_experts =
      static_cast<int>(fields.integer("zero_experts", {"zero_expert_num"}, kExperts).value_or(0));
  moe.router_bias = has_router_bias(reading, fields);
  moe.shared_gate = moe.num_shared_experts > 0 && reading.is_type("qwen");
  moe.router_groups = static_cast<int>(
      fields.integer("router_groups", {"n_group", "num_expert_group", "num_expert_groups"}, {0, 1 << 14})
          .value_or(1));
  moe.router_groups_used = static_cast<int>(
      fields.integer("router_groups_used", {"topk_group", "num_expert_groups_per_tok"}, {0, 1 << 14})
          .value_or(1));
  model.moe = moe;
}

}  // namespace mla
