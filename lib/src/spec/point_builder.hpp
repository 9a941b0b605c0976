// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "spec/sweep.hpp"

namespace mla::spec {

/// The tokens of one point, by key; inactive keys are absent.
using Tokens = std::map<std::string_view, std::string>;

/// Makes points from tokens; each model is read once.
class PointBuilder {
 public:
  /// `spec` is kept by reference: it names the origin of a value in messages.
  PointBuilder(const SweepSpec& spec, std::uint64_t seed) : spec_(spec), seed_(seed) {}
  /// Throws kInvalidArgument or kParse naming key, origin and value.
  [[nodiscard]] SweepPoint build(const Tokens& tokens);

 private:
  void build_shape(const Tokens& tokens, SweepPoint& point);
  [[nodiscard]] const MlaDims& dims_of(const std::string& model);
  [[nodiscard]] std::vector<Request> batch_of(const Tokens& tokens) const;
  [[nodiscard]] std::int32_t count(const Tokens& tokens, std::string_view key) const;

  const SweepSpec& spec_;
  std::uint64_t seed_;
  std::map<std::string, MlaDims> models_;
};

}  // namespace mla::spec
