// SPDX-License-Identifier: Apache-2.0
#include "mla/shape.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "core/count.hpp"
#include "core/shared_prefix.hpp"
#include "core/text.hpp"
#include "mla/error.hpp"

namespace mla {
namespace {

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidArgument, sentence);
}

void check_requests(const AttentionShape& shape) {
  for (std::size_t i = 0; i < shape.batch.size(); ++i) {
    const Request& r = shape.batch[i];
    if (r.q_len < 0) refuse(fmt::format("batch[{}].q_len is {}, but must be >= 0", i, r.q_len));
    if (r.kv_len < 0) refuse(fmt::format("batch[{}].kv_len is {}, but must be >= 0", i, r.kv_len));
    if (shape.mask.causal && r.kv_len > 0 && r.kv_len < r.q_len) {
      refuse(
          fmt::format("batch[{}].kv_len is {}, but includes the {} new tokens (q_len), so must be 0 or >= {}",
                      i, r.kv_len, r.q_len, r.q_len));
    }
  }
}

void check_mask(const Mask& mask) {
  if (mask.window && *mask.window < 1) refuse(fmt::format("window is {}, but must be >= 1", *mask.window));
  if (mask.window && !mask.causal) refuse(fmt::format("window {} needs a causal mask", *mask.window));
  if (mask.sink < 0) refuse(fmt::format("sink is {}, but must be >= 0", mask.sink));
  if (mask.sink > 0 && !mask.window) {
    refuse(fmt::format("sink is {}, but there is no window beside which it could keep keys", mask.sink));
  }
}

/// All that validate() wants, but for the empty batch.
void check_all_but_emptiness(const AttentionShape& shape) {
  validate(shape.dims);
  check_requests(shape);
  check_mask(shape.mask);
  if (shape.topk < 0) refuse(fmt::format("topk is {}, but must be >= 0 (0: no index)", shape.topk));
  if (shape.block_size < 1) refuse(fmt::format("block_size is {}, but must be >= 1", shape.block_size));
  validate_shared(shape);
}

/// Words that are a fixed text each, and what they set.
struct Flag {
  std::string_view word;
  std::string_view kind;  // two words of one kind contradict each other
  void (*set)(AttentionShape&);
};
constexpr Flag kFlags[] = {
    {"decode", "phase", [](AttentionShape& s) { s.phase = Phase::kDecode; }},
    {"prefill", "phase", [](AttentionShape& s) { s.phase = Phase::kPrefill; }},
    {"latent", "space", [](AttentionShape& s) { s.space = QuerySpace::kLatent; }},
    {"head", "space", [](AttentionShape& s) { s.space = QuerySpace::kHead; }},
    {"causal", "mask", [](AttentionShape& s) { s.mask.causal = true; }},
    {"full", "mask", [](AttentionShape& s) { s.mask.causal = false; }},
};

/// Words that are a name and a whole number.
struct Number {
  std::string_view word;
  void (*set)(AttentionShape&, std::int32_t);
};
constexpr Number kNumbers[] = {
    {"h", [](AttentionShape& s, std::int32_t n) { s.dims.num_heads = n; }},
    {"l", [](AttentionShape& s, std::int32_t n) { s.dims.kv_lora_rank = n; }},
    {"r", [](AttentionShape& s, std::int32_t n) { s.dims.qk_rope_head_dim = n; }},
    {"p", [](AttentionShape& s, std::int32_t n) { s.dims.qk_nope_head_dim = n; }},
    {"v", [](AttentionShape& s, std::int32_t n) { s.dims.v_head_dim = n; }},
    {"w", [](AttentionShape& s, std::int32_t n) { s.mask.window = n; }},
    {"sink", [](AttentionShape& s, std::int32_t n) { s.mask.sink = n; }},
    {"topk", [](AttentionShape& s, std::int32_t n) { s.topk = n; }},
    {"b", [](AttentionShape& s, std::int32_t n) { s.block_size = n; }},
};

/// Words that are a name, a colon and a type.
struct Type {
  std::string_view word;
  void (*set)(AttentionShape&, std::string_view);
};
constexpr Type kTypes[] = {
    {"q:", [](AttentionShape& s, std::string_view t) { s.q_dtype = parse_dtype(t); }},
    {"out:", [](AttentionShape& s, std::string_view t) { s.out_dtype = parse_dtype(t); }},
    {"cache:", [](AttentionShape& s, std::string_view t) { s.cache = parse_cache_format(t); }},
};

