// SPDX-License-Identifier: Apache-2.0
// cpu-absorbed and cpu-expanded through the backend interface.
#include "mla/backend.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "../unit/expect_error.hpp"
#include "backend_case.hpp"

namespace {

using namespace mla;
using backend_case::Call;
using backend_case::cpu;
using backend_case::kDims;
using reference::Arithmetic;
using reference::Visibility;
using textbook::MlaData;
using textbook::relative_error;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const Backend& absorbed() {
  return get_backend("cpu-absorbed");
}
const Backend& expanded() {
  return get_backend("cpu-expanded");
}

MlaData make_data(QuerySpace space, std::vector<Request> batch, const Visibility& visible = {}) {
  MlaData data = textbook::make_mla(kDims, std::move(batch), visible);
  if (space == QuerySpace::kLatent)
    data.q = textbook::normals(data.tokens() * kDims.num_heads * 136, 50, 0.3);
  return data;
}

std::vector<Request> small_batch() {
  return {{1, 9}, {3, 21}, {1, 1}, {2, 2}, {1, 64}};
}

struct Form {
  const Backend* backend;
  QuerySpace space;
};
std::vector<Form> forms() {
  return {
      {&absorbed(), QuerySpace::kLatent}, {&absorbed(), QuerySpace::kHead}, {&expanded(), QuerySpace::kHead}};
}

/// What the backend must give to the bit: the reference in the declared arithmetic, rounded once.
void expect_reference(const Call& call, const Backend& backend) {
  const Arithmetic arithmetic = call.shape.q_dtype == DType::kF64 ? Arithmetic::kF64 : Arithmetic::kF32;
  auto want = call.reference(&backend == &expanded(), arithmetic);
  for (double& x : want.out) x = round_to(call.shape.out_dtype, x);
  EXPECT_EQ(call.out(), want.out);
  EXPECT_EQ(call.lse(), want.lse);
  EXPECT_TRUE(call.only_results_written());
}

TEST(CpuBackend, EveryFormatAndTypeIsTheReferenceOnTheStoredNumbers) {
  for (const Form& form : forms()) {
    for (const CacheFormat format : all_cache_formats()) {
      for (const DType q : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
        SCOPED_TRACE(std::string(form.backend->info().name) + " " + std::string(name_of(format)) + " " +
                     std::string(name_of(q)));
        Call call(make_data(form.space, small_batch()), form.space, format, q, q);
        call.run(*form.backend);
        expect_reference(call, *form.backend);
        if (q == DType::kF64) {
          const auto want = call.textbook_result();
          EXPECT_LE(relative_error(call.out(), want.out), 1e-13);
          EXPECT_LE(relative_error(call.lse(), want.lse), 1e-13);
        }
      }
    }
    for (const DType out : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
      Call call(make_data(form.space, small_batch()), form.space, CacheFormat::kBF16, DType::kBF16, out);
      call.run(*form.backend);
      expect_reference(call, *form.backend);
    }
  }
}

TEST(CpuBackend, EveryMask) {
  for (const Form& form : forms()) {
    for (const auto& [name, visible] : textbook::visibilities()) {
      SCOPED_TRACE(name);
      Call call(make_data(form.space, {{1, 9}, {3, 21}, {0, 4}, {1, 70}}, visible), form.space,
                CacheFormat::kF64, DType::kF64, DType::kF64);
      call.run(*form.backend);
      expect_reference(call, *form.backend);
      EXPECT_LE(relative_error(call.out(), call.textbook_result().out), 1e-13);
    }
  }
}

// Unused rows, blocks, table columns, gaps and spare tokens hold NaN or nonsense in every one of these.
TEST(CpuBackend, MemoryLayoutDoesNotChangeABit) {
  for (const Form& form : forms()) {
    for (const CacheFormat format : {CacheFormat::kBF16, CacheFormat::kF16Split, CacheFormat::kFp8DsMla}) {
      std::vector<double> want;
      for (const std::int32_t block_size : {1, 3, 16, 64, 1000}) {
        for (const bool shuffled : {false, true}) {
          for (const std::int64_t gap : {0, 3}) {
            Call call(make_data(form.space, small_batch(), {{true, 8, 2}, {}, 0}), form.space, format,
                      DType::kBF16, DType::kF32, {block_size, shuffled, gap, gap});
            call.run(*form.backend);
            expect_reference(call, *form.backend);
            if (want.empty()) want = call.out();
            EXPECT_EQ(call.out(), want);
          }
        }
      }
    }
  }
}

TEST(CpuBackend, ThreadsAndSplits) {
  for (const Form& form : forms()) {
    const MlaData data = make_data(form.space, small_batch());
    Call call(data, form.space, CacheFormat::kF32, DType::kF64, DType::kF64);
    call.run(*form.backend);
    const auto want = call.out();
    for (const int threads : {1, 2, 7}) {
      call.options = {0, threads};
      call.run(*form.backend);
      EXPECT_EQ(call.out(), want);
    }
    for (const int splits : {1, 2, 5, 100}) {
      call.options = {splits, 2};
      call.run(*form.backend);
      EXPECT_LE(relative_error(call.out(), want), 1e-13);
    }
  }
  Call call(make_data(QuerySpace::kHead, small_batch()), QuerySpace::kHead, CacheFormat::kF32, DType::kF64,
            DType::kF64);
  EXPECT_EQ(absorbed().plan(call.shape, cpu(), {3, 2})->describe(), "absorbed in f64, 3 splits, 2 threads");
  call.shape.q_dtype = DType::kF16;
  EXPECT_EQ(expanded().plan(call.shape, cpu())->describe(), "expanded in f32, 1 split, all threads");
}

TEST(CpuBackend, IsBatchInvariantAsItSays) {
  for (const Form& form : forms()) {
    EXPECT_TRUE(form.backend->info().batch_invariant);
    const MlaData data = make_data(form.space, small_batch());
    Call all(data, form.space, CacheFormat::kBF16, DType::kBF16, DType::kBF16);
    all.run(*form.backend);
    const auto want = all.out();
    std::int64_t token = 0, key = 0;
    const std::int64_t q_row = std::ssize(data.q) / data.tokens(), out_row = std::ssize(want) / data.tokens();
    for (const Request& request : data.batch) {
      MlaData one = data;
      one.batch = {request};
      one.q.assign(data.q.begin() + token * q_row, data.q.begin() + (token + request.q_len) * q_row);
      one.latent.assign(data.latent.begin() + key * 136, data.latent.begin() + (key + request.kv_len) * 136);
      Call alone(one, form.space, CacheFormat::kBF16, DType::kBF16, DType::kBF16);
      alone.run(*form.backend);
      EXPECT_EQ(alone.out(), std::vector(want.begin() + token * out_row,
                                         want.begin() + (token + request.q_len) * out_row));
      token += request.q_len;
      key += request.kv_len;
    }
  }
}

// More gathered rows than are held in memory at once: 150 requests on the same pages of a shared prefix.
TEST(CpuBackend, ALargeBatchIsServedPieceByPiece) {
  constexpr int kRequests = 150, kKeys = 4000;
  const MlaData one = make_data(QuerySpace::kLatent, {{1, kKeys}});
  Call call(one, QuerySpace::kLatent, CacheFormat::kBF16, DType::kF32, DType::kF32, {.block_size = 64});
  call.run(absorbed());
  const std::vector<double> want = call.out();
  call.args.cache.block_table.extent[0] = kRequests;
  call.args.cache.block_table.stride[0] = 0;
  call.shape.batch.assign(kRequests, {1, kKeys});
  call.cu_seqlens().resize(kRequests + 1);
  std::iota(call.cu_seqlens().begin(), call.cu_seqlens().end(), 0);
  call.seq_lens().assign(kRequests, kKeys);
  call.args.cu_seqlens_q = {call.cu_seqlens().data(), {kRequests + 1}};
  call.args.seq_lens = {call.seq_lens().data(), {kRequests}};
  call.args.q.extent[0] = call.args.out.extent[0] = kRequests;
  call.args.q.stride[0] = 0;  // one query for all
  std::vector<float> out(want.size() * kRequests, -1.0F);
  call.args.out = TensorRef(out.data(), DType::kF32, {kRequests, kDims.num_heads, kDims.kv_lora_rank});
  call.args.lse = {};
  call.run(absorbed());
  for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], want[i % want.size()]) << i;
}

