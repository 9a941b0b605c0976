// SPDX-License-Identifier: Apache-2.0
// Requests that share their first keys: how a shape says so, what it may not say, and what is left without some of them.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/shared_prefix.hpp"
#include "expect_error.hpp"
#include "mla/backend.hpp"

namespace {

using mla::AttentionShape;
using mla::ErrorCode;
using mla::parse_shape;
using mla::SharedPrefix;
using Shared = std::vector<SharedPrefix>;

TEST(SharedPrefix, WordsOfAShape) {
  EXPECT_EQ(parse_shape("32q1s9k prefix8k").shared, (Shared{{8192, 0, 32}}));
  EXPECT_EQ(parse_shape("prefix8k 32q1s9k").shared, (Shared{{8192, 0, 32}})) << "in any order";
  EXPECT_EQ(parse_shape("8q1s9k prefix8k@0+4_1k@6+2").shared, (Shared{{8192, 0, 4}, {1024, 6, 2}}));
  for (const char* text :
       {"decode latent h128 l512 r64 p128 v128 32q1s9k causal prefix8k b64 q:bf16 out:bf16 cache:bf16",
        "decode latent h128 l512 r64 p128 v128 8q1s9k causal prefix8k@0+4_1k@6+2 b64 q:bf16 out:bf16 "
        "cache:bf16",
        "decode latent h128 l512 r64 p128 v128 8q1s9k full prefix96@1+7 b48 q:bf16 out:bf16 cache:bf16"}) {
    EXPECT_EQ(to_text(parse_shape(text)), text);
    EXPECT_EQ(parse_shape(to_text(parse_shape(text))), parse_shape(text));
  }
}

TEST(SharedPrefix, WordsAreRefusedWithTheReason) {
  const auto expect = [](const char* text, ErrorCode code, std::vector<std::string_view> parts) {
    expect_error([&] { return parse_shape(text); }, code, parts);
  };
  expect("4q1s200 prefix", ErrorCode::kParse, {"'prefix'", "length of a shared prefix is empty"});
  expect("4q1s200 prefix64x", ErrorCode::kParse, {"'prefix64x'", "length of a shared prefix"});
  expect("4q1s200 prefix64@1", ErrorCode::kParse, {"'prefix64@1' names requests without a '+'"});
  expect("4q1s200 prefix64@1+0", ErrorCode::kParse, {"'prefix64@1+0'", "count of requests"});
  expect("4q1s200 prefix64@0+2_128", ErrorCode::kParse, {"one names no requests"});
  expect("4q1s200 prefix64 prefix128", ErrorCode::kParse, {"'prefix128' says again"});
  expect("4q1s200 prefix60", ErrorCode::kInvalidArgument, {"shared[0].tokens is 60", "block size 64"});
  expect("4q1s200 prefix64@3+2", ErrorCode::kInvalidArgument,
         {"shared[0] is of 2 requests from 3 on", "0..3"});
  expect("4q1s200 prefix64@0+2_64@1+2", ErrorCode::kInvalidArgument,
         {"shared[1] is of 2 requests from 1 on", "2..3"});
  expect("3q1s200_q1s100 prefix128", ErrorCode::kInvalidArgument,
         {"shared[0].tokens is 128", "batch[3] have only 100 keys"});
  expect("2q3s129 prefix128", ErrorCode::kInvalidArgument, {"batch[0] have only 127 keys"});
  EXPECT_NO_THROW((void)parse_shape("2q3s130 prefix128"));
  EXPECT_NO_THROW((void)parse_shape("2q3s128 full prefix128")) << "without a mask all queries see all keys";
  expect("4q1s200 topk32 prefix64", ErrorCode::kInvalidArgument,
         {"shared prefix of 64 tokens beside topk 32"});
}

TEST(SharedPrefix, SurvivesRequestsThatGo) {
  const auto without = [](std::size_t first, std::size_t count) {
    AttentionShape shape = parse_shape("q1s1_q1s70_q1s71_q1s72_q1s5_q1s80_q1s81 prefix64@1+3_64@5+2");
    drop_requests(shape, first, count);
    EXPECT_NO_THROW(validate(shape)) << first << '+' << count;
    return shape.shared;
  };
  EXPECT_EQ(without(0, 1), (Shared{{64, 0, 3}, {64, 4, 2}}));
  EXPECT_EQ(without(2, 1), (Shared{{64, 1, 2}, {64, 4, 2}}));
  EXPECT_EQ(without(1, 3), (Shared{{64, 2, 2}}));
  EXPECT_EQ(without(3, 3), (Shared{{64, 1, 2}, {64, 3, 1}}));
  EXPECT_EQ(without(0, 6), (Shared{{64, 0, 1}}));
  EXPECT_EQ(without(5, 2), (Shared{{64, 1, 3}}));
}

TEST(SharedPrefix, IsTheFirstMembers) {
  const AttentionShape shape = parse_shape("q1s1_q1s70_q1s71_q1s5_q1s80 prefix64@1+2_64@4+1");
  std::vector<std::int64_t> borrowed;
  for (std::size_t b = 0; b < shape.batch.size(); ++b) borrowed.push_back(borrowed_keys(shape, b));
  EXPECT_EQ(borrowed, (std::vector<std::int64_t>{0, 0, 64, 0, 0}));
  EXPECT_EQ(shared_prefix_of(shape, 0), nullptr);
  EXPECT_EQ(shared_prefix_of(shape, 2), &shape.shared[0]);
}

/// Who has no use for one says so; nothing is computed in silence as if it had been asked for something else.
TEST(SharedPrefix, IsRefusedOrServedByEveryBackend) {
  const AttentionShape shape = parse_shape("decode latent h16 4q1s200 prefix128");
  AttentionShape apart = shape;
  apart.shared.clear();
  for (const mla::Backend* backend : mla::backends()) {
    const std::string name(backend->info().name);
    const mla::Device device = backend->info().on_device ? mla::load_device("h200") : mla::host_device();
    const mla::Support support = backend->supports(shape, device);
    if (!backend->supports(apart, device)) continue;
    if (name == "cuda-latent" || !backend->info().on_device) {
      EXPECT_EQ(support.why, "") << name;
    } else {
      EXPECT_NE(support.why.find("no use for the prefix of 128 tokens that 4 requests share"),
                std::string::npos)
          << name << ": " << support.why;
    }
  }
}

}  // namespace
