// SPDX-License-Identifier: Apache-2.0
#include "mla/backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numbers>
#include <numeric>
#include <optional>
#include <vector>

#include "common/absorbed_types.hpp"
#include "common/arch_table.hpp"
#include "common/arguments.hpp"
#include "common/check.hpp"
#include "common/params.hpp"
#include "expand/checks.hpp"
#include "gemm/around.hpp"
#include "gemm/lt.hpp"
#include "latent/cascade.hpp"
#include "latent/counters.hpp"
#include "latent/heuristics.hpp"
#include "latent/table.hpp"
#include "latent_images.inc"
#include "mla/error.hpp"

namespace mla {
namespace {

namespace latent = kernels::latent;

constexpr const char* kName = "cuda-latent";
constexpr std::int64_t kSharedBytes = 227 * 1024;

bool is_16_bit(CacheFormat format) {
  return format == CacheFormat::kBF16 || format == CacheFormat::kF16 || format == CacheFormat::kBF16Split ||
         format == CacheFormat::kF16Split;
}

/// Rows of a tile where the bits are to be the same in any batch: by the heads alone.
std::int64_t invariant_rows(const AttentionShape& shape) {
  return shape.dims.num_heads > 16 ? 32 : 16;
}

const latent::Variant& find_variant(std::span<const latent::Variant> variants, const AttentionShape& shape,
                                    std::int64_t num_sms, bool invariant) {
  // For the same bits in any batch the choice depends on nothing that the batch has a part in.
  const std::vector<std::int64_t> keys = latent::keys_of(shape);
  const std::int64_t rows = latent::most_rows(shape);
  const bool large = !invariant && latent::suits_large(shape) && latent::prefers_large(keys, rows, num_sms);
  const std::int64_t small_rows = invariant ? invariant_rows(shape) : latent::small_rows(keys, rows);
  const auto fits = [&](const latent::Variant& v) {
    return v.latent == shape.dims.kv_lora_rank && v.dtype == kernels::element_of(shape.cache) &&
           (v.family == latent::Family::kLarge) == large &&
           v.rows == (large ? (rows > 64 ? 128 : 64) : small_rows);
  };
  return *std::ranges::find_if(variants, fits);
}

class LatentPlan final : public Plan {
 public:
  LatentPlan(const AttentionShape& s, const Device& device, const latent::Table& t, const latent::Variant& v,
             const PlanOptions& options)
      : shape(s), ordinal(device.ordinal), variant(v) {
    params.row_groups = static_cast<std::int32_t>((latent::most_rows(s) + v.rows - 1) / v.rows);
    const std::vector<std::int64_t> keys = latent::keys_of(s);
    const latent::Work work{.keys = keys,
                            .row_groups = params.row_groups,
                            .num_sms = device.num_sms,
                            .splits = options.num_splits};
    const bool large = v.family == latent::Family::kLarge;
    const latent::Clusters clusters = large                     ? latent::choose_large(work, v.rows / 64)
                                      : options.batch_invariant ? latent::choose_invariant(work)
                                                                : latent::choose_small(work);
    params.clusters = clusters.count;
    params.cluster_size = clusters.size;
    params.per_request = clusters.per_request;
    params.by_per_request = kernels::FastDivide(std::max(1, clusters.per_request));
    params.by_stride = kernels::FastDivide(std::max(1, clusters.per_request) * clusters.size);
    params.by_heads = kernels::FastDivide(s.dims.num_heads);

    std::int64_t used = 0;
    const auto place = [&used](std::int64_t bytes) {
      const std::int64_t at = used;
      used += (bytes + 255) / 256 * 256;
      return at;
    };
    const std::int64_t shared_by =
        v.family == latent::Family::kLarge ? params.row_groups : 1;  // see large::Call
    const bool whole = clusters.per_request == 1 || clusters.count * shared_by == 1;
    if (options.batch_invariant) params.part_groups = latent::kFixedPartGroups;
    params.slots = options.batch_invariant              ? static_cast<std::int32_t>(latent::fixed_parts(keys))
                   : clusters.per_request > 0 && !large ? clusters.count
                                                        : clusters.count * 2;
    const std::int64_t rows = whole && !options.batch_invariant ? 0 : latent::slot_count(params) * v.rows;
    const std::int64_t ctas = std::int64_t{clusters.count} * params.row_groups * clusters.size;
    const bool even = clusters.per_request == 0 && !options.batch_invariant;
    const std::int64_t counted = even ? ctas : std::ssize(keys) * params.row_groups * clusters.size;
    // All rows of one query see the same keys. Few keys are there before the CTAs of a pair have found each other.
    constexpr std::int64_t kPairKeys = 2048;
    params.by_pairs = !large && v.rows == 32 && params.row_groups % 2 == 0 &&
                      std::reduce(keys.begin(), keys.end()) > kPairKeys &&
                      std::ranges::all_of(s.batch, [](const Request& r) { return r.q_len <= 1; });
    params.may_wait = ctas <= std::min<std::int64_t>(device.num_sms, latent::kMostParts) &&
                      counted * latent::kCounterWords <= latent::kCountersPerPlan;
    partials_at = place(rows * v.latent * 4);
    sums_at = place(rows * clusters.size * 2 * 4);
    if (s.space == QuerySpace::kHead) projections.emplace(s, used);
    bytes_ = used;
    const kernels::DeviceGuard guard(ordinal);
    counters = t.counters();
  }

