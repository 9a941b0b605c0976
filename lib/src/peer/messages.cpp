// SPDX-License-Identifier: Apache-2.0
#include "peer/messages.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "mla/version.hpp"
#include "model/json_write.hpp"

namespace mla::peer {
namespace {

using json::Object;
using json::to_value;
using json::Value;

constexpr std::size_t kLongestText = 500;

Object request(std::int64_t id, const char* what) {
  return {{"id", to_value(id)}, {"do", to_value(what)}};
}

std::string line_of(Object object) {
  return json::dump(Value(std::move(object)));
}

Value shape_json(const AttentionShape& shape) {
  json::Array q_lens, kv_lens;
  for (const Request& r : shape.batch) {
    q_lens.push_back(to_value(r.q_len));
    kv_lens.push_back(to_value(r.kv_len));
  }
  const MlaDims& d = shape.dims;
  return Value(Object{{"text", to_value(to_text(shape))},
                      {"phase", to_value(shape.phase == Phase::kDecode ? "decode" : "prefill")},
                      {"space", to_value(shape.space == QuerySpace::kLatent ? "latent" : "head")},
                      {"num_heads", to_value(d.num_heads)},
                      {"kv_lora_rank", to_value(d.kv_lora_rank)},
                      {"qk_rope_head_dim", to_value(d.qk_rope_head_dim)},
                      {"qk_nope_head_dim", to_value(d.qk_nope_head_dim)},
                      {"v_head_dim", to_value(d.v_head_dim)},
                      {"causal", to_value(shape.mask.causal)},
                      {"window", shape.mask.window ? to_value(*shape.mask.window) : Value()},
                      {"sink", to_value(shape.mask.sink)},
                      {"topk", to_value(shape.topk)},
                      {"block_size", to_value(shape.block_size)},
                      {"q_dtype", to_value(name_of(shape.q_dtype))},
                      {"out_dtype", to_value(name_of(shape.out_dtype))},
                      {"cache", to_value(name_of(shape.cache))},
                      {"q_lens", Value(std::move(q_lens))},
                      {"kv_lens", Value(std::move(kv_lens))}});
}

Object call_request(std::int64_t id, const char* what, const AttentionShape& shape, const Call& call) {
  Object object = request(id, what);
  json::put(object, "shape", shape_json(shape));
  json::put(object, "softmax_scale", to_value(call.softmax_scale));
  json::put(object, "lse", call.lse ? to_value(name_of(*call.lse)) : Value());
  json::put(object, "splits", to_value(call.num_splits));
  json::put(object, "in", to_value(call.in));
  return object;
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kParse, what);
}

/// The answer as an object with the right id, errors of the peer's own already thrown.
Value parse_answer(std::string_view line, std::int64_t id) {
  Value answer;
  try {
    answer = json::parse(line, "the answer");
  } catch (const Error&) {
    refuse(fmt::format("answered {}, which is not JSON", text::quoted(line)));
  }
  if (answer.get_if<Object>() == nullptr) {
    refuse(fmt::format("answered {}, which is not a JSON object", text::quoted(line)));
  }
  const Value* given = answer.find("id");
  const auto* number = given == nullptr ? nullptr : given->get_if<std::int64_t>();
  if (number == nullptr || *number != id) {
    refuse(fmt::format("answered {} to message {}: the id must be the message's", text::quoted(line), id));
  }
  return answer;
}

std::string text_of(const Value& answer, const char* key) {
  const Value* found = answer.find(key);
  if (found == nullptr) return {};
  const auto* text = found->get_if<std::string>();
  if (text == nullptr) {
    refuse(fmt::format("answered with '{}': {}, which is not a text", key, json::describe(*found)));
  }
  // It will stand in tables and on terminals: one line, not too long, nothing that moves a cursor.
  std::string value = text->size() > kLongestText ? text->substr(0, kLongestText) + "..." : *text;
  for (char& c : value) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return value;
}

std::optional<double> number_of(const Value& value) {
  if (const auto* integer = value.get_if<std::int64_t>()) return static_cast<double>(*integer);
  if (const auto* real = value.get_if<json::Real>()) return real->value;
  return std::nullopt;
}

void throw_errors(const Value& answer) {
  const std::string unsupported = text_of(answer, "unsupported");
  if (!unsupported.empty()) throw Error(ErrorCode::kUnsupported, unsupported);
  const std::string error = text_of(answer, "error");
  if (!error.empty()) throw Error(ErrorCode::kDevice, error);
}

bool flag_of(const Value& answer, const char* key, bool missing) {
  const Value* found = answer.find(key);
  if (found == nullptr) return missing;
  const bool* flag = found->get_if<bool>();
  if (flag == nullptr)
    refuse(fmt::format("answered with '{}': {}, not true or false", key, json::describe(*found)));
  return *flag;
}

/// The keys of "rounding" over `profile`.
RoundingProfile rounding_of(const Value& answer, RoundingProfile profile) {
  const Value* found = answer.find("rounding");
  if (found == nullptr) return profile;
  const auto* places = found->get_if<Object>();
  if (places == nullptr) {
    refuse(fmt::format("answered with 'rounding': {}, not an object", json::describe(*found)));
  }
  const std::pair<std::string_view, DType RoundingProfile::*> types[] = {
      {"accumulate", &RoundingProfile::accumulate},
      {"probabilities", &RoundingProfile::probabilities},
      {"partials", &RoundingProfile::partials},
      {"absorbed_query", &RoundingProfile::absorbed_query},
      {"latent_output", &RoundingProfile::latent_output},
      {"expanded_kv", &RoundingProfile::expanded_kv}};
  const std::pair<std::string_view, bool RoundingProfile::*> flags[] = {
      {"lse_from_rounded_p", &RoundingProfile::lse_from_rounded_p},
      {"unit_weight", &RoundingProfile::unit_weight}};
  for (const auto& [key, value] : *places) {
    bool known = false;
    const auto wrong = [&key = key, &value = value] {
      refuse(fmt::format("answered with rounding '{}': {}", key, json::describe(value)));
    };
    for (const auto& [name, field] : types) {
      if (key != name) continue;
      known = true;
      const auto* type = value.get_if<std::string>();
      if (type == nullptr) wrong();
      profile.*field = parse_dtype(*type);
    }
    for (const auto& [name, field] : flags) {
      if (key != name) continue;
      known = true;
      const bool* flag = value.get_if<bool>();
      if (flag == nullptr) wrong();
      profile.*field = *flag;
    }
    if (!known) refuse(fmt::format("answered with 'rounding' of an unknown place {}", text::quoted(key)));
  }
  return profile;
}

std::map<std::string, std::string> versions_of(const Value& answer) {
  std::map<std::string, std::string> versions;
  const Value* found = answer.find("versions");
  if (found == nullptr) return versions;
  const auto* packages = found->get_if<Object>();
  if (packages == nullptr) refuse(fmt::format("said 'versions': {}, not an object", json::describe(*found)));
  for (const auto& [package, value] : *packages) {
    const auto* version = value.get_if<std::string>();
    if (version == nullptr)
      refuse(fmt::format("said that the version of {} is {}, not a text", package, json::describe(value)));
    versions.emplace(package, *version);
  }
  return versions;
}

std::vector<std::int32_t> edges_of(const Value& answer) {
  std::vector<std::int32_t> edges;
  const Value* found = answer.find("edges");
  if (found == nullptr) return edges;
  const auto* list = found->get_if<json::Array>();
  if (list == nullptr) refuse(fmt::format("said 'edges': {}, not a list", json::describe(*found)));
  for (const Value& item : *list) {
    const auto* edge = item.get_if<std::int64_t>();
    if (edge == nullptr || *edge < 1 || *edge > std::numeric_limits<std::int32_t>::max()) {
      refuse(
          fmt::format("names the edge {}, but edges are whole numbers and at least 1", json::describe(item)));
    }
    edges.push_back(static_cast<std::int32_t>(*edge));
  }
  return edges;
}

}  // namespace

