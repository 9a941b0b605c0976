// SPDX-License-Identifier: Apache-2.0
#include "cpu_backend.hpp"

namespace mla {
namespace reference::detail {
namespace {

class CpuExpanded final : public CpuBackend {
 public:
  CpuExpanded()
      : CpuBackend({.name = "cpu-expanded",
                    .summary = "expands the latent rows to K and V of every head, then ordinary attention",
                    .strategy = "expanded",
                    .edges = {32},
                    .batch_invariant = true}) {}

 private:
  [[nodiscard]] Support supports_space(QuerySpace space) const override {
    if (space == QuerySpace::kHead) return Support::yes();
    return Support::no(
        "the query is in latent space (already absorbed, L+R wide), but cpu-expanded compares q heads of "
        "width P+R "
        "with expanded keys; it needs head space");
  }
  [[nodiscard]] Result<double> attend(QuerySpace /*space*/, const MlaCall<double>& call) const override {
    return expanded_attention(call);
  }
  [[nodiscard]] Result<float> attend(QuerySpace /*space*/, const MlaCall<float>& call) const override {
    return expanded_attention(call);
  }
};

}  // namespace
}  // namespace reference::detail

const Backend& cpu_expanded_backend() {
  static const reference::detail::CpuExpanded backend;
  return backend;
}

}  // namespace mla
