// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mla/cache.hpp"
#include "mla/device.hpp"
#include "mla/export.h"
#include "mla/shape.hpp"
#include "mla/tensor.hpp"

namespace mla {

/// Whether a backend can do a thing; if not, `why` is a sentence naming the offending value.
struct Support {
  bool ok = true;
  std::string why;
  explicit operator bool() const noexcept { return ok; }
  [[nodiscard]] static Support yes() { return {}; }
  [[nodiscard]] static Support no(std::string reason) { return {false, std::move(reason)}; }
};

/// What a backend answers that reads the keys of each request for itself: no to a shape with shared prefixes.
[[nodiscard]] MLA_EXPORT Support without_shared_prefix(const AttentionShape& shape);

/// cudaStream_t (or another runtime's queue) without its header; null is the default stream. CPU backends
/// ignore it.
struct Stream {
  void* handle = nullptr;
};

/// Where a backend rounds, so that it can be judged against an ideal kernel that rounds only there.
struct RoundingProfile {
  DType accumulate = DType::kF32;      ///< scores, softmax sums, output accumulator
  DType probabilities = DType::kF32;   ///< P as it enters P.V
  DType partials = DType::kF32;        ///< split outputs before the merge
  DType absorbed_query = DType::kF32;  ///< W_UK^T q, where the backend forms it (head space)
  DType latent_output = DType::kF32;   ///< before W_UV (head space, absorbed form)
  DType expanded_kv = DType::kF32;     ///< K and V, where the backend expands them
  bool lse_from_rounded_p = false;     ///< the sum is taken over rounded probabilities
  /// The largest weight is exactly 1: exp of a difference of scores. False where scale and maximum enter one fused
  /// product, whose rounding leaves the weight of even the only key next to 1.
  bool unit_weight = true;
};

/// Facts about a backend that do not depend on the shape.
struct BackendInfo {
  std::string_view name;                ///< "cpu-absorbed", "cuda-splitkv"
  std::string_view summary;             ///< one line: the idea
  std::string_view strategy;            ///< "expanded", "absorbed"
  bool on_device = false;               ///< tensors live in device memory
  std::vector<std::int32_t> edges;      ///< tile and split sizes whose multiples are worth testing (+-1)
  bool batch_invariant = false;         ///< same bits for a request alone or in any batch
  bool batch_invariant_option = false;  ///< the same with PlanOptions::batch_invariant
  bool oracle = false;                  ///< made to check the others and not to be fast: chosen last
};

/// How the shared prefixes of a shape are read (backends that serve such shapes; others have nothing to choose).
enum class PrefixReads : std::uint8_t {
  kAuto,  ///< once where the backend expects that to be faster
  kOnce,  ///< with the queries of all members together
  kEach,  ///< for each request, as if the plan knew of none
};

/// Choices a caller may force; 0 or empty means the backend decides.
struct PlanOptions {
  std::int32_t num_splits = 0;  ///< parts the keys of a request are cut into
  std::int32_t threads = 0;     ///< CPU backends: worker threads; 0: all
  /// The same bits for a request alone or in any batch, at some cost. Only for backends whose info() says
  /// batch_invariant (they ignore it) or batch_invariant_option (there plan() throws kUnsupported where it
  /// cannot).
  bool batch_invariant = false;
  PrefixReads prefix_reads = PrefixReads::kAuto;
};

/// Everything that depends on the batch's sizes, made once a step and reused by every layer. The shape's
/// lengths are upper bounds: run() reads the true lengths from its arguments, so a captured graph may be
/// replayed with others. With shared prefixes (AttentionShape::shared) too: a member whose true length leaves one of
/// its queries less than the prefix, or whose block table begins with other blocks than the group's, is computed
/// by itself. So a plan made for a group is right for any lengths and tables, and fast where the group is one.
class MLA_EXPORT Plan {
 public:
  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;
  virtual ~Plan();
  /// Bytes run() needs; contents may be anything before and after.
  [[nodiscard]] virtual std::size_t workspace_bytes() const noexcept = 0;
  /// One line: variant, splits, grid.
  [[nodiscard]] virtual std::string describe() const = 0;
};

/// Arguments of one attention call. `tokens` = sum of q_len; rows of a request are consecutive.
struct AttentionArgs {
  ConstTensorRef q;        ///< kLatent [tokens, H, L+R]; kHead [tokens, H, P+R] (after RoPE)
  PagedLatentCache cache;  ///< holds the new tokens' rows too
  View<const std::int32_t, 1> cu_seqlens_q;  ///< [requests + 1]
  View<const std::int32_t, 1> seq_lens;      ///< [requests] keys, new tokens included; 0 is an empty request
  View<const std::int32_t, 2> token_index;   ///< [tokens, topk] positions in the sequence; an entry outside
      ///< [0, seq_len) is skipped, a duplicate counts again; used iff topk > 0
  ConstTensorRef w_uk;       ///< kHead only: [H, P, L]
  ConstTensorRef w_uv;       ///< kHead only: [H, V, L]
  double softmax_scale = 0;  ///< required, > 0
  TensorRef out;             ///< kLatent [tokens, H, L]; kHead [tokens, H, V]; every element is written
  TensorRef lse;             ///< optional [tokens, H] f32 (CPU also f64): natural log; empty row -inf
};

/// One strategy for MLA attention. Stateless and thread-safe; lengths-dependent state lives in Plan.
/// An empty row (no visible key) gives output 0 and LSE -inf.
class MLA_EXPORT Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend();
  [[nodiscard]] virtual const BackendInfo& info() const noexcept = 0;
  /// Where this backend rounds for such a shape.
  [[nodiscard]] virtual RoundingProfile rounding(const AttentionShape& shape) const = 0;
  [[nodiscard]] virtual Support supports(const AttentionShape& shape, const Device& device) const = 0;
  /// Throws kUnsupported with the sentence of supports().
  [[nodiscard]] virtual std::unique_ptr<Plan> plan(const AttentionShape& shape, const Device& device,
                                                   const PlanOptions& options = {}) const = 0;
  /// `plan` must come from this backend; `workspace` must hold plan.workspace_bytes(). Device backends
  /// enqueue on `stream` and return.
  virtual void run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
                   Stream stream = {}) const = 0;
};

/// All backends of this build, in order of preference.
[[nodiscard]] MLA_EXPORT std::span<const Backend* const> backends();
/// Null if there is none of that name.
[[nodiscard]] MLA_EXPORT const Backend* find_backend(std::string_view name);
/// As find_backend, but throws kInvalidArgument with a did-you-mean hint.
[[nodiscard]] MLA_EXPORT const Backend& get_backend(std::string_view name);

/// One line of a selection: a backend, its answer for a shape, and why it stands where it does.
struct Candidate {
  const Backend* backend = nullptr;
  Support support;
  std::string reason;  ///< a sentence: support.why, or what decides its place among those that can
};
/// Every backend's answer, those that are better for this shape first. The tree: what the device, the dims,
/// the types, the cache format and the mask or index allow (each backend's supports()); then the form that
/// the phase wants, absorbed for decode and expanded for prefill; then the order of the build; oracles last.
[[nodiscard]] MLA_EXPORT std::vector<Candidate> candidates(const AttentionShape& shape, const Device& device);
/// First that supports the shape. Throws kUnsupported with the reason of the first that belongs on such a
/// device; the hint says how many others refused.
[[nodiscard]] MLA_EXPORT const Backend& choose_backend(const AttentionShape& shape, const Device& device);

}  // namespace mla
