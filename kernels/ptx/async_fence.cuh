// SPDX-License-Identifier: Apache-2.0
// The order of ordinary accesses and those of the asynchronous proxy (bulk copies, TMA, wgmma; sm_90). PTX ISA,
// "fence.proxy".
#pragma once

namespace mla::MLA_ARCH_NS::ptx {

/// fence.proxy.async: this thread's ordinary accesses to its CTA's shared memory come before later ones of
/// bulk copies, TMA and wgmma.
__device__ __forceinline__ void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace mla::MLA_ARCH_NS::ptx
