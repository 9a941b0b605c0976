// SPDX-License-Identifier: Apache-2.0
#include "cpu_backend.hpp"

#include <fmt/format.h>

#include "check.hpp"
#include "gather.hpp"
#include "mla/error.hpp"
#include "tensor_io.hpp"

namespace mla::reference::detail {
namespace {

DType arithmetic_of(const AttentionShape& shape) {
  return shape.q_dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

/// Latent rows of Scalar that are in memory at once, unless one request needs more.
constexpr std::int64_t kGatheredBytes = std::int64_t{256} << 20;

class CpuPlan final : public Plan {
 public:
  CpuPlan(const Backend& owner, AttentionShape shape, PlanOptions options)
      : owner_(&owner), shape_(std::move(shape)), options_(options) {}
  /// The forms allocate what they need by the true lengths of the call.
  [[nodiscard]] std::size_t workspace_bytes() const noexcept override { return 0; }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("{} in {}, {} split{}, {} threads", owner_->info().strategy,
                       name_of(arithmetic_of(shape_)), options_.num_splits,
                       options_.num_splits == 1 ? "" : "s",
                       options_.threads == 0 ? "all" : fmt::to_string(options_.threads));
  }
  [[nodiscard]] const Backend* owner() const noexcept { return owner_; }
  [[nodiscard]] const AttentionShape& shape() const noexcept { return shape_; }
  [[nodiscard]] const PlanOptions& options() const noexcept { return options_; }

 private:
  const Backend* owner_;
  AttentionShape shape_;
  PlanOptions options_;
};

}  // namespace

RoundingProfile CpuBackend::rounding(const AttentionShape& shape) const {
  const DType type = arithmetic_of(shape);
  RoundingProfile profile;
  profile.accumulate = profile.probabilities = profile.partials = type;
  profile.absorbed_query = profile.latent_output = profile.expanded_kv = type;
  return profile;
}

Support CpuBackend::supports(const AttentionShape& shape, const Device& device) const {
  try {
    validate(shape);
    static_cast<void>(cache_layout(shape.cache, shape.dims));
  } catch (const Error& error) {
    return Support::no(error.what());
  }
  if (device.vendor != "cpu") {
    return Support::no(fmt::format("{} runs on the CPU, but device {} is of vendor '{}'", info_.name,
                                   device.name, device.vendor));
  }
  for (const auto& [what, dtype] : {std::pair{"q", shape.q_dtype}, std::pair{"out", shape.out_dtype}}) {
    if (!is_cpu_dtype(dtype)) {
      return Support::no(
          fmt::format("{} is {}, but {} takes {}", what, name_of(dtype), info_.name, kCpuDtypes));
    }
  }
  return supports_space(shape.space);
}

std::unique_ptr<Plan> CpuBackend::plan(const AttentionShape& shape, const Device& device,
                                       const PlanOptions& options) const {
  if (const Support support = supports(shape, device); !support)
    throw Error(ErrorCode::kUnsupported, support.why);
  // Parts may well be empty, but each costs its own results.
  constexpr int kMostSplits = 1024, kMostThreads = 4096;
  require_between("num_splits", options.num_splits, 0, kMostSplits);
  require_between("threads", options.threads, 0, kMostThreads);
  PlanOptions chosen = options;
  // One part: rows of different heads and requests keep the threads busy, and fewer roundings are better.
  if (chosen.num_splits == 0) chosen.num_splits = 1;
  return std::make_unique<CpuPlan>(*this, shape, chosen);
}

void CpuBackend::run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> /*workspace*/,
                     Stream /*stream*/) const {
  const auto* own = dynamic_cast<const CpuPlan*>(&plan);
  if (own == nullptr || own->owner() != this) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the plan ({}) was not made by {}", plan.describe(), info_.name));
  }
  if (arithmetic_of(own->shape()) == DType::kF64) {
    run_as<double>(own->shape(), own->options(), args);
  } else {
    run_as<float>(own->shape(), own->options(), args);
  }
}

template <class Scalar>
void CpuBackend::run_as(const AttentionShape& shape, const PlanOptions& options,
                        const AttentionArgs& args) const {
  const MlaDims& dims = shape.dims;
  const bool latent = shape.space == QuerySpace::kLatent;
  const CallBatch call = check_args(shape, args);
  Batch batch = make_batch(call.requests, {shape.mask, call.token_index, shape.topk});
  require_readable(batch, args.cache, cache_layout(shape.cache, dims));  // before anything is written
  const std::int64_t H = dims.num_heads, L = dims.kv_lora_rank;
  const std::int64_t q_width = latent ? dims.latent_width() : dims.head_width();
  const Input<Scalar> q = load_tensor<Scalar>(args.q, batch.tokens, H, q_width, options.threads);
  const auto load_weight = [&](const ConstTensorRef& weight, std::int64_t width) {
    return latent ? Input<Scalar>(std::vector<Scalar>{})
                  : load_tensor<Scalar>(weight, H, width, L, options.threads);
  };
  const Input<Scalar> w_uk = load_weight(args.w_uk, dims.qk_nope_head_dim);
  const Input<Scalar> w_uv = load_weight(args.w_uv, dims.v_head_dim);
  const auto row_bytes = static_cast<std::int64_t>(sizeof(Scalar)) * dims.latent_width();
  for (const Batch& piece : cut_batch(std::move(batch), kGatheredBytes / row_bytes)) {
    const Input<Scalar> rows = gather_cache<Scalar>(piece, args.cache, dims, options.threads);
    const Result<Scalar> result = attend(
        shape.space, MlaCall<Scalar>{dims, piece, q.data() + piece.skipped_tokens * H * q_width, rows.data(),
                                     w_uk.data(), w_uv.data(), static_cast<Scalar>(args.softmax_scale),
                                     options.num_splits, options.threads, false});
    const std::int64_t first = piece.skipped_tokens;
    store_tensor(result.out, first, H, latent ? L : dims.v_head_dim, args.out, options.threads);
    if (args.lse) store_tensor(result.lse, first, H, 1, args.lse, options.threads);
  }
}

}  // namespace mla::reference::detail
