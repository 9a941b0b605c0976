// SPDX-License-Identifier: Apache-2.0
// What the client makes of peers that do wrong: each fault is one clear sentence, and the next call starts
// afresh.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "mla/error.hpp"
#include "peer/peer_backend.hpp"
#include "python.hpp"
#include "verify/run_case.hpp"
#include "verify/stage.hpp"

namespace {

using namespace mla;
using peer::PeerBackend;

const char* const kCase = "decode latent h2 l16 r8 p8 v12 1q1s5_1q1s9 causal b4 q:f32 out:f32 cache:f32";

class PeerClient : public testing::Test {
 protected:
  void SetUp() override {
    static const std::string python = test::python_with("");
    python_ = python;
    if (python_.empty()) GTEST_SKIP() << "no Python 3 interpreter was found";
  }
  [[nodiscard]] PeerBackend start(const std::string& fault, double timeout = 20) const {
    const std::string command = python_ + " -S " MLA_TEST_DATA "/peers/bad_peer.py " + fault;
    return PeerBackend("peer:" + fault, command, {timeout});
  }
  static verify::Verdict judge(const Backend& backend) {
    return verify::run_case(backend, verify::parse_case(kCase));
  }
  void expect_failure(const std::string& fault, const std::vector<std::string>& says,
                      double timeout = 20) const {
    SCOPED_TRACE(fault);
    const PeerBackend backend = start(fault, timeout);
    for (int again = 0; again < 2; ++again) {  // a dead peer is started anew, and fails in the same words
      const verify::Verdict verdict = judge(backend);
      EXPECT_EQ(verdict.outcome, verify::Outcome::kFailed);
      for (const std::string& part : says) {
        EXPECT_NE(verdict.reason.find(part), std::string::npos) << part << "\nin: " << verdict.reason;
      }
      EXPECT_EQ(verdict.reason.find('\x1b'), std::string::npos);
    }
  }
  void expect_no_start(const std::string& fault, ErrorCode code, const std::vector<std::string>& says) const {
    SCOPED_TRACE(fault);
    try {
      static_cast<void>(start(fault));
      ADD_FAILURE() << "it started";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), code) << e.what();
      for (const std::string& part : says) {
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << part << "\nin: " << e.what();
      }
    }
  }
  std::string python_;
};

TEST_F(PeerClient, WrongAnswersAreFailuresOfTheCase) {
  expect_failure("none", {"budget"});  // zeros are well-formed and wrong
  expect_failure("nan", {"NaN"});
  expect_failure("shape", {"'out'", "[4, 16]", "[2, 2, 16]"});
  expect_failure("dtype", {"'out'", "i32", "f32"});
  expect_failure("no-lse", {"'lse'"});
  expect_failure("extra", {"'more'", "nobody asked"});
  expect_failure("no-file", {"out.safetensors"});
  expect_failure("cut-file", {"out.safetensors"});
  expect_failure("id", {"the id must be the message's"});
  expect_failure("stdout", {"'a library says hello'", "not JSON"});
  expect_failure("error", {"the kernel said", "no"});
}

TEST_F(PeerClient, DeathAndSilenceAreFailuresOfTheCase) {
  expect_failure("crash", {"signal 11"});
  expect_failure("exit", {"exit code 7", "out of luck"});
  expect_failure("supports-exit", {"exit code 9"});
  expect_failure("supports-silent", {"does not say why"});
  expect_failure("hang", {"no answer within 0.5 s"}, 0.5);
  expect_failure("endless", {"without the end of a line"});
}

TEST_F(PeerClient, WaitingIsGrantedWhenAsked) {
  const PeerBackend backend = start("wait", 2);
  const verify::Verdict verdict = judge(backend);
  EXPECT_EQ(verdict.reason.find("no answer"), std::string::npos) << verdict.reason;
  EXPECT_NE(verdict.reason.find("budget"), std::string::npos) << verdict.reason;
}

TEST_F(PeerClient, EveryCallMayAskForTime) {
  const std::string file = std::string(MLA_TEST_DATA) + "/peers/patient_peer.py";
  const PeerBackend backend("patient", mla::test::python_with("") + " " + file, {});
  for (const char* call : {"call 1 waited in vain", "call 2 waited in vain"}) {
    const verify::Verdict verdict = judge(backend);
    EXPECT_EQ(verdict.outcome, verify::Outcome::kUnsupported);
    EXPECT_NE(verdict.reason.find(call), std::string::npos) << verdict.reason;
  }
}