TEST(CpuBackend, TrueLengthsMayBeShorterThanPlanned) {
  for (const Form& form : forms()) {
    Call call(make_data(form.space, {{2, 10}, {1, 20}, {1, 7}}), form.space, CacheFormat::kF64, DType::kF64,
              DType::kF64);
    // A replayed graph: request 0 has one new token and is a row shorter, request 1 is padding, request 2
    // ended.
    call.cu_seqlens() = {0, 1, 2, 2};
    call.seq_lens() = {9, 0, 0};
    call.run(*form.backend);
    EXPECT_TRUE(call.only_results_written());
    const auto out = call.out(), lse = call.lse();
    const auto row = static_cast<std::ptrdiff_t>(out.size() / 2);
    EXPECT_TRUE(std::all_of(out.begin() + row, out.end(), [](double x) { return x == 0; }));
    EXPECT_TRUE(std::all_of(lse.begin() + 3, lse.end(), [](double x) { return x == -kInfinity; }));
    Call same(make_data(form.space, {{2, 10}, {1, 20}, {1, 7}}), form.space, CacheFormat::kF64, DType::kF64,
              DType::kF64);
    same.run(*form.backend);
    const auto full = same.out();  // its first token stood at position 8 and saw the same 9 keys
    EXPECT_LE(relative_error(std::span(out).first(static_cast<std::size_t>(row)),
                             std::span(full).first(static_cast<std::size_t>(row))),
              1e-13);
  }
}

