// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mla/backend.hpp"
#include "mla/dims.hpp"
#include "mla/export.h"
#include "mla/shape.hpp"

/// The definition of correct: attention in double precision (or, to see what single precision costs, in
/// float), plain enough to be read. All arrays are packed row-major doubles; float arithmetic rounds inputs
/// to float first. Threaded over (request, head) with a fixed partition: the same bits for any number of
/// threads, and for a request alone or in any batch. A key that no query sees is not read; a NaN in one that
/// is seen reaches exactly the rows that see it. Every length is checked: kInvalidArgument names the array
/// and both sizes.
namespace mla::reference {

enum class Arithmetic : std::uint8_t { kF64, kF32 };

struct Options {
  Arithmetic arithmetic = Arithmetic::kF64;
  int num_splits = 1;  ///< > 1: keys cut into that many contiguous parts (some may be empty), merged by LSE
  int threads = 0;     ///< 0: hardware concurrency
  bool row_stats = false;
};

/// Per (token, head): the quantities the error model of docs/numerics.md needs. q, k and v are those of the
/// form that ran: mla_expanded has d_qk = P+R and v = W_UV c; mla_absorbed has d_qk = L+R (absorbed q against
/// latent rows), and its v statistics are of the latent rows pushed through W_UV too (v = W_UV c), so both
/// forms agree on them.
struct RowStats {
  double max_abs_dot = 0;  ///< max_j sum_d |q_d k_jd|, unscaled
  double max_rms_dot =
      0;  ///< max_j sqrt(sum_d (q_d k_jd)^2), unscaled: how rounding q or k spreads. mla_absorbed: q_d^2
          ///< is raised by P/(P+L+R) of what it lacks to the sum of the squares of its terms W_UK q
  double max_abs_score = 0;   ///< max_j |scale * q . k_j|
  double rms_weighted_v = 0;  ///< rms over channels of sum_j w_j |v_j|
  double max_weighted_v = 0;  ///< max over channels of sum_j w_j |v_j|
  double rms_spread = 0;      ///< rms over channels of sum_j w_j |v_j - o|
  double max_spread = 0;      ///< max over channels of sum_j w_j |v_j - o|
  double rms_p_round = 0;  ///< rms over channels of sqrt(sum_j (w_j v_j)^2), how rounding P spreads; copies
                           ///< of one key in an index are one j with the sum of their weights
  double max_p_round = 0;  ///< max over channels of the same
  double rms_up_round =
      0;  ///< mla_absorbed: rms over channels of sqrt(sum_l (W_UV,vl o_l)^2), o latent; else 0
  double max_up_round = 0;    ///< mla_absorbed: max over channels of the same; else 0
  double max_up_dot = 0;      ///< mla_absorbed: max over channels of sum_l |W_UV,vl o_l|; else 0
  std::int64_t num_keys = 0;  ///< visible keys (with duplicates)
};

struct AttentionOutput {
  std::vector<double> out;      ///< [tokens, H, width]
  std::vector<double> lse;      ///< [tokens, H] natural log; -inf for an empty row (whose output is 0)
  std::vector<RowStats> stats;  ///< [tokens, H] if asked for
};

/// Which keys each query sees: the mask, or topk explicit positions per token (entries outside [0, kv_len)
/// are skipped, duplicates count as often as they stand).
struct Visibility {
  Mask mask;
  std::span<const std::int32_t> token_index;  ///< [tokens, topk] or empty
  std::int32_t topk = 0;
};

/// Multi-head, grouped-query and multi-query attention over dense ragged K and V.
struct MhaProblem {
  std::span<const Request> batch;
  int num_heads = 1, num_kv_heads = 1;  ///< num_heads must be a multiple of num_kv_heads
  int d_qk = 1, d_v = 1;
  std::span<const double> q;  ///< [tokens, H, d_qk]
  std::span<const double> k;  ///< [sum kv_len, Hkv, d_qk]
  std::span<const double> v;  ///< [sum kv_len, Hkv, d_v]; empty: the first d_v channels of k (d_v <= d_qk)
  Visibility visible;
  double softmax_scale = 0;
};
[[nodiscard]] MLA_EXPORT AttentionOutput mha(const MhaProblem& problem, const Options& options = {});

/// One MLA attention on cache rows.
struct MlaProblem {
  MlaDims dims;
  std::span<const Request> batch;
  std::span<const double> q;       ///< [tokens, H, P+R] after RoPE; for mla_latent [tokens, H, L+R] absorbed
  std::span<const double> latent;  ///< [sum kv_len, L+R] = [c_kv | k_pe]
  std::span<const double> w_uk;    ///< [H, P, L]
  std::span<const double> w_uv;    ///< [H, V, L]
  Visibility visible;
  double softmax_scale = 0;
};
/// forward_mha: k_h = [W_UK,h c | k_pe], v_h = W_UV,h c, then MHA with d_qk = P+R and d_v = V.
/// out [tokens, H, V].
[[nodiscard]] MLA_EXPORT AttentionOutput mla_expanded(const MlaProblem& problem, const Options& options = {});
/// forward_mqa: qt_h = W_UK,h^T q_h, MQA over the latent rows, then W_UV. out [tokens, H, V].
[[nodiscard]] MLA_EXPORT AttentionOutput mla_absorbed(const MlaProblem& problem, const Options& options = {});
/// The middle of forward_mqa alone: MQA with d_qk = L+R, d_v = L. out [tokens, H, L]. w_uk and w_uv are not
/// read.
[[nodiscard]] MLA_EXPORT AttentionOutput mla_latent(const MlaProblem& problem, const Options& options = {});

/// [tokens, H, P+R] -> [tokens, H, L+R]: latent part W_UK,h^T q_nope, rotary part copied.
[[nodiscard]] MLA_EXPORT std::vector<double> absorb_query(const MlaDims& dims, std::span<const double> q,
                                                          std::span<const double> w_uk,
                                                          const Options& options = {});
/// [tokens, H, L] -> [tokens, H, V]: W_UV,h o_h.
[[nodiscard]] MLA_EXPORT std::vector<double> up_project_value(const MlaDims& dims,
                                                              std::span<const double> latent_out,
                                                              std::span<const double> w_uv,
                                                              const Options& options = {});

/// Merges partial outputs of the same rows, e.g. of splits, chunks or context-parallel ranks:
/// lse = log sum exp lse_i, out = sum exp(lse_i - lse) out_i; parts with lse -inf do not contribute, whatever
/// their out. Needs at least one part.
[[nodiscard]] MLA_EXPORT AttentionOutput merge(std::span<const AttentionOutput> parts, std::int64_t rows,
                                               int width);

/// Reads a paged cache to dense rows [sum kv_len, L+R], request after request, through decode_row.
[[nodiscard]] MLA_EXPORT std::vector<double> gather_latent(const PagedLatentCache& cache, const MlaDims& dims,
                                                           std::span<const std::int32_t> seq_lens);

}  // namespace mla::reference
