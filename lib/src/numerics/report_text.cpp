// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cmath>
#include <string>

#include "mla/numerics.hpp"

namespace mla {
namespace {

std::string percent(double share) {
  if (!std::isfinite(share)) return "beyond any share";
  if (share >= 100) return fmt::format("{:.3g} times the whole", share);
  if (share > 0 && share < 0.0095) return "< 1 %";
  return fmt::format("{:.0f} %", 100 * share);
}

std::string place(const ErrorReport& report, int num_heads) {
  std::string text = fmt::format("row {} (token {}, head {})", report.worst_row, report.worst_row / num_heads,
                                 report.worst_row % num_heads);
  if (report.worst_column >= 0) {
    text += fmt::format(" column {}: got {:.7g}, want {:.7g}", report.worst_column, report.worst_got,
                        report.worst_want);
    if (std::isfinite(report.worst_ulp)) text += fmt::format(" ({:.2g} ulp)", report.worst_ulp);
    return text;
  }
  if (report.worst_column == -2) {
    return text + fmt::format(": rms {:.3g}, limit {:.3g}", report.worst_got, report.worst_want);
  }
  return text + fmt::format(" LSE: got {:.9g}, want {:.9g}", report.worst_got, report.worst_want);
}

}  // namespace

std::string to_text(const ErrorReport& report, int num_heads) {
  if (report.rows == 0) return "nothing to compare";
  if (report.nan_mismatches > 0) {
    return fmt::format(
        "{} of the elements NaN or Inf where the reference is not, or the reverse; first at {}",
        report.nan_mismatches, place(report, num_heads));
  }
  std::string text = fmt::format("{} of budget", percent(report.budget_share));
  if (report.stage == "pooled") {
    text += fmt::format(" (rms over {})", report.pool);
  } else if (report.stage == "bias") {
    text += fmt::format(" (bias: mean error {:+.3f} ulp, {:+.3f} ulp away from 0)", report.signed_bias,
                        report.magnitude_bias);
  } else {
    text += report.stage == "lse" ? std::string(" (LSE)")
                                  : fmt::format(" ({}, mostly {})", report.stage, name_of(report.dominant));
  }
  if (report.worst_row >= 0) text += "; worst at " + place(report, num_heads);
  return text;
}

}  // namespace mla
