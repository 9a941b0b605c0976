// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mla/backend.hpp"

/// What the library of faults shows of itself (option MLA_CUDA_MUTANTS): never part of libmla.
namespace mla {

struct NaiveMutant {
  std::string_view name;    ///< "cuda-naive/scale-1.01"
  std::string_view fault;   ///< one line
  std::string_view source;  ///< ids of public faults, or empty
  bool sound = false;       ///< has no fault: must survive
};

/// All of them; the first has no fault.
[[nodiscard]] std::vector<NaiveMutant> naive_mutants();
/// cuda-naive with that fault, called `backend_name`; null for an unknown name.
[[nodiscard]] std::shared_ptr<const Backend> make_naive_mutant(std::string_view name,
                                                               std::string backend_name);

}  // namespace mla
