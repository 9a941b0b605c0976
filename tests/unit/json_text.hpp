// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// A JSON object as ordered key -> literal, so that a test can say how a config differs from a plain one.
class JsonText {
 public:
  JsonText(std::initializer_list<std::pair<std::string, std::string>> members) : members_(members) {}

  [[nodiscard]] JsonText with(std::string_view key, std::string_view literal) const {
    JsonText copy = *this;
    for (auto& [name, value] : copy.members_) {
      if (name == key) {
        value = literal;
        return copy;
      }
    }
    copy.members_.emplace_back(key, literal);
    return copy;
  }
  [[nodiscard]] JsonText without(std::string_view key) const {
    JsonText copy = *this;
    std::erase_if(copy.members_, [&](const auto& member) { return member.first == key; });
    return copy;
  }
  [[nodiscard]] std::string text() const {
    std::string out = "{";
    for (const auto& [key, literal] : members_) {
      if (out.size() > 1) out += ", ";
      out += "\"" + key + "\": " + literal;
    }
    return out + "}";
  }

 private:
  std::vector<std::pair<std::string, std::string>> members_;
};

/// DeepSeek-V3 in small: 4 layers, an MTP module, 3 of the layers with experts.
inline JsonText mla_config() {
  return {{"architectures", R"(["DeepseekV3ForCausalLM"])"},
          {"model_type", R"("deepseek_v3")"},
          {"num_hidden_layers", "4"},
          {"hidden_size", "1024"},
          {"num_attention_heads", "16"},
          {"num_key_value_heads", "16"},
          {"intermediate_size", "4096"},
          {"vocab_size", "32000"},
          {"max_position_embeddings", "8192"},
          {"q_lora_rank", "384"},
          {"kv_lora_rank", "512"},
          {"qk_nope_head_dim", "128"},
          {"qk_rope_head_dim", "64"},
          {"v_head_dim", "128"},
          {"num_nextn_predict_layers", "1"},
          {"first_k_dense_replace", "1"},
          {"n_routed_experts", "64"},
          {"n_shared_experts", "2"},
          {"num_experts_per_tok", "6"},
          {"moe_intermediate_size", "512"}};
}

/// Llama-3 in small: 8 layers, 32 heads, 8 KV heads of 128.
inline JsonText gqa_config() {
  return {{"architectures", R"(["LlamaForCausalLM"])"},
          {"model_type", R"("llama")"},
          {"num_hidden_layers", "8"},
          {"hidden_size", "4096"},
          {"num_attention_heads", "32"},
          {"num_key_value_heads", "8"},
          {"intermediate_size", "14336"},
          {"vocab_size", "128256"},
          {"max_position_embeddings", "131072"}};
}
