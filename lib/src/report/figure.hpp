// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "report/plot_style.hpp"

/// The picture of a document: panels of bars and lines side by side.
namespace mla::report {

struct Bar {
  std::string name;
  std::vector<double> values;  ///< one for each part; NaN: none
};
struct BarPanel {
  std::string title, y_title;
  std::vector<std::string> parts;
  std::vector<Bar> bars;
  bool stacked = false;  ///< parts of one whole; else side by side
};
struct LinePanel {
  std::string title, x_title, y_title;
  std::vector<Series> series;
};

struct Figure {
  std::string alternative;  ///< what can be seen, for those who cannot see it
  std::vector<std::variant<BarPanel, LinePanel>> panels;
};

/// A script for gnuplot. Throws kInvalidArgument if there is nothing to draw.
[[nodiscard]] std::string figure_script(const Figure& figure, Picture picture);

}  // namespace mla::report
