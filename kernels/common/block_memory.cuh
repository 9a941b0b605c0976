// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace mla::MLA_ARCH_NS {

/// A block may have 227 KB of shared memory: 9.0 and 10.x. It is 163 KB on 8.0, and 99 KB on 8.6, 8.9 and
/// 12.x.
inline constexpr bool kLargeBlocks = MLA_ARCH_ID >= 90 && MLA_ARCH_ID < 120;

}  // namespace mla::MLA_ARCH_NS
