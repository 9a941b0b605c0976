// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <span>
#include <type_traits>
#include <vector>

namespace mla::reference::detail {

/// A caller's numbers as Scalar: the array itself where that is what it holds, else a rounded copy.
template <class Scalar>
class Input {
 public:
  explicit Input(std::span<const double> values) {
    if constexpr (std::is_same_v<Scalar, double>) {
      view_ = values;
    } else {
      owned_.resize(values.size());
      std::transform(values.begin(), values.end(), owned_.begin(),
                     [](double x) { return static_cast<Scalar>(x); });
      view_ = owned_;
    }
  }
  /// The caller's array itself.
  explicit Input(std::span<const Scalar> values) requires(!std::is_same_v<Scalar, double>) : view_(values) {}
  /// Takes over values already converted.
  explicit Input(std::vector<Scalar>&& values) : owned_(std::move(values)), view_(owned_) {}
  Input(const Input&) = delete;
  Input& operator=(const Input&) = delete;

  [[nodiscard]] const Scalar* data() const noexcept { return view_.data(); }

 private:
  std::vector<Scalar> owned_;
  std::span<const Scalar> view_;
};

/// Back to the public type.
template <class Scalar>
[[nodiscard]] std::vector<double> to_double(std::vector<Scalar>&& values) {
  if constexpr (std::is_same_v<Scalar, double>) {
    return std::move(values);
  } else {
    return {values.begin(), values.end()};
  }
}

}  // namespace mla::reference::detail
