// SPDX-License-Identifier: Apache-2.0
#include "peer/messages.hpp"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "mla/version.hpp"

namespace mla::peer {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLongestText = 500;

Json request(std::int64_t id, const char* what) {
  return Json{{"id", id}, {"do", what}};
}

Json shape_json(const AttentionShape& shape) {
  Json q_lens = Json::array(), kv_lens = Json::array();
  for (const Request& r : shape.batch) {
    q_lens.push_back(r.q_len);
    kv_lens.push_back(r.kv_len);
  }
  const MlaDims& d = shape.dims;
  return Json{{"text", to_text(shape)},
              {"phase", shape.phase == Phase::kDecode ? "decode" : "prefill"},
              {"space", shape.space == QuerySpace::kLatent ? "latent" : "head"},
              {"num_heads", d.num_heads},
              {"kv_lora_rank", d.kv_lora_rank},
              {"qk_rope_head_dim", d.qk_rope_head_dim},
              {"qk_nope_head_dim", d.qk_nope_head_dim},
              {"v_head_dim", d.v_head_dim},
              {"causal", shape.mask.causal},
              {"window", shape.mask.window ? Json(*shape.mask.window) : Json()},
              {"sink", shape.mask.sink},
              {"topk", shape.topk},
              {"block_size", shape.block_size},
              {"q_dtype", name_of(shape.q_dtype)},
              {"out_dtype", name_of(shape.out_dtype)},
              {"cache", name_of(shape.cache)},
              {"q_lens", q_lens},
              {"kv_lens", kv_lens}};
}

Json call_request(std::int64_t id, const char* what, const AttentionShape& shape, const Call& call) {
  Json json = request(id, what);
  json["shape"] = shape_json(shape);
  json["softmax_scale"] = call.softmax_scale;
  json["lse"] = call.lse ? Json(name_of(*call.lse)) : Json();
  json["splits"] = call.num_splits;
  json["in"] = call.in;
  return json;
}

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::kParse, what);
}

/// The answer as an object with the right id, errors of the peer's own already thrown.
Json parse_answer(std::string_view line, std::int64_t id) {
  Json json;
  try {
    json = Json::parse(line);
  } catch (const Json::exception&) {
    refuse(fmt::format("answered {}, which is not JSON", text::quoted(line)));
  }
  if (!json.is_object()) refuse(fmt::format("answered {}, which is not a JSON object", text::quoted(line)));
  const auto given = json.find("id");
  if (given == json.end() || !given->is_number_integer() || given->get<std::int64_t>() != id) {
    refuse(fmt::format("answered {} to message {}: the id must be the message's", text::quoted(line), id));
  }
  return json;
}

std::string text_of(const Json& json, const char* key) {
  const auto it = json.find(key);
  if (it == json.end()) return {};
  if (!it->is_string()) refuse(fmt::format("answered with '{}': {}, which is not a text", key, it->dump()));
  std::string value = it->get<std::string>();
  // It will stand in tables and on terminals: one line, not too long, nothing that moves a cursor.
  if (value.size() > kLongestText) value = value.substr(0, kLongestText) + "...";
  for (char& c : value) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return value;
}

void throw_errors(const Json& json) {
  const std::string unsupported = text_of(json, "unsupported");
  if (!unsupported.empty()) throw Error(ErrorCode::kUnsupported, unsupported);
  const std::string error = text_of(json, "error");
  if (!error.empty()) throw Error(ErrorCode::kDevice, error);
}

bool flag_of(const Json& json, const char* key, bool missing) {
  const auto it = json.find(key);
  if (it == json.end()) return missing;
  if (!it->is_boolean()) refuse(fmt::format("answered with '{}': {}, not true or false", key, it->dump()));
  return it->get<bool>();
}

/// The keys of "rounding" over `profile`.
RoundingProfile rounding_of(const Json& json, RoundingProfile profile) {
  const auto it = json.find("rounding");
  if (it == json.end()) return profile;
  if (!it->is_object()) refuse(fmt::format("answered with 'rounding': {}, not an object", it->dump()));
  const auto set = [](DType& field, const Json& value) { field = parse_dtype(value.get<std::string>()); };
  for (const auto& [key, value] : it->items()) {
    try {
      if (key == "accumulate") {
        set(profile.accumulate, value);
      } else if (key == "probabilities") {
        set(profile.probabilities, value);
      } else if (key == "partials") {
        set(profile.partials, value);
      } else if (key == "absorbed_query") {
        set(profile.absorbed_query, value);
      } else if (key == "latent_output") {
        set(profile.latent_output, value);
      } else if (key == "expanded_kv") {
        set(profile.expanded_kv, value);
      } else if (key == "lse_from_rounded_p") {
        profile.lse_from_rounded_p = value.get<bool>();
      } else if (key == "unit_weight") {
        profile.unit_weight = value.get<bool>();
      } else {
        refuse(fmt::format("answered with 'rounding' of an unknown place {}", text::quoted(key)));
      }
    } catch (const Json::exception&) {
      refuse(fmt::format("answered with rounding '{}': {}", key, value.dump()));
    }
  }
  return profile;
}

}  // namespace

