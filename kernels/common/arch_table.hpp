// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>

#include "mla/backend.hpp"
#include "mla/device.hpp"

namespace mla::kernels {

/// Which GPUs an image compiled for one architecture runs on.
enum class ArchMatch : std::uint8_t {
  kExact,   ///< "90a": that compute capability alone
  kFamily,  ///< "100f": the same major version, from this minor one on
  kFrom,    ///< "80": the same major version from this minor one on; any later one through its PTX
};

/// One image of a backend's device code: its entry points for one architecture.
template <class Table>
struct ArchImage {
  int id = 0;  ///< 80, 90, ...; 0 ends a list
  ArchMatch match = ArchMatch::kExact;
  const Table& (*table)() = nullptr;
};

/// How well an image fits a GPU: 0 not at all; machine code before PTX, the later architecture before the
/// earlier.
[[nodiscard]] constexpr int image_rank(int id, ArchMatch match, int compute_capability) noexcept {
  constexpr int kMachineCode = 1000;
  if (compute_capability < id) return 0;
  const bool same_major = compute_capability / 10 == id / 10;
  switch (match) {
    case ArchMatch::kExact:
      return compute_capability == id ? kMachineCode + id : 0;
    case ArchMatch::kFamily:
      return same_major ? kMachineCode + id : 0;
    case ArchMatch::kFrom:
      return same_major ? kMachineCode + id : id;
  }
  return 0;
}

/// The best image for a GPU, or null.
template <class Table>
[[nodiscard]] const Table* choose_image(std::span<const ArchImage<Table>> images, int compute_capability) {
  const Table* best = nullptr;
  int best_rank = 0;
  for (const ArchImage<Table>& image : images) {
    if (image.table == nullptr) break;
    const int rank = image_rank(image.id, image.match, compute_capability);
    if (rank > best_rank) {
      best_rank = rank;
      best = &image.table();
    }
  }
  return best;
}

/// "it runs on NVIDIA GPUs; 'mi300x' is from amd", "no code for compute capability 7.5 ...".
[[nodiscard]] Support nvidia_gpu(const Device& device);
[[nodiscard]] Support no_image(const Device& device, std::span<const int> built_for);

/// Whether one of `images` runs on `device`; if not, why.
template <class Table>
[[nodiscard]] Support has_image(std::span<const ArchImage<Table>> images, const Device& device) {
  if (Support gpu = nvidia_gpu(device); !gpu) return gpu;
  if (choose_image(images, device.compute_capability) != nullptr) return Support::yes();
  std::array<int, 16> ids{};
  std::size_t count = 0;
  for (const ArchImage<Table>& image : images) {
    if (image.table != nullptr && count < ids.size()) ids[count++] = image.id;
  }
  return no_image(device, std::span(ids).first(count));
}

}  // namespace mla::kernels
