// SPDX-License-Identifier: Apache-2.0
#include "splitkv/configs.cuh"
#include "splitkv/sources.cuh"

namespace mla::MLA_ARCH_NS::splitkv {

std::span<const kernels::splitkv::Variant> variants_bf16() {
  static constexpr kernels::splitkv::Variant kVariants[] = {
    variant_of<Rows16<__nv_bfloat16, 512, false>>(DType::kBF16),
    variant_of<Rows32<__nv_bfloat16, 512, false>>(DType::kBF16),
#if MLA_ARCH_ID >= 90 && MLA_ARCH_ID < 120  // kLargeBlocks
    variant_of<Rows64<__nv_bfloat16, 512, false>>(DType::kBF16),
#endif
    variant_of<Rows16<__nv_bfloat16, 256, false>>(DType::kBF16),
    variant_of<Rows32<__nv_bfloat16, 256, false>>(DType::kBF16),
    variant_of<Rows32<__nv_bfloat16, 128, false>>(DType::kBF16),
  };
  return kVariants;
}

}  // namespace mla::MLA_ARCH_NS::splitkv
