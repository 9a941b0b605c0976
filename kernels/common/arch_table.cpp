// SPDX-License-Identifier: Apache-2.0
#include "common/arch_table.hpp"

#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/text.hpp"

namespace mla::kernels {
namespace {

std::string capability(int id) {
  return fmt::format("{}.{}", id / 10, id % 10);
}

}  // namespace

Support nvidia_gpu(const Device& device) {
  if (device.vendor != "nvidia") {
    return Support::no(fmt::format("it runs on NVIDIA GPUs; '{}' is from '{}'", device.name, device.vendor));
  }
  if (device.compute_capability <= 0) {
    return Support::no(fmt::format("the compute capability of '{}' is not known", device.name));
  }
  return Support::yes();
}

Support no_image(const Device& device, std::span<const int> built_for) {
  std::vector<std::string> names;
  for (const int id : built_for) names.push_back(capability(id));
  return Support::no(fmt::format("it was built for compute capability {}; '{}' has {}",
                                 names.empty() ? "none" : text::join_or(names), device.name,
                                 capability(device.compute_capability)));
}

}  // namespace mla::kernels