TEST_F(PeerClient, RefusalsAreNotFailures) {
  const PeerBackend refusing = start("refuse");
  const verify::Verdict refused = judge(refusing);
  EXPECT_EQ(refused.outcome, verify::Outcome::kUnsupported);
  EXPECT_NE(refused.reason.find("page size 16, but this kernel is built for 64"), std::string::npos);
  const PeerBackend late = start("unsupported");
  const verify::Verdict later = judge(late);
  EXPECT_EQ(later.outcome, verify::Outcome::kUnsupported);
  EXPECT_NE(later.reason.find("not on a Monday"), std::string::npos);
}

TEST_F(PeerClient, WhatTheProtocolHasNoWordForIsRefusedByPlansToo) {
  const PeerBackend backend = start("none");
  const AttentionShape shape =
      verify::parse_case("decode latent h2 l16 r8 p8 v12 q1s5_q1s9 causal prefix4 b4 q:f32 out:f32 cache:f32")
          .shape;
  ASSERT_FALSE(shape.shared.empty());
  const Support support = backend.supports(shape, host_device());
  EXPECT_FALSE(support) << "a shared prefix";
  try {
    static_cast<void>(backend.plan(shape, host_device()));
    ADD_FAILURE() << "a plan was made";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_EQ(std::string(error.what()), support.why);
  }
}

TEST_F(PeerClient, AHandshakeThatFailsNamesThePeerAndTheFault) {
  expect_no_start("hello-skip", ErrorCode::kUnsupported, {"the package nothing is not installed"});
  expect_no_start("hello-garbage", ErrorCode::kParse, {"bad_peer.py", "'hello!'"});
  expect_no_start("hello-exit", ErrorCode::kIo, {"bad_peer.py", "exit code 3"});
  expect_no_start("hello-protocol", ErrorCode::kParse, {"99", "speaks 1"});
  expect_no_start("hello-strategy", ErrorCode::kParse, {"'magic'", "absorbed"});
  expect_no_start("hello-rounding", ErrorCode::kInvalidArgument, {"f12"});
}

TEST(PeerStart, ProgramsThatAreNotThere) {
  const auto message_of = [](const char* command) -> std::string {
    try {
      PeerBackend("peer:x", command);
      return "it started";
    } catch (const Error& e) {
      return e.what();
    }
  };
  EXPECT_EQ(message_of("/no/such/peer --fast"), "there is no peer '/no/such/peer'");
  EXPECT_EQ(message_of("no-such-program-anywhere"),
            "peer 'no-such-program-anywhere' cannot start 'no-such-program-anywhere': No such file or "
            "directory (asked "
            "to say hello)");
  EXPECT_NE(message_of("  ").find("the name is empty"), std::string::npos);
  EXPECT_THROW(static_cast<void>(peer::open_peer("cpu-absorbed")), Error);
}

TEST_F(PeerClient, SamplesComeBackInOrder) {
  const PeerBackend backend = start("none");
  const verify::Case c = verify::parse_case(kCase);
  const verify::Problem problem(c);
  verify::Stage stage(problem, host_memory());
  const auto plan = backend.plan(c.shape, host_device());
  const peer::TimeAnswer answer = backend.time(*plan, stage.args(), {.preheat = 0.25});
  EXPECT_EQ(answer.timer, "wall");
  EXPECT_EQ(answer.plan, "asked to pre-heat for 0.25 s");
  EXPECT_EQ(answer.copies, 2);
  ASSERT_EQ(answer.seconds.size(), 3U);
  EXPECT_DOUBLE_EQ(answer.seconds[0], 3e-6);
  EXPECT_DOUBLE_EQ(answer.seconds[1], 1e-6);
  for (const char* fault : {"time-none", "time-zero", "time-text", "time-timer"}) {
    const PeerBackend wrong = start(fault);
    const auto its_plan = wrong.plan(c.shape, host_device());
    EXPECT_THROW(static_cast<void>(wrong.time(*its_plan, stage.args(), {})), Error) << fault;
  }
}

TEST_F(PeerClient, PlansOfOthersAreRefused) {
  const PeerBackend one = start("none"), two = start("none");
  const verify::Case c = verify::parse_case(kCase);
  const verify::Problem problem(c);
  verify::Stage stage(problem, host_memory());
  const auto plan = one.plan(c.shape, host_device());
  EXPECT_THROW(two.run(*plan, stage.args(), {}), Error);
}

TEST_F(PeerClient, NothingIsLeftBehind) {
  namespace fs = std::filesystem;
  const fs::path own = fs::path(testing::TempDir()) / ("mla_peer_client_" + std::to_string(::getpid()));
  fs::create_directories(own);
  ::setenv("TMPDIR", own.c_str(), 1);
  {
    const PeerBackend backend = start("hang", 2);
    static_cast<void>(judge(backend));
    EXPECT_FALSE(fs::is_empty(own));
  }
  EXPECT_TRUE(fs::is_empty(own));
  ::unsetenv("TMPDIR");
  fs::remove_all(own);
}

}  // namespace
