// SPDX-License-Identifier: Apache-2.0
#include "mla/backend.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "common/arch_table.hpp"
#include "common/arguments.hpp"
#include "common/check.hpp"
#include "mla/error.hpp"
#include "naive/table.hpp"
#ifdef MLA_NAIVE_FAULTS
#include "naive_faults_images.inc"
#else
#include "naive_images.inc"
#endif

namespace mla {
namespace {

using kernels::NaiveTable;

class NaivePlan final : public Plan {
 public:
  NaivePlan(AttentionShape shape, int ordinal, const NaiveTable& table)
      : shape_(std::move(shape)), ordinal_(ordinal), table_(table) {}
  [[nodiscard]] std::size_t workspace_bytes() const noexcept override { return 0; }
  [[nodiscard]] std::string describe() const override {
    return fmt::format("one block a row, {} rows", shape_.num_tokens() * shape_.dims.num_heads);
  }
  [[nodiscard]] const AttentionShape& shape() const noexcept { return shape_; }
  [[nodiscard]] int ordinal() const noexcept { return ordinal_; }
  [[nodiscard]] const NaiveTable& table() const noexcept { return table_; }

 private:
  AttentionShape shape_;
  int ordinal_;
  const NaiveTable& table_;
};

class NaiveBackend final : public Backend {
 public:
  [[nodiscard]] const BackendInfo& info() const noexcept override {
    static const BackendInfo kInfo{
        .name = "cuda-naive",
        .summary = "plain CUDA, single precision, any shape: the oracle on the device",
        .strategy = "absorbed",
        .on_device = true,
        .edges = {kernels::kNaiveTile},
        .batch_invariant = true,
        .oracle = true};
    return kInfo;
  }

  [[nodiscard]] RoundingProfile rounding(const AttentionShape&) const override { return {}; }

  [[nodiscard]] Support supports(const AttentionShape& shape, const Device& device) const override {
    if (Support separate = without_shared_prefix(shape); !separate) return separate;
    for (const DType dtype : {shape.q_dtype, shape.out_dtype}) {
      if (dtype != DType::kF32 && dtype != DType::kBF16 && dtype != DType::kF16) {
        return Support::no(fmt::format("queries and outputs are f32, bf16 or f16, not {}", name_of(dtype)));
      }
    }
    if (shape.cache == CacheFormat::kF64) return Support::no("an f64 cache is for the CPU");
    const std::size_t shared =
        kernels::naive_shared_bytes(shape.dims.kv_lora_rank, shape.dims.qk_rope_head_dim);
    const std::int64_t limit =
        device.shared_memory_per_block > 0 ? device.shared_memory_per_block : 48 * 1024;
    if (static_cast<std::int64_t>(shared) > limit) {
      return Support::no(fmt::format("a latent of {} needs {} bytes of shared memory; '{}' has {}",
                                     shape.dims.kv_lora_rank, shared, device.name, limit));
    }
    if (shape.num_tokens() > std::numeric_limits<std::int32_t>::max() / shape.dims.num_heads) {
      return Support::no(fmt::format("{} tokens of {} heads are more rows than a grid holds (2^31 - 1)",
                                     shape.num_tokens(), shape.dims.num_heads));
    }
    return kernels::has_image<NaiveTable>(kernels::kImages, device);
  }

  [[nodiscard]] std::unique_ptr<Plan> plan(const AttentionShape& shape, const Device& device,
                                           const PlanOptions&) const override {
    kernels::require(*this, shape, device);
    return std::make_unique<NaivePlan>(
        shape, device.ordinal,
        *kernels::choose_image<NaiveTable>(kernels::kImages, device.compute_capability));
  }

  void run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
           Stream stream) const override {
    const auto& own = kernels::own_plan<NaivePlan>(plan, workspace.size(), "cuda-naive");
    const kernels::AttentionParams params = kernels::make_params(own.shape(), args);
    if (params.num_tokens == 0) return;
    const kernels::DeviceGuard guard(own.ordinal());
    own.table().run(params, stream.handle);
  }
};

}  // namespace

const Backend& naive_backend() {
  static const NaiveBackend backend;
  return backend;
}

}  // namespace mla
