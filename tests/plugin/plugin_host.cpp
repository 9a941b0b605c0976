// SPDX-License-Identifier: Apache-2.0
// The C interface: an honest plug-in is a backend like any other, a broken one is refused with a sentence.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "../unit/expect_error.hpp"
#include "mla/backend.hpp"
#include "mla/plugin_host.hpp"
#include "verify/run_case.hpp"

namespace {

using namespace mla;
namespace fs = std::filesystem;

fs::path plugin(const std::string& name) {
  return fs::path(MLA_PLUGINS) / (name + ".so");
}

const Backend& naive() {
  static const fs::path file = plugin("naive");
  static const Backend& backend = load_plugin(file);
  return backend;
}

TEST(PluginNaive, IsABackendLikeAnyOther) {
  EXPECT_EQ(&get_backend("naive"), &naive());
  EXPECT_EQ(backends().back(), &naive()) << "behind the built-in ones";
  EXPECT_EQ(naive().info().strategy, "absorbed");
  EXPECT_EQ(origin_of(naive()), "plug-in 1.0 (naive.so)");
  EXPECT_EQ(origin_of(get_backend("cpu-absorbed")), "");
  EXPECT_EQ(naive().rounding({}).accumulate, DType::kF64);
  expect_error([] { return load_plugin(plugin("naive")).info().name; }, ErrorCode::kInvalidArgument,
               {"'naive'", "already"});
}

TEST(PluginNaive, GivesTheRightResultOnEveryKindOfShape) {
  for (const char* shape : {"decode latent h3 l64 r16 p32 v32 2q1s33_1q3s70 b8 q:f32 out:f32 cache:f32",
                            "decode latent h2 l64 r16 p32 v32 1q2s50 w8 sink3 b16 q:f32 out:f32 cache:f32",
                            "decode latent h2 l64 r16 p32 v32 2q1s50 topk9 b16 q:f32 out:f32 cache:f32",
                            "prefill latent h1 l32 r8 p16 v16 1q20s20 b7 q:f32 out:f32 cache:f32"}) {
    for (const bool strided : {false, true}) {
      verify::Case c;
      c.shape = parse_shape(shape);
      c.strided = strided;
      const verify::Verdict verdict = verify::run_case(naive(), c);
      EXPECT_EQ(verdict.outcome, verify::Outcome::kPassed) << shape << ": " << verdict.reason;
    }
  }
}

TEST(PluginNaive, SaysWhyNot) {
  const Support support = naive().supports(
      parse_shape("decode head h2 l64 r16 p32 v32 1q1s9 q:f32 out:f32 cache:f32"), host_device());
  EXPECT_FALSE(support.ok);
  EXPECT_EQ(support.why, "naive takes no query space 1");
  expect_error(
      [] {
        return naive().plan(parse_shape("decode latent 1q1s9 q:bf16"), host_device())->workspace_bytes();
      },
      ErrorCode::kUnsupported, {"query type"});
}

TEST(PluginNaive, RefusesAnothersPlanAndATooSmallWorkspace) {
  const AttentionShape shape =
      parse_shape("decode latent h2 l64 r16 p32 v32 1q1s9 b8 q:f32 out:f32 cache:f32");
  const std::unique_ptr<Plan> other = get_backend("cpu-absorbed").plan(shape, host_device());
  const auto run = [&](const Plan& plan) {
    return [&] {
      naive().run(plan, {}, {});
      return 0;
    };
  };
  expect_error(run(*other), ErrorCode::kInvalidArgument, {"not made by naive"});
  const std::unique_ptr<Plan> own = naive().plan(shape, host_device());
  EXPECT_EQ(own->workspace_bytes(), 64U * 8U);
  EXPECT_EQ(own->describe(), "plug-in naive 1.0");
  expect_error(run(*own), ErrorCode::kInvalidArgument, {"512", "workspace"});
}

TEST(PluginFaults, AreRefusedWithASentence) {
  const std::size_t before = backends().size();
  const std::pair<const char*, const char*> faults[] = {{"WRONG_ABI", "ABI 99"},
                                                        {"SHORT_STRUCT", "16 bytes"},
                                                        {"NO_NAME", "leaves out its name"},
                                                        {"BAD_NAME", "Bad Name"},
                                                        {"TAKEN_NAME", "'cpu-absorbed'"},
                                                        {"BAD_STRATEGY", "'hope'"},
                                                        {"NO_RUN", "leaves out one of"},
                                                        {"BAD_TYPE", "77"},
                                                        {"MANY_EDGES", "65 edges"},
                                                        {"NO_EDGES", "where they are"},
                                                        {"ZERO_EDGE", "edge 0"},
                                                        {"REFUSES_HOST", "ABI 1"},
                                                        {"NO_SYMBOL", "mla_plugin_query"}};
  for (const auto& [name, says] : faults) {
    expect_error([&] { return load_plugin(plugin(name)).info().name; }, ErrorCode::kInvalidArgument, {says});
  }
  EXPECT_EQ(backends().size(), before);
  try {
    static_cast<void>(load_plugin(plugin("BAD_NAME")));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()).find('\x1b'), std::string::npos) << "no control bytes on a terminal";
  }
}

