// SPDX-License-Identifier: Apache-2.0
// The math warps' part of a piece, by the rows of a tile.
#pragma once

#include <type_traits>

#include "latent/small_narrow.cuh"
#include "latent/small_wide.cuh"

namespace mla::MLA_ARCH_NS::latent {

template <class Config>
using Math = std::conditional_t<Config::kWide, WideMath<Config>, NarrowMath<Config>>;

}  // namespace mla::MLA_ARCH_NS::latent
