// SPDX-License-Identifier: Apache-2.0
#include "latent/small_kernel.cuh"
#include "latent/sources.cuh"

namespace mla::MLA_ARCH_NS::latent {

std::span<const kernels::latent::Variant> small_variants_bf16() {
  static constexpr kernels::latent::Variant kVariants[] = {
      small_variant<Small<__nv_bfloat16, 512, 16>>(DType::kBF16),
      small_variant<Small<__nv_bfloat16, 512, 32>>(DType::kBF16),
      small_variant<Small<__nv_bfloat16, 256, 16>>(DType::kBF16),
      small_variant<Small<__nv_bfloat16, 256, 32>>(DType::kBF16),
  };
  return kVariants;
}

}  // namespace mla::MLA_ARCH_NS::latent
