// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "model/json_node.hpp"
#include "model/read_file.hpp"

namespace mla::test {

/// The ids of the public faults of bug-cases.json, in its order.
inline std::vector<std::string> bug_case_ids() {
  const std::string file = MLA_TEST_DATA "/data/bug-cases.json";
  const json::Value value = json::parse(read_text_file(file), file);
  std::vector<std::string> ids;
  for (const json::Node& one : json::Node(value, file).items()) ids.push_back(one.at("id").text());
  return ids;
}

}  // namespace mla::test
