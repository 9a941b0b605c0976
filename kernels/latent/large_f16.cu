// SPDX-License-Identifier: Apache-2.0
#include "latent/large.cuh"
#include "latent/sources.cuh"

namespace mla::MLA_ARCH_NS::latent {

std::span<const kernels::latent::Variant> large_variants_f16() {
  static constexpr kernels::latent::Variant kVariants[] = {
      large::large_variant<large::Traits<__half, 1>>(DType::kF16),
      large::large_variant<large::Traits<__half, 2>>(DType::kF16),
  };
  return kVariants;
}

}  // namespace mla::MLA_ARCH_NS::latent
