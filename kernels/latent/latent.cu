// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "common/check.hpp"
#include "latent/sources.cuh"

namespace mla::MLA_ARCH_NS {
namespace {

// Zero before the first launch, and every launch leaves zeros: what a workspace cannot promise.
__device__ std::int32_t latent_counters[kernels::latent::kMostPlans * kernels::latent::kCountersPerPlan];

std::span<const kernels::latent::Variant> variants() {
  static const std::vector<kernels::latent::Variant> kAll = [] {
    std::vector<kernels::latent::Variant> all;
    for (const auto& some : {latent::small_variants_bf16(), latent::small_variants_f16(),
                             latent::large_variants_bf16(), latent::large_variants_f16()}) {
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }();
  return kAll;
}

std::int32_t* counters() {
  void* address = nullptr;
  MLA_CHECK_CUDA(cudaGetSymbolAddress(&address, latent_counters));
  return static_cast<std::int32_t*>(address);
}

}  // namespace

const kernels::latent::Table& latent_table() {
  static constexpr kernels::latent::Table kTable{&variants, &counters, &latent::cut, &latent::join};
  return kTable;
}

}  // namespace mla::MLA_ARCH_NS
