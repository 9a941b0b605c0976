// SPDX-License-Identifier: Apache-2.0
// What nobody sees may hold anything; what is seen reaches exactly those who see it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "mla/reference.hpp"
#include "textbook.hpp"

namespace {

using namespace mla;
using namespace mla::reference;
using textbook::make_mla;
using textbook::MlaData;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

bool sees(const MlaData& d, const Request& request, std::int64_t i, std::int64_t token, std::int64_t key) {
  const auto keys = textbook::keys_of(request, i, d.problem().visible, token);
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

std::vector<Request> small_batch() {
  return {{3, 20}, {1, 9}, {40, 47}, {2, 1}};
}

class Poison : public testing::TestWithParam<textbook::NamedVisibility> {};
INSTANTIATE_TEST_SUITE_P(Masks, Poison, testing::ValuesIn(textbook::visibilities()),
                         [](const auto& named) { return named.param.name; });

TEST_P(Poison, KeysNoQuerySeesAreNotRead) {
  const MlaData clean = make_mla(textbook::kOddDims, small_batch(), GetParam().visible);
  MlaData dirty = clean;
  const auto width = static_cast<std::size_t>(clean.dims.latent_width());
  std::size_t row = 0, poisoned = 0;
  std::int64_t token = 0;
  for (const Request& request : clean.batch) {
    for (std::int64_t key = 0; key < request.kv_len; ++key, ++row) {
      bool seen = false;
      for (std::int64_t i = 0; i < request.q_len; ++i) seen = seen || sees(clean, request, i, token + i, key);
      if (seen) continue;
      ++poisoned;
      std::fill_n(dirty.latent.begin() + static_cast<std::ptrdiff_t>(row * width), width, kNan);
    }
    token += request.q_len;
  }
  if (GetParam().visible.mask.window.value_or(1000) < 10 || GetParam().visible.topk > 0) {
    EXPECT_GT(poisoned, 0U);
  }
  for (const Arithmetic arithmetic : {Arithmetic::kF64, Arithmetic::kF32}) {
    for (const auto form : {mla_expanded, mla_absorbed}) {
      const Options options{.arithmetic = arithmetic, .row_stats = true};
      const AttentionOutput want = form(clean.problem(), options), got = form(dirty.problem(), options);
      EXPECT_EQ(got.out, want.out);
      EXPECT_EQ(got.lse, want.lse);
      for (std::size_t i = 0; i < got.stats.size(); ++i)
        EXPECT_EQ(got.stats[i].max_spread, want.stats[i].max_spread);
    }
  }
}

// One seen key at a time gets a NaN or an infinity in its latent part, its rotary part, or one channel of it.
TEST_P(Poison, ASeenKeyReachesExactlyTheRowsThatSeeIt) {
  const MlaData clean = make_mla(textbook::kOddDims, small_batch(), GetParam().visible);
  const MlaDims& dims = clean.dims;
  const auto width = static_cast<std::size_t>(dims.latent_width()),
             H = static_cast<std::size_t>(dims.num_heads);
  for (const auto form : {mla_expanded, mla_absorbed}) {
    for (const int splits : {1, 3}) {
      const Options options{.num_splits = splits};
      const AttentionOutput want = form(clean.problem(), options);
      for (const std::size_t channel : {std::size_t{2}, width - 1}) {  // of c_kv, of k_pe
        for (const std::int64_t key : {std::int64_t{0}, std::int64_t{8}, std::int64_t{46}}) {
          MlaData dirty = clean;
          std::size_t row = 0;
          for (const Request& request : clean.batch) {
            if (key < request.kv_len)
              dirty.latent[(row + static_cast<std::size_t>(key)) * width + channel] = kNan;
            row += static_cast<std::size_t>(request.kv_len);
          }
          const AttentionOutput got = form(dirty.problem(), options);
          std::int64_t token = 0;
          for (const Request& request : clean.batch) {
            for (std::int64_t i = 0; i < request.q_len; ++i, ++token) {
              const bool reached = sees(clean, request, i, token, key);
              for (std::size_t h = 0; h < H; ++h) {
                const std::size_t r = static_cast<std::size_t>(token) * H + h;
                EXPECT_EQ(std::isnan(got.lse[r]), reached) << "token " << token << " key " << key;
                const auto V = static_cast<std::size_t>(dims.v_head_dim);
                for (std::size_t d = 0; d < V; ++d) {
                  EXPECT_EQ(std::isnan(got.out[r * V + d]), reached) << "token " << token << " key " << key;
                  if (!reached) {
                    EXPECT_EQ(got.out[r * V + d], want.out[r * V + d]) << "not a bit may change";
                  }
                }
                if (!reached) {
                  EXPECT_EQ(got.lse[r], want.lse[r]);
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST(PoisonValues, AnInfiniteValueStaysInItsChannel) {
  const std::vector<Request> batch{{2, 3}};  // queries at positions 1 and 2
  const std::vector<double> q(2, 0.0), k(3, 1.0), v{1.0, 10.0, 2.0, 20.0, kInfinity, 30.0};
  const AttentionOutput got = mha({batch, 1, 1, 1, 2, q, k, v, {}, 1.0});
  EXPECT_EQ(got.out, (std::vector<double>{1.5, 15.0, kInfinity, 20.0}));
  EXPECT_EQ(got.lse, (std::vector<double>{std::log(2.0), std::log(3.0)}));
}

TEST(PoisonValues, MinusInfiniteScoresAreZeroWeights) {
  const std::vector<Request> batch{{1, 3}};
  const std::vector<double> q{1.0}, k{-kInfinity, 0.0, 0.0}, v{5.0, 1.0, 2.0};
  for (const int splits : {1, 3}) {
    const AttentionOutput got = mha({batch, 1, 1, 1, 1, q, k, v, {}, 1.0}, {.num_splits = splits});
    EXPECT_EQ(got.out[0], 1.5);
    EXPECT_EQ(got.lse[0], std::log(2.0));
  }
}

TEST(PoisonValues, NanInOneQueryHeadStaysThere) {
  const MlaData clean = make_mla(textbook::kOddDims, small_batch(), {});
  MlaData dirty = clean;
  const auto H = static_cast<std::size_t>(clean.dims.num_heads),
             V = static_cast<std::size_t>(clean.dims.v_head_dim);
  const std::size_t bad = 1 * H + 2;  // token 1, head 2
  dirty.q[bad * static_cast<std::size_t>(clean.dims.head_width()) + 1] = kNan;
  for (const auto form : {mla_expanded, mla_absorbed}) {
    const AttentionOutput want = form(clean.problem(), {}), got = form(dirty.problem(), {});
    for (std::size_t r = 0; r < want.lse.size(); ++r) {
      EXPECT_EQ(std::isnan(got.lse[r]), r == bad);
      for (std::size_t d = r * V; d < (r + 1) * V; ++d) {
        EXPECT_EQ(std::isnan(got.out[d]), r == bad);
        if (r != bad) {
          EXPECT_EQ(got.out[d], want.out[d]);
        }
      }
    }
  }
}

}  // namespace
