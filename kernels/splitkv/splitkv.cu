// SPDX-License-Identifier: Apache-2.0
#include "splitkv/merge.cuh"
#include "splitkv/sources.cuh"

namespace mla::MLA_ARCH_NS {

const kernels::splitkv::Table& splitkv_table() {
  static constexpr kernels::splitkv::Table kTable{
      {&splitkv::variants_bf16, &splitkv::variants_f16, &splitkv::variants_fp8}, &splitkv::launch_merge};
  return kTable;
}

}  // namespace mla::MLA_ARCH_NS
