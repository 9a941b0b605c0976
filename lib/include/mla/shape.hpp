// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mla/cache.hpp"
#include "mla/dims.hpp"
#include "mla/dtype.hpp"

namespace mla {

/// One request of a batch. kv_len counts all keys *including* the q_len new tokens.
struct Request {
  std::int32_t q_len = 1;
  std::int32_t kv_len = 0;
  friend bool operator==(const Request&, const Request&) = default;
};

/// Which keys a query may see. With S = q_len new tokens and N = kv_len keys, query i (0-based) stands at
/// position p = N - S + i. causal: keys 0..p. window W (counts the current key): keys p-W+1..p. sink: keys
/// 0..sink-1 are always kept beside the window and never counted twice. window and sink need causal; sink
/// needs window.
struct Mask {
  bool causal = true;
  std::optional<std::int32_t> window{};  ///< >= 1
  std::int32_t sink = 0;                 ///< >= 0
  friend bool operator==(const Mask&, const Mask&) = default;

  /// True if the query at position p of a request with n keys may see key j.
  [[nodiscard]] constexpr bool sees(std::int64_t p, std::int64_t n, std::int64_t j) const noexcept {
    if (j < 0 || j >= n) return false;
    if (!causal) return true;
    if (j > p) return false;
    return !window || j > p - *window || j < sink;
  }
};

/// Requests first .. first + count - 1 of a batch whose first `tokens` keys are the same: their block tables begin
/// with the same blocks (a system prompt, samples of one prompt). A backend that knows may read them once.
struct SharedPrefix {
  std::int32_t tokens = 0;  ///< a multiple of the block size
  std::int32_t first = 0;   ///< request
  std::int32_t count = 1;
  friend bool operator==(const SharedPrefix&, const SharedPrefix&) = default;
};

enum class Phase : std::uint8_t { kDecode, kPrefill };

/// In which space the attention's query and output live.
/// kLatent: q [tokens, H, L+R] already absorbed, out [tokens, H, L]: the attention kernel alone.
/// kHead:   q [tokens, H, P+R], out [tokens, H, V]: W_UK and W_UV belong to the work, however the backend
/// applies them.
enum class QuerySpace : std::uint8_t { kLatent, kHead };

/// Everything that decides what an attention call must do, and so which backend can do it.
struct AttentionShape {
  Phase phase = Phase::kDecode;
  QuerySpace space = QuerySpace::kLatent;
  MlaDims dims{};
  std::vector<Request> batch{};
  std::vector<SharedPrefix> shared{};  ///< in the order of their requests, none in two of them
  Mask mask;
  std::int32_t topk = 0;  ///< > 0: an explicit index of topk key positions per query replaces the mask
  std::int32_t block_size = 64;
  DType q_dtype = DType::kBF16;
  DType out_dtype = DType::kBF16;
  CacheFormat cache = CacheFormat::kBF16;

  [[nodiscard]] std::int64_t num_tokens() const noexcept {
    std::int64_t n = 0;
    for (const Request& r : batch) n += r.q_len;
    return n;
  }
  friend bool operator==(const AttentionShape&, const AttentionShape&) = default;
};

/// The canonical one-line text, the key of every record, e.g.
/// "decode latent h128 l512 r64 p128 v128 32q1s4k causal b64 q:bf16 out:bf16 cache:bf16"; window as "w4096",
/// sink as "sink4", index as "topk2048", full attention as "full"; shared prefixes as "prefix8k" where all requests
/// have one, else "prefix8k@0+4_1k@6+2": 8192 tokens of the four requests from the first on, 1024 of two from the
/// seventh on.
[[nodiscard]] MLA_EXPORT std::string to_text(const AttentionShape& shape);

/// Inverse of to_text; words may come in any order and may be left out (defaults above; without a batch word
/// the batch is empty). Throws kParse naming the word; what validate() would refuse, but for an empty batch,
/// kInvalidArgument.
[[nodiscard]] MLA_EXPORT AttentionShape parse_shape(std::string_view text);

/// Throws kInvalidArgument naming the field: empty batch, negative lengths, 0 < kv_len < q_len under a causal
/// mask (kv_len 0 is an empty request, as a padded CUDA graph has them), block_size < 1, window < 1, window
/// without causal, sink < 0 or without window, topk < 0, dims as validate(MlaDims); a shared prefix that is no multiple
/// of block_size, longer than what all queries of a member see (its kv_len, less q_len - 1 under a causal mask), of
/// requests that are not there or belong to another, or beside topk.
MLA_EXPORT void validate(const AttentionShape& shape);

/// vLLM's batch grammar: groups joined by '_'; a group is [count][q LEN][s LEN], lengths with suffix k (1024)
/// or m. "32q1s4k", "4q2k_64q1s8k", "q2k" (count 1; without s a group is a prefill with kv_len = q_len; "s4k"
/// alone means q1). A length may be a range "64q1s1k..16k": drawn uniformly from the seed, one draw a
/// request. Throws kParse, also for more than 10 million requests.
[[nodiscard]] MLA_EXPORT std::vector<Request> parse_batch(std::string_view text, std::uint64_t seed = 1);

/// Text that parse_batch reads back to the same requests, in order: equal neighbours share a group, q is
/// always written, s where it differs from q.
[[nodiscard]] MLA_EXPORT std::string format_batch(std::span<const Request> batch);

}  // namespace mla
