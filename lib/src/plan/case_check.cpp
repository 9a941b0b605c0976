// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "mla/error.hpp"
#include "plan/cases.hpp"

namespace mla::capacity {
namespace {

constexpr double kRoundOff = 1e-9;  // of the tolerance's own decimal digits

/// Distance from a value to the nearest point of the interval.
double distance(const Computed& got, double value) {
  if (value < got.low) return value - got.low;
  if (value > got.high) return value - got.high;
  return 0;
}

bool agrees(const Computed& got, double expected, const Tolerance& tolerance) {
  const double slack = std::max(tolerance.abs.value_or(0), tolerance.rel.value_or(0) * std::abs(expected));
  if (tolerance.min && got.high < *tolerance.min) return false;
  if (tolerance.max && got.low > *tolerance.max) return false;
  return std::abs(distance(got, expected)) <= slack + kRoundOff * std::abs(expected);
}

/// What a printed number may be off by: half of the last of the two decimals that engines print, nothing for counts.
double rounding_of(const Expectation& one) {
  constexpr double kHalfDigit = 0.005;
  const bool sized = one.key.ends_with("_gib") || one.key.ends_with("_mib");
  return sized || std::floor(one.value) != one.value ? kHalfDigit : 0;
}

}  // namespace

std::string_view name_of(Verdict verdict) noexcept {
  switch (verdict) {
    case Verdict::kAgrees:
      return "agrees";
    case Verdict::kInformative:
      return "not judged";
    case Verdict::kExplained:
      return "explained";
    case Verdict::kDiffers:
      return "DIFFERS";
    case Verdict::kUnknown:
      return "UNKNOWN";
  }
  return "?";
}

std::vector<CaseResult> check_case(const CapacityCase& one) {
  std::vector<CaseResult> results;
  for (const Expectation& expectation : one.expected) {
    CaseResult result;
    result.id = one.id;
    result.key = expectation.key;
    result.expected = expectation.value;
    try {
      result.got = compute(one, expectation.key, expectation.index);
      const double off = distance(result.got, expectation.value);
      result.gap = expectation.value != 0 ? off / expectation.value : off;
      result.verdict = expectation.tolerance.informational                            ? Verdict::kInformative
                       : one.not_reproduced                                           ? Verdict::kExplained
                       : agrees(result.got, expectation.value, expectation.tolerance) ? Verdict::kAgrees
                                                                                      : Verdict::kDiffers;
      const double explained = rounding_of(expectation) + kRoundOff * std::abs(expectation.value);
      result.by_tolerance = result.verdict == Verdict::kAgrees && std::abs(off) > explained;
    } catch (const Error& error) {
      if (error.code() == ErrorCode::kInternal) throw;
      result.got.formula = error.what();
      result.verdict = Verdict::kUnknown;
    }
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace mla::capacity
