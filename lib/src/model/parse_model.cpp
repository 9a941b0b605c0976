// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/text.hpp"
#include "model/read_file.hpp"
#include "model/reading.hpp"

namespace mla {
namespace {

// Our own files wrap a config.json and say where it comes from.
bool is_wrapper(const json::Value& root) {
  const json::Value* config = root.find("config");
  return config != nullptr && config->get_if<json::Object>() != nullptr &&
         root.find("model_type") == nullptr && root.find("architectures") == nullptr;
}

// Comments are ours alone: a config.json with comments is one no engine reads.
json::Value parse_text(std::string_view json_text, std::string_view origin) {
  try {
    return json::parse(json_text, origin);
  } catch (const Error&) {
    std::optional<json::Value> lenient;
    try {
      lenient = json::parse(json_text, origin, {.comments = true});
    } catch (const Error&) {
    }
    if (lenient && is_wrapper(*lenient)) return std::move(*lenient);
    throw;
  }
}

void read_wrapper(const Fields& fields, ModelConfig& model) {
  static const std::vector<std::string> keys = {"name",    "aliases", "title", "source",
                                                "checked", "note",    "config"};
  fields.refuse_unknown(keys);
  model.name = fields.required_string("name", {"name"});
  model.title = fields.string("title", {"title"}).value_or(model.name);
  model.aliases = fields.strings("aliases");
  model.source = fields.required_string("source", {"source"});
  model.checked = fields.required_string("checked", {"checked"});
  model.note = fields.string("note", {"note"}).value_or("");
}

// The part of a multimodal file that describes the language model, and whatever wraps it further.
Fields language_part(const Fields& outer) {
  for (const char* key : {"text_config", "language_config", "llm_config", "thinker_config"}) {
    if (const std::optional<Fields> inner = outer.nested(key)) return language_part(*inner);
  }
  return outer;
}

// Mistral's own form has its own names for everything.
bool is_params_json(const Fields& fields) {
  return fields.has("dim") && fields.has("n_layers") && fields.has("n_heads") &&
         !fields.present("model_type");
}

void read_config(const Fields& outer, ModelConfig& model) {
  Reading reading{outer, language_part(outer), &model};
  reading.params_json = is_params_json(reading.text);
  read_identity(reading);
  read_sizes(reading);
  read_mla(reading);
  read_compressed(reading);
  read_layers(reading);
  read_moe(reading);
  read_ffn(reading);
  read_traits(reading);
  read_rope(reading);
  read_quantization(reading);
  read_tower(reading);
}

}  // namespace

ModelConfig parse_model(std::string_view json_text, std::string_view origin) {
  if (json_text.size() > kMaxConfigBytes) {
    throw Error(ErrorCode::kParse, fmt::format("{} is larger than {} MiB, which no model configuration is",
                                               origin, kMaxConfigBytes >> 20));
  }
  const json::Value root = parse_text(json_text, origin);
  ModelConfig model;
  const std::string where(origin);
  if (is_wrapper(root)) {
    read_wrapper(Fields(root, where), model);
    read_config(Fields(*root.find("config"), where, "config", &model.notes), model);
    return model;
  }
  read_config(Fields(root, where, {}, &model.notes), model);
  model.name = !model.model_type.empty() ? model.model_type : model.architecture;
  if (model.name.empty()) model.name = "unnamed";
  model.title = model.architecture.empty() ? model.name : model.architecture;
  return model;
}

}  // namespace mla