  [[nodiscard]] std::size_t workspace_bytes() const noexcept override {
    return static_cast<std::size_t>(bytes_);
  }

  [[nodiscard]] std::string describe() const override {
    return fmt::format("{} rows, {} clusters of {} x {} row group{}, {}{}", variant.rows, params.clusters,
                       params.cluster_size, params.row_groups, params.row_groups == 1 ? "" : "s",
                       params.per_request > 0   ? fmt::format("{} a request", params.per_request)
                       : params.part_groups > 0 ? "parts by length alone"
                                                : "even shares",
                       projections ? ", between two projections" : "");
  }

  AttentionShape shape;
  int ordinal;
  const latent::Variant& variant;
  latent::Params params;  // without the arguments of a call
  std::int32_t* counters = nullptr;
  latent::CounterPlaces places;
  std::int64_t partials_at = 0, sums_at = 0;        // offsets into the workspace
  std::optional<kernels::Projections> projections;  // head space

 private:
  std::int64_t bytes_ = 0;
};

/// A call with shared prefixes: two plans without, and what stands around them.
class CascadePlan final : public Plan {
 public:
  CascadePlan(const AttentionShape& s, const Device& device, const latent::Table& t,
              const PlanOptions& options)
      : shape(s), ordinal(device.ordinal), table(t), cascade(choose_cascade(s, device, options)) {
    const auto sub_plan = [&](const AttentionShape& part) {
      return std::make_unique<LatentPlan>(part, device, t,
                                          find_variant(t.variants(), part, device.num_sms, false), options);
    };
    prefix = sub_plan(cascade.prefix);
    own = sub_plan(cascade.own);
    const auto place = [this](std::int64_t bytes) {
      const std::int64_t at = bytes_;
      bytes_ += (bytes + 255) / 256 * 256;
      return at;
    };
    const std::int64_t stretches = std::ssize(cascade.prefix.batch), requests = std::ssize(s.batch);
    const std::int64_t rows = cascade.rows * s.dims.num_heads;
    slices_at = place((stretches + requests) * std::int64_t{sizeof(latent::Slice)});
    sources_at = place(requests * std::int64_t{sizeof(latent::Source)});
    stretch_table_at = place(stretches * cascade.stretch_columns * 4);
    own_table_at = place(requests * cascade.own_columns * 4);
    lse_at = place(rows * 4);
    parts_at = place(rows * s.dims.kv_lora_rank * 4);
    inner_at = place(static_cast<std::int64_t>(std::max(prefix->workspace_bytes(), own->workspace_bytes())));
    if (s.space == QuerySpace::kHead) projections.emplace(s, bytes_);
  }

  [[nodiscard]] std::size_t workspace_bytes() const noexcept override {
    return static_cast<std::size_t>(bytes_);
  }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("{} shared prefix{} in {} stretches: {}; behind: {}", cascade.groups.size(),
                       cascade.groups.size() == 1 ? "" : "es", cascade.prefix.batch.size(),
                       prefix->describe(), own->describe());
  }

