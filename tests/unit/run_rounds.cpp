// SPDX-License-Identifier: Apache-2.0
// How calls on a device are laid out in captured rounds, on a device that only counts.
#include <gtest/gtest.h>

#include "mla/error.hpp"
#include "run/round_timer.hpp"

namespace {

using namespace mla;
using run::round_layout;
using run::RoundLayout;
using run::RoundTimer;

/// A millisecond a call; captures by remembering which calls were made.
class CountingDevice final : public DeviceTimer {
 public:
  struct Work final : CapturedWork {
    std::vector<std::int64_t> calls;
  };
  explicit CountingDevice(bool captures) : captures_(captures) {}
  [[nodiscard]] Stream stream() const noexcept override { return {}; }
  [[nodiscard]] std::unique_ptr<CapturedWork> capture(const std::function<void()>& enqueue) override {
    if (!captures_) throw Error(ErrorCode::kUnsupported, "it waits for the device");
    auto work = std::make_unique<Work>();
    made.clear();
    enqueue();
    work->calls = made;
    made.clear();
    return work;
  }
  [[nodiscard]] double seconds(const std::function<void()>& enqueue,
                               const std::function<void()>& meanwhile) override {
    const std::size_t before = made.size();
    enqueue();
    if (meanwhile) meanwhile();
    return 1e-3 * static_cast<double>(made.size() - before);
  }
  [[nodiscard]] double seconds(CapturedWork& work, int replays,
                               const std::function<void()>& meanwhile) override {
    return seconds(
        [&] {
          const auto& calls = static_cast<Work&>(work).calls;
          for (int i = 0; i < replays; ++i) made.insert(made.end(), calls.begin(), calls.end());
        },
        meanwhile);
  }
  [[nodiscard]] std::string bus_id() const override { return {}; }
  [[nodiscard]] std::size_t free_bytes() const override { return 0; }
  std::vector<std::int64_t> made;

 private:
  bool captures_;
};

TEST(RoundLayout, LastsAMillisecondInWholeRounds) {
  const RoundLayout shortest = round_layout(3, 1e-5, 0);
  EXPECT_EQ(shortest.calls, 102) << "34 rounds of three calls of 10 us";
  EXPECT_EQ(shortest.part, shortest.calls);
  EXPECT_EQ(round_layout(54, 4e-5, 0).calls, 54);
  EXPECT_LE(round_layout(2, 1e-9, 0).calls, 4096);
}

TEST(RoundLayout, ALongRoundIsCutIntoParts) {
  const RoundLayout cut = round_layout(18, 10e-3, 0);
  EXPECT_EQ(cut.calls, 18);
  EXPECT_EQ(cut.part, 1) << "18 calls of 10 ms would be one sample of 180 ms";
  EXPECT_EQ(round_layout(100, 0.3e-3, 0).part, 4);
  EXPECT_EQ(round_layout(2, 1e-3, 0).part, 2);
}

TEST(RoundLayout, AnInjectedSlowdownMakesCallsThatDoNotCount) {
  const RoundLayout layout = round_layout(54, 4e-5, 0.005);
  EXPECT_EQ(layout.calls, 216) << "the fewest rounds of 54 with a whole call to add";
  EXPECT_EQ(layout.extra, 1);
  EXPECT_EQ(round_layout(54, 4e-5, 0.05).extra, 3);
  EXPECT_EQ(round_layout(18, 10e-3, 0.05).part, 36) << "one part: all of it is slower";
}

TEST(RoundTimer, PartsFollowOneAnotherThroughTheRound) {
  CountingDevice device(true);
  std::vector<std::int64_t>& made = device.made;
  RoundTimer timer(device, [&](std::int64_t i) { made.push_back(i); }, {.calls = 5, .part = 2, .extra = 0});
  EXPECT_EQ(timer.name(), "graph");
  EXPECT_EQ(timer.calls_in_part(), 2);
  EXPECT_DOUBLE_EQ(timer.measure({}, 1), 1e-3);
  EXPECT_DOUBLE_EQ(timer.measure({}, 3), 1e-3) << "two parts: three calls";
  EXPECT_EQ(made, (std::vector<std::int64_t>{0, 1, 2, 3, 4}));
  static_cast<void>(timer.measure({}, 1));
  EXPECT_EQ(made.size(), 7U);
  EXPECT_EQ(made.back(), 1) << "and around again";
}

TEST(RoundTimer, OnePartIsReplayedAsOftenAsWanted) {
  CountingDevice device(true);
  RoundTimer timer(device, [&](std::int64_t i) { device.made.push_back(i); },
                   {.calls = 4, .part = 4, .extra = 2});
  int looked = 0;
  EXPECT_DOUBLE_EQ(timer.replay(9, [&] { ++looked; }), 1.5e-3) << "six are made for four that count";
  EXPECT_EQ(device.made.size(), 18U);
  EXPECT_EQ(looked, 1);
}

TEST(RoundTimer, WhatCannotBeCapturedIsEnqueuedAnew) {
  CountingDevice device(false);
  RoundTimer timer(device, [&](std::int64_t i) { device.made.push_back(i); },
                   {.calls = 3, .part = 3, .extra = 0});
  EXPECT_EQ(timer.name(), "event");
  EXPECT_EQ(timer.why_no_graph(), "it waits for the device");
  EXPECT_DOUBLE_EQ(timer.measure({}, 4), 1e-3);
  EXPECT_EQ(device.made.size(), 6U);
}

}  // namespace
