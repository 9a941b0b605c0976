// SPDX-License-Identifier: Apache-2.0
// Which cache formats an engine takes for a model.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "core/text.hpp"
#include "mla/capacity.hpp"
#include "mla/error.hpp"
#include "plan/format_rules.hpp"

namespace mla::capacity {
namespace {

[[noreturn]] void refuse(const std::string& sentence, const std::string& hint) {
  throw Error(ErrorCode::kInvalidArgument, sentence, hint);
}

std::string taken(const EngineRules& engine) {
  std::vector<std::string> names;
  for (const std::string_view name : engine.cache_formats) names.emplace_back(name);
  return fmt::format("it takes {}", text::join_or(names));
}

void check_name(std::string_view name, const EngineRules& engine) {
  if (std::ranges::find(engine.cache_formats, name) != engine.cache_formats.end()) return;
  refuse(fmt::format("{} has no cache format {}", engine.name, name), taken(engine));
}

/// Rows of tiles with scales or 4-bit latents, which only top-k sparse kernels read.
bool sparse_rows(const KvFormat& format) {
  return format.mla_row == MlaRow::kNvfp4DsMla ||
         (format.mla_row == MlaRow::kLayout && format.row_format == CacheFormat::kFp8DsMla);
}

/// vLLM's rows of compressed entries have one layout, e4m3 with bf16 rope: 584 B for 448 + 64.
void check_entries(const KvFormat& format, const ModelConfig& model, const EngineRules& engine) {
  const bool fp8 = format.name == "fp8" || format.name == "fp8_ds_mla";
  if (fp8 || !only_fp8_entries(model, engine)) return;
  refuse(fmt::format("cache format {} is refused: {} supports only the fp8 cache for DeepSeek-V4 ({})",
                     format.name, engine.name, model.name),
         "leave --cache out, or give --cache fp8");
}

}  // namespace

bool only_fp8_entries(const ModelConfig& model, const EngineRules& engine) noexcept {
  return model.count(AttentionKind::kCompressed) > 0 && (engine.name == "vllm" || engine.name == "lmcache");
}

void validate(const KvFormat& format, const ModelConfig& model, const EngineRules& engine) {
  if (engine.cache_formats.empty()) return;
  check_name(format.name, engine);
  if (!(format.v == format.k)) {
    if (!engine.mixed_cache) {
      refuse(fmt::format("{} stores K and V in one format, not in {} and {}", engine.name, format.k.name,
                         format.v.name),
             "give one format for both; llama.cpp takes two");
    }
    check_name(format.v.name, engine);
  }
  const bool sparse = model.indexer || model.count(AttentionKind::kCompressed) > 0;
  if (sparse_rows(format) && !sparse) {
    refuse(fmt::format("{} keeps {} rows for models with a top-k indexer alone, and {} has none", engine.name,
                       format.name, model.name),
           "its 8-bit format is fp8");
  }
  check_entries(format, model, engine);
}

}  // namespace mla::capacity
