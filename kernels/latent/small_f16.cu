// SPDX-License-Identifier: Apache-2.0
#include "latent/small_kernel.cuh"
#include "latent/sources.cuh"

namespace mla::MLA_ARCH_NS::latent {

std::span<const kernels::latent::Variant> small_variants_f16() {
  static constexpr kernels::latent::Variant kVariants[] = {
      small_variant<Small<__half, 512, 16>>(DType::kF16),
      small_variant<Small<__half, 512, 32>>(DType::kF16),
      small_variant<Small<__half, 256, 16>>(DType::kF16),
      small_variant<Small<__half, 256, 32>>(DType::kF16),
  };
  return kVariants;
}

}  // namespace mla::MLA_ARCH_NS::latent