std::string hello_request(std::int64_t id) {
  Object object = request(id, "hello");
  json::put(object, "protocol", to_value(kProtocol));
  json::put(object, "tool", to_value(fmt::format("mla {}", build_info().version)));
  return line_of(std::move(object));
}

std::string supports_request(std::int64_t id, const AttentionShape& shape, std::int32_t num_splits) {
  Object object = request(id, "supports");
  json::put(object, "shape", shape_json(shape));
  json::put(object, "splits", to_value(num_splits));
  return line_of(std::move(object));
}

std::string run_request(std::int64_t id, const AttentionShape& shape, const Call& call) {
  Object object = call_request(id, "run", shape, call);
  json::put(object, "out", to_value(call.out));
  return line_of(std::move(object));
}

std::string time_request(std::int64_t id, const AttentionShape& shape, const Call& call,
                         const TimeRules& rules) {
  Object object = call_request(id, "time", shape, call);
  json::put(object, "warmup", to_value(rules.warmup));
  json::put(object, "preheat", to_value(rules.preheat));
  json::put(object, "samples", to_value(rules.samples));
  json::put(object, "max_time", to_value(rules.max_time));
  json::put(object, "graph", to_value(rules.graph));
  json::put(object, "cold", to_value(rules.cold));
  json::put(object, "rotate_bytes", to_value(rules.rotate_bytes));
  return line_of(std::move(object));
}