template <class Entry, std::size_t N>
const Entry* find(const Entry (&table)[N], std::string_view word) {
  const auto it =
      std::find_if(std::begin(table), std::end(table), [&](const Entry& e) { return e.word == word; });
  return it == std::end(table) ? nullptr : it;
}

[[noreturn]] void refuse_word(std::string_view word) {
  std::vector<std::string> known;
  for (const Flag& flag : kFlags) known.emplace_back(flag.word);
  for (const Number& number : kNumbers) known.push_back(fmt::format("{}N", number.word));
  for (const Type& type : kTypes) known.push_back(fmt::format("{}TYPE", type.word));
  known.emplace_back("prefixN");
  known.emplace_back("a batch such as 32q1s4k");
  throw Error(ErrorCode::kParse, fmt::format("{} is not a word of a shape", text::quoted(word)),
              text::suggestion(word, known));
}

/// Sets what `word` says and returns its kind.
std::string_view apply_word(AttentionShape& shape, std::string_view word) {
  if (const Flag* flag = find(kFlags, word)) {
    flag->set(shape);
    return flag->kind;
  }
  const std::size_t colon = word.find(':');
  if (colon != std::string_view::npos) {
    const Type* type = find(kTypes, word.substr(0, colon + 1));
    if (type == nullptr) refuse_word(word);
    try {
      type->set(shape, word.substr(colon + 1));
    } catch (const Error& e) {
      throw Error(ErrorCode::kParse, fmt::format("{}: {}", text::quoted(word), e.what()), e.hint());
    }
    return type->word;
  }
  const std::size_t rest = std::min(word.find_first_not_of("abcdefghijklmnopqrstuvwxyz"), word.size());
  const std::string_view name = word.substr(0, rest);
  if (name.empty() || name == "q" || name == "s") {
    shape.batch = parse_batch(word);
    return "batch";
  }
  if (name == kSharedWord) {
    shape.shared = parse_shared(word);
    return kSharedWord;
  }
  const Number* number = find(kNumbers, name);
  if (number == nullptr) refuse_word(word);
  const std::string what = fmt::format("{}: the number after {}", text::quoted(word), name);
  number->set(shape,
              static_cast<std::int32_t>(text::parse_count(word.substr(rest), what, ErrorCode::kParse, 0,
                                                          std::numeric_limits<std::int32_t>::max())));
  return number->word;
}

}  // namespace

std::string to_text(const AttentionShape& shape) {
  const MlaDims& d = shape.dims;
  std::string out =
      fmt::format("{} {} h{} l{} r{} p{} v{}", shape.phase == Phase::kDecode ? "decode" : "prefill",
                  shape.space == QuerySpace::kLatent ? "latent" : "head", d.num_heads, d.kv_lora_rank,
                  d.qk_rope_head_dim, d.qk_nope_head_dim, d.v_head_dim);
  if (!shape.batch.empty()) out += ' ' + format_batch(shape.batch);
  out += shape.mask.causal ? " causal" : " full";
  if (shape.mask.window) out += fmt::format(" w{}", *shape.mask.window);
  if (shape.mask.sink != 0) out += fmt::format(" sink{}", shape.mask.sink);
  if (shape.topk != 0) out += fmt::format(" topk{}", shape.topk);
  if (!shape.shared.empty()) out += ' ' + format_shared(shape);
  return out + fmt::format(" b{} q:{} out:{} cache:{}", shape.block_size, name_of(shape.q_dtype),
                           name_of(shape.out_dtype), name_of(shape.cache));
}

AttentionShape parse_shape(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  AttentionShape shape;
  std::vector<std::string_view> seen;
  while (true) {
    const std::size_t start = text.find_first_not_of(kSpace);
    if (start == std::string_view::npos) break;
    text.remove_prefix(start);
    const std::string_view word = text.substr(0, text.find_first_of(kSpace));
    text.remove_prefix(word.size());
    const std::string_view kind = apply_word(shape, word);
    if (std::find(seen.begin(), seen.end(), kind) != seen.end()) {
      throw Error(
          ErrorCode::kParse,
          fmt::format("{} says again what an earlier word of the shape already said", text::quoted(word)));
    }
    seen.push_back(kind);
  }
  resolve_shared(shape);
  check_all_but_emptiness(shape);
  return shape;
}

void validate(const AttentionShape& shape) {
  if (shape.batch.empty()) refuse("batch is empty, but must hold at least one request");
  check_all_but_emptiness(shape);
}

}  // namespace mla
