// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/text.hpp"
#include "model/reading.hpp"

namespace mla {
namespace {

constexpr std::array kMlaTypes = {"deepseek_v2",   "deepseek_v3",         "deepseek_v32", "kimi_k2",
                                  "kimi_linear",   "glm4_moe_lite",       "glm_moe_dsa",  "glm5_next_text",
                                  "longcat_flash", "longcat_flash_ngram", "longcat_next", "minicpm3",
                                  "mistral4",      "pangu_ultra_moe",     "sarvam_mla",   "axk1"};

// Beginnings of class names: re-uploads change model_type more often than the architecture.
constexpr std::array kMlaArchitectures = {"DeepseekV2", "DeepseekV3",    "Glm4MoeLite", "GlmMoeDsa",
                                          "Glm5Next",   "KimiLinear",    "KimiK2",      "KimiK3",
                                          "KimiVL",     "LongcatFlash",  "MiniCPM3",    "MistralLarge3",
                                          "Mistral4",   "PanguUltraMoE", "BailingMoeV3"};

// Any of these, null or not, says that somebody meant MLA.
constexpr std::array kMlaKeys = {"kv_lora_rank", "attention_kv_lora_dim", "qk_nope_head_dim",
                                 "qk_rope_head_dim", "attention_qk_rope_dim"};

// Ordinary attention whose classes were looked at; others are read the same way, with a note that says so.
constexpr std::array kKnownTypes = {
    "llama",   "mistral", "ministral", "mixtral",  "qwen2",    "qwen3",    "gemma",     "gpt_oss",
    "mimo",    "minimax", "nemotron",  "step3",    "llama4",   "phi",      "starcoder", "cohere",
    "olmo",    "glm4",    "glm",       "falcon",   "gpt2",     "gpt_neox", "gptj",      "opt",
    "bloom",   "qwen",    "baichuan",  "internlm", "deepseek", "dots1",    "ernie4_5",  "exaone",
    "granite", "hunyuan", "jamba",     "smollm",   "stablelm", "bailing",  "seed_oss",  "deci"};

// Classes that set num_key_value_heads to num_attention_heads when the file has none (or null).
constexpr std::array kHeadsByDefault = {"llama",    "gpt2",     "gpt_neox", "gptj",     "opt",
                                        "bloom",    "phi",      "qwen",     "baichuan", "internlm",
                                        "deepseek", "stablelm", "mpt"};

template <class List>
bool has_prefix(const List& list, std::string_view text) {
  return std::any_of(list.begin(), list.end(), [&](const char* prefix) { return text.starts_with(prefix); });
}

void decide_family(Reading& reading) {
  const ModelConfig& model = *reading.model;
  const Fields& text = reading.text;
  const auto choose = [&](AttentionFamily family, std::string reason) {
    reading.family = family;
    reading.family_reason = std::move(reason);
  };
  if (text.present("compress_ratios") || model.model_type.starts_with("deepseek_v4") ||
      model.architecture.starts_with("DeepseekV4")) {
    return choose(AttentionFamily::kCompressed,
                  text.present("compress_ratios") ? text.path("compress_ratios") : "the model type");
  }
  // Some small models of the DeepSeek-V2 class (VL2-tiny, OCR) state that they use ordinary attention.
  if (text.boolean("use_mla", {"use_mla"}) == std::optional(false)) {
    return choose(AttentionFamily::kHeads, text.path("use_mla") + " is false");
  }
  for (const char* key : kMlaKeys) {
    if (text.present(key)) return choose(AttentionFamily::kMla, text.path(key) + " is there");
  }
  if (is_mla_name(model.model_type, model.architecture)) {
    return choose(AttentionFamily::kMla,
                  fmt::format("{} is an MLA model",
                              model.architecture.empty() ? model.model_type : model.architecture));
  }
  choose(AttentionFamily::kHeads, "no field or name of MLA");
}

/// A class nobody looked at may cache something else than its field names say.
void warn_of_unknown_class(const Reading& reading) {
  ModelConfig& model = *reading.model;
  const std::string type = model.model_type.empty() ? "(none)" : text::quoted(model.model_type);
  if (reading.family == AttentionFamily::kMla && !is_mla_name(model.model_type, model.architecture)) {
    model.warnings.push_back(fmt::format(
        "model_type {} is not an MLA class that was looked at: planned as MLA because {}. An engine "
        "that does not run it as MLA keeps K and V heads, many times the bytes; --mla-storage expanded "
        "plans that",
        type, reading.family_reason));
  }
  if (reading.family == AttentionFamily::kHeads && !is_known_type(model.model_type)) {
    model.warnings.push_back(fmt::format(
        "model_type {} is not a class that was looked at: read by its field names as ordinary attention",
        type));
  }
}

}  // namespace

bool is_mla_name(std::string_view model_type, std::string_view architecture) {
  return std::find(kMlaTypes.begin(), kMlaTypes.end(), model_type) != kMlaTypes.end() ||
         has_prefix(kMlaArchitectures, architecture);
}

bool kv_heads_default_to_heads(std::string_view model_type) {
  return std::find(kHeadsByDefault.begin(), kHeadsByDefault.end(), model_type) != kHeadsByDefault.end();
}

bool is_known_type(std::string_view model_type) {
  return has_prefix(kKnownTypes, model_type);
}

void read_identity(Reading& reading) {
  ModelConfig& model = *reading.model;
  const Fields& text = reading.text;
  const Fields& outer = reading.outer;
  model.model_type = reading.where({"model_type"}).string("model_type", {"model_type"}).value_or("");
  for (const Fields* part : {&text, &outer}) {
    if (!model.architecture.empty() || !part->has("architectures")) continue;
    const std::vector<std::string> names = part->strings("architectures");
    if (names.empty()) continue;
    model.architecture = names.front();
    part->note("architecture", names.front(), part->path("architectures"));
  }
  model.torch_dtype =
      reading.where({"torch_dtype", "dtype"}).string("dtype", {"torch_dtype", "dtype"}).value_or("");
  model.multimodal = &text.object() != &outer.object() ||
                     outer.has_any({"vision_config", "audio_config", "vision_encoder", "vision_tower"});
  if (outer.boolean("is_encoder_decoder", {"is_encoder_decoder"}).value_or(false)) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: an encoder-decoder model; only decoders can be read", outer.origin()));
  }
  if (text.has("cross_attention_layers")) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: layers that attend to an image (cross_attention_layers) "
                            "cannot be read",
                            outer.origin()));
  }
  if (reading.params_json) {
    // The file names no class; these are the ones that read it.
    model.model_type = "mistral";
    model.architecture = text.present("kv_lora_rank") ? "MistralLarge3ForCausalLM" : "MistralForCausalLM";
    text.note("architecture", model.architecture, "rule of params.json, which names none");
  }
  decide_family(reading);
  text.note("attention family",
            reading.family == AttentionFamily::kMla          ? "MLA"
            : reading.family == AttentionFamily::kCompressed ? "compressed"
                                                             : "KV heads",
            reading.family_reason);
  warn_of_unknown_class(reading);
}

}  // namespace mla
