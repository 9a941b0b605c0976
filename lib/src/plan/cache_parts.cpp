// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "mla/capacity.hpp"
#include "mla/error.hpp"
#include "plan/arithmetic.hpp"

namespace mla::capacity {
namespace {

/// "x 2 B" for plain elements, "x 34/32 B" for blocks.
std::string element_text(const ElementFormat& format) {
  return format.elements == 1 ? fmt::format("{} B", format.bytes)
                              : fmt::format("{}/{} B", format.bytes, format.elements);
}

[[noreturn]] void no_layout(const KvFormat& format, const ModelConfig& model, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("cache format {} has no layout for {}: {}", format.name, model.name, why),
              "bf16 and fp8 always have one");
}

/// Row formats with tiles are written by kernels for one width only.
void check_tiles(const KvFormat& format, const ModelConfig& model, const MlaDims& dims) {
  constexpr int kKernelLatent = 512;
  if (dims.kv_lora_rank != kKernelLatent) {
    no_layout(
        format, model,
        fmt::format("its kernels take a latent of {}, this model's is {}", kKernelLatent, dims.kv_lora_rank));
  }
}

CachePart latent_row(const ModelConfig& model, const KvFormat& format) {
  const MlaDims& dims = *model.mla;
  const int latent = dims.kv_lora_rank;
  const int rope = dims.qk_rope_head_dim;
  if (format.scale_bytes_per_head != 0)
    no_layout(format, model, "its scales belong to KV heads, and a latent row has none");
  CachePart part{.kind = PartKind::kRow};
  switch (format.mla_row) {
    case MlaRow::kLayout: {
      const CacheLayout layout = cache_layout(format.row_format, dims);
      part.k_bytes = layout.bytes_per_token();
      if (layout.scale_bytes > 0) {
        check_tiles(format, model, dims);
        part.formula = fmt::format("({} latent + {} scales + {} rope) B", layout.latent_bytes,
                                   layout.scale_bytes, layout.rope_bytes);
      } else {
        part.formula = fmt::format("({} + {}) x {}", latent, rope, element_text(format.k));
      }
      return part;
    }
    case MlaRow::kElements:
      part.k_bytes = element_bytes(format.k, dims.latent_width(), "the latent row");
      part.formula = fmt::format("({} + {}) x {}", latent, rope, element_text(format.k));
      return part;
    case MlaRow::kNvfp4DsMla: {
      constexpr int kPadding = 16;
      check_tiles(format, model, dims);
      part.k_bytes = latent / 2 + latent / 16 + kPadding + 2 * rope;
      part.formula = fmt::format("({} latent + {} scales + {} padding + {} rope) B", latent / 2, latent / 16,
                                 kPadding, 2 * rope);
      return part;
    }
  }
  throw Error(ErrorCode::kInternal, "a cache format has no rule for latent rows");
}

/// `heads` heads of K (`width_k`) and V (`width_v`).
CachePart head_part(const ModelConfig& model, const KvFormat& format, std::int64_t heads, int width_k,
                    int width_v) {
  if (format.mla_only) no_layout(format, model, "its layers keep K and V heads");
  const std::int64_t scales = heads * format.scale_bytes_per_head;
  CachePart part{.kind = PartKind::kHeads};
  part.k_bytes = plus(element_bytes(format.k, times(heads, width_k), "K of a layer"), scales);
  part.v_bytes = plus(element_bytes(format.v, times(heads, width_v), "V of a layer"), scales);
  const std::string widths = format.k == format.v
                                 ? fmt::format("({} + {}) x {}", width_k, width_v, element_text(format.k))
                                 : fmt::format("({} x {} + {} x {})", width_k, element_text(format.k),
                                               width_v, element_text(format.v));
  part.formula = fmt::format("{} heads x {}", heads, widths);
  if (scales > 0)
    part.formula += fmt::format(" + {} heads x 2 x {} B scales", heads, format.scale_bytes_per_head);
  return part;
}

/// Keys of the sparse indexer: e4m3 channels and one f32 scale for every tile of them, as in keys of 128.
std::int64_t index_key_bytes(int head_dim) {
  constexpr int kScaleBytes = kIndexKeyBytes - kIndexKeyWidth;
  return head_dim + ceil_div(head_dim, kIndexKeyWidth) * kScaleBytes;
}

CachePart index_part(const ModelConfig& model, const KvFormat& format, IndexKeys keys, int tokens_per_key) {
  const int width = model.indexer ? model.indexer->head_dim : kIndexKeyWidth;
  const bool elements = keys == IndexKeys::kElements;
  CachePart part{.kind = PartKind::kIndex};
  part.k_bytes = elements ? element_bytes(format.k, width, "an index key") : index_key_bytes(width);
  part.tokens_per_entry = tokens_per_key;
  part.formula = elements ? fmt::format("{} x {}", width, element_text(format.k))
                          : fmt::format("({} + {} scale) B", width, part.k_bytes - width);
  if (tokens_per_key > 1) part.formula += fmt::format(" / {} tokens", tokens_per_key);
  return part;
}

void add_mla(std::vector<CachePart>& parts, const ModelConfig& model, const LayerCache& layer,
             const KvFormat& format, const EngineRules& engine, int tp) {
  const StoredMla stored = stored_mla(model, engine);
  const MlaDims& dims = *model.mla;
  if (stored.storage == MlaStorage::kExpanded) {
    parts.push_back(
        head_part(model, format, std::max(1, dims.num_heads / tp), stored.head_dim_k, stored.head_dim_v));
  } else {
    parts.push_back(latent_row(model, format));
    if (stored.storage == MlaStorage::kLatentAndValue) {
      parts.back().v_bytes = element_bytes(format.v, dims.kv_lora_rank, "the copy of the latent");
      parts.back().formula += fmt::format(" + {} x {} as V", dims.kv_lora_rank, element_text(format.v));
    }
  }
  const bool charged = engine.index_keys != IndexKeys::kNone &&
                       (layer.indexer || (engine.index_on_every_layer && model.indexer));
  if (charged) {
    const int pooled = model.indexer ? model.indexer->key_pool : 1;
    parts.push_back(index_part(model, format, engine.index_keys, pooled));
  }
}

/// DeepSeek-V4 in llama.cpp: entries and index keys of the cache's own type, in cells padded by 256; the
/// compressors' states are whole rings (llama-kv-cache-dsv4.cpp).
void add_compressed_cells(std::vector<CachePart>& parts, const ModelConfig& model, const LayerCache& layer,
                          const KvFormat& format) {
  constexpr int kCellPadding = 256;
  constexpr int kDenseRatio = 4;
  const int width = model.compressed->head_dim;
  const int ratio = layer.compress_ratio;
  const std::int64_t entry = element_bytes(format.k, width, "an entry");
  const std::string text = fmt::format("{} x {}", width, element_text(format.k));
  if (layer.window > 0)
    parts.push_back({.kind = PartKind::kEntries, .k_bytes = entry, .window = layer.window, .formula = text});
  if (ratio == 0) return;
  parts.push_back({.kind = PartKind::kEntries,
                   .k_bytes = entry,
                   .tokens_per_entry = ratio,
                   .block = kCellPadding * ratio,
                   .formula = fmt::format("{} / {} tokens", text, ratio)});
  if (layer.indexer) {
    parts.push_back(index_part(model, format, IndexKeys::kElements, ratio));
    parts.back().block = kCellPadding * ratio;
  }
  const int copies = ratio == kDenseRatio ? 2 : 1;
  const auto add_state = [&](int state_width) {
    parts.push_back({.kind = PartKind::kState,
                     .k_bytes = std::int64_t{2} * 4 * copies * state_width * copies * ratio,
                     .tokens_per_entry = ratio,
                     .formula = fmt::format("2 x {} x {} x 4 B of compressor state x {} tokens", copies,
                                            state_width, copies * ratio)});
  };
  add_state(width);
  if (layer.indexer) add_state(model.indexer ? model.indexer->head_dim : kIndexKeyWidth);
}

/// DeepSeek-V4: a window of plain entries, compressed entries, index keys, the compressor's running state.
/// Widths and page sizes as vllm#54703 logs them.
void add_compressed(std::vector<CachePart>& parts, const ModelConfig& model, const LayerCache& layer,
                    const KvFormat& format, const EngineRules& engine) {
  constexpr int kAlignment = 576;
  constexpr int kMainBlock = 256;
  constexpr int kWindowBlock = 64;
  constexpr int kDenseRatio = 4;     // overlapping compression, with an indexer
  constexpr int kFp8ScaleBytes = 8;  // one e8m0 per 64 of 448, padded
  if (!model.compressed) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has compressed layers but does not say how they compress", model.name));
  }
  const int width = model.compressed->head_dim;
  const int rope = model.compressed->rope_head_dim;
  if (width <= rope) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} has entries of width {} with {} of it rotary", model.name, width, rope));
  }
  if (engine.pools == PoolKind::kCells && format.scale_bytes_per_head == 0)
    return add_compressed_cells(parts, model, layer, format);
  if (format.k.elements != 1 || format.scale_bytes_per_head != 0)
    no_layout(format, model, "its compressed entries are fp8 with a bf16 rope, or bf16");
  const bool fp8 = format.k.elements == 1 && format.k.bytes == 1;
  const std::int64_t entry =
      fp8 ? (width - rope) + 2 * rope + kFp8ScaleBytes : element_bytes(format.k, width, "an entry");
  const std::string text =
      fp8 ? fmt::format("({} + {} rope + {} scales) B", width - rope, 2 * rope, kFp8ScaleBytes)
          : fmt::format("{} x {}", width, element_text(format.k));
  const auto add = [&](CachePart part) {
    part.page_alignment = kAlignment;
    parts.push_back(std::move(part));
  };
  const int ratio = layer.compress_ratio;
  if (ratio > 0) {
    add({.kind = PartKind::kEntries,
         .k_bytes = entry,
         .tokens_per_entry = ratio,
         .block = kMainBlock,
         .formula = fmt::format("{} / {} tokens", text, ratio)});
    if (layer.indexer) {
      CachePart index = index_part(model, format, IndexKeys::kScaled, ratio);
      index.block = kMainBlock;
      add(std::move(index));
    }
  }
  if (layer.window > 0) {
    add({.kind = PartKind::kEntries,
         .k_bytes = entry,
         .window = layer.window,
         .block = kWindowBlock,
         .formula = text});
  }
  if (ratio == 0) return;
  // The compressor keeps f32 keys and scores of the tokens of unfinished entries; overlapping ones twice.
  const int copies = ratio == kDenseRatio ? 2 : 1;
  const int state_block = ratio == kDenseRatio ? 4 : 8;
  const auto add_state = [&](int state_width) {
    add({.kind = PartKind::kEntries,
         .k_bytes = std::int64_t{2} * 4 * copies * state_width,
         .window = copies * ratio,
         .block = state_block,
         .formula = fmt::format("2 x {} x {} x 4 B of compressor state", copies, state_width)});
  };
  add_state(width);
  if (layer.indexer) add_state(model.indexer ? model.indexer->head_dim : kIndexKeyWidth);
}

}  // namespace

