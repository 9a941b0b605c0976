// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace mla::report {

/// Whether gnuplot can be started.
[[nodiscard]] bool have_gnuplot();

/// Runs a script and returns what it draws to its standard output. Throws kUnsupported naming the package if
/// gnuplot is not installed, kInternal with its complaint if it refuses the script.
[[nodiscard]] std::string run_gnuplot(const std::string& script);

/// Within single quotes, where a script substitutes nothing: between double quotes gnuplot would run what
/// stands in backquotes.
[[nodiscard]] std::string gnuplot_quoted(std::string_view text);

}  // namespace mla::report
