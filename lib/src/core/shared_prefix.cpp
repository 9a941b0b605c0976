// SPDX-License-Identifier: Apache-2.0
#include "core/shared_prefix.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/count.hpp"
#include "core/text.hpp"
#include "mla/error.hpp"

namespace mla {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidArgument, sentence);
}

std::int32_t parse_number(std::string_view text, const std::string& what, std::int64_t low) {
  return static_cast<std::int32_t>(text::parse_count(text, what, ErrorCode::kParse, low, kMost));
}

/// LEN or LEN@FIRST+COUNT.
SharedPrefix parse_one(std::string_view word, std::string_view text) {
  const std::string where = fmt::format("{}: the ", text::quoted(word));
  const std::size_t at = text.find('@');
  SharedPrefix one{.tokens = parse_number(text.substr(0, at), where + "length of a shared prefix", 1),
                   .count = 0};
  if (at == std::string_view::npos) return one;
  const std::string_view who = text.substr(at + 1);
  const std::size_t plus = who.find('+');
  if (plus == std::string_view::npos) {
    throw Error(ErrorCode::kParse, fmt::format("{} names requests without a '+'", text::quoted(word)),
                "write prefix8k for all requests, or prefix8k@0+4 for four from the first on");
  }
  one.first = parse_number(who.substr(0, plus), where + "first request that shares a prefix", 0);
  one.count = parse_number(who.substr(plus + 1), where + "count of requests that share a prefix", 1);
  return one;
}

/// Keys of a request that all its queries see.
std::int64_t seen_by_all(const AttentionShape& shape, const Request& r) {
  return shape.mask.causal ? std::int64_t{r.kv_len} - std::max(0, r.q_len - 1) : r.kv_len;
}

}  // namespace

std::vector<SharedPrefix> parse_shared(std::string_view word) {
  std::vector<SharedPrefix> all;
  for (const std::string& part : text::split(word.substr(kSharedWord.size()), '_')) {
    all.push_back(parse_one(word, part));
  }
  if (all.size() > 1 && std::ranges::any_of(all, [](const SharedPrefix& s) { return s.count == 0; })) {
    throw Error(ErrorCode::kParse,
                fmt::format("{} has several prefixes, of which one names no requests", text::quoted(word)),
                "write prefix8k@0+4_1k@6+2: which requests share which");
  }
  return all;
}

void resolve_shared(AttentionShape& shape) {
  for (SharedPrefix& s : shape.shared) {
    if (s.count == 0) s.count = static_cast<std::int32_t>(shape.batch.size());
  }
}

const SharedPrefix* shared_prefix_of(const AttentionShape& shape, std::size_t request) {
  const auto at = static_cast<std::int64_t>(request);
  for (const SharedPrefix& s : shape.shared) {
    if (at >= s.first && at < std::int64_t{s.first} + s.count) return &s;
  }
  return nullptr;
}

std::int64_t borrowed_keys(const AttentionShape& shape, std::size_t request) {
  const SharedPrefix* const s = shared_prefix_of(shape, request);
  return s != nullptr && static_cast<std::size_t>(s->first) < request ? s->tokens : 0;
}

void drop_requests(AttentionShape& shape, std::size_t first, std::size_t count) {
  const auto begin = shape.batch.begin() + static_cast<std::ptrdiff_t>(first);
  shape.batch.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
  const auto moved =
      [&](std::int64_t request) {  // where what stood there, or the next that is left, now stands
        const auto low = static_cast<std::int64_t>(first), high = static_cast<std::int64_t>(first + count);
        return static_cast<std::int32_t>(request < low ? request : std::max(request, high) - (high - low));
      };
  for (SharedPrefix& s : shape.shared) {
    const std::int32_t end = moved(std::int64_t{s.first} + s.count);
    s.first = moved(s.first);
    s.count = end - s.first;
  }
  std::erase_if(shape.shared, [](const SharedPrefix& s) { return s.count == 0; });
}

std::string format_shared(const AttentionShape& shape) {
  std::string out(kSharedWord);
  for (const SharedPrefix& s : shape.shared) {
    if (out.size() > kSharedWord.size()) out += '_';
    out += text::format_count(s.tokens);
    if (shape.shared.size() == 1 && s.first == 0 && s.count == std::ssize(shape.batch)) continue;
    out += fmt::format("@{}+{}", s.first, s.count);
  }
  return out;
}

void validate_shared(const AttentionShape& shape) {
  if (!shape.shared.empty() && shape.topk > 0) {
    refuse(fmt::format("a shared prefix of {} tokens beside topk {}: an index names its keys itself",
                       shape.shared.front().tokens, shape.topk));
  }
  std::int64_t free = 0;  // requests below belong to a prefix already, or lie before one
  for (std::size_t i = 0; i < shape.shared.size(); ++i) {
    const SharedPrefix& s = shape.shared[i];
    if (s.tokens < 1 || s.tokens % shape.block_size != 0) {
      refuse(fmt::format("shared[{}].tokens is {}, but must be a multiple of the block size {}", i, s.tokens,
                         shape.block_size));
    }
    if (s.count < 1 || s.first < free || std::int64_t{s.first} + s.count > std::ssize(shape.batch)) {
      refuse(fmt::format("shared[{}] is of {} requests from {} on, but must lie in {}..{}", i, s.count,
                         s.first, free, std::ssize(shape.batch) - 1));
    }
    free = std::int64_t{s.first} + s.count;
    for (std::int64_t b = s.first; b < free; ++b) {
      const Request& r = shape.batch[static_cast<std::size_t>(b)];
      if (seen_by_all(shape, r) < s.tokens) {
        refuse(
            fmt::format("shared[{}].tokens is {}, but the queries of batch[{}] have only {} keys in common",
                        i, s.tokens, b, std::max<std::int64_t>(0, seen_by_all(shape, r))));
      }
    }
  }
}

void validate_new_rows(const AttentionShape& shape) {
  for (const SharedPrefix& s : shape.shared) {
    for (std::int64_t b = s.first; s.count > 1 && b < std::int64_t{s.first} + s.count; ++b) {
      const Request& r = shape.batch[static_cast<std::size_t>(b)];
      if (r.q_len == 0 || r.kv_len - r.q_len >= s.tokens) continue;
      refuse(fmt::format(
          "batch[{}] writes its new tokens from position {} on, into a prefix of {} tokens that {} "
          "requests share; a step needs at least {} keys there",
          b, r.kv_len - r.q_len, s.tokens, s.count, std::int64_t{s.tokens} + r.q_len));
    }
  }
}

}  // namespace mla
