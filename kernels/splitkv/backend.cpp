// SPDX-License-Identifier: Apache-2.0
#include "mla/backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numbers>
#include <optional>
#include <vector>

#include "common/absorbed_types.hpp"
#include "common/arch_table.hpp"
#include "common/arguments.hpp"
#include "common/check.hpp"
#include "common/visible_keys.hpp"
#include "expand/checks.hpp"
#include "gemm/around.hpp"
#include "gemm/lt.hpp"
#include "mla/error.hpp"
#include "splitkv/heuristics.hpp"
#include "splitkv/table.hpp"
#include "splitkv_images.inc"

namespace mla {
namespace {

namespace splitkv = kernels::splitkv;

constexpr const char* kName = "cuda-splitkv";
constexpr int kMostStages = 6;

bool is_fp8(CacheFormat format) {
  return format == CacheFormat::kFp8 || format == CacheFormat::kFp8DsMla;
}

/// Rows of the longest request; with top-k a unit is a token.
std::int64_t most_rows(const AttentionShape& shape) {
  std::int64_t queries = 1;
  if (shape.topk == 0) {
    for (const Request& r : shape.batch) queries = std::max<std::int64_t>(queries, r.q_len);
  }
  return queries * shape.dims.num_heads;
}

struct Choice {
  const splitkv::Variant* variant = nullptr;
  splitkv::Ring ring;
};

/// The kernel for a shape: the fewest rows that hold a request, or the most there are, within the shared
/// memory.
Choice choose(const splitkv::Table& table, const AttentionShape& shape, std::int64_t limit) {
  Choice best;
  const std::int64_t rows = most_rows(shape);
  for (const auto variants : table.variants) {
    for (const splitkv::Variant& v : variants()) {
      if (v.latent != shape.dims.kv_lora_rank || v.dtype != kernels::element_of(shape.cache) ||
          v.fp8 != is_fp8(shape.cache)) {
        continue;
      }
      const splitkv::Ring ring =
          splitkv::choose_ring(static_cast<std::int64_t>(v.fixed_bytes),
                               static_cast<std::int64_t>(v.stage_bytes), limit, v.blocks, kMostStages);
      if (ring.blocks == 0) continue;
      const bool better = best.variant == nullptr ||
                          (best.variant->rows < rows ? v.rows > best.variant->rows
                                                     : v.rows >= rows && v.rows < best.variant->rows);
      if (better) best = {&v, ring};
    }
  }
  return best;
}

class SplitkvPlan final : public Plan {
 public:
  SplitkvPlan(const AttentionShape& s, const Device& device, const splitkv::Table& t, const Choice& choice,
              int splits)
      : shape(s), ordinal(device.ordinal), table(t), variant(*choice.variant) {
    params.stages = choice.ring.stages;
    params.rows = variant.rows;
    params.tile = variant.tile;
    params.units =
        static_cast<std::int32_t>(s.topk > 0 ? s.num_tokens() : static_cast<std::int64_t>(s.batch.size()));
    params.row_groups = static_cast<std::int32_t>((most_rows(s) + variant.rows - 1) / variant.rows);
    params.splits = splits;
    const std::int64_t parts =
        splits > 0 ? std::int64_t{params.units} * splits : choose_parts(device.num_sms * choice.ring.blocks);
    if (2 * parts * params.row_groups > std::numeric_limits<std::int32_t>::max()) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{}: {} parts of {} row groups are more blocks than half a grid (2^30)", kName,
                              parts, params.row_groups));
    }
    params.parts = static_cast<std::int32_t>(parts);
    const std::int64_t cuts = splits > 0 ? splits - 1 : parts - 1;
    const std::int64_t slots = cuts == 0 ? 0 : splitkv::slot_count(parts, splits > 0);
    partial_rows = slots * params.row_groups * variant.rows;
    sums_at = place(partial_rows * 2 * 4);
    partials_at = place(partial_rows * variant.latent * 4);
    if (s.space == QuerySpace::kHead) projections.emplace(s, total_);
  }

  [[nodiscard]] std::size_t workspace_bytes() const noexcept override {
    return static_cast<std::size_t>(total_);
  }

  [[nodiscard]] std::string describe() const override {
    const std::string cut = params.splits > 0 ? fmt::format("{} splits a request", params.splits)
                                              : fmt::format("{} even parts", params.parts);
    return fmt::format("{} rows x {} keys, {} stages, {} x {} row group{}{}", variant.rows, variant.tile,
                       params.stages, cut, params.row_groups, params.row_groups == 1 ? "" : "s",
                       shape.space == QuerySpace::kHead ? ", between two projections" : "");
  }

  AttentionShape shape;
  int ordinal;
  const splitkv::Table& table;
  const splitkv::Variant& variant;
  splitkv::Params params;  // without the arguments of a call
  std::int64_t partial_rows = 0;
  std::int64_t sums_at = 0, partials_at = 0;        // offsets into the workspace
  std::optional<kernels::Projections> projections;  // head space

 private:
  std::int64_t total_ = 0;
  std::int64_t place(std::int64_t bytes) {
    const std::int64_t at = total_;
    total_ += (bytes + 255) / 256 * 256;
    return at;
  }
  [[nodiscard]] std::int64_t choose_parts(int num_sms) const {
    std::vector<std::int64_t> tiles;
    const auto add = [&](std::int64_t keys) {
      tiles.push_back(std::max<std::int64_t>(1, (keys + variant.tile - 1) / variant.tile));
    };
    for (const Request& r : shape.batch) {
      if (shape.topk == 0) {
        add(kernels::visible_keys(shape, r));
      } else {
        for (int i = 0; i < r.q_len; ++i) add(shape.topk);
      }
    }
    return splitkv::choose_parts({.tiles = tiles,
                                  .row_groups = params.row_groups,
                                  .slots = num_sms,
                                  .least_tiles = splitkv::least_tiles(variant.tile)});
  }
};