  AttentionShape shape;
  int ordinal;
  const latent::Table& table;
  latent::Cascade cascade;
  std::unique_ptr<LatentPlan> prefix, own;
  std::int64_t slices_at = 0, sources_at = 0, stretch_table_at = 0, own_table_at = 0, lse_at = 0,
               parts_at = 0,
               inner_at = 0;                        // offsets into the workspace
  std::optional<kernels::Projections> projections;  // head space

 private:
  /// Stretches only where they are for the large-work kernel, which has no other way to end a request soon.
  static latent::Cascade choose_cascade(const AttentionShape& s, const Device& device,
                                        const PlanOptions& options) {
    if (options.num_splits == 0 && latent::suits_large(s)) {
      latent::Cascade cut = latent::make_cascade(s, device.num_sms, false);
      if (latent::prefers_large(latent::keys_of(cut.prefix), latent::most_rows(cut.prefix), device.num_sms)) {
        return cut;
      }
    }
    return latent::make_cascade(s, device.num_sms, true);
  }

  std::int64_t bytes_ = 0;
};

class LatentBackend final : public Backend {
 public:
  [[nodiscard]] const BackendInfo& info() const noexcept override {
    static const BackendInfo kInfo{
        .name = kName,
        .summary =
            "absorbed, one launch for Hopper: multiprocessors that share a request merge in the same launch",
        .strategy = "absorbed",
        .on_device = true,
        .edges = {8, 32, 256},
        .batch_invariant = false,
        .batch_invariant_option = true};
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
    if (shape.phase != Phase::kDecode) return Support::no("it is a decode kernel; the phase is prefill");
    if (shape.topk > 0) {
      return Support::no(fmt::format("topk is {}, but it walks over all keys or a window", shape.topk));
    }
    if (const Support types = supports_types(shape); !types) return types;
    if (d.kv_lora_rank != 256 && d.kv_lora_rank != 512) {
      return Support::no(fmt::format("kv_lora_rank is 256 or 512, not {}", d.kv_lora_rank));
    }
    if (d.qk_rope_head_dim > 64 || d.qk_rope_head_dim % 16 != 0) {
      return Support::no(
          fmt::format("qk_rope_head_dim is a multiple of 16 up to 64, not {}", d.qk_rope_head_dim));
    }
    constexpr std::int64_t kMostRows = std::int64_t{16} * 65535;
    if (latent::most_rows(shape) > kMostRows) {
      return Support::no(fmt::format("a request has at most {} rows (queries x heads), not {}", kMostRows,
                                     latent::most_rows(shape)));
    }
    if (Support cascade = latent::supports_cascade(shape, kMostRows); !cascade) return cascade;
    if (shape.space == QuerySpace::kHead) {
      if (Support widths = kernels::expand::check_multiples(d); !widths) return widths;
      if (device.origin == DeviceOrigin::kReal) {
        if (Support products = kernels::lt::available(); !products) return products;
      }
    }
    if (Support image = kernels::has_image<latent::Table>(kernels::kImages, device); !image) return image;
    if (device.shared_memory_per_block > 0 && device.shared_memory_per_block < kSharedBytes) {
      return Support::no(fmt::format("a block wants {} bytes of shared memory; '{}' has {}", kSharedBytes,
                                     device.name, device.shared_memory_per_block));
    }
    return Support::yes();
  }

  [[nodiscard]] std::unique_ptr<Plan> plan(const AttentionShape& shape, const Device& device,
                                           const PlanOptions& options) const override {
    kernels::require(*this, shape, device);
    const latent::Table& table =
        *kernels::choose_image<latent::Table>(kernels::kImages, device.compute_capability);
    if (options.batch_invariant) require_invariant(shape, options.prefix_reads);
    if (!shape.shared.empty() && !options.batch_invariant &&
        (options.prefix_reads == PrefixReads::kOnce ||
         (options.prefix_reads == PrefixReads::kAuto && latent::cascade_pays(shape, device.num_sms)))) {
      return std::make_unique<CascadePlan>(shape, device, table, options);
    }
    return std::make_unique<LatentPlan>(
        shape, device, table, find_variant(table.variants(), shape, device.num_sms, options.batch_invariant),
        options);
  }