std::string hello_request(std::int64_t id) {
  Json json = request(id, "hello");
  json["protocol"] = kProtocol;
  json["tool"] = fmt::format("mla {}", build_info().version);
  return json.dump();
}

std::string supports_request(std::int64_t id, const AttentionShape& shape, std::int32_t num_splits) {
  Json json = request(id, "supports");
  json["shape"] = shape_json(shape);
  json["splits"] = num_splits;
  return json.dump();
}

std::string run_request(std::int64_t id, const AttentionShape& shape, const Call& call) {
  Json json = call_request(id, "run", shape, call);
  json["out"] = call.out;
  return json.dump();
}

std::string time_request(std::int64_t id, const AttentionShape& shape, const Call& call,
                         const TimeRules& rules) {
  Json json = call_request(id, "time", shape, call);
  json["warmup"] = rules.warmup;
  json["samples"] = rules.samples;
  json["max_time"] = rules.max_time;
  json["graph"] = rules.graph;
  json["cold"] = rules.cold;
  json["rotate_bytes"] = rules.rotate_bytes;
  return json.dump();
}

std::string quit_request(std::int64_t id) {
  return request(id, "quit").dump();
}

std::optional<double> wait_of(std::string_view line, std::int64_t id) {
  if (line.find("\"wait\"") == std::string_view::npos) return std::nullopt;
  const Json json = parse_answer(line, id);
  const auto it = json.find("wait");
  if (it == json.end()) return std::nullopt;
  if (!it->is_number() || !(it->get<double>() > 0 && it->get<double>() <= 3600)) {
    refuse(fmt::format("asked to wait {} s, but only more than 0 and up to 3600 are granted", it->dump()));
  }
  return it->get<double>();
}

Facts parse_hello(std::string_view line, std::int64_t id) {
  const Json json = parse_answer(line, id);
  const std::string skip = text_of(json, "skip");
  if (!skip.empty()) throw Error(ErrorCode::kUnsupported, skip);
  throw_errors(json);
  const auto protocol = json.find("protocol");
  if (protocol == json.end() || *protocol != kProtocol) {
    refuse(fmt::format("speaks protocol {}, but this program speaks {}",
                       protocol == json.end() ? "nothing" : protocol->dump(), kProtocol));
  }
  Facts facts;
  facts.name = text_of(json, "name");
  facts.summary = text_of(json, "summary");
  facts.strategy = text_of(json, "strategy");
  facts.device = text_of(json, "device");
  if (facts.name.empty()) refuse("said no 'name' of itself");
  if (facts.strategy != "absorbed" && facts.strategy != "expanded") {
    refuse(fmt::format("says its strategy is {}, but it must be 'absorbed' or 'expanded'",
                       text::quoted(facts.strategy)));
  }
  facts.batch_invariant = flag_of(json, "batch_invariant", false);
  facts.rounding = rounding_of(json, {});
  try {
    if (json.contains("versions")) {
      facts.versions = json["versions"].get<std::map<std::string, std::string>>();
    }
    if (json.contains("edges")) facts.edges = json["edges"].get<std::vector<std::int32_t>>();
  } catch (const Json::exception&) {
    refuse("said 'versions' or 'edges' that are not texts by name and whole numbers");
  }
  for (const std::int32_t edge : facts.edges) {
    if (edge < 1) refuse(fmt::format("names the edge {}, but edges are at least 1", edge));
  }
  return facts;
}

ShapeAnswer parse_supports(std::string_view line, std::int64_t id, const Facts& facts) {
  const Json json = parse_answer(line, id);
  throw_errors(json);
  const auto ok = json.find("ok");
  if (ok == json.end() || !ok->is_boolean()) refuse("answered 'supports' without 'ok': true or false");
  ShapeAnswer answer;
  answer.rounding = rounding_of(json, facts.rounding);
  if (!ok->get<bool>()) {
    const std::string why = text_of(json, "why");
    if (why.empty()) refuse("refuses a shape and does not say why");
    answer.support = Support::no(why);
  }
  return answer;
}

std::string parse_run(std::string_view line, std::int64_t id) {
  const Json json = parse_answer(line, id);
  throw_errors(json);
  if (!flag_of(json, "ok", false)) refuse("answered 'run' without 'ok': true");
  return text_of(json, "plan");
}

TimeAnswer parse_time(std::string_view line, std::int64_t id) {
  const Json json = parse_answer(line, id);
  throw_errors(json);
  TimeAnswer answer;
  answer.timer = text_of(json, "timer");
  answer.plan = text_of(json, "plan");
  if (answer.timer != "graph" && answer.timer != "event" && answer.timer != "wall") {
    refuse(fmt::format("timed itself by {}, but graph, event and wall are the timers there are",
                       text::quoted(answer.timer)));
  }
  try {
    for (const Json& sample : json.at("samples_us")) answer.seconds.push_back(sample.get<double>() * 1e-6);
    answer.copies = json.value("copies", 1);
  } catch (const Json::exception&) {
    refuse("answered 'time' without 'samples_us', a list of numbers");
  }
  if (answer.seconds.empty()) refuse("answered 'time' with no samples");
  for (const double s : answer.seconds) {
    if (!(std::isfinite(s) && s > 0)) refuse(fmt::format("measured {} s, which no call takes", s));
  }
  return answer;
}

}  // namespace mla::peer
