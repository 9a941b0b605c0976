// SPDX-License-Identifier: Apache-2.0
#include "expand/attend.cuh"

namespace mla::MLA_ARCH_NS::flash {

void attend_256x256(const AttendParams& p, const Variant& variant, cudaStream_t stream) {
  attend<256, 256>(p, variant, stream);
}

}  // namespace mla::MLA_ARCH_NS::flash