  void run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
           Stream stream) const override {
    if (const auto* cascade = dynamic_cast<const CascadePlan*>(&plan); cascade != nullptr) {
      run_cascade(*cascade, args, workspace, stream);
      return;
    }
    const auto& own = kernels::own_plan<LatentPlan>(plan, workspace.size(), kName);
    const kernels::AttentionParams attention = kernels::make_params(own.shape, args);
    if (attention.num_tokens == 0) return;
    const kernels::DeviceGuard guard(own.ordinal);
    const auto attend = [&](const kernels::AttentionParams& a) {
      enqueue(own, a, columns_of(args), workspace, stream);
    };
    if (own.projections) {
      own.projections->run(own.shape, args, attention, workspace, stream, attend);
    } else {
      attend(attention);
    }
  }

 private:
  /// Of the call's block table.
  static std::int32_t columns_of(const AttentionArgs& args) {
    return static_cast<std::int32_t>(
        std::min<std::int64_t>(args.cache.block_table.extent[1], std::numeric_limits<std::int32_t>::max()));
  }

  static void run_cascade(const CascadePlan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
                          Stream stream) {
    kernels::check_workspace(workspace.size(), plan.workspace_bytes(), kName);
    const kernels::AttentionParams attention = kernels::make_params(plan.shape, args);
    if (attention.num_tokens == 0) return;
    const kernels::DeviceGuard guard(plan.ordinal);
    const auto attend = [&](const kernels::AttentionParams& a) {
      enqueue_cascade(plan, a, columns_of(args), workspace, stream);
    };
    if (plan.projections) {
      plan.projections->run(plan.shape, args, attention, workspace, stream, attend);
    } else {
      attend(attention);
    }
  }

  /// The attention with shared prefixes, in latent space: four launches.
  static void enqueue_cascade(const CascadePlan& plan, const kernels::AttentionParams& attention,
                              std::int32_t columns, std::span<std::byte> workspace, Stream stream) {
    kernels::check_alignment(attention, kName);
    const latent::Cascade& cascade = plan.cascade;
    auto* const slices = reinterpret_cast<latent::Slice*>(workspace.data() + plan.slices_at);
    auto* const sources = reinterpret_cast<latent::Source*>(workspace.data() + plan.sources_at);
    auto* const stretch_table = reinterpret_cast<std::int32_t*>(workspace.data() + plan.stretch_table_at);
    auto* const own_table = reinterpret_cast<std::int32_t*>(workspace.data() + plan.own_table_at);
    auto* const lse = reinterpret_cast<float*>(workspace.data() + plan.lse_at);
    auto* const parts = reinterpret_cast<float*>(workspace.data() + plan.parts_at);

    const auto stretches = static_cast<std::int32_t>(cascade.prefix.batch.size());
    latent::CutParams cut;
    cut.attention = attention;
    cut.table_columns = columns;
    cut.num_groups = static_cast<std::int32_t>(cascade.groups.size());
    cut.num_stretches = stretches;
    cut.own_row = cascade.own_row;
    cut.stretch_columns = cascade.stretch_columns;
    cut.own_columns = cascade.own_columns;
    cut.slices = slices;
    cut.stretch_table = stretch_table;
    cut.own_table = own_table;
    cut.sources = sources;
    std::ranges::copy(cascade.groups, cut.groups);
    plan.table.cut(cut, stream.handle);

    kernels::AttentionParams part = attention;
    const std::int64_t heads = attention.num_heads, latent = attention.latent;
    part.out = {parts, DType::kF32, heads * latent, latent, 1};
    part.lse = lse;
    part.lse_stride_token = heads;
    part.lse_stride_head = 1;
    part.num_tokens = 0;         // what belongs to no request is join's to write
    part.cu_seqlens_stride = 0;  // the lengths are those of the slices
    const auto attend = [&](const LatentPlan& inner, const latent::Slice* from, std::int32_t count,
                            const std::int32_t* table, std::int32_t table_columns) {
      part.num_requests = count;
      part.causal = inner.shape.mask.causal;
      part.cache.block_table = table;
      part.cache.table_stride_request = table_columns;
      part.cache.table_stride_column = 1;
      enqueue(inner, part, table_columns, workspace.subspan(static_cast<std::size_t>(plan.inner_at)), stream,
              from);
    };
    attend(*plan.own, slices + stretches, attention.num_requests, own_table, cascade.own_columns);
    attend(*plan.prefix, slices, stretches, stretch_table, cascade.stretch_columns);

    latent::JoinParams join;
    join.attention = attention;
    join.most_queries = cascade.most_queries;
    join.sources = sources;
    join.parts = parts;
    join.lse = lse;
    plan.table.join(join, stream.handle);
  }

