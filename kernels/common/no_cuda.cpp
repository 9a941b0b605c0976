// SPDX-License-Identifier: Apache-2.0
// What a build without a CUDA toolkit answers.
#include "mla/device.hpp"

namespace mla {

RealDevices real_devices() {
  return {{}, "this build has no CUDA (no nvcc was found when it was configured)"};
}

}  // namespace mla
