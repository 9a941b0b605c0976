// SPDX-License-Identifier: Apache-2.0
#include "verify/judge_lines.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "model/json_node.hpp"
#include "model/json_write.hpp"

namespace mla::verify {
namespace {

using json::Node;
using json::Value;

/// JSON has no infinities and no NaN: they travel as texts.
Value number(double x) {
  if (std::isfinite(x)) return json::to_value(x);
  return json::to_value(std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf");
}

double number_of(const Node& node) {
  const auto* text = node.value().get_if<std::string>();
  if (text == nullptr) return node.number();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (*text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (*text == "inf") return kInfinity;
  if (*text == "-inf") return -kInfinity;
  node.refuse("is a text, but no number");
}

std::int64_t whole_of(const Node& node) {
  return node.count(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
}

/// An enumeration travels as its number.
template <class Enum>
Enum enum_of(const Node& node) {
  return static_cast<Enum>(node.count(0, 127));
}

Value strip_to_json(const Strip& strip) {
  json::Array list;
  for (const auto& [at, share] : strip) list.emplace_back(json::Array{json::to_value(at), number(share)});
  return Value(std::move(list));
}

Strip strip_of(const Node& node) {
  Strip strip;
  for (const Node& item : node.items()) {
    const std::vector<Node> pair = item.items();
    if (pair.size() != 2) item.refuse("must be a pair");
    strip[whole_of(pair[0])] = number_of(pair[1]);
  }
  return strip;
}

template <class Read>
auto parse(std::string_view line, Read read) {
  constexpr const char* kOrigin = "a worker's line";
  const Value value = json::parse(line, kOrigin);
  return read(Node(value, kOrigin));
}

Value ulps_to_json(const UlpCounts& counts) {
  json::Array all;
  for (const std::int64_t n : counts) all.push_back(json::to_value(n));
  return Value(std::move(all));
}

UlpCounts ulps_of(const Node& j) {
  UlpCounts counts{};
  std::size_t i = 0;
  for (const Node& n : j.items()) counts.at(i++) = whole_of(n);
  return counts;
}

Value report_to_json(const ErrorReport& r) {
  return Value(json::Object{{"rows", json::to_value(r.rows)},
                            {"failed_rows", json::to_value(r.failed_rows)},
                            {"nan_mismatches", json::to_value(r.nan_mismatches)},
                            {"max_abs", number(r.max_abs)},
                            {"rms", number(r.rms)},
                            {"max_lse", number(r.max_lse)},
                            {"budget_share", number(r.budget_share)},
                            {"worst_row", json::to_value(r.worst_row)},
                            {"worst_column", json::to_value(r.worst_column)},
                            {"worst_got", number(r.worst_got)},
                            {"worst_want", number(r.worst_want)},
                            {"worst_ulp", number(r.worst_ulp)},
                            {"ulps", ulps_to_json(r.ulps)},
                            {"pooled_share", number(r.pooled_share)},
                            {"pool", json::to_value(r.pool)},
                            {"signed_bias", number(r.signed_bias)},
                            {"magnitude_bias", number(r.magnitude_bias)},
                            {"biased", json::to_value(r.biased)},
                            {"stage", json::to_value(r.stage)},
                            {"dominant", json::to_value(r.dominant)}});
}

ErrorReport report_of(const Node& j) {
  ErrorReport r;
  r.rows = whole_of(j.at("rows"));
  r.failed_rows = whole_of(j.at("failed_rows"));
  r.nan_mismatches = whole_of(j.at("nan_mismatches"));
  r.max_abs = number_of(j.at("max_abs"));
  r.rms = number_of(j.at("rms"));
  r.max_lse = number_of(j.at("max_lse"));
  r.budget_share = number_of(j.at("budget_share"));
  r.worst_row = whole_of(j.at("worst_row"));
  r.worst_column = whole_of(j.at("worst_column"));
  r.worst_got = number_of(j.at("worst_got"));
  r.worst_want = number_of(j.at("worst_want"));
  r.worst_ulp = number_of(j.at("worst_ulp"));
  r.ulps = ulps_of(j.at("ulps"));
  r.pooled_share = number_of(j.at("pooled_share"));
  r.pool = j.at("pool").text();
  r.signed_bias = number_of(j.at("signed_bias"));
  r.magnitude_bias = number_of(j.at("magnitude_bias"));
  r.biased = j.at("biased").flag();
  r.stage = j.at("stage").text();
  r.dominant = enum_of<ErrorSource>(j.at("dominant"));
  return r;
}

std::string dump(json::Object object) {
  return json::dump(Value(std::move(object)));
}

}  // namespace

std::string to_line(const JudgeRequest& request) {
  return dump({{"backend", json::to_value(request.backend)},
               {"case", json::to_value(to_text(request.c))},
               {"oracle", json::to_value(request.oracle)},
               {"repeats", json::to_value(request.repeats)}});
}

JudgeRequest parse_request(std::string_view line) {
  return parse(line, [](const Node& j) {
    return JudgeRequest{j.at("backend").text(), parse_case(j.at("case").text()), j.at("oracle").text(),
                        static_cast<int>(j.at("repeats").count(0, 1 << 30))};
  });
}

std::string to_line(const Verdict& v) {
  return dump({{"case", json::to_value(to_text(v.c))},
               {"backend", json::to_value(v.backend)},
               {"outcome", json::to_value(v.outcome)},
               {"failure", json::to_value(v.failure)},
               {"reason", json::to_value(v.reason)},
               {"report", report_to_json(v.report)},
               {"by_length", strip_to_json(v.by_length)},
               {"by_head", strip_to_json(v.by_head)},
               {"plan", json::to_value(v.plan)},
               {"seconds", number(v.seconds)}});
}

Verdict parse_verdict(std::string_view line) {
  return parse(line, [](const Node& j) {
    Verdict v;
    v.c = parse_case(j.at("case").text());
    v.backend = j.at("backend").text();
    v.outcome = enum_of<Outcome>(j.at("outcome"));
    v.failure = enum_of<Failure>(j.at("failure"));
    v.reason = j.at("reason").text();
    v.report = report_of(j.at("report"));
    v.by_length = strip_of(j.at("by_length"));
    v.by_head = strip_of(j.at("by_head"));
    v.plan = j.at("plan").text();
    v.seconds = number_of(j.at("seconds"));
    return v;
  });
}

std::string to_line(const OracleOutcome& outcome) {
  return dump({{"outcome", json::to_value(outcome.outcome)},
               {"failure", json::to_value(outcome.failure)},
               {"reason", json::to_value(outcome.reason)}});
}

OracleOutcome parse_outcome(std::string_view line) {
  return parse(line, [](const Node& j) {
    OracleOutcome outcome;
    outcome.outcome = enum_of<Outcome>(j.at("outcome"));
    outcome.failure = enum_of<Failure>(j.at("failure"));
    outcome.reason = j.at("reason").text();
    return outcome;
  });
}

}  // namespace mla::verify
