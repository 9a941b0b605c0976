// SPDX-License-Identifier: Apache-2.0
// Kernels by source file: each file compiles some, splitkv.cu collects them.
#pragma once

#include <span>

#include "splitkv/table.hpp"

namespace mla::MLA_ARCH_NS::splitkv {

std::span<const kernels::splitkv::Variant> variants_bf16();
std::span<const kernels::splitkv::Variant> variants_f16();
std::span<const kernels::splitkv::Variant> variants_fp8();

}  // namespace mla::MLA_ARCH_NS::splitkv