std::vector<CachePart> cache_parts(const ModelConfig& model, const LayerCache& layer, const KvFormat& format,
                                   const EngineRules& engine, int tp) {
  std::vector<CachePart> parts;
  switch (layer.kind) {
    case AttentionKind::kMla:
      add_mla(parts, model, layer, format, engine, tp);
      break;
    case AttentionKind::kMha:
    case AttentionKind::kGqa:
    case AttentionKind::kMqa: {
      const std::int64_t heads = std::max(1, layer.kv_heads / tp);
      parts.push_back(head_part(model, format, heads, layer.head_dim_k, layer.head_dim_v));
      if (engine.window != WindowRule::kFullLength) {
        parts.back().window = layer.window;
        parts.back().chunked = layer.chunked;
      }
      break;
    }
    case AttentionKind::kCompressed:
      add_compressed(parts, model, layer, format, engine);
      break;
    case AttentionKind::kRecurrent:
      parts.push_back({.kind = PartKind::kState,
                       .k_bytes = ceil_div(layer.state_bytes, tp),
                       .formula = tp == 1
                                      ? fmt::format("{} B of state", num(layer.state_bytes))
                                      : fmt::format("{} B of state / tp {}", num(layer.state_bytes), tp)});
      break;
    case AttentionKind::kNone:
      break;
  }
  return parts;
}

std::int64_t part_bytes(const CachePart& part, std::int64_t tokens) {
  if (part.kind == PartKind::kState) return part.k_bytes;
  const std::int64_t kept = part.window > 0 ? std::min(part.window, tokens) : tokens;
  return times(ceil_div(kept, part.tokens_per_entry), part.entry_bytes());
}

}  // namespace mla::capacity
