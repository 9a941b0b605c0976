// SPDX-License-Identifier: Apache-2.0
#include "numerics/bias.hpp"

#include <algorithm>
#include <cmath>

namespace mla {

double student_quantile(double sigmas, double freedom) noexcept {
  const double z = sigmas, z2 = z * z, n = freedom;
  const double first = z * (z2 + 1) / 4;
  const double second = z * ((5 * z2 + 16) * z2 + 3) / 96;
  const double third = z * (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384;
  return z + first / n + second / (n * n) + third / (n * n * n);
}

void BiasCheck::Sums::add(double units, double outward) noexcept {
  plain += units;
  shrink += outward;
  ++count;
}

void BiasCheck::Groups::add(const Sums& group, const Sums& all) {
  if (group.count == 0) return;
  const auto n = static_cast<double>(group.count);
  const auto total = static_cast<double>(all.count);
  const double p = (group.plain - n * all.plain / total) / total;
  const double s = (group.shrink - n * all.shrink / total) / total;
  plain += p * p;
  shrink += s * s;
  sum += n;
  squares += n * n;
  number += 1;
}

/// A mean taken from the groups themselves lies closer to them than the true one.
double BiasCheck::Groups::correction() const noexcept {
  const double n = effective();
  return n > 1 ? n / (n - 1) : 0.0;
}

BiasCheck::BiasCheck(DType out_dtype, std::int64_t width)
    : judged_(unit_roundoff(out_dtype) >= unit_roundoff(DType::kF16)),
      columns_(static_cast<std::size_t>(width)) {}

void BiasCheck::add(std::int64_t column, double ideal, double units) {
  const double outward = ideal < 0 ? -units : units;
  row_.add(units, outward);
  if (!judged_) return;
  columns_[static_cast<std::size_t>(column)].add(units, outward);
  values_[std::abs(ideal)].add(units, outward);
}

void BiasCheck::end_row(double drift) {
  if (row_.count == 0) return;
  all_.plain += row_.plain;
  all_.shrink += row_.shrink;
  all_.count += row_.count;
  drift_ += drift * static_cast<double>(row_.count);
  if (judged_) rows_.push_back(row_);
  row_ = {};
}

void BiasCheck::judge(const Limits& limits, ErrorReport& report) const {
  if (all_.count == 0) return;
  const auto n = static_cast<double>(all_.count);
  report.signed_bias = all_.plain / n;
  report.magnitude_bias = all_.shrink / n;
  if (!judged_) return;
  Groups by_row, by_column, by_value;
  for (const Sums& group : rows_) by_row.add(group, all_);
  for (const Sums& group : columns_) by_column.add(group, all_);
  for (const auto& [value, group] : values_) by_value.add(group, all_);
  const double samples = std::min({by_row.effective(), by_column.effective(), by_value.effective()});
  if (samples < limits.bias_samples) return;
  const double allowed = limits.bias_floor + drift_ / n;
  const double sigmas = student_quantile(limits.bias_sigmas, samples - 1);
  double plain = 0, shrink = 0;
  for (const Groups* groups : {&by_row, &by_column, &by_value}) {
    plain += groups->plain * groups->correction();
    shrink += groups->shrink * groups->correction();
  }
  const double share = std::max(std::abs(report.signed_bias) / (allowed + sigmas * std::sqrt(plain)),
                                std::abs(report.magnitude_bias) / (allowed + sigmas * std::sqrt(shrink)));
  report.biased = share > 1;
  if (report.biased && share > report.budget_share) {
    report.budget_share = share;
    report.stage = "bias";
  }
}

}  // namespace mla