TEST(CpuBackend, LseIsOptional) {
  Call call(make_data(QuerySpace::kLatent, small_batch()), QuerySpace::kLatent, CacheFormat::kBF16,
            DType::kBF16, DType::kBF16);
  call.run(absorbed());
  const auto want = call.out();
  call.args.lse = {};
  call.run(absorbed());
  EXPECT_EQ(call.out(), want);
}

TEST(CpuBackend, AnIndexOfNothingIsAnEmptyRow) {
  MlaData data = make_data(QuerySpace::kLatent, {{2, 9}}, {{}, {}, 4});
  data.index.assign(8, -1);
  Call call(data, QuerySpace::kLatent, CacheFormat::kBF16, DType::kF32, DType::kF32);
  call.run(absorbed());
  for (const double x : call.out()) EXPECT_EQ(x, 0);
  for (const double x : call.lse()) EXPECT_EQ(x, -kInfinity);
}

TEST(CpuBackend, SaysWhatItIs) {
  EXPECT_EQ(absorbed().info().strategy, "absorbed");
  EXPECT_EQ(expanded().info().strategy, "expanded");
  AttentionShape shape;
  for (const Backend* backend : {&absorbed(), &expanded()}) {
    EXPECT_FALSE(backend->info().on_device);
    for (const auto& [q, want] :
         {std::pair{DType::kF64, DType::kF64}, std::pair{DType::kBF16, DType::kF32}}) {
      shape.q_dtype = q;
      const RoundingProfile profile = backend->rounding(shape);
      for (const DType point : {profile.accumulate, profile.probabilities, profile.partials,
                                profile.absorbed_query, profile.latent_output, profile.expanded_kv}) {
        EXPECT_EQ(point, want);
      }
      EXPECT_FALSE(profile.lse_from_rounded_p);
    }
  }
}

