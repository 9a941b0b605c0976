// SPDX-License-Identifier: Apache-2.0
#include "verify/repro.hpp"

#include <fmt/format.h>

#include "mla/error.hpp"
#include "model/json_node.hpp"
#include "model/json_write.hpp"

namespace mla::verify {
namespace {

/// A text that `read` understands.
template <class Read>
auto read_as(const json::Node& node, Read read) {
  const std::string& text = node.text();
  try {
    return read(text);
  } catch (const Error& e) {
    throw Error(ErrorCode::kParse, fmt::format("{}: {}", node.where(), e.what()), e.hint());
  }
}

Case case_of(const json::Node& node) {
  return read_as(node, [](const std::string& text) {
    Case c = parse_case(text);
    validate(c);
    return c;
  });
}

std::vector<std::string> plugins_of(const json::Node& root) {
  std::vector<std::string> plugins;
  if (const auto list = root.find("plugins")) {
    for (const json::Node& plugin : list->items()) plugins.push_back(plugin.text());
  }
  return plugins;
}

}  // namespace

std::string to_json(const Repro& repro, std::string_view file) {
  json::Object object{{"schema_version", json::to_value(1)},
                      {"kind", json::to_value("verify.repro")},
                      {"backend", json::to_value(repro.backend)},
                      {"oracle", json::to_value(repro.oracle)},
                      {"case", json::to_value(to_text(repro.c))},
                      {"found_as", json::to_value(to_text(repro.found_as))},
                      {"failure", json::to_value(name_of(repro.failure))},
                      {"finding", json::to_value(repro.finding)},
                      {"version", json::to_value(repro.version)},
                      {"command", json::to_value(fmt::format("mla-verify run --replay {}", file))}};
  if (!repro.plugins.empty()) object.emplace_back("plugins", json::to_value(repro.plugins));
  return json::dump(json::Value(std::move(object)), 1) + "\n";
}

Repro parse_repro(std::string_view text, std::string_view origin) {
  const json::Value value = json::parse(text, origin);
  const json::Node root(value, origin);
  if (root.at("kind").text() != "verify.repro") root.at("kind").refuse("is not verify.repro");
  return {root.at("backend").text(),
          root.at("oracle").text(),
          case_of(root.at("case")),
          case_of(root.at("found_as")),
          read_as(root.at("failure"), [](const std::string& name) { return parse_failure(name); }),
          root.at("finding").text(),
          root.at("version").text(),
          plugins_of(root)};
}

}  // namespace mla::verify
