// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "mla/export.h"
#include "mla/model.hpp"

namespace mla::capacity {

/// Adds `layers` layers of a drafter (EAGLE, a prediction module the config does not count) to the model:
/// they are cached like its last full-length attention layer, on the last pipeline stage, when prediction
/// layers are. Throws kInvalidArgument for a model without such a layer.
MLA_EXPORT void add_drafter(ModelConfig& model, int layers);
/// Takes the model's own prediction layers away: who drafts with another module does not load them.
MLA_EXPORT void drop_prediction_layers(ModelConfig& model);

}  // namespace mla::capacity