TEST(CpuBackend, SaysWhyNot) {
  const auto why = [](const Backend& backend, auto change) {
    AttentionShape shape;
    shape.batch = {{1, 16}};
    shape.space = QuerySpace::kHead;
    Device device = cpu();
    change(shape, device);
    const Support support = backend.supports(shape, device);
    EXPECT_EQ(support.ok, support.why.empty());
    if (!support.ok) {
      expect_error([&] { return backend.plan(shape, device); }, ErrorCode::kUnsupported, {support.why});
    }
    return support.why;
  };
  const auto expect_why = [&](auto change, const std::vector<std::string_view>& parts) {
    for (const Backend* backend : {&absorbed(), &expanded()}) {
      for (const std::string_view part : parts) {
        EXPECT_NE(why(*backend, change).find(part), std::string::npos) << why(*backend, change);
      }
    }
  };
  EXPECT_EQ(why(absorbed(), [](auto&, auto&) {}), "");
  EXPECT_EQ(why(expanded(), [](auto&, auto&) {}), "");
  expect_why([](AttentionShape& s, Device&) { s.q_dtype = DType::kE4M3; },
             {"q is e4m3", "f64, f32, bf16 or f16"});
  expect_why([](AttentionShape& s, Device&) { s.out_dtype = DType::kI32; }, {"out is i32"});
  expect_why([](AttentionShape&, Device& d) { d.name = "h200", d.vendor = "nvidia"; },
             {"h200", "nvidia", "CPU"});
  expect_why([](AttentionShape& s, Device&) { s.cache = CacheFormat::kFp8DsMla, s.dims.kv_lora_rank = 200; },
             {"200"});
  expect_why([](AttentionShape& s, Device&) { s.mask.window = 0; }, {"window", "0"});
  expect_why([](AttentionShape& s, Device&) { s.dims.qk_rope_head_dim = 5; }, {"qk_rope_head_dim is 5"});
  const auto latent = [](AttentionShape& s, Device&) { s.space = QuerySpace::kLatent; };
  EXPECT_EQ(why(absorbed(), latent), "");
  EXPECT_NE(why(expanded(), latent).find("latent space"), std::string::npos);
}