  /// The attention alone, in latent space.
  static void enqueue(const LatentPlan& plan, const kernels::AttentionParams& attention, std::int32_t columns,
                      std::span<std::byte> workspace, Stream stream, const latent::Slice* slices = nullptr) {
    latent::Params params = plan.params;
    params.attention = attention;
    params.slices = slices;
    kernels::check_alignment(attention, kName);
    const kernels::CacheParams& cache = attention.cache;
    params.latent_block = kernels::narrow_stride(kName, cache.latent_block_stride, "the cache's blocks");
    params.latent_row = kernels::narrow_stride(kName, cache.latent_row_stride, "the cache's rows");
    params.rope_block = kernels::narrow_stride(kName, cache.rope_block_stride, "the rotary part's blocks");
    params.rope_row = kernels::narrow_stride(kName, cache.rope_row_stride, "the rotary part's rows");
    // 32 keys from a multiple of 32 on lie side by side, each with its rotary channels right behind the others.
    params.by_units = plan.variant.family == latent::Family::kSmall && attention.window == 0 &&
                      attention.rope == 64 && cache.block_size % 32 == 0 &&
                      cache.rope == cache.latent + std::int64_t{attention.latent} * 2 &&
                      cache.rope_row_stride == cache.latent_row_stride &&
                      cache.rope_block_stride == cache.latent_block_stride;
    params.by_pairs = params.by_pairs && params.by_units;
    params.scale_log2 = attention.scale * std::numbers::log2e_v<float>;
    params.table_columns = columns;
    params.partials = reinterpret_cast<float*>(workspace.data() + plan.partials_at);
    params.sums = reinterpret_cast<float2*>(workspace.data() + plan.sums_at);
    params.counters =
        plan.counters + std::int64_t{plan.places.place_for(workspace.data())} * latent::kCountersPerPlan;
    plan.variant.run(params, stream.handle);
  }

  /// What stands in the way of the same bits in any batch.
  static void require_invariant(const AttentionShape& shape, PrefixReads reads) {
    if (shape.space == QuerySpace::kHead) {
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("{} has the same bits in any batch in latent space only: the projections of head "
                      "space are products whose order depends on the batch",
                      kName));
    }
    if (!shape.shared.empty() && reads == PrefixReads::kOnce) {
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("{} has the same bits in any batch only where requests are computed by themselves, not "
                      "with the prefix of {} tokens that {} of them share",
                      kName, shape.shared.front().tokens, shape.shared.front().count));
    }
    const std::int64_t tile = invariant_rows(shape);
    const std::int64_t units = std::ssize(shape.batch) * ((latent::most_rows(shape) + tile - 1) / tile);
    if (units > latent::kCountersPerPlan) {
      throw Error(ErrorCode::kUnsupported,
                  fmt::format("{} has the same bits in any batch for at most {} requests x tiles of {} rows, "
                              "not {}",
                              kName, latent::kCountersPerPlan, tile, units));
    }
  }

  static Support supports_types(const AttentionShape& shape) {
    if (!is_16_bit(shape.cache)) {
      return Support::no(fmt::format("the cache has 16-bit rows, not {}", name_of(shape.cache)));
    }
    return kernels::check_absorbed_types(shape);
  }
};

}  // namespace

const Backend& latent_backend() {
  static const LatentBackend backend;
  return backend;
}

}  // namespace mla
