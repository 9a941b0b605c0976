// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "mla.hpp"
#include "mla/backend.hpp"

namespace mla::reference::detail {

/// What cpu-absorbed and cpu-expanded share: everything but the form of attention. Arithmetic is double where
/// q is f64, else float from end to end; inputs and outputs are rounded once.
class CpuBackend : public Backend {
 public:
  [[nodiscard]] const BackendInfo& info() const noexcept override { return info_; }
  [[nodiscard]] RoundingProfile rounding(const AttentionShape& shape) const override;
  [[nodiscard]] Support supports(const AttentionShape& shape, const Device& device) const override;
  [[nodiscard]] std::unique_ptr<Plan> plan(const AttentionShape& shape, const Device& device,
                                           const PlanOptions& options) const override;
  void run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
           Stream stream) const override;

 protected:
  explicit CpuBackend(BackendInfo info) : info_(std::move(info)) {}

 private:
  /// Which query spaces the form can serve.
  [[nodiscard]] virtual Support supports_space(QuerySpace space) const = 0;
  [[nodiscard]] virtual Result<double> attend(QuerySpace space, const MlaCall<double>& call) const = 0;
  [[nodiscard]] virtual Result<float> attend(QuerySpace space, const MlaCall<float>& call) const = 0;

  template <class Scalar>
  void run_as(const AttentionShape& shape, const PlanOptions& options, const AttentionArgs& args) const;

  BackendInfo info_;
};

/// The checked lengths of one call.
struct CallBatch {
  std::vector<Request> requests;
  std::vector<std::int32_t> token_index;  // packed [tokens, topk]
};

/// Checks every argument of run() against the planned shape (kInvalidArgument) and reads the lengths.
[[nodiscard]] CallBatch check_args(const AttentionShape& shape, const AttentionArgs& args);

/// The types that q, out, w_uk and w_uv may have.
[[nodiscard]] bool is_cpu_dtype(DType dtype) noexcept;
inline constexpr const char* kCpuDtypes = "f64, f32, bf16 or f16";

}  // namespace mla::reference::detail
