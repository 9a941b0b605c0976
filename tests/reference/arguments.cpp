// SPDX-License-Identifier: Apache-2.0
// Wrong arguments: a sentence with the value and what is allowed, never a read past an array.
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>

#include "../unit/expect_error.hpp"
#include "mla/layer.hpp"
#include "textbook.hpp"

namespace {

using namespace mla;
using namespace mla::reference;
using textbook::make_mla;
using textbook::MlaData;

constexpr auto kInvalid = ErrorCode::kInvalidArgument;

MlaData data() {
  return make_mla(textbook::kOddDims, {{2, 5}}, {});
}

template <class Change>
void expect_refused(Change change, const std::vector<std::string_view>& parts) {
  MlaData d = data();
  change(d);
  expect_error([&] { return mla_expanded(d.problem()); }, kInvalid, parts);
  expect_error([&] { return mla_absorbed(d.problem()); }, kInvalid, parts);
}

TEST(Arguments, EveryLengthIsChecked) {
  expect_refused([](MlaData& d) { d.q.pop_back(); },
                 {"q has 149 elements", "[tokens, H, P+R] = [2, 5, 15] has 150"});
  expect_refused([](MlaData& d) { d.q.clear(); }, {"q has 0 elements"});
  expect_refused([](MlaData& d) { d.latent.push_back(0); },
                 {"latent has 101", "[sum kv_len, L+R] = [5, 20] has 100"});
  expect_refused([](MlaData& d) { d.w_uk.pop_back(); }, {"w_uk has 629", "[H, P, L]"});
  expect_refused([](MlaData& d) { d.w_uv.clear(); }, {"w_uv has 0", "[H, V, L]"});
  expect_refused([](MlaData& d) { d.batch[0].kv_len = std::numeric_limits<std::int32_t>::max(); },
                 {"latent has 100"});
}

TEST(Arguments, NumbersThatCannotBe) {
  expect_refused([](MlaData& d) { d.batch[0].q_len = -1; }, {"q_len of request 0 is -1", "at least 0"});
  expect_refused([](MlaData& d) { d.batch[0].kv_len = -7; }, {"kv_len of request 0 is -7"});
  expect_refused([](MlaData& d) { d.dims.num_heads = 0; }, {"num_heads is 0"});
  expect_refused([](MlaData& d) { d.dims.qk_rope_head_dim = 3; }, {"qk_rope_head_dim is 3", "even"});
  for (const double scale : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    expect_refused([&](MlaData& d) { d.scale = scale; }, {"softmax_scale is ", "finite and > 0"});
  }
  expect_refused([](MlaData& d) { d.visible.mask.window = 0; }, {"window is 0", "at least 1"});
  expect_refused([](MlaData& d) { d.visible.mask.sink = 2; }, {"sink is 2", "no window"});
  expect_refused([](MlaData& d) { d.visible.mask = {false, 4, 0}; }, {"window is 4", "causal"});
  expect_refused([](MlaData& d) { d.visible.topk = -3; }, {"topk is -3"});
  expect_refused([](MlaData& d) { d.visible.topk = 4; },
                 {"token_index has 0 elements", "[tokens, topk] = [2, 4]"});
  expect_refused([](MlaData& d) { d.index = {1, 2}; }, {"token_index has 2 elements"});
  const MlaData d = data();
  expect_error([&] { return mla_absorbed(d.problem(), {.num_splits = 0}); }, kInvalid, {"num_splits is 0"});
  expect_error([&] { return mla_absorbed(d.problem(), {.threads = -2}); }, kInvalid, {"threads is -2"});
}

TEST(Arguments, Mha) {
  const std::vector<Request> batch{{1, 2}};
  const std::vector<double> two(2), four(4), eight(8);
  expect_error(
      [&] {
        return mha({batch, 4, 3, 1, 1, four, two, two, {}, 1.0});
      },
      kInvalid, {"num_heads 4 is not a multiple of num_kv_heads 3"});
  expect_error(
      [&] {
        return mha({batch, 1, 1, 2, 4, two, four, {}, {}, 1.0});
      },
      kInvalid, {"d_v 4", "d_qk 2"});
  expect_error(
      [&] {
        return mha({batch, 1, 1, 2, 4, two, four, four, {}, 1.0});
      },
      kInvalid, {"v has 4 elements", "[2, 1, 4] has 8"});
  expect_error(
      [&] {
        return mha({batch, 0, 1, 2, 4, two, four, eight, {}, 1.0});
      },
      kInvalid, {"num_heads is 0"});
  expect_error(
      [&] {
        return mha({batch, 1, 1, 1 << 30, 4, two, four, eight, {}, 1.0});
      },
      kInvalid, {"d_qk is"});
}

TEST(Arguments, PiecesOfTheLayer) {
  const MlaDims dims = textbook::kOddDims;
  const std::vector<double> three(3);
  expect_error([&] { return absorb_query(dims, three, three); }, kInvalid, {"q has 3 elements"});
  expect_error([&] { return up_project_value(dims, three, three); }, kInvalid, {"latent_out has 3 elements"});
  expect_error([&] { return split_kv_b(dims, three); }, kInvalid, {"kv_b_proj has 3", "[100, 14] has 1400"});
  expect_error([&] { return decompress(dims, three, {}); }, kInvalid, {"rows has 3"});
  expect_error([&] { return compress_kv_to_latent(dims, three, three, three); }, kInvalid, {"k has 3"});
  expect_error([&] { return rms_norm(three, {}, 1e-6); }, kInvalid, {"width"});
  expect_error([&] { return rms_norm(three, std::vector<double>(2), 1e-6); }, kInvalid, {"x has 3"});
  expect_error([&] { return merge({}, 1, 1); }, kInvalid, {"number of parts", "0"});
  const std::vector<AttentionOutput> parts{{{1.0}, {1.0, 2.0}, {}}};
  expect_error([&] { return merge(parts, 1, 1); }, kInvalid, {"lse of part 0 has 2"});
}

TEST(Arguments, Rope) {
  const std::vector<std::int64_t> positions{0, 1}, negative{-1};
  const auto table = [&](const RopeParameters& p) { return make_rope_table(p, YarnRule::kVllm, positions); };
  expect_error([&] { return table({.dim = 7}); }, kInvalid, {"7", "even"});
  expect_error([&] { return table({.dim = -2}); }, kInvalid, {"-2"});
  expect_error([&] { return table({.theta = 1.0}); }, kInvalid, {"theta is 1"});
  expect_error([&] { return table({.theta = std::nan("")}); }, kInvalid, {"theta is nan"});
  expect_error([&] { return table({.yarn = true, .factor = 0}); }, kInvalid, {"factor is 0"});
  expect_error([&] { return table({.yarn = true, .factor = 2, .original_max_position = 0}); }, kInvalid,
               {"is 0"});
  expect_error([&] { return table({.yarn = true, .factor = 2, .mscale = HUGE_VAL}); }, kInvalid,
               {"mscale is inf"});
  expect_error([&] { return make_rope_table({}, YarnRule::kVllm, negative); }, kInvalid, {"position is -1"});
  RopeTable good = table({.dim = 4});
  std::vector<double> x(7);
  expect_error([&] { return apply_rope(x, good, 2, 1, RopeLayout::kHalfSplit, RopeLayout::kHalfSplit), 0; },
               kInvalid, {"x has 7"});
  x.resize(12);
  expect_error([&] { return apply_rope(x, good, 3, 1, RopeLayout::kHalfSplit, RopeLayout::kHalfSplit), 0; },
               kInvalid, {"cos has 4 elements", "[3, 2] has 6"});
}

TEST(Arguments, AnErrorInAThreadReachesTheCaller) {
  // A scale that is no number is found out by decode_row, in whichever thread reads the row.
  const MlaDims dims{.num_heads = 1, .kv_lora_rank = 128, .qk_rope_head_dim = 0};
  std::vector<std::byte> pool(2 * 128 * 8);
  PagedLatentCache cache;
  cache.format = CacheFormat::kFp8;
  cache.block_size = 2;
  cache.num_blocks = 1;
  cache.data = pool.data();
  cache.row_stride_bytes = 128;
  cache.block_stride_bytes = 256;
  cache.scale = std::nanf("");
  const std::vector<std::int32_t> table{0}, lengths{2};
  cache.block_table = {table.data(), {1, 1}};
  expect_error([&] { return gather_latent(cache, dims, lengths); }, kInvalid, {"scale is nan"});
}

}  // namespace