TEST(CpuBackend, RefusesWrongArguments) {
  const auto refused = [](auto change, const std::vector<std::string_view>& parts) {
    Call call(make_data(QuerySpace::kHead, {{1, 9}, {2, 6}}), QuerySpace::kHead, CacheFormat::kBF16,
              DType::kBF16, DType::kBF16);
    change(call);
    for (const Backend* backend : {&absorbed(), &expanded()}) {
      expect_error([&] { return call.run(*backend), 0; }, ErrorCode::kInvalidArgument, parts);
    }
  };
  using C = Call&;
  refused([](C c) { c.args.q.data = nullptr; }, {"q is null"});
  refused([](C c) { c.args.q.dtype = DType::kF16; }, {"q is f16", "bf16"});
  refused([](C c) { c.args.q.extent[2] = 19; }, {"q is [3, 3, 19]", "[tokens, H, P+R] = [3, 3, 18]"});
  refused([](C c) { c.args.q.extent[0] = 2; }, {"q is [2, 3, 18]"});
  refused([](C c) { c.args.q.rank = 2; }, {"q is [3, 3]"});
  refused([](C c) { c.args.out.data = nullptr; }, {"out is null"});
  refused([](C c) { c.args.out.dtype = DType::kF32; }, {"out is f32", "bf16"});
  refused([](C c) { c.args.out.extent[1] = 4; }, {"out is [3, 4, 12]"});
  refused([](C c) { c.args.lse.dtype = DType::kBF16; }, {"lse is bf16", "f32 or f64"});
  refused([](C c) { c.args.lse.extent[1] = 2; }, {"lse is [3, 2]"});
  refused([](C c) { c.args.w_uk.data = nullptr; }, {"w_uk is null"});
  refused([](C c) { c.args.w_uk.extent[0] = 4; }, {"w_uk is [4, 10, 128]", "[H, P, L] = [3, 10, 128]"});
  refused([](C c) { c.args.w_uv.extent[1] = 10; }, {"w_uv is [3, 10, 128]", "[H, V, L] = [3, 12, 128]"});
  refused([](C c) { c.args.w_uv.dtype = DType::kE4M3; }, {"e4m3"});
  refused([](C c) { c.args.softmax_scale = 0; }, {"softmax_scale is 0"});
  refused([](C c) { c.args.cu_seqlens_q.data = nullptr; }, {"cu_seqlens_q is null"});
  refused([](C c) { c.args.cu_seqlens_q.extent[0] = 2; }, {"cu_seqlens_q has 2 elements"});
  refused([](C c) { c.cu_seqlens() = {1, 2, 3}; }, {"cu_seqlens_q[0] is 1"});
  refused([](C c) { c.cu_seqlens() = {0, 2, 3}; }, {"q_len of request 0", "is 2", "0..1"});
  refused([](C c) { c.cu_seqlens() = {0, 1, 0}; }, {"q_len of request 1", "is -1"});
  refused([](C c) { c.args.seq_lens.data = nullptr; }, {"seq_lens is null"});
  refused([](C c) { c.seq_lens() = {9, 7}; }, {"seq_lens[1]", "is 7", "0..6"});
  refused([](C c) { c.seq_lens() = {-1, 6}; }, {"seq_lens[0]", "is -1"});
  refused([](C c) { c.args.cache.format = CacheFormat::kF16; }, {"f16", "bf16"});
  refused([](C c) { c.args.cache.block_size = 8; }, {"block_size is 8", "4"});
  refused([](C c) { c.args.cache.data = nullptr; }, {"data is null"});
  refused([](C c) { c.args.cache.row_stride_bytes = 271; }, {"row stride", "271", "272"});
  refused([](C c) { c.args.cache.block_stride_bytes = 1; }, {"block stride", "is 1"});
  refused([](C c) { c.args.cache.block_table.data = nullptr; }, {"block table"});
  refused([](C c) { c.args.cache.block_table.extent[1] = 2; },
          {"[2, 2]", "position 8 of request 0", "(0, 2)"});
  refused([](C c) { c.args.cache.block_table.extent[0] = 1; }, {"[1, 3]", "request 1"});
  refused([](C c) { c.table()[1] = -1; }, {"block_table(0, 1) is -1", "0..11"});
  refused([](C c) { c.table()[4] = 12; }, {"block_table(1, 1) is 12", "0..11"});
  Call call(make_data(QuerySpace::kHead, {{1, 9}}), QuerySpace::kHead, CacheFormat::kBF16, DType::kBF16,
            DType::kBF16);
  const auto plan = expanded().plan(call.shape, cpu());
  expect_error([&] { return absorbed().run(*plan, call.args, {}), 0; }, ErrorCode::kInvalidArgument,
               {"not made by cpu-absorbed"});
  expect_error(
      [&] {
        return absorbed().plan(call.shape, cpu(), {-1, 0});
      },
      ErrorCode::kInvalidArgument, {"num_splits is -1"});
  expect_error(
      [&] {
        return absorbed().plan(call.shape, cpu(), {0, -1});
      },
      ErrorCode::kInvalidArgument, {"threads is -1"});
}

TEST(CpuBackend, RefusesAnIndexThatIsNotThere) {
  const auto refused = [](auto change, const std::vector<std::string_view>& parts) {
    Call call(make_data(QuerySpace::kLatent, {{2, 9}}, {{}, {}, 4}), QuerySpace::kLatent, CacheFormat::kBF16,
              DType::kBF16, DType::kBF16);
    change(call);
    expect_error([&] { return call.run(absorbed()), 0; }, ErrorCode::kInvalidArgument, parts);
  };
  refused([](Call& c) { c.args.token_index.data = nullptr; }, {"token_index is null", "topk 4"});
  refused([](Call& c) { c.args.token_index.extent[1] = 3; }, {"token_index is [2, 3]", "[2, 4]"});
  refused([](Call& c) { c.args.token_index.extent[0] = 1; }, {"token_index is [1, 4]"});
}

}  // namespace