class SplitkvBackend final : public Backend {
 public:
  [[nodiscard]] const BackendInfo& info() const noexcept override {
    static const BackendInfo kInfo{
        .name = kName,
        .summary = "absorbed, two stages: parts of the keys on tensor cores, then a merge",
        .strategy = "absorbed",
        .on_device = true,
        .edges = {32, 48, 64, 96},
        .batch_invariant = false};
    return kInfo;
  }

  [[nodiscard]] RoundingProfile rounding(const AttentionShape& shape) const override {
    RoundingProfile profile;
    profile.probabilities = kernels::element_of(shape.cache);
    if (shape.space == QuerySpace::kHead) profile.absorbed_query = profile.latent_output = shape.q_dtype;
    return profile;
  }

  [[nodiscard]] Support supports(const AttentionShape& shape, const Device& device) const override {
    const MlaDims& d = shape.dims;
    if (Support separate = without_shared_prefix(shape); !separate) return separate;
    if (const Support types = supports_types(shape); !types) return types;
    if (d.kv_lora_rank != 128 && d.kv_lora_rank != 256 && d.kv_lora_rank != 512) {
      return Support::no(fmt::format("kv_lora_rank is 128, 256 or 512, not {}", d.kv_lora_rank));
    }
    if (d.qk_rope_head_dim > 64 || d.qk_rope_head_dim % 16 != 0) {
      return Support::no(
          fmt::format("qk_rope_head_dim is a multiple of 16 up to 64, not {}", d.qk_rope_head_dim));
    }
    const CacheLayout layout = cache_layout(shape.cache, d);
    if (!layout.split() && layout.rope_offset % 16 != 0) {
      return Support::no(
          fmt::format("the rotary part of {} rows with kv_lora_rank {} starts at byte {}, but 16-byte copies "
                      "need a multiple "
                      "of 16",
                      name_of(shape.cache), d.kv_lora_rank, layout.rope_offset));
    }
    if (shape.space == QuerySpace::kHead) {
      if (Support widths = kernels::expand::check_multiples(d); !widths) return widths;
      if (device.origin == DeviceOrigin::kReal) {
        if (Support products = kernels::lt::available(); !products) return products;
      }
    }
    if (Support image = kernels::has_image<splitkv::Table>(kernels::kImages, device); !image) return image;
    if (!choose_for(shape, device).variant) {
      return Support::no(fmt::format("kv_lora_rank {} needs more shared memory than the {} bytes of '{}'",
                                     d.kv_lora_rank, shared_limit(device), device.name));
    }
    return Support::yes();
  }

