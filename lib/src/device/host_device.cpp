// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <thread>

#include "mla/device.hpp"

namespace mla {
namespace {

// "Intel(R) Xeon(R) ..." from the first processor's line, or empty where /proc has none (other systems, some
// ARM).
std::string processor_title() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos && line.starts_with("model name")) return line.substr(colon + 2);
  }
  return {};
}

std::string instruction_set() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return "x86-64 avx512";
  if (__builtin_cpu_supports("avx2")) return "x86-64 avx2";
  return "x86-64";
#elif defined(__aarch64__)
  return "aarch64";
#else
  return {};
#endif
}

// Physical memory, or the control group's limit where that is smaller: a container gets no more.
std::int64_t memory_limit() {
  const std::int64_t physical = std::int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  std::ifstream in("/sys/fs/cgroup/memory.max");
  std::int64_t limit = 0;  // the word "max" leaves it 0
  in >> limit;
  return in && limit > 0 ? std::min(physical, limit) : physical;
}

std::int64_t last_level_cache() {
  std::int64_t bytes = 0;
#if defined(_SC_LEVEL2_CACHE_SIZE) && defined(_SC_LEVEL3_CACHE_SIZE)
  bytes = std::max<std::int64_t>({0, sysconf(_SC_LEVEL2_CACHE_SIZE), sysconf(_SC_LEVEL3_CACHE_SIZE)});
#endif
  return bytes;
}

}  // namespace

Device host_device() {
  Device device;
  device.name = "host";
  device.title = processor_title();
  if (device.title.empty()) device.title = "this machine's processor";
  device.vendor = "cpu";
  device.architecture = instruction_set();
  device.origin = DeviceOrigin::kHost;
  device.memory_bytes = memory_limit();
  device.l2_bytes = last_level_cache();
  device.num_sms = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  device.source = "the operating system";
  return device;
}

}  // namespace mla
