// SPDX-License-Identifier: Apache-2.0
#include "verify/judge_lines.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "mla/error.hpp"

namespace mla::verify {
namespace {

using Json = nlohmann::json;

/// JSON has no infinities and no NaN: they travel as texts.
Json number(double x) {
  if (std::isfinite(x)) return x;
  return std::isnan(x) ? "nan" : x > 0 ? "inf" : "-inf";
}

double number_of(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const auto text = json.get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  return text == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

Json strip_to_json(const Strip& strip) {
  Json list = Json::array();
  for (const auto& [at, share] : strip) list.push_back({at, number(share)});
  return list;
}

Strip strip_of(const Json& json) {
  Strip strip;
  for (const Json& pair : json) strip[pair.at(0).get<std::int64_t>()] = number_of(pair.at(1));
  return strip;
}

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

template <class Read>
auto parse(std::string_view line, Read read) {
  try {
    return read(Json::parse(line));
  } catch (const Json::exception& e) {
    throw Error(ErrorCode::kParse, fmt::format("a worker's line cannot be read: {}", e.what()));
  }
}

Json report_to_json(const ErrorReport& r) {
  return {{"rows", r.rows},
          {"failed_rows", r.failed_rows},
          {"nan_mismatches", r.nan_mismatches},
          {"max_abs", number(r.max_abs)},
          {"rms", number(r.rms)},
          {"max_lse", number(r.max_lse)},
          {"budget_share", number(r.budget_share)},
          {"worst_row", r.worst_row},
          {"worst_column", r.worst_column},
          {"worst_got", number(r.worst_got)},
          {"worst_want", number(r.worst_want)},
          {"worst_ulp", number(r.worst_ulp)},
          {"pooled_share", number(r.pooled_share)},
          {"pool", r.pool},
          {"signed_bias", number(r.signed_bias)},
          {"magnitude_bias", number(r.magnitude_bias)},
          {"biased", r.biased},
          {"stage", r.stage},
          {"dominant", static_cast<int>(r.dominant)}};
}

ErrorReport report_of(const Json& j) {
  ErrorReport r;
  r.rows = j.at("rows").get<std::int64_t>();
  r.failed_rows = j.at("failed_rows").get<std::int64_t>();
  r.nan_mismatches = j.at("nan_mismatches").get<std::int64_t>();
  r.max_abs = number_of(j.at("max_abs"));
  r.rms = number_of(j.at("rms"));
  r.max_lse = number_of(j.at("max_lse"));
  r.budget_share = number_of(j.at("budget_share"));
  r.worst_row = j.at("worst_row").get<std::int64_t>();
  r.worst_column = j.at("worst_column").get<std::int64_t>();
  r.worst_got = number_of(j.at("worst_got"));
  r.worst_want = number_of(j.at("worst_want"));
  r.worst_ulp = number_of(j.at("worst_ulp"));
  r.pooled_share = number_of(j.at("pooled_share"));
  r.pool = j.at("pool").get<std::string>();
  r.signed_bias = number_of(j.at("signed_bias"));
  r.magnitude_bias = number_of(j.at("magnitude_bias"));
  r.biased = j.at("biased").get<bool>();
  r.stage = j.at("stage").get<std::string>();
  r.dominant = static_cast<ErrorSource>(j.at("dominant").get<int>());
  return r;
}

}  // namespace

std::string to_line(const JudgeRequest& request) {
  return dump({{"backend", request.backend},
               {"case", to_text(request.c)},
               {"oracle", request.oracle},
               {"repeats", request.repeats}});
}

JudgeRequest parse_request(std::string_view line) {
  return parse(line, [](const Json& j) {
    return JudgeRequest{j.at("backend").get<std::string>(), parse_case(j.at("case").get<std::string>()),
                        j.at("oracle").get<std::string>(), j.at("repeats").get<int>()};
  });
}

std::string to_line(const Verdict& v) {
  return dump({{"case", to_text(v.c)},
               {"backend", v.backend},
               {"outcome", static_cast<int>(v.outcome)},
               {"failure", static_cast<int>(v.failure)},
               {"reason", v.reason},
               {"report", report_to_json(v.report)},
               {"by_length", strip_to_json(v.by_length)},
               {"by_head", strip_to_json(v.by_head)},
               {"plan", v.plan},
               {"seconds", v.seconds}});
}

Verdict parse_verdict(std::string_view line) {
  return parse(line, [](const Json& j) {
    Verdict v;
    v.c = parse_case(j.at("case").get<std::string>());
    v.backend = j.at("backend").get<std::string>();
    v.outcome = static_cast<Outcome>(j.at("outcome").get<int>());
    v.failure = static_cast<Failure>(j.at("failure").get<int>());
    v.reason = j.at("reason").get<std::string>();
    v.report = report_of(j.at("report"));
    v.by_length = strip_of(j.at("by_length"));
    v.by_head = strip_of(j.at("by_head"));
    v.plan = j.at("plan").get<std::string>();
    v.seconds = j.at("seconds").get<double>();
    return v;
  });
}

std::string to_line(const OracleOutcome& outcome) {
  return dump({{"outcome", static_cast<int>(outcome.outcome)},
               {"failure", static_cast<int>(outcome.failure)},
               {"reason", outcome.reason}});
}

OracleOutcome parse_outcome(std::string_view line) {
  return parse(line, [](const Json& j) {
    OracleOutcome outcome;
    outcome.outcome = static_cast<Outcome>(j.at("outcome").get<int>());
    outcome.failure = static_cast<Failure>(j.at("failure").get<int>());
    outcome.reason = j.at("reason").get<std::string>();
    return outcome;
  });
}

}  // namespace mla::verify
