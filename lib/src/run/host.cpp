// SPDX-License-Identifier: Apache-2.0
#include "run/host.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "run/threads.hpp"

namespace mla::run {
namespace {

constexpr std::size_t kAssumedCache = std::size_t{32} << 20;
constexpr std::size_t kLine = 64;

std::string first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

}  // namespace

std::size_t last_level_cache_bytes() {
  std::size_t largest = 0;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/sys/devices/system/cpu/cpu0/cache", none)) {
    if (!entry.path().filename().string().starts_with("index")) continue;
    if (first_line(entry.path() / "type") == "Instruction") continue;
    const std::string size = first_line(entry.path() / "size");  // "512K", "32M" on some kernels
    char* end = nullptr;
    std::size_t bytes = std::strtoul(size.c_str(), &end, 10);
    if (*end == 'K') bytes <<= 10U;
    if (*end == 'M') bytes <<= 20U;
    largest = std::max(largest, bytes);
  }
  return largest == 0 ? kAssumedCache : largest;
}

std::string cpu_model() {
  std::ifstream stream("/proc/cpuinfo");
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

std::string cpu_governor() {
  return first_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
}

std::optional<double> load_average() {
  double load = 0;
  if (getloadavg(&load, 1) != 1) return std::nullopt;
  return load;
}

CacheFlusher::CacheFlusher(int threads)
    : threads_(threads),
      size_(2 * last_level_cache_bytes()),
      buffer_(std::make_unique<unsigned char[]>(size_)) {}

void CacheFlusher::flush() {
  const std::size_t share = size_ / static_cast<std::size_t>(threads_);
  on_threads(threads_, [&](int t) {
    unsigned char* part = buffer_.get() + share * static_cast<std::size_t>(t);
    // Writing makes the lines dirty: they must be evicted by later data, and nothing of the old data survives
    // them.
    for (std::size_t i = 0; i < share; i += kLine) ++part[i];
  });
}

}  // namespace mla::run