std::string quit_request(std::int64_t id) {
  return line_of(request(id, "quit"));
}

std::optional<double> wait_of(std::string_view line, std::int64_t id) {
  if (line.find("\"wait\"") == std::string_view::npos) return std::nullopt;
  const Value answer = parse_answer(line, id);
  const Value* found = answer.find("wait");
  if (found == nullptr) return std::nullopt;
  const std::optional<double> seconds = number_of(*found);
  if (!seconds || !(*seconds > 0 && *seconds <= 3600)) {
    refuse(fmt::format("asked to wait {} s, but only more than 0 and up to 3600 are granted",
                       json::describe(*found)));
  }
  return seconds;
}

Facts parse_hello(std::string_view line, std::int64_t id) {
  const Value answer = parse_answer(line, id);
  const std::string skip = text_of(answer, "skip");
  if (!skip.empty()) throw Error(ErrorCode::kUnsupported, skip);
  throw_errors(answer);
  const Value* protocol = answer.find("protocol");
  const auto* version = protocol == nullptr ? nullptr : protocol->get_if<std::int64_t>();
  if (version == nullptr || *version != kProtocol) {
    refuse(fmt::format("speaks protocol {}, but this program speaks {}",
                       protocol == nullptr ? "nothing" : json::describe(*protocol), kProtocol));
  }
  Facts facts;
  facts.name = text_of(answer, "name");
  facts.summary = text_of(answer, "summary");
  facts.strategy = text_of(answer, "strategy");
  facts.device = text_of(answer, "device");
  if (facts.name.empty()) refuse("said no 'name' of itself");
  if (facts.strategy != "absorbed" && facts.strategy != "expanded") {
    refuse(fmt::format("says its strategy is {}, but it must be 'absorbed' or 'expanded'",
                       text::quoted(facts.strategy)));
  }
  facts.batch_invariant = flag_of(answer, "batch_invariant", false);
  facts.rounding = rounding_of(answer, {});
  facts.versions = versions_of(answer);
  facts.edges = edges_of(answer);
  return facts;
}

ShapeAnswer parse_supports(std::string_view line, std::int64_t id, const Facts& facts) {
  const Value json = parse_answer(line, id);
  throw_errors(json);
  const Value* found = json.find("ok");
  const bool* ok = found == nullptr ? nullptr : found->get_if<bool>();
  if (ok == nullptr) refuse("answered 'supports' without 'ok': true or false");
  ShapeAnswer answer;
  answer.rounding = rounding_of(json, facts.rounding);
  if (!*ok) {
    const std::string why = text_of(json, "why");
    if (why.empty()) refuse("refuses a shape and does not say why");
    answer.support = Support::no(why);
  }
  return answer;
}

std::string parse_run(std::string_view line, std::int64_t id) {
  const Value answer = parse_answer(line, id);
  throw_errors(answer);
  if (!flag_of(answer, "ok", false)) refuse("answered 'run' without 'ok': true");
  return text_of(answer, "plan");
}

TimeAnswer parse_time(std::string_view line, std::int64_t id) {
  const Value json = parse_answer(line, id);
  throw_errors(json);
  TimeAnswer answer;
  answer.timer = text_of(json, "timer");
  answer.plan = text_of(json, "plan");
  if (answer.timer != "graph" && answer.timer != "event" && answer.timer != "wall") {
    refuse(fmt::format("timed itself by {}, but graph, event and wall are the timers there are",
                       text::quoted(answer.timer)));
  }
  const Value* samples = json.find("samples_us");
  const auto* list = samples == nullptr ? nullptr : samples->get_if<json::Array>();
  if (list == nullptr) refuse("answered 'time' without 'samples_us', a list of numbers");
  for (const Value& sample : *list) {
    const std::optional<double> us = number_of(sample);
    if (!us) refuse("answered 'time' without 'samples_us', a list of numbers");
    answer.seconds.push_back(*us * 1e-6);
  }
  if (const Value* copies = json.find("copies")) {
    const auto* number = copies->get_if<std::int64_t>();
    if (number == nullptr || *number < 1 || *number > std::numeric_limits<int>::max()) {
      refuse(fmt::format("says it rotated through {} copies, not a whole number of them",
                         json::describe(*copies)));
    }
    answer.copies = static_cast<int>(*number);
  }
  if (answer.seconds.empty()) refuse("answered 'time' with no samples");
  for (const double s : answer.seconds) {
    if (!(std::isfinite(s) && s > 0)) refuse(fmt::format("measured {} s, which no call takes", s));
  }
  return answer;
}

}  // namespace mla::peer
