// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "verify/emulated_kernel.hpp"

namespace mla::verify {

/// What every mutant claims to be: a kernel with P in bf16 and everything else in f32.
[[nodiscard]] inline EmulatedKernel::Options mutant_options() {
  EmulatedKernel::Options options;
  options.name = "mutant";
  options.profile.probabilities = DType::kBF16;
  return options;
}

/// A base for mutants: the emulated kernel with those options.
class MutantKernel : public EmulatedKernel {
 public:
  MutantKernel() : EmulatedKernel(mutant_options()) {}
};

template <class Kernel>
std::unique_ptr<EmulatedKernel> make_mutant() {
  return std::make_unique<Kernel>();
}

}  // namespace mla::verify
