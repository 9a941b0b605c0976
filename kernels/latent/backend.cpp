// SPDX-License-Identifier: Apache-2.0
#include "mla/backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numbers>
#include <numeric>
#include <optional>
#include <vector>

#include "common/arch_table.hpp"
#include "common/arguments.hpp"
#include "common/check.hpp"
#include "common/params.hpp"
#include "expand/checks.hpp"
#include "gemm/around.hpp"
#include "gemm/lt.hpp"
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

DType element_of(CacheFormat format) {
  return format == CacheFormat::kF16 || format == CacheFormat::kF16Split ? DType::kF16 : DType::kBF16;
}

bool is_16_bit(CacheFormat format) {
  return format == CacheFormat::kBF16 || format == CacheFormat::kF16 || format == CacheFormat::kBF16Split ||
         format == CacheFormat::kF16Split;
}

/// What the large-work kernel is built for: whole rows of 512 + 64, pages that boxes of 16 keys fill.
bool suits_large(const AttentionShape& shape) {
  return shape.dims.kv_lora_rank == 512 && shape.dims.qk_rope_head_dim == 64 && shape.block_size % 16 == 0;
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
  const bool large = !invariant && suits_large(shape) && latent::prefers_large(keys, rows, num_sms);
  const std::int64_t small_rows = invariant ? invariant_rows(shape) : latent::small_rows(keys, rows);
  const auto fits = [&](const latent::Variant& v) {
    return v.latent == shape.dims.kv_lora_rank && v.dtype == element_of(shape.cache) &&
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
    profile.probabilities = element_of(shape.cache);
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
    if (options.batch_invariant) require_invariant(shape);
    return std::make_unique<LatentPlan>(
        shape, device, table, find_variant(table.variants(), shape, device.num_sms, options.batch_invariant),
        options);
  }

  void run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
           Stream stream) const override {
    const auto& own = kernels::own_plan<LatentPlan>(plan, workspace.size(), kName);
    const kernels::AttentionParams attention = kernels::make_params(own.shape, args);
    if (attention.num_tokens == 0) return;
    const kernels::DeviceGuard guard(own.ordinal);
    const auto columns = static_cast<std::int32_t>(
        std::min<std::int64_t>(args.cache.block_table.extent[1], std::numeric_limits<std::int32_t>::max()));
    const auto attend = [&](const kernels::AttentionParams& a) {
      enqueue(own, a, columns, workspace, stream);
    };
    if (own.projections) {
      own.projections->run(own.shape, args, attention, workspace, stream, attend);
    } else {
      attend(attention);
    }
  }

 private:
  /// The attention alone, in latent space.
  static void enqueue(const LatentPlan& plan, const kernels::AttentionParams& attention, std::int32_t columns,
                      std::span<std::byte> workspace, Stream stream) {
    latent::Params params = plan.params;
    params.attention = attention;
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
  static void require_invariant(const AttentionShape& shape) {
    if (shape.space == QuerySpace::kHead) {
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("{} has the same bits in any batch in latent space only: the projections of head "
                      "space are products whose order depends on the batch",
                      kName));
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
    if (shape.q_dtype != element_of(shape.cache)) {
      return Support::no(fmt::format("queries for a cache of {} are {}, not {}", name_of(shape.cache),
                                     name_of(element_of(shape.cache)), name_of(shape.q_dtype)));
    }
    if (shape.out_dtype != DType::kBF16 && shape.out_dtype != DType::kF16 && shape.out_dtype != DType::kF32) {
      return Support::no(fmt::format("outputs are bf16, f16 or f32, not {}", name_of(shape.out_dtype)));
    }
    if (shape.space == QuerySpace::kHead && shape.out_dtype != shape.q_dtype &&
        shape.out_dtype != DType::kF32) {
      return Support::no(fmt::format("outputs behind W_UV are of the query's type, {}, or f32, not {}",
                                     name_of(shape.q_dtype), name_of(shape.out_dtype)));
    }
    return Support::yes();
  }
};

}  // namespace

const Backend& latent_backend() {
  static const LatentBackend backend;
  return backend;
}

}  // namespace mla
