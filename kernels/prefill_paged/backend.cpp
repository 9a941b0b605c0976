// SPDX-License-Identifier: Apache-2.0
#include "mla/backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "cache_ops/table.hpp"
#include "common/arch_table.hpp"
#include "common/arguments.hpp"
#include "common/cache_params.hpp"
#include "common/check.hpp"
#include "common/require.hpp"
#include "expand/engine.hpp"
#include "prefill_paged/table.hpp"
#include "prefill_paged_images.inc"

namespace mla {
namespace {

using namespace kernels;
namespace paged = kernels::prefill_paged;

constexpr const char* kName = "cuda-prefill-paged";
constexpr double kLog2E = 1.4426950408889634;
constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

/// The narrowest compiled widths for a shape's heads, their nope part included; null if none hold them.
const expand::Widths* widths_for(const MlaDims& dims) {
  static constexpr expand::Widths kWide = expand::Widths::k256x256;
  const expand::Widths* widths = expand::widths_for(dims);
  if (widths == nullptr || dims.qk_nope_head_dim <= paged::widest_nope(*widths)) return widths;
  return dims.qk_nope_head_dim <= paged::widest_nope(kWide) ? &kWide : nullptr;
}

class PagedPlan final : public Plan {
 public:
  PagedPlan(const AttentionShape& s, const Device& device)
      : shape(s),
        ordinal(device.ordinal),
        table(choose_image<paged::Table>(kImages, device.compute_capability)),
        shared(choose_image(expand::images(), device.compute_capability)),
        widths(*widths_for(s.dims)),
        tile(table->tile(widths)) {
    for (const Request& r : shape.batch) longest_q = std::max<std::int64_t>(longest_q, r.q_len);
  }
  [[nodiscard]] std::size_t workspace_bytes() const noexcept override { return 0; }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("tiles of {} queries and {} keys, {} blocks", tile.queries, tile.keys, blocks());
  }
  [[nodiscard]] std::int64_t query_tiles() const {
    return (std::max<std::int64_t>(longest_q, 1) + tile.queries - 1) / tile.queries;
  }
  [[nodiscard]] std::int64_t blocks() const {
    return static_cast<std::int64_t>(shape.batch.size()) * shape.dims.num_heads * query_tiles();
  }

  AttentionShape shape;
  int ordinal;
  const paged::Table* table;
  const expand::Table* shared;
  expand::Widths widths;
  expand::Tile tile;
  std::int64_t longest_q = 0;
};

paged::Params params_of(const PagedPlan& plan, const AttentionArgs& args, const AttentionParams& p) {
  const MlaDims& d = plan.shape.dims;
  paged::Params out;
  expand::AttendParams& a = out.attend;
  a.segments.cu_seqlens_q = args.cu_seqlens_q;
  a.segments.seq_lens = args.seq_lens;
  a.segments.requests = a.segments.count = p.num_requests;
  a.segments.mask = expand::mask_of(plan.shape.mask);
  a.q = p.q.data;
  a.q_token = p.q.stride_token;
  a.q_head = p.q.stride_head;
  a.heads = d.num_heads;
  a.nope = d.qk_nope_head_dim;
  a.rope = d.qk_rope_head_dim;
  a.v_dim = d.v_head_dim;
  a.chunk_rows = static_cast<std::int32_t>(kMost);
  a.tokens = static_cast<std::int32_t>(p.num_tokens);
  a.tiles = static_cast<std::int32_t>(plan.query_tiles());
  a.splits = 1;
  a.split_keys = plan.tile.keys;
  a.score_scale = static_cast<float>(args.softmax_scale * kLog2E);
  a.value_scale = 1.0F;
  a.out = p.out.data;
  a.out_token = p.out.stride_token;
  a.out_head = p.out.stride_head;
  a.out_f32 = p.out.dtype == DType::kF32 ? 1 : 0;
  a.lse = p.lse;
  a.lse_token = p.lse_stride_token;
  a.lse_head = p.lse_stride_head;
  out.cache = p.cache;
  out.table_columns = args.cache.block_table.extent[1];
  out.latent = d.kv_lora_rank;
  out.w_uk = p.w_uk.data;
  out.w_uk_head = p.w_uk.stride_token;
  out.w_uk_row = p.w_uk.stride_head;
  out.w_uv = p.w_uv.data;
  out.w_uv_head = p.w_uv.stride_token;
  out.w_uv_row = p.w_uv.stride_head;
  return out;
}

class PagedBackend final : public Backend {
 public:
  [[nodiscard]] const BackendInfo& info() const noexcept override {
    static const BackendInfo kInfo{
        .name = kName,
        .summary = "decompresses tile by tile in shared memory, straight from the latent pages",
        .strategy = "expanded",
        .on_device = true,
        .edges = {32, 64, 128},
        .batch_invariant = true};
    return kInfo;
  }

  [[nodiscard]] RoundingProfile rounding(const AttentionShape& shape) const override {
    return expand::rounding(shape);
  }

  [[nodiscard]] Support supports(const AttentionShape& shape, const Device& device) const override {
    if (Support fits = expand::check_shape(shape, Phase::kPrefill); !fits) return fits;
    if (cache_ops::latent_dtype(shape.cache) != shape.q_dtype) {
      return Support::no(fmt::format(
          "pages are read straight into tensor-core operands of the query's type, {}, so a cache of "
          "{} does not do",
          name_of(shape.q_dtype), name_of(shape.cache)));
    }
    if (widths_for(shape.dims) == nullptr) {
      return Support::no(fmt::format("qk_nope_head_dim is {}, but at most 256 columns of K are made",
                                     shape.dims.qk_nope_head_dim));
    }
    if (Support image = has_image<paged::Table>(kImages, device); !image) return image;
    const PagedPlan plan(shape, device);
    const auto shared = static_cast<std::int64_t>(plan.tile.shared_bytes);
    if (device.shared_memory_per_block > 0 && shared > device.shared_memory_per_block) {
      return Support::no(fmt::format("a tile takes {} bytes of shared memory, but a block of '{}' has {}",
                                     shared, device.name, device.shared_memory_per_block));
    }
    if (plan.blocks() > kMost) {
      return Support::no(fmt::format("the grid would have {} blocks, but holds {}", plan.blocks(), kMost));
    }
    return Support::yes();
  }

  [[nodiscard]] std::unique_ptr<Plan> plan(const AttentionShape& shape, const Device& device,
                                           const PlanOptions&) const override {
    require(*this, shape, device);
    return std::make_unique<PagedPlan>(shape, device);
  }

  void run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
           Stream stream) const override {
    const auto& own = own_plan<PagedPlan>(plan, workspace.size(), kName);
    const AttentionParams p = make_params(own.shape, args);
    expand::check_arguments(own.shape, p);
    if (!rows_aligned(p.cache, 16, 16)) refuse("the rows of the cache must start at multiples of 16 bytes");
    if (p.num_tokens == 0) return;
    const DeviceGuard guard(own.ordinal);
    own.shared->tail(expand::tail_of(args, p, own.shape.dims.v_head_dim), stream.handle);
    own.table->attend(params_of(own, args, p), own.widths, own.shape.q_dtype, stream.handle);
  }
};

}  // namespace

const Backend& prefill_paged_backend() {
  static const PagedBackend backend;
  return backend;
}

}  // namespace mla
