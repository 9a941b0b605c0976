// SPDX-License-Identifier: Apache-2.0
#include "run/device_call.hpp"

#include <fmt/format.h>

#include "mla/device_ops.hpp"
#include "mla/error.hpp"

namespace mla::run {
namespace {

constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

AttentionShape in_latent_space(AttentionShape shape) {
  shape.space = QuerySpace::kLatent;
  shape.out_dtype = shape.q_dtype;  // what the projection reads
  return shape;
}

/// Whether the projections must be put around the backend.
bool needs_projections(const Backend& backend, const spec::SweepPoint& point, const Device& device) {
  return point.step && point.shape.space == QuerySpace::kHead && !backend.supports(point.shape, device) &&
         backend.supports(in_latent_space(point.shape), device);
}

}  // namespace

Support supports_mode(const Backend& backend, const PlanOptions& options) {
  const BackendInfo& info = backend.info();
  if (!options.batch_invariant || info.batch_invariant || info.batch_invariant_option) return Support::yes();
  return Support::no(fmt::format("{} has no way to the same bits in any batch", info.name));
}

Support DeviceCall::supports(const Backend& backend, const spec::SweepPoint& point, const Device& device) {
  if (Support mode = supports_mode(backend, point.options); !mode) return mode;
  if (!point.step) return backend.supports(point.shape, device);
  if (point.shape.q_dtype != DType::kBF16 && point.shape.q_dtype != DType::kF16) {
    return Support::no(
        fmt::format("a step is timed in bf16 or f16, the query is {}", name_of(point.shape.q_dtype)));
  }
  if (!needs_projections(backend, point, device)) return backend.supports(point.shape, device);
  if (device.origin != DeviceOrigin::kReal) return Support::yes();
  return device_ops::projections_available();
}

DeviceCall::DeviceCall(const Backend& backend, const spec::SweepPoint& point, const Device& device)
    : backend_(backend),
      step_(point.step),
      projected_(needs_projections(backend, point, device)),
      shape_(projected_ ? in_latent_space(point.shape) : point.shape),
      q_dtype_(point.shape.q_dtype) {
  if (const Support support = supports(backend, point, device); !support)
    throw Error(ErrorCode::kUnsupported, support.why);
  plan_ = backend.plan(shape_, device, point.options);
  if (!projected_) return;
  const MlaDims& d = shape_.dims;
  const auto rows = static_cast<std::size_t>(shape_.num_tokens() * d.num_heads);
  absorbed_bytes_ = aligned(rows * static_cast<std::size_t>(d.latent_width()) * size_of(q_dtype_));
  latent_bytes_ = aligned(rows * static_cast<std::size_t>(d.kv_lora_rank) * size_of(q_dtype_));
}

std::string DeviceCall::describe() const {
  return fmt::format("{}{}{}", step_ ? "cache write, " : "", projected_ ? "projections around " : "",
                     plan_->describe());
}

std::size_t DeviceCall::workspace_bytes() const noexcept {
  if (!projected_) return plan_->workspace_bytes();
  return absorbed_bytes_ + latent_bytes_ + device_ops::kProjectionWorkspaceBytes + plan_->workspace_bytes();
}

RoundingProfile DeviceCall::rounding(const AttentionShape& shape) const {
  if (!projected_) return backend_.rounding(shape);
  RoundingProfile profile = backend_.rounding(in_latent_space(shape));
  profile.absorbed_query = profile.latent_output = q_dtype_;
  return profile;
}

void DeviceCall::run(const DeviceInputs& inputs, std::int64_t i, std::span<std::byte> workspace,
                     Stream stream) const {
  if (step_) device_ops::write_cache(inputs.cache_write(i), stream);
  if (projected_) {
    run_projected(inputs.args(i), workspace, stream);
  } else {
    backend_.run(*plan_, inputs.args(i), workspace, stream);
  }
}

void DeviceCall::run_projected(const AttentionArgs& args, std::span<std::byte> workspace,
                               Stream stream) const {
  const MlaDims& d = shape_.dims;
  const std::int64_t tokens = shape_.num_tokens();
  const TensorRef absorbed(workspace.data(), q_dtype_, {tokens, d.num_heads, d.latent_width()});
  const TensorRef latent(workspace.data() + absorbed_bytes_, q_dtype_, {tokens, d.num_heads, d.kv_lora_rank});
  const auto products =
      workspace.subspan(absorbed_bytes_ + latent_bytes_, device_ops::kProjectionWorkspaceBytes);
  const auto rest = workspace.subspan(absorbed_bytes_ + latent_bytes_ + products.size());
  device_ops::absorb_query(d, args.q, args.w_uk, absorbed, products, stream);
  AttentionArgs inner = args;
  inner.q = absorbed;
  inner.w_uk = inner.w_uv = {};
  inner.out = latent;
  backend_.run(*plan_, inner, rest, stream);
  device_ops::up_project_value(d, latent, args.w_uv, args.out, products, stream);
}

double cache_write_bytes(const AttentionShape& shape) {
  const auto row = static_cast<double>(cache_layout(shape.cache, shape.dims).bytes_per_token());
  const double source =
      static_cast<double>(shape.dims.latent_width()) * static_cast<double>(size_of(shape.q_dtype));
  return static_cast<double>(shape.num_tokens()) * (row + source);
}

}  // namespace mla::run
