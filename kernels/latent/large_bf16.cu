// SPDX-License-Identifier: Apache-2.0
#include "latent/large.cuh"
#include "latent/sources.cuh"

namespace mla::MLA_ARCH_NS::latent {

std::span<const kernels::latent::Variant> large_variants_bf16() {
  static constexpr kernels::latent::Variant kVariants[] = {
      large::large_variant<large::Traits<__nv_bfloat16, 1>>(DType::kBF16),
      large::large_variant<large::Traits<__nv_bfloat16, 2>>(DType::kBF16),
  };
  return kVariants;
}

}  // namespace mla::MLA_ARCH_NS::latent
