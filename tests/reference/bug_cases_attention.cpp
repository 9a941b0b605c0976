// SPDX-License-Identifier: Apache-2.0
// Public faults of attention itself: poison, padding, masks, splits, heads, indices, windows.
#include "bug_cases.hpp"

namespace {

using namespace mla;
using namespace mla::test;
using verify::Participant;
using verify::Problem;

TEST(BugCases, MLA_001) {
  const std::string text = "decode latent " + kFull + "1q1s13 causal b4" + kBf16;
  poisons_agree(text, {"zero", "nan"});
  judge(text + " poison=nan");
}

TEST(BugCases, MLA_003) {
  const std::string text = "decode latent " + kFull + "1q1s32_1q1s64_1q1s96_1q1s48 causal b128" + kBf16;
  poisons_agree(text, {"nan", "inf", "max"});
}

/// Top-k over keys some of which are NaN because nobody may look at them.
Problem with_index(const std::string& text, std::vector<std::int32_t> index,
                   const std::vector<std::int32_t>& used, double value) {
  const verify::Case c = verify::parse_case(text);
  verify::Values values = verify::make_values(c);
  values.token_index = std::move(index);
  const auto width = static_cast<std::size_t>(c.shape.dims.latent_width());
  for (std::size_t j = 0; j * width < values.latent.size(); ++j) {
    const bool seen = std::find(used.begin(), used.end(), static_cast<std::int32_t>(j)) != used.end();
    for (std::size_t i = 0; i < width; ++i) {
      double& x = values.latent[j * width + i];
      x = !seen ? std::nan("") : value != 0 ? value : x;
    }
  }
  return Problem(c, std::move(values));
}

TEST(BugCases, MLA_005) {
  const Problem sparse =
      with_index("decode latent " + kSmall + "1q1s8 causal topk4 b4" + kF32, {3, -1, -1, 5}, {3, 5}, 0);
  // Dense attention over the two keys.
  verify::Case c = verify::parse_case("decode latent " + kSmall + "1q1s2 causal b4" + kF32);
  verify::Values values = sparse.values();
  values.token_index.clear();
  std::vector<double> rows(values.latent.begin() + 3 * 40, values.latent.begin() + 4 * 40);
  rows.insert(rows.end(), values.latent.begin() + 5 * 40, values.latent.begin() + 6 * 40);
  values.latent = rows;
  const Problem dense(c, std::move(values));
  for (const Participant& p : all_backends()) {
    const Given a = run(p, sparse), b = run(p, dense);
    if (a.out.empty() || b.out.empty()) continue;
    for (std::size_t i = 0; i < a.out.size(); ++i) EXPECT_NEAR(a.out[i], b.out[i], 1e-6);
    for (std::size_t i = 0; i < a.lse.size(); ++i) EXPECT_NEAR(a.lse[i], b.lse[i], 1e-6);
  }
}

TEST(BugCases, MLA_006) {
  const std::string text = "decode latent " + kSmall + "1q1s3 causal b4" + kF32;
  judge(text + " splits=8");
  for (const Participant& p : all_backends()) {
    const Given one = run(p, Problem(verify::parse_case(text))),
                eight = run(p, Problem(verify::parse_case(text + " splits=8")));
    for (std::size_t i = 0; i < one.lse.size() && i < eight.lse.size(); ++i)
      EXPECT_NEAR(one.lse[i], eight.lse[i], 0x1p-20);
  }
}

/// Rows [first, last) of requests (one token each) are 0 with LSE -inf.
void expect_empty(const Problem& problem, const Given& given, std::size_t first, std::size_t last) {
  const auto heads = static_cast<std::size_t>(problem.shape().dims.num_heads);
  const std::size_t width = given.out.size() / static_cast<std::size_t>(problem.shape().num_tokens());
  for (std::size_t t = first; t < last; ++t) {
    for (std::size_t i = 0; i < width; ++i) ASSERT_EQ(given.out[t * width + i], 0.0) << "token " << t;
    for (std::size_t h = 0; h < heads; ++h) ASSERT_EQ(given.lse[t * heads + h], -INFINITY) << "token " << t;
  }
}

TEST(BugCases, MLA_007) {
  const std::string text =
      "decode latent " + kFull + "1q1s5_1q1s70_1q1s64_1q1s1_1q1s129_3q1s0 causal b64" + kBf16;
  judge(text);
  const Problem problem(verify::parse_case(text));
  AttentionShape declared = problem.shape();
  for (Request& r : declared.batch) r.kv_len = 65536;
  for (const Participant& p : all_backends()) {
    const Given given = run(p, problem, &declared);
    if (!given.out.empty()) expect_empty(problem, given, 5, 8);
  }
}

TEST(BugCases, MLA_008) {
  const std::string text = "decode latent " + kSmall + "1q1s4_1q1s0_1q1s6 causal b4" + kF32;
  judge(text);
  const Problem problem(verify::parse_case(text));
  on_all(problem, [&](const Participant&, const Given& given) { expect_empty(problem, given, 1, 2); });
}

/// The first rows of `padded` are bit by bit those of `exact`, whose values are the same.
void expect_same_rows(const std::string& exact, const std::string& padded) {
  const Problem with(verify::parse_case(padded));
  verify::Case c = verify::parse_case(exact);
  verify::Values values = with.values();
  const auto per_token = values.q.size() / static_cast<std::size_t>(with.shape().num_tokens());
  values.q.resize(per_token * static_cast<std::size_t>(c.shape.num_tokens()));
  const Problem without(c, std::move(values));
  for (const Participant& p : all_backends()) {
    const Given a = run(p, without), b = run(p, with);
    if (a.out.empty() || b.out.empty()) continue;
    expect_empty(with, b, static_cast<std::size_t>(c.shape.num_tokens()),
                 static_cast<std::size_t>(with.shape().num_tokens()));
    EXPECT_EQ(a.out,
              std::vector<double>(b.out.begin(), b.out.begin() + static_cast<std::ptrdiff_t>(a.out.size())))
        << p.backend->info().name;
  }
}

TEST(BugCases, MLA_009) {
  expect_same_rows("decode latent " + kSmall + "1q1s9_1q1s17_1q1s33 causal b4" + kF32 + " splits=4",
                   "decode latent " + kSmall + "1q1s9_1q1s17_1q1s33_1q1s0 causal b4" + kF32 + " splits=4");
}

TEST(BugCases, MLA_012) {
  expect_same_rows("decode latent " + kSmall + "1q1s9_1q1s17_1q1s33 causal b4" + kF32,
                   "decode latent " + kSmall + "1q1s9_1q1s17_1q1s33_5q1s0 causal b4" + kF32);
}

TEST(BugCases, MLA_013) {
  // Exactly two rows of the table (the sanitizer run sees a read past them), three queries each.
  const Problem three(
      verify::parse_case("decode latent " + kSmall + "1q3s7_1q3s12 causal b4 spare_columns=0" + kF32));
  const std::size_t q = three.values().q.size() / 6, row = 40;
  const std::int32_t lens[] = {7, 12};
  for (const Participant& p : all_backends()) {
    const Given all = run(p, three);
    if (all.out.empty()) continue;
    const std::size_t out = all.out.size() / 6;
    for (std::size_t b = 0; b < 2; ++b) {
      for (std::size_t i = 0; i < 3; ++i) {
        verify::Case c = three.get_case();
        const std::size_t keys = static_cast<std::size_t>(lens[b]) - 2 + i, t = b * 3 + i;
        c.shape.batch = {{1, static_cast<std::int32_t>(keys)}};
        verify::Values values = three.values();
        values.q.assign(three.values().q.begin() + static_cast<std::ptrdiff_t>(t * q),
                        three.values().q.begin() + static_cast<std::ptrdiff_t>((t + 1) * q));
        const auto first = three.values().latent.begin() + static_cast<std::ptrdiff_t>(b * 7 * row);
        values.latent.assign(first, first + static_cast<std::ptrdiff_t>(keys * row));
        const Given one = run(p, Problem(c, std::move(values)));
        for (std::size_t k = 0; k < one.out.size(); ++k) EXPECT_NEAR(one.out[k], all.out[t * out + k], 2e-6);
      }
    }
  }
}

TEST(BugCases, MLA_016) {
  // More queries than keys are refused by name; the process goes on.
  const std::string said = sentence(
      [] { validate(verify::parse_case("decode latent " + kFull + "q1024s256 causal b64" + kBf16)); });
  EXPECT_NE(said.find("1024"), std::string::npos) << said;
  EXPECT_NE(said.find("256"), std::string::npos) << said;
  judge("decode latent " + kSmall + "1q1s4 causal b4" + kF32);
}

TEST(BugCases, MLA_026) {
  // Token t sees keys t - 1 and t: channel 0, which holds the key's number, comes out as t - 1/2.
  for (const char* widths : {"h1 l8 r2 p4 v4 q65536", "h128 l8 r2 p4 v4 q4096"}) {
    const Problem problem =
        crafted("prefill latent " + std::string(widths) + " causal w2 b64 splits=2" + kF32,
                [](std::size_t, std::int32_t j, int c) { return c == 0 ? double(j) : 0.0; });
    const auto heads = static_cast<std::size_t>(problem.shape().dims.num_heads);
    on_all(problem, [&](const Participant&, const Given& given) {
      for (std::size_t row = 0; row * 8 < given.out.size(); ++row) {
        const double t = static_cast<double>(row / heads);
        ASSERT_NEAR(given.out[row * 8], t == 0 ? 0 : t - 0.5, 1e-6 * (1 + t)) << row;
        ASSERT_NEAR(given.lse[row], t == 0 ? 0 : std::log(2.0), 1e-6) << row;
      }
    });
  }
}

TEST(BugCases, MLA_028) {
  count("decode latent " + kSmall + "1q4s9_1q4s70 causal b4" + kF32, {{2.5, 6}, {3, 7}, {3.5, 8}, {4, 9}});
}

TEST(BugCases, MLA_031) {
  judge("decode latent " + kFull + "1q8s64_1q8s1024 causal b64" + kBf16);
}

TEST(BugCases, MLA_033) {
  judge("prefill head " + kSmall + "q12 causal b4" + kF32);
  judge("prefill head " + kSmall + "q5 causal b4" + kF32);
  judge("prefill head " + kSmall + "q7s12 causal b4" + kF32);
}

TEST(BugCases, MLA_037) {
  const Problem problem = crafted("decode latent " + kSmall + "1q1s1024 causal b64" + kF32,
                                  [](std::size_t, std::int32_t j, int c) { return double(j % 7 + c); });
  on_all(problem, [](const Participant&, const Given& given) {
    for (const double lse : given.lse) EXPECT_NEAR(lse, std::log(1024.0), 1e-6);
  });
}

TEST(BugCases, MLA_044) {
  for (int splits = 1; splits <= 8; ++splits) {
    judge("decode latent h128 l512 r64 p128 v128 1q1s4097 causal b64" + kBf16 +
          " splits=" + std::to_string(splits));
  }
}

TEST(BugCases, MLA_046) {
  const Problem problem(
      verify::parse_case("decode latent " + kSmall + "3q1s9 causal b4" + kF32 + " splits=1"));
  on_all(problem, [](const Participant&, const Given& given) {
    for (const double lse : given.lse) EXPECT_TRUE(std::isfinite(lse));
  });
}

TEST(BugCases, MLA_048) {
  judge("decode latent " + kSmall + "1q1s33 causal b32" + kF32);
}

TEST(BugCases, MLA_059) {
  all_equal(with_index("decode latent " + kSmall + "1q1s8 causal topk4 b4 permuted=no" + kF32,
                       {-1, 7, -1, -1}, {7}, 2),
            2);
}

TEST(BugCases, MLA_068) {
  verify::Case c = verify::parse_case("decode latent " + kSmall + "1q1s1 causal b4 q:f32 out:f32 cache:fp8");
  verify::Values values = verify::make_values(c);
  for (double& x : values.latent) x = 0.25;  // code 0x38, which is 1, times the scale
  values.cache_scale = 0.25F;
  all_equal(Problem(c, std::move(values)), 0.25);
}

TEST(BugCases, MLA_071) {
  judge("decode latent " + kSmall + "1q1s5 causal b4 q:f32 out:f32 cache:fp8 values=dominant");
}

TEST(BugCases, MLA_084) {
  const MlaDims dims = verify::parse_case("decode latent " + kFull + "1q1s2").shape.dims;
  EXPECT_NEAR(plain_softmax_scale(dims), 0.0721688, 1e-7);
  verify::Case c = verify::parse_case("decode latent " + kFull + "1q1s2 causal b4" + kF32);
  verify::Values values = verify::make_values(c);
  values.softmax_scale = plain_softmax_scale(dims);
  const auto width = static_cast<std::size_t>(dims.latent_width());
  for (std::size_t i = 0; i < values.q.size(); ++i) values.q[i] = i % width == 0 ? 1 : 0;
  for (std::size_t i = 0; i < values.latent.size(); ++i)
    values.latent[i] = i == 0 ? 1 : 0;  // dot products 1 and 0
  const Problem problem(c, std::move(values));
  on_all(problem, [&](const Participant&, const Given& given) {
    // The first key's weight is a logistic of the logit difference, and stands in channel 0.
    EXPECT_NEAR(given.out[0], 1 / (1 + std::exp(-0.0721688)), 1e-6);
  });
}

TEST(BugCases, MLA_089) {
  for (const char* dims : {"h3 l32 r64 p192 v256", "h3 l32 r8 p16 v40"}) {
    verify::Case c = verify::parse_case("decode head " + std::string(dims) + " 1q1s3 causal b4" + kF32);
    verify::Values values = verify::make_values(c);
    const MlaDims& d = c.shape.dims;
    for (std::size_t i = 0; i < values.latent.size(); ++i)
      values.latent[i] = i % static_cast<std::size_t>(d.latent_width()) == 0 ? 1 : 0;
    const auto rank = static_cast<std::size_t>(d.kv_lora_rank), v = static_cast<std::size_t>(d.v_head_dim);
    for (std::size_t i = 0; i < values.w_uv.size(); ++i)
      values.w_uv[i] = i % rank == 0 ? static_cast<double>(i / rank % v) : 0;
    const Problem problem(c, std::move(values));
    on_all(problem, [&](const Participant&, const Given& given) {
      for (std::size_t i = 0; i < given.out.size(); ++i)
        ASSERT_NEAR(given.out[i], static_cast<double>(i % v), 1e-4 * static_cast<double>(v)) << i;
    });
  }
}

TEST(BugCases, MLA_093) {
  // Both forms with the same weights, each within its own budget against double precision.
  judge("decode head " + kFull + "2q1s65 causal b64" + kBf16);
}

TEST(BugCases, MLA_094) {
  for (const int heads : {1, 2, 4, 5, 8, 12, 20, 40, 48, 96}) {
    const std::string text =
        "decode latent h" + std::to_string(heads) + " l512 r64 p128 v128 1q1s65 causal b64" + kF32;
    verify::Case c = verify::parse_case(text);
    verify::Values values = verify::make_values(c);
    values.softmax_scale = 1;
    std::fill(values.q.begin(), values.q.end(), 0.0);
    std::fill(values.latent.begin(), values.latent.end(), 0.0);
    for (std::size_t j = 0; j < 65; ++j) values.latent[j * 576 + j] = 1;  // key j is the j-th unit vector
    for (std::size_t h = 0; h < static_cast<std::size_t>(heads); ++h) values.q[h * 576 + h % 65] = 40;
    const Problem problem(c, std::move(values));
    on_all(problem, [&](const Participant&, const Given& given) {
      for (std::size_t h = 0; h < static_cast<std::size_t>(heads); ++h) {
        for (std::size_t i = 0; i < 65; ++i)
          ASSERT_NEAR(given.out[h * 512 + i], i == h % 65 ? 1 : 0, 1e-6) << h;
      }
    });
  }
}

TEST(BugCases, MLA_096) {
  // Rows of out and LSE lie apart; execute() looks at what is between them.
  judge("decode latent h20 l512 r64 p128 v128 2q1s33 causal b64 strided=yes" + kBf16);
}

TEST(BugCases, MLA_097) {
  for (const char* text : {"decode latent h16 l256 r64 p128 v128 1q1s65 causal b64",
                           "decode latent h128 l256 r64 p128 v128 1q1s1000 causal b64"}) {
    judge(text + kBf16);
    const Problem problem(verify::parse_case(text + kBf16));
    for (const Participant& p : all_backends()) {
      const Given first = run(p, problem);
      for (int i = 1; i < 50 && !first.out.empty(); ++i) ASSERT_EQ(run(p, problem).out, first.out) << i;
    }
  }
}

TEST(BugCases, MLA_099) {
  for (const int topk : {1, 3, 63, 64, 65, 192}) {
    judge("decode latent " + kSmall + "2q1s300 causal topk" + std::to_string(topk) + " b4" + kF32);
  }
}

TEST(BugCases, MLA_102) {
  count("decode latent " + kSmall + "1q1s10 causal w4 b4" + kF32, {{7.5, 4}});
}

TEST(BugCases, MLA_104) {
  count("decode latent " + kSmall + "1q1s64 causal w4 b4" + kF32, {{61.5, 4}});
}

TEST(BugCases, MLA_108) {
  const std::string alone = "decode latent " + kFull + "1q1s1000 causal b64" + kBf16;
  const std::string batch = "decode latent " + kFull + "8q1s1000 causal b64" + kBf16;
  judge(batch);
  const Problem many(verify::parse_case(batch));
  for (const Participant& p : all_backends()) {
    const Given all = run(p, many);
    if (all.out.empty() || !p.backend->info().batch_invariant) continue;
    for (const std::size_t b : {std::size_t{0}, std::size_t{5}}) {
      const auto part = [&](const std::vector<double>& v) {
        const std::size_t n = v.size() / 8;
        return std::vector<double>(v.begin() + static_cast<std::ptrdiff_t>(b * n),
                                   v.begin() + static_cast<std::ptrdiff_t>((b + 1) * n));
      };
      verify::Values values = many.values();
      values.q = part(many.values().q);
      values.latent = part(many.values().latent);
      EXPECT_EQ(run(p, Problem(verify::parse_case(alone), std::move(values))).out, part(all.out));
    }
  }
}

TEST(BugCases, MLA_110) {
  for (const std::int32_t n : {4095, 4096, 4097, 5000, 8191, 8193}) {
    for (const std::int32_t at : {0, 4096, n - 1}) {
      if (at >= n) continue;
      // Channel 0 of the dominant key alone meets the query; channel 1 holds the key's number.
      verify::Case c = verify::parse_case("decode latent h2 l32 r8 p16 v16 1q1s" + std::to_string(n) +
                                          " causal b64" + kF32);
      verify::Values values = verify::make_values(c);
      values.softmax_scale = 1;
      for (std::size_t i = 0; i < values.q.size(); ++i) values.q[i] = i % 40 == 0 ? 60 : 0;
      for (std::size_t i = 0; i < values.latent.size(); ++i) {
        const auto j = static_cast<std::int32_t>(i / 40);
        values.latent[i] = i % 40 == 0 ? (j == at ? 1 : 0) : i % 40 == 1 ? j : 0;
      }
      const Problem problem(c, std::move(values));
      on_all(problem,
             [&](const Participant&, const Given& given) { ASSERT_NEAR(given.out[1], at, 1e-3) << n; });
    }
  }
}

}  // namespace
