// SPDX-License-Identifier: Apache-2.0
// Kernels by source file: each file compiles some, latent.cu collects them.
#pragma once

#include <span>

#include "latent/table.hpp"

namespace mla::MLA_ARCH_NS::latent {

std::span<const kernels::latent::Variant> small_variants_bf16();
std::span<const kernels::latent::Variant> small_variants_f16();
std::span<const kernels::latent::Variant> large_variants_bf16();
std::span<const kernels::latent::Variant> large_variants_f16();
void cut(const kernels::latent::CutParams& params, void* stream);
void join(const kernels::latent::JoinParams& params, void* stream);

}  // namespace mla::MLA_ARCH_NS::latent
