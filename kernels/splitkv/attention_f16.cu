// SPDX-License-Identifier: Apache-2.0
#include "splitkv/configs.cuh"
#include "splitkv/sources.cuh"

namespace mla::MLA_ARCH_NS::splitkv {

std::span<const kernels::splitkv::Variant> variants_f16() {
  static constexpr kernels::splitkv::Variant kVariants[] = {
    variant_of<Rows16<__half, 512, false>>(DType::kF16),
    variant_of<Rows32<__half, 512, false>>(DType::kF16),
#if MLA_ARCH_ID >= 90 && MLA_ARCH_ID < 120  // kLargeBlocks
    variant_of<Rows64<__half, 512, false>>(DType::kF16),
#endif
    variant_of<Rows32<__half, 256, false>>(DType::kF16),
    variant_of<Rows32<__half, 128, false>>(DType::kF16),
  };
  return kVariants;
}

}  // namespace mla::MLA_ARCH_NS::splitkv
