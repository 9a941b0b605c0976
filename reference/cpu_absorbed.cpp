// SPDX-License-Identifier: Apache-2.0
#include "cpu_backend.hpp"

namespace mla {
namespace reference::detail {
namespace {

class CpuAbsorbed final : public CpuBackend {
 public:
  CpuAbsorbed()
      : CpuBackend({.name = "cpu-absorbed",
                    .summary = "attends on the latent rows: W_UK goes into q, W_UV comes after",
                    .strategy = "absorbed",
                    .edges = {32},
                    .batch_invariant = true}) {}

 private:
  [[nodiscard]] Support supports_space(QuerySpace /*space*/) const override { return Support::yes(); }
  [[nodiscard]] Result<double> attend(QuerySpace space, const MlaCall<double>& call) const override {
    return space == QuerySpace::kLatent ? latent_attention(call) : absorbed_attention(call);
  }
  [[nodiscard]] Result<float> attend(QuerySpace space, const MlaCall<float>& call) const override {
    return space == QuerySpace::kLatent ? latent_attention(call) : absorbed_attention(call);
  }
};

}  // namespace
}  // namespace reference::detail

const Backend& cpu_absorbed_backend() {
  static const reference::detail::CpuAbsorbed backend;
  return backend;
}

}  // namespace mla
