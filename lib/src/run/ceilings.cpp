// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "run/host.hpp"
#include "run/threads.hpp"

namespace mla::run {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kTriesWithoutGain = 5;
constexpr double kMostSeconds = 1.0;  // for each ceiling

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The best rate of several tries: goes on while tries still find a better one, because on a busy machine the
/// first may all be poor, and a ceiling is what is possible.
template <class Try>
double best_rate(const Try& rate_once) {
  const auto start = Clock::now();
  double best = 0;
  for (int without_gain = 0; without_gain < kTriesWithoutGain && seconds_since(start) < kMostSeconds;) {
    const double rate = rate_once();
    without_gain = rate > best * 1.01 ? 0 : without_gain + 1;
    best = std::max(best, rate);
  }
  return best;
}

/// Sums a buffer by 64-bit words, eight at a time: bound by memory, not by the adds.
std::uint64_t sum(const std::uint64_t* words, std::size_t count) {
  std::array<std::uint64_t, 8> part{};
  for (std::size_t i = 0; i + 8 <= count; i += 8) {
    for (std::size_t j = 0; j < 8; ++j) part[j] += words[i + j];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t p : part) total += p;
  return total;
}

double read_bandwidth(int threads) {
  // Four times the caches: at most a quarter of a pass can be served from them.
  const std::size_t words = std::max<std::size_t>(4 * last_level_cache_bytes(), std::size_t{128} << 20) / 8;
  const std::size_t share = words / static_cast<std::size_t>(threads);
  std::vector<std::uint64_t> buffer(words, 1);
  std::vector<std::uint64_t> totals(static_cast<std::size_t>(threads));
  return best_rate([&] {
    const auto start = Clock::now();
    on_threads(threads, [&](int t) {
      totals[static_cast<std::size_t>(t)] = sum(buffer.data() + share * static_cast<std::size_t>(t), share);
    });
    const double rate =
        static_cast<double>(share * static_cast<std::size_t>(threads) * 8) / seconds_since(start);
    buffer[0] = totals[0] % 2;  // the sums are used, so they are computed
    return rate;
  });
}

#ifdef __AVX512F__
constexpr std::size_t kVectorBytes = 64;
#else
constexpr std::size_t kVectorBytes = 32;
#endif
constexpr std::size_t kChains = 12;  // enough to hide the latency, few enough for the registers

/// acc = acc * a + b on independent vectors that stay in registers. Said as vectors: left to find them in a loop, some
/// compilers do not, and the ceiling would be a thirtieth of what the machine can do.
template <class Real>
Real multiply_add(std::int64_t rounds, Real a, Real b) {
  typedef Real Vector __attribute__((vector_size(kVectorBytes)));  // an alias would lose the attribute here
  Vector acc[kChains] = {};
  for (std::int64_t i = 0; i < rounds; ++i) {
    for (Vector& x : acc) x = x * a + b;
  }
  Vector total = acc[0];
  for (std::size_t i = 1; i < kChains; ++i) total += acc[i];
  Real sum = 0;
  for (std::size_t i = 0; i < kVectorBytes / sizeof(Real); ++i) sum += total[i];
  return sum;
}

template <class Real>
double multiply_add_rate(int threads) {
  constexpr std::int64_t kRounds = 1 << 19;
  constexpr double kFlops = 2.0 * kRounds * kChains * (kVectorBytes / sizeof(Real));
  std::vector<Real> totals(static_cast<std::size_t>(threads), Real(0.5));
  return best_rate([&] {
    const auto start = Clock::now();
    on_threads(threads, [&](int t) {
      Real& total = totals[static_cast<std::size_t>(t)];
      total = multiply_add<Real>(kRounds, Real(0.5), total / Real(1000));
    });
    return kFlops * threads / seconds_since(start);
  });
}

}  // namespace

HostCeilings measure_ceilings(int threads) {
  return {.read_bytes_per_s = read_bandwidth(threads),
          .f32_flops = multiply_add_rate<float>(threads),
          .f64_flops = multiply_add_rate<double>(threads)};
}

}  // namespace mla::run
