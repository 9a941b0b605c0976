// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "splitkv/merge.cuh"
#include "splitkv/sources.cuh"

namespace mla::MLA_ARCH_NS {
namespace {

std::span<const kernels::splitkv::Variant> variants() {
  static const std::vector<kernels::splitkv::Variant> kAll = [] {
    std::vector<kernels::splitkv::Variant> all;
    for (const auto& some : {splitkv::variants_bf16(), splitkv::variants_f16(), splitkv::variants_fp8()}) {
      all.insert(all.end(), some.begin(), some.end());
    }
    return all;
  }();
  return kAll;
}

}  // namespace

const kernels::splitkv::Table& splitkv_table() {
  static constexpr kernels::splitkv::Table kTable{&variants, &splitkv::launch_merge};
  return kTable;
}

}  // namespace mla::MLA_ARCH_NS
