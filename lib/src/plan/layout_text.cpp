// SPDX-License-Identifier: Apache-2.0
#include "plan/layout_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <string>
#include <utility>

#include "core/text.hpp"
#include "mla/error.hpp"
#include "plan/search.hpp"

namespace mla::capacity {
namespace {

[[noreturn]] void refuse(std::string_view text, std::string_view part) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("layout {} has the part {}", text::quoted(text), text::quoted(part)),
              "write it like tp8, dp8+ep8, pp2xtp4 or tp8+dcp8, each word once");
}

}  // namespace

LayoutText parse_layout(std::string_view text) {
  LayoutText out;
  Layout& layout = out.layout;
  std::array<std::pair<std::string_view, int*>, 5> words{
      {{"tp", &layout.tp}, {"dp", &layout.dp}, {"pp", &layout.pp}, {"dcp", &layout.dcp}, {"ep", &layout.ep}}};
  std::string lower = text::to_lower(text);
  std::ranges::replace(lower, 'x', '+');
  for (const std::string& part : text::split(lower, '+')) {
    const std::size_t digits = std::min(part.find_first_of("0123456789"), part.size());
    const std::string_view name = std::string_view(part).substr(0, digits);
    const auto word = std::ranges::find_if(words, [&](const auto& one) { return one.first == name; });
    int size = 0;
    const auto [end, error] = std::from_chars(part.data() + digits, part.data() + part.size(), size);
    const bool whole = error == std::errc{} && end == part.data() + part.size();
    if (word == words.end() || word->second == nullptr || !whole) refuse(text, part);
    *std::exchange(word->second, nullptr) = size;
    out.ep_given = out.ep_given || name == "ep";
  }
  return out;
}

Layout layout_for(const LayoutText& text, const ModelConfig& model) {
  Layout layout = text.layout;
  validate(layout, model);
  if (!text.ep_given) layout.ep = default_expert_ranks(model, layout);
  validate(layout, model);
  return layout;
}

}  // namespace mla::capacity
