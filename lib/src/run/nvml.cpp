// SPDX-License-Identifier: Apache-2.0
#include "run/nvml.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string_view>

namespace mla::run {
namespace {

constexpr const char* kLibrary = "libnvidia-ml.so.1";
// Constants of nvml.h; the library keeps its numbers for ever.
constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
constexpr int kClockSm = 1;
constexpr int kSensorGpu = 0;
constexpr unsigned kFieldPowerInstant = 186;

/// nvmlFieldValue_t.
struct FieldValue {
  unsigned field = 0, scope = 0;
  long long timestamp = 0, latency_us = 0;
  int value_type = 0, status = 0;
  union {
    double real;
    unsigned count;
    unsigned long long wide;
  } value{};
};
static_assert(sizeof(FieldValue) == 40);

struct Reason {
  std::uint64_t bit;
  std::string_view word;
};
constexpr Reason kReasons[] = {{0x4, "power"},    {0x8, "hardware"},    {0x10, "sync"},
                               {0x20, "thermal"}, {0x40, "hw-thermal"}, {0x80, "power-brake"}};

std::string hash_of(std::string_view text) {  // FNV-1a
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return fmt::format("{:016x}", hash);
}

}  // namespace

struct Card::Api {
  int (*init)() = nullptr;
  int (*by_bus_id)(const char*, void**) = nullptr;
  int (*clock)(void*, int, unsigned*) = nullptr;
  int (*max_clock)(void*, int, unsigned*) = nullptr;
  int (*power)(void*, unsigned*) = nullptr;
  int (*power_limit)(void*, unsigned*) = nullptr;
  int (*fields)(void*, int, FieldValue*) = nullptr;
  int (*temperature)(void*, int, unsigned*) = nullptr;
  int (*reasons)(void*, unsigned long long*) = nullptr;
  int (*uuid)(void*, char*, unsigned) = nullptr;
  int (*driver)(char*, unsigned) = nullptr;
  int (*processes)(void*, unsigned*, void*) = nullptr;  ///< null in drivers before R510
};

std::string slowdown_words(std::uint64_t reasons) {
  std::string words;
  for (const Reason& reason : kReasons) {
    if ((reasons & reason.bit) != 0) words += fmt::format("{}{}", words.empty() ? "" : "+", reason.word);
  }
  return words;
}

Card::Card(const std::string& bus_id) {
  // Never closed: the library keeps threads of its own.
  void* const library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    why_none_ = fmt::format("{} was not found, so clocks, power and throttling are not known", kLibrary);
    return;
  }
  auto api = std::make_unique<Api>();
  std::string missing;
  const auto need = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  need("nvmlInit_v2", api->init);
  need("nvmlDeviceGetHandleByPciBusId_v2", api->by_bus_id);
  need("nvmlDeviceGetClockInfo", api->clock);
  need("nvmlDeviceGetMaxClockInfo", api->max_clock);
  need("nvmlDeviceGetPowerUsage", api->power);
  need("nvmlDeviceGetEnforcedPowerLimit", api->power_limit);
  need("nvmlDeviceGetFieldValues", api->fields);
  need("nvmlDeviceGetTemperature", api->temperature);
  need("nvmlDeviceGetCurrentClocksThrottleReasons", api->reasons);
  need("nvmlDeviceGetUUID", api->uuid);
  need("nvmlSystemGetDriverVersion", api->driver);
  api->processes =
      reinterpret_cast<decltype(api->processes)>(dlsym(library, "nvmlDeviceGetComputeRunningProcesses_v3"));
  if (!missing.empty()) {
    why_none_ = fmt::format("{} has no function {}", kLibrary, missing);
    return;
  }
  if (const int status = api->init(); status != kSuccess) {
    why_none_ = fmt::format("NVML does not start (status {})", status);
    return;
  }
  if (const int status = api->by_bus_id(bus_id.c_str(), &handle_); status != kSuccess) {
    why_none_ = fmt::format("NVML does not know the card at {} (status {})", bus_id, status);
    return;
  }
  api_ = std::move(api);
}

Card::~Card() = default;

CardState Card::look() const {
  CardState state;
  if (!api_) return state;
  unsigned value = 0;
  if (api_->clock(handle_, kClockSm, &value) == kSuccess) state.sm_clock_mhz = value;
  if (api_->temperature(handle_, kSensorGpu, &value) == kSuccess) state.temperature_c = value;
  // The plain power reading is an average over a second on recent cards: longer than a measurement.
  FieldValue instant;
  instant.field = kFieldPowerInstant;
  if (api_->fields(handle_, 1, &instant) == kSuccess && instant.status == kSuccess) {
    state.power_w = instant.value.count / 1e3;
  } else if (api_->power(handle_, &value) == kSuccess) {
    state.power_w = value / 1e3;
  }
  unsigned long long reasons = 0;
  if (api_->reasons(handle_, &reasons) == kSuccess) state.slowed_by = reasons;
  return state;
}

CardFacts Card::facts() const {
  CardFacts facts;
  if (!api_) return facts;
  std::array<char, 96> text{};
  if (api_->driver(text.data(), text.size()) == kSuccess) facts.driver = text.data();
  if (api_->uuid(handle_, text.data(), text.size()) == kSuccess) facts.id = hash_of(text.data());
  unsigned value = 0;
  if (api_->power_limit(handle_, &value) == kSuccess) facts.power_limit_w = value / 1e3;
  if (api_->max_clock(handle_, kClockSm, &value) == kSuccess) facts.max_sm_clock_mhz = value;
  return facts;
}

std::optional<int> Card::other_processes() const {
  if (!api_ || api_->processes == nullptr) return std::nullopt;
  unsigned count = 0;  // room for none: how many there are comes back
  const int status = api_->processes(handle_, &count, nullptr);
  // A container may be shown none at all, not even its own.
  if ((status != kSuccess && status != kInsufficientSize) || count == 0) return std::nullopt;
  return static_cast<int>(count) - 1;
}

}  // namespace mla::run