  [[nodiscard]] std::unique_ptr<Plan> plan(const AttentionShape& shape, const Device& device,
                                           const PlanOptions& options) const override {
    kernels::require(*this, shape, device);
    return std::make_unique<SplitkvPlan>(shape, device, table_for(device), choose_for(shape, device),
                                         options.num_splits);
  }

  void run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
           Stream stream) const override {
    const auto& own = kernels::own_plan<SplitkvPlan>(plan, workspace.size(), kName);
    const kernels::AttentionParams attention = kernels::make_params(own.shape, args);
    if (attention.num_tokens == 0) return;
    const kernels::DeviceGuard guard(own.ordinal);
    const auto run_attention = [&](const kernels::AttentionParams& a) { attend(own, a, workspace, stream); };
    if (own.projections) {
      own.projections->run(own.shape, args, attention, workspace, stream, run_attention);
    } else {
      run_attention(attention);
    }
  }

 private:
  /// The attention alone, in latent space.
  static void attend(const SplitkvPlan& plan, const kernels::AttentionParams& attention,
                     std::span<std::byte> workspace, Stream stream) {
    splitkv::Params params = plan.params;
    params.attention = attention;
    kernels::check_alignment(attention, kName);
    const kernels::CacheParams& cache = attention.cache;
    params.latent_block = kernels::narrow_stride(kName, cache.latent_block_stride, "the cache's blocks");
    params.latent_row = kernels::narrow_stride(kName, cache.latent_row_stride, "the cache's rows");
    params.rope_block = kernels::narrow_stride(kName, cache.rope_block_stride, "the rotary part's blocks");
    params.rope_row = kernels::narrow_stride(kName, cache.rope_row_stride, "the rotary part's rows");
    params.scale_log2 = attention.scale * cache.scale * std::numbers::log2e_v<float>;
    params.value_scale = cache.scale;
    params.partial_sum = reinterpret_cast<float2*>(workspace.data() + plan.sums_at);
    params.partial_out = reinterpret_cast<float*>(workspace.data() + plan.partials_at);
    plan.variant.run(params, stream.handle);
    if (plan.partial_rows > 0) plan.table.merge(params, stream.handle);
  }

  static Support supports_types(const AttentionShape& shape) {
    if (shape.cache == CacheFormat::kF32 || shape.cache == CacheFormat::kF64) {
      return Support::no(fmt::format("the cache has 16-bit or fp8 rows, not {}", name_of(shape.cache)));
    }
    return kernels::check_absorbed_types(shape);
  }

  static const splitkv::Table& table_for(const Device& device) {
    return *kernels::choose_image<splitkv::Table>(kernels::kImages, device.compute_capability);
  }
  static std::int64_t shared_limit(const Device& device) {
    return device.shared_memory_per_block > 0 ? device.shared_memory_per_block
                                              : 99 * 1024;  // the least since 8.0
  }
  static Choice choose_for(const AttentionShape& shape, const Device& device) {
    return choose(table_for(device), shape, shared_limit(device));
  }
};

}  // namespace

const Backend& splitkv_backend() {
  static const SplitkvBackend backend;
  return backend;
}

}  // namespace mla
