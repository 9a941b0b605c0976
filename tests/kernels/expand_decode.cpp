// SPDX-License-Identifier: Apache-2.0
// cuda-expand: the geometry of its key lists on any machine, its refusals, and its results on a GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "attention_cases.hpp"
#include "expand/segments.hpp"
#include "mla/device_ops.hpp"
#include "mla/random.hpp"
#include "mla/reference.hpp"

namespace {

using namespace mla;
using kernels::expand::KeyList;
using kernels::expand::MaskParams;
using kernels::expand::Part;
using mla::testing::DeviceArray;
using mla::testing::expect_cases;
using mla::testing::refusal;

TEST(KeyLists, HoldExactlyWhatSomeQuerySees) {
  for (const int window : {0, 1, 3, 8, 100}) {
    for (const int sink : {0, 2, 9}) {
      if (window == 0 && sink > 0) continue;
      Mask mask;
      if (window > 0) mask.window = window;
      mask.sink = sink;
      const MaskParams params{1, window > 0 ? window : kernels::expand::kNoWindow, sink};
      for (int n = 0; n <= 24; ++n) {
        for (int s = 0; s <= std::min(n, 6); ++s) {
          std::vector<int> seen, fresh, context;
          for (int j = 0; j < n; ++j) {
            bool any = false;
            for (int i = 0; i < s; ++i) any = any || mask.sees(n - s + i, n, j);
            if (any) seen.push_back(j);
            if (any && j < n - s) context.push_back(j);
            if (s > 0 && j >= n - s) fresh.push_back(j);
          }
          const auto positions = [](const KeyList& keys) {
            std::vector<int> all;
            for (int i = 0; i < keys.count(); ++i) all.push_back(keys.position(i));
            return all;
          };
          const auto what = "n " + std::to_string(n) + " s " + std::to_string(s) + " window " +
                            std::to_string(window) + " sink " + std::to_string(sink);
          const KeyList all = visible_keys(Part::kAll, params, s, n);
          ASSERT_EQ(positions(all), seen) << what;
          ASSERT_EQ(positions(visible_keys(Part::kContext, params, s, n)), context) << what;
          ASSERT_EQ(positions(visible_keys(Part::kNew, params, s, n)), fresh) << what;
          for (int p = -2; p <= n + 2; ++p)
            ASSERT_EQ(all.before(p), std::count_if(seen.begin(), seen.end(), [&](int j) { return j < p; }))
                << what << " p " << p;
        }
      }
    }
  }
}

TEST(KeyLists, TokensFindTheirRequest) {
  const std::int32_t cu[] = {0, 2, 2, 5};
  kernels::expand::SegmentTable table;
  table.cu_seqlens_q = {cu, 1};
  table.requests = 3;
  const int want[] = {0, 0, 2, 2, 2, 3, 3};
  for (int t = 0; t < 7; ++t) EXPECT_EQ(request_of(table, t), want[t]) << t;
}

TEST(CudaExpand, SaysWhyNot) {
  if (find_backend("cuda-expand") == nullptr)
    GTEST_SKIP() << "this build has no cuda-expand (no CUDA or no cublasLt.h)";
  EXPECT_EQ(refusal("cuda-expand", "decode head h16 4q1s1k"), "");
  EXPECT_EQ(refusal("cuda-expand", "decode latent h16 4q1s1k"),
            "the query is absorbed already (latent space), but K is expanded for a query per head");
  EXPECT_EQ(refusal("cuda-expand", "prefill head h16 q1k"), "it is a decode kernel; the phase is prefill");
  EXPECT_EQ(refusal("cuda-expand", "decode head h16 4q1s1k q:f32 out:f32"),
            "queries are bf16 or f16, not f32");
  EXPECT_EQ(refusal("cuda-expand", "decode head h16 4q1s1k q:f16 out:f16 cache:bf16"),
            "rows of a bf16 cache would be rounded to be operands with f16 queries");
  EXPECT_EQ(refusal("cuda-expand", "decode head h16 p250 4q1s1k"),
            "heads of P + R = 314 and V = 128 are wider than the widest kernel, 256 and 256");
  EXPECT_EQ(refusal("cuda-expand", "decode head h16 v60 4q1s1k"),
            "v_head_dim is 60, but 16-byte loads need a multiple of 8");
  EXPECT_NE(refusal("cuda-expand", "decode head h16 4q1s1k", "mi300x"), "");
}

TEST(CudaExpand, WorkspaceIsBounded) {
  MLA_NEEDS_GPU();
  const Backend& backend = get_backend("cuda-expand");
  const auto bytes = [&](const char* shape) {
    return backend.plan(parse_shape(shape), *mla::testing::test_gpu().device)->workspace_bytes();
  };
  // The expanded keys are bounded at 1 GiB, however long the batch; the rest grows with the queries only.
  EXPECT_LT(bytes("decode head h128 128q1s128k"), std::size_t{3} << 30);
  EXPECT_LT(bytes("decode head h16 1q1s128"), std::size_t{64} << 20);
}

TEST(CudaExpand, Results) {
  MLA_NEEDS_GPU();
  expect_cases("cuda-expand",
               {"decode head h16 l512 r64 p128 v128 q1s1_q1s0_q1s63_q1s64_q1s65_q1s1000 b64",
                "decode head h1 l512 r64 p128 v128 3q1s257 b1 splits=4",
                "decode head h5 l512 r64 p128 v128 q4s9_q4s70 b16 strided=yes",
                "decode head h3 l256 r32 p64 v64 q8s8_q8s33_q1s500 b48 q:f16 out:f16 cache:f16",
                "decode head h20 l512 r64 p192 v256 q1s129_q2s300 b32",
                "decode head h8 l128 r0 p128 v128 2q3s200 b128",
                "decode head h2 l512 r64 p64 v128 2q1s200 b5 cache:bf16_split",
                "decode head h16 l512 r64 p128 v128 2q1s777 b64 cache:fp8",
                "decode head h16 l512 r64 p128 v128 2q1s777 b64 cache:fp8_ds_mla",
                "decode head h4 l512 r64 p128 v128 q1s900_q4s1000 w100 sink4 b16",
                "decode head h4 l512 r64 p128 v128 q2s40_q1s5 w1 b16",
                "decode head h4 l512 r64 p128 v128 2q1s300 full b16 out:f32",
                "decode head h4 l512 r64 p128 v128 q1s300_q2s8_q1s0 topk64 b16",
                "decode head h4 l512 r64 p128 v128 q1s300_q2s8 topk65 b16 index=duplicates",
                "decode head h4 l512 r64 p128 v128 2q1s300 topk16 b16 index=none",
                "decode head h4 l32 r8 p16 v40 q1s5_q3s17 b4 values=dominant",
                "decode head h40 l256 r32 p64 v64 2q1s4097 b64 values=extreme splits=16"});
}

// MLA-018/021/023 for a reader: pages whose element offset passes 2^31.
TEST(CudaExpand, PagesBeyond32Bits) {
  MLA_NEEDS_GPU();
  expect_cases("cuda-expand", {"decode head h2 l512 r64 p128 v128 2q1s100 b64 first_block=58255"});
}

// Chunks: many keys of expanded heads do not fit the bound at once, so results of pieces are merged.
TEST(CudaExpand, ChunkedKeysMerge) {
  MLA_NEEDS_GPU();
  expect_cases("cuda-expand", {"decode head h128 l512 r64 p128 v128 q1s9000_q1s100_q2s12000 b64",
                               "decode head h128 l512 r64 p128 v128 q1s20000 w15000 sink4 b64"});
}

// MLA-039: parts that saw nothing, alone and beside others; MLA-035: natural logarithms.
TEST(MergePartials, EmptyPartsAndBases) {
  MLA_NEEDS_GPU();
  const float nan = std::nanf(""), none = -INFINITY;
  const DeviceArray<float> parts(std::vector<float>{nan, nan, 0, 0, 7, 10}),
      lses(std::vector<float>{none, none, std::log(2.0F), none, 1.5F, std::log(8.0F)});
  DeviceArray<float> out(3), lse(3);
  device_ops::merge_partials(ConstTensorRef(parts.data(), DType::kF32, {2, 3, 1}), {lses.data(), {2, 3}},
                             TensorRef(out.data(), DType::kF32, {3, 1}), {lse.data(), {3}});
  const std::vector<float> got = out.read(), got_lse = lse.read();
  EXPECT_EQ(got[0], 0.0F);
  EXPECT_EQ(got_lse[0], none);
  EXPECT_EQ(got[1], 7.0F);
  EXPECT_EQ(got_lse[1], 1.5F);
  EXPECT_NEAR(got[2], 8.0F, 1e-5);
  EXPECT_NEAR(got_lse[2], std::log(10.0F), 1e-6);
}

TEST(MergePartials, EqualsTheReference) {
  MLA_NEEDS_GPU();
  constexpr std::int64_t kParts = 7, kRows = 33, kWidth = 100;
  const CounterRng rng(5);
  std::vector<float> parts(kParts * kRows * kWidth), lses(kParts * kRows);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i] = static_cast<float>(rng.normal(i));
  for (std::size_t i = 0; i < lses.size(); ++i)
    lses[i] = i % 5 == 0 ? -INFINITY : static_cast<float>(4 * rng.normal(100'000 + i));
  std::vector<reference::AttentionOutput> want_parts(kParts);
  for (std::size_t i = 0; i < kParts; ++i) {
    want_parts[i].out.assign(parts.begin() + static_cast<std::ptrdiff_t>(i * kRows * kWidth),
                             parts.begin() + static_cast<std::ptrdiff_t>((i + 1) * kRows * kWidth));
    want_parts[i].lse.assign(lses.begin() + static_cast<std::ptrdiff_t>(i * kRows),
                             lses.begin() + static_cast<std::ptrdiff_t>((i + 1) * kRows));
  }
  const reference::AttentionOutput want = reference::merge(want_parts, kRows, kWidth);
  const DeviceArray<float> device_parts(parts), device_lses(lses);
  DeviceArray<float> out(kRows * kWidth), lse(kRows);
  device_ops::merge_partials(ConstTensorRef(device_parts.data(), DType::kF32, {kParts, kRows, kWidth}),
                             {device_lses.data(), {kParts, kRows}},
                             TensorRef(out.data(), DType::kF32, {kRows, kWidth}), {lse.data(), {kRows}});
  const std::vector<float> got = out.read(), got_lse = lse.read();
  for (std::size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want.out[i], 2e-6) << i;
  for (std::size_t i = 0; i < got_lse.size(); ++i) {
    if (std::isinf(want.lse[i])) {
      ASSERT_EQ(got_lse[i], -INFINITY);
    } else {
      ASSERT_NEAR(got_lse[i], want.lse[i], 2e-6 * (1 + std::abs(want.lse[i]))) << i;
    }
  }
}

}  // namespace
