// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <limits>

#include "core/count.hpp"
#include "core/text.hpp"
#include "mla/error.hpp"
#include "mla/random.hpp"
#include "mla/shape.hpp"

namespace mla {
namespace {

constexpr std::int64_t kMostRequests = 10'000'000;
constexpr std::int64_t kLongest = std::numeric_limits<std::int32_t>::max();
// Streams of the two draws a request may need; any two distinct numbers would do, these may never change.
constexpr std::uint64_t kQueryStream = 'q';
constexpr std::uint64_t kKeyStream = 's';

/// An inclusive range of lengths; low == high for a plain one.
struct Lengths {
  std::int64_t low = 0;
  std::int64_t high = 0;
  [[nodiscard]] std::int32_t draw(const CounterRng& rng, std::uint64_t request) const {
    return static_cast<std::int32_t>(rng.between(request, low, high));
  }
};

Lengths parse_lengths(std::string_view text, const std::string& what) {
  const auto length = [&](std::string_view part) {
    return text::parse_count(part, what, ErrorCode::kParse, 0, kLongest);
  };
  const std::size_t dots = text.find("..");
  if (dots == std::string_view::npos) return {length(text), length(text)};
  const Lengths range{length(text.substr(0, dots)), length(text.substr(dots + 2))};
  if (range.low > range.high) {
    throw Error(ErrorCode::kParse,
                fmt::format("{} is the range {}, whose end lies below its start", what, text::quoted(text)));
  }
  return range;
}

struct Group {
  std::int64_t count = 1;
  Lengths q{1, 1};
  std::optional<Lengths> s;  // absent: as q
};

Group parse_group(std::string_view text) {
  const std::string where = fmt::format("batch group {}", text::quoted(text));
  const auto refuse = [&](std::string_view why) {
    throw Error(
        ErrorCode::kParse, fmt::format("{} {}", where, why),
        "a group is [count][q LENGTH][s LENGTH], as in 32q1s4k, q2k or 64q1s1k..16k; groups are joined by _");
  };
  if (text.empty()) refuse("is empty");
  const std::size_t letter = text.find_first_of("qs");
  if (letter == std::string_view::npos) refuse("has neither q nor s");
  Group group;
  if (letter > 0) {
    const std::string_view count = text.substr(0, letter);
    if (count.find_first_not_of("0123456789") != std::string_view::npos) {
      refuse(fmt::format("starts with {}, which is not a plain count of requests", text::quoted(count)));
    }
    group.count =
        text::parse_count(count, where + ": the count of requests", ErrorCode::kParse, 1, kMostRequests);
  }
  const bool has_q = text[letter] == 'q';
  const std::size_t s = has_q ? text.find('s', letter) : letter;
  if (has_q) group.q = parse_lengths(text.substr(letter + 1, s - letter - 1), where + ": q");
  if (s != std::string_view::npos) group.s = parse_lengths(text.substr(s + 1), where + ": s");
  if (!group.s && group.q.low == 0) refuse("has q 0 and no s: a prefill of no tokens");
  return group;
}

}  // namespace

std::vector<Request> parse_batch(std::string_view text, std::uint64_t seed) {
  if (text.empty()) {
    throw Error(ErrorCode::kParse, "the batch is empty",
                "write it like 32q1s4k: 32 requests, 1 new token, 4096 keys");
  }
  const CounterRng query(seed, kQueryStream);
  const CounterRng key(seed, kKeyStream);
  std::vector<Request> batch;
  for (;;) {
    const std::size_t end = text.find('_');
    const Group group = parse_group(text.substr(0, end));
    if (static_cast<std::int64_t>(batch.size()) + group.count > kMostRequests) {
      throw Error(ErrorCode::kParse,
                  fmt::format("the batch has {} requests or more, but at most {} are allowed",
                              static_cast<std::int64_t>(batch.size()) + group.count, kMostRequests));
    }
    for (std::int64_t i = 0; i < group.count; ++i) {
      const std::uint64_t request = batch.size();
      const std::int32_t q_len = group.q.draw(query, request);
      batch.push_back({q_len, group.s ? group.s->draw(key, request) : q_len});
    }
    if (end == std::string_view::npos) return batch;
    text.remove_prefix(end + 1);
  }
}

std::string format_batch(std::span<const Request> batch) {
  std::string out;
  for (std::size_t i = 0; i < batch.size();) {
    std::size_t count = 1;
    while (i + count < batch.size() && batch[i + count] == batch[i]) ++count;
    const Request& r = batch[i];
    if (!out.empty()) out += '_';
    if (count > 1) out += fmt::format("{}", count);
    out += 'q' + text::format_count(r.q_len);
    if (r.kv_len != r.q_len || r.q_len == 0) out += 's' + text::format_count(r.kv_len);
    i += count;
  }
  return out;
}

}  // namespace mla
