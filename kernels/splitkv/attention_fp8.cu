// SPDX-License-Identifier: Apache-2.0
#include "splitkv/configs.cuh"
#include "splitkv/sources.cuh"

namespace mla::MLA_ARCH_NS::splitkv {

std::span<const kernels::splitkv::Variant> variants_fp8() {
  static constexpr kernels::splitkv::Variant kVariants[] = {
      variant_of<Rows16<__nv_bfloat16, 512, true>>(DType::kBF16),
      variant_of<Rows32<__nv_bfloat16, 512, true>>(DType::kBF16),
      variant_of<Rows32<__nv_bfloat16, 256, true>>(DType::kBF16),
      variant_of<Rows32<__nv_bfloat16, 128, true>>(DType::kBF16),
  };
  return kVariants;
}

}  // namespace mla::MLA_ARCH_NS::splitkv
