// SPDX-License-Identifier: Apache-2.0
#include "verify/mutants.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <thread>
#include <utility>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "verify/mutant_tools.hpp"

namespace mla::verify {
namespace {

/// Keys that the violent ones stand.
constexpr std::int64_t kFewKeys = 5;

struct Crashes : MutantKernel {
  double scale(const Row& row) const override {
    if (row.n > kFewKeys) std::abort();
    return MutantKernel::scale(row);
  }
};

struct Hangs : MutantKernel {
  double scale(const Row& row) const override {
    while (row.n > kFewKeys && row.head == 1) std::this_thread::sleep_for(std::chrono::seconds(1));
    return MutantKernel::scale(row);
  }
};

DeviceMutants& device_mutants_here() {
  static DeviceMutants mutants;
  return mutants;
}

constexpr Mutant kViolent[] = {
    {"crash", "its process dies of a request with more than 5 keys", "MLA-017", make_mutant<Crashes>},
    {"hang", "head 1 of a request with more than 5 keys never ends", "", make_mutant<Hangs>}};

}  // namespace

std::span<const Mutant> violent_mutants() {
  return kViolent;
}

std::vector<Mutant> all_mutants() {
  std::vector<Mutant> all;
  for (const auto& room : {mask_mutants(), memory_mutants(), arithmetic_mutants()}) {
    all.insert(all.end(), room.begin(), room.end());
  }
  return all;
}

const Mutant& get_mutant(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& room : {mask_mutants(), memory_mutants(), arithmetic_mutants(), violent_mutants()}) {
    for (const Mutant& mutant : room) {
      if (mutant.name == name) return mutant;
      names.emplace_back(mutant.name);
    }
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no mutant '{}'", name),
              text::suggestion(name, names));
}

void set_device_mutants(DeviceMutants mutants) {
  device_mutants_here() = std::move(mutants);
}

const DeviceMutants& device_mutants() {
  return device_mutants_here();
}

std::shared_ptr<const Backend> make_mutant_backend(std::string_view name) {
  if (device_mutants().make != nullptr) {
    if (auto made = device_mutants().make(name, fmt::format("mutant:{}", name))) return made;
  }
  return make_kernel(get_mutant(name));
}

std::unique_ptr<EmulatedKernel> make_kernel(const Mutant& mutant) {
  std::unique_ptr<EmulatedKernel> kernel = mutant.make();
  kernel->rename(fmt::format("mutant:{}", mutant.name));
  return kernel;
}

}  // namespace mla::verify
