// SPDX-License-Identifier: Apache-2.0
#include "expand/attend.cuh"

namespace mla::MLA_ARCH_NS::flash {

void attend_128x128(const AttendParams& p, const Variant& variant, cudaStream_t stream) {
  attend<128, 128>(p, variant, stream);
}

}  // namespace mla::MLA_ARCH_NS::flash
