// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mla/capacity.hpp"
#include "options.hpp"
#include "plan/search.hpp"

/// From the user's words to a planning request.
namespace mla::memcalc {

struct Question {
  ModelConfig model;
  std::string gpu_title;
  int gpus = 1;
  int gpus_per_node = 8;
  capacity::PlanRequest request;  ///< its layout is set only if `layout_given`
  bool layout_given = false;      ///< by --attention tp|dp or any of --tp --dp --pp --dcp --ep
};

/// Reads models, GPUs and values. Throws mla::Error naming the flag and what is allowed.
[[nodiscard]] Question read_question(const RequestOptions& options);

/// Without a layout from the user: the one of tp x dp inside nodes that holds most sequences.
[[nodiscard]] capacity::Layout chosen_layout(const Question& question);

/// A model by name, path or "-" (stdin).
[[nodiscard]] ModelConfig read_model(const std::string& what);

}  // namespace mla::memcalc
