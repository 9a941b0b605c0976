// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

/// Facts about the machine a CPU measurement runs on, and what it can do at best.
namespace mla::run {

/// Size of the largest data cache of a processor as the kernel tells it; 32 MiB where it does not.
[[nodiscard]] std::size_t last_level_cache_bytes();
/// "AMD EPYC 7B13", or "unknown".
[[nodiscard]] std::string cpu_model();
/// "performance", "powersave", ...; empty where the kernel does not manage frequencies.
[[nodiscard]] std::string cpu_governor();
/// Average number of runnable threads over the last minute.
[[nodiscard]] std::optional<double> load_average();

/// Makes a next call find nothing of its data in the caches: every thread walks its share of a buffer of
/// twice the last level cache.
class CacheFlusher {
 public:
  explicit CacheFlusher(int threads);
  void flush();

 private:
  int threads_;
  std::size_t size_;
  std::unique_ptr<unsigned char[]> buffer_;
};

/// What this host reached when it was asked: the ceilings of every CPU row, measured in the same run. Best of
/// several tries each, because a ceiling is what is possible.
struct HostCeilings {
  double read_bytes_per_s = 0;  ///< all threads reading memory, far beyond the caches
  double f32_flops =
      0;  ///< all threads, multiply-adds in registers, as the compiler vectorises them in this build
  double f64_flops = 0;
};
/// Takes about half a second, on a busy machine up to three.
[[nodiscard]] HostCeilings measure_ceilings(int threads);

}  // namespace mla::run