TEST(PluginFaults, FilesThatAreNoPlugins) {
  expect_error([] { return load_plugin("/nonexistent.so").info().name; }, ErrorCode::kIo,
               {"/nonexistent.so"});
  const fs::path text = fs::temp_directory_path() / ("mla-plugin-" + std::to_string(getpid()) + ".so");
  std::ofstream(text) << "not an ELF file";
  expect_error([&] { return load_plugin(text).info().name; }, ErrorCode::kIo, {text.filename().string()});
  fs::remove(text);
  expect_error([] { return load_plugin("/tmp").info().name; }, ErrorCode::kIo, {"/tmp"});
}

TEST(PluginFaults, AtRunTimeAreErrorsOrVerdicts) {
  const AttentionShape shape =
      parse_shape("decode latent h2 l64 r16 p32 v32 1q1s9 b8 q:f32 out:f32 cache:f32");
  // Each of these is called "broken", so each lives in a process of its own: a name can be taken once.
  const auto in_child = [&](const char* name, const std::string& expected, const auto& body) {
    EXPECT_EXIT(
        {
          std::string said;
          try {
            said = body(load_plugin(plugin(name)));
          } catch (const Error& error) {
            said = error.what();
          }
          std::fprintf(stderr, "%s", said.c_str());
          std::exit(0);
        },
        testing::ExitedWithCode(0), expected);
  };
  const auto why = [&](const Backend& b) { return b.supports(shape, host_device()).why; };
  // Plug-ins of the first release are as before; later ones say more.
  const auto facts = [&](const Backend& b) {
    const BackendInfo& info = b.info();
    const std::int32_t first = info.edges.empty() ? 0 : info.edges.front();
    return fmt::format("unit weight {}, invariant {}, {} edges from {}", b.rounding(shape).unit_weight,
                       info.batch_invariant, info.edges.size(), first);
  };
  in_child("FIRST_RELEASE", "unit weight true, invariant false, 0 edges from 0", facts);
  in_child("SAYS_MORE", "unit weight false, invariant true, 2 edges from 48", facts);
  in_child("REFUSES_SILENTLY", "broken refuses it and does not say why", why);
  in_child("OVERFLOWS_WHY", "^x{511}$", why);
  in_child("PLAN_FAILS", "plan failed: the reason of the broken plug-in",
           [&](const Backend& b) { return b.plan(shape, host_device())->describe(); });
  const auto verdict = [&](const Backend& b) {
    verify::Case c;
    c.shape = shape;
    return std::string(verify::name_of(verify::run_case(b, c).outcome)) + ": " +
           verify::run_case(b, c).reason;
  };
  in_child("RUN_FAILS", "FAIL: it threw: .*run failed: the reason", verdict);
  in_child("WRONG_RESULT", "^FAIL: ", verdict);
}

}  // namespace
