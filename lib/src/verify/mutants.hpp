// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "verify/emulated_kernel.hpp"

/// Deliberately wrong kernels: the verifier is only as good as what it kills. Each is the emulated kernel
/// with one step changed, after a fault that public kernels have had.
namespace mla::verify {

struct Mutant {
  std::string_view name;
  std::string_view fault;   ///< what it does wrong, one line
  std::string_view source;  ///< ids of tests/data/bug-cases.json with this fault, or empty
  std::unique_ptr<EmulatedKernel> (*make)();
};

/// All that give an answer.
[[nodiscard]] std::vector<Mutant> all_mutants();
/// Those that give none: they crash or hang, and are judged in a process beside.
[[nodiscard]] std::span<const Mutant> violent_mutants();
/// One of either, by name. Throws kInvalidArgument with a suggestion.
[[nodiscard]] const Mutant& get_mutant(std::string_view name);
/// The kernel, called "mutant:NAME".
[[nodiscard]] std::unique_ptr<EmulatedKernel> make_kernel(const Mutant& mutant);

/// A wrong variant of a device kernel. Where a build has them (MLA_CUDA_MUTANTS), the program hands them
/// over.
struct DeviceMutant {
  std::string_view name;  ///< "cuda-naive/scale-1.01"
  std::string_view fault, source;
  bool sound = false;  ///< has no fault: must survive
};
struct DeviceMutants {
  std::vector<DeviceMutant> list;
  std::shared_ptr<const Backend> (*make)(std::string_view name, std::string backend_name) = nullptr;
};
void set_device_mutants(DeviceMutants mutants);
[[nodiscard]] const DeviceMutants& device_mutants();

/// The kernel of a mutant of the host or of a device, called "mutant:NAME". Throws as get_mutant.
[[nodiscard]] std::shared_ptr<const Backend> make_mutant_backend(std::string_view name);

// By room.
[[nodiscard]] std::span<const Mutant> mask_mutants();        ///< which keys are seen
[[nodiscard]] std::span<const Mutant> memory_mutants();      ///< where they are read from and written to
[[nodiscard]] std::span<const Mutant> arithmetic_mutants();  ///< what is computed of them

}  // namespace mla::verify
