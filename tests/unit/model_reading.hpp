// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "expect_error.hpp"
#include "json_text.hpp"
#include "mla/model.hpp"

/// What the tests of reading a config share.
inline mla::ModelConfig parse(const JsonText& config) {
  return mla::parse_model(config.text(), "config.json");
}

inline void refused(const JsonText& config, mla::ErrorCode code, const std::vector<std::string_view>& parts) {
  expect_error([&] { return parse(config); }, code, parts);
}

/// The note of `field`, or an empty one.
inline mla::FieldNote note_of(const mla::ModelConfig& model, std::string_view field) {
  const auto found = std::find_if(model.notes.begin(), model.notes.end(),
                                  [&](const mla::FieldNote& note) { return note.field == field; });
  return found == model.notes.end() ? mla::FieldNote{} : *found;
}

/// The decoder layers of that kind, 0-based.
inline std::vector<int> layers_of(const mla::ModelConfig& model, mla::AttentionKind kind) {
  std::vector<int> found;
  for (const mla::LayerCache& layer : model.layers) {
    if (layer.kind == kind && !layer.mtp) found.push_back(layer.model_layer);
  }
  return found;
}
