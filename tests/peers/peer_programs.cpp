// SPDX-License-Identifier: Apache-2.0
// mla-verify with the peers of this tree. Those whose package is absent must skip with a sentence.
#include <gtest/gtest.h>

#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "python.hpp"
#include "run_program.hpp"
#include "test_folder.hpp"

namespace {

using Json = nlohmann::json;
using mla::test::RunResult;

const std::string kPeers = std::string(MLA_SOURCE_DIR) + "/peers/";

/// In a folder of its own: a failure is written to the working folder, which may be the tree's.
class PeerPrograms : public testing::Test {
 protected:
  void SetUp() override {
    if (mla::test::python_with("").empty()) GTEST_SKIP() << "no Python 3 interpreter was found";
    dir_ = mla::test::folder_of_this_test("mla-peers");
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  [[nodiscard]] RunResult verify(const std::vector<std::string>& args) const {
    return mla::test::run_program(MLA_VERIFY, args, {.directory = dir_.string()});
  }
  [[nodiscard]] RunResult verify_peer(const std::string& python, const std::string& file,
                                      std::vector<std::string> more) const {
    more.insert(more.begin(), {"run", "--peer", python + " " + kPeers + file});
    return verify(more);
  }

  std::filesystem::path dir_;
};

/// Masks, formats, spaces, top-k, empty requests, forced splits: what numpy_mla.py claims to do.
const std::vector<std::string> kCases = {
    "decode latent h3 l64 r8 p16 v24 2q1s20_1q1s0_1q3s37 causal b16 q:bf16 out:bf16 cache:bf16",
    "decode head h5 l64 r8 p16 v24 2q1s20_1q3s37 causal b16 q:bf16 out:bf16 cache:bf16_split",
    "decode latent h3 l128 r8 p16 v24 1q2s40 causal w9 sink4 b16 q:f16 out:f16 cache:f16",
    "decode latent h3 l128 r8 p16 v24 1q2s40 causal b16 q:bf16 out:bf16 cache:fp8_ds_mla",
    "decode latent h3 l128 r8 p16 v24 1q2s40 causal b16 q:bf16 out:bf16 cache:fp8",
    "decode latent h3 l64 r8 p16 v24 2q2s40 causal topk12 b16 q:f32 out:f32 cache:f32 index=duplicates",
    "prefill head h3 l64 r0 p16 v24 q33_q7 causal b1 q:f64 out:f64 cache:f64 strided=yes",
    "decode latent h3 l64 r8 p16 v24 1q1s300 full b16 q:bf16 out:bf16 cache:bf16 splits=7 values=dominant",
    "decode latent h3 l64 r8 p16 v24 1q1s30 causal b16 q:f32 out:f32 cache:f32 values=extreme poison=inf"};

TEST_F(PeerPrograms, NumpyIsJudgedLikeABackend) {
  const std::string python = mla::test::python_with("numpy");
  if (python.empty()) GTEST_SKIP() << "numpy is not installed (apt-get install python3-numpy)";
  std::vector<std::string> more{"-o", "json"};
  for (const std::string& c : kCases) more.insert(more.end(), {"--case", c});
  const RunResult r = verify_peer(python, "numpy_mla.py", more);
  EXPECT_EQ(r.exit_code, 0) << r.out << r.err;
  const Json report = Json::parse(r.out);
  EXPECT_EQ(report.at("tables").at("cases").size(), kCases.size());
  for (const Json& row : report.at("tables").at("cases")) {
    EXPECT_EQ(row.at("verdict"), "pass") << row.dump();
    EXPECT_GT(row.at("budget_percent").get<double>(), 0) << "nothing was compared: " << row.dump();
  }
}

TEST_F(PeerPrograms, AWrongPeerExitsWithOne) {
  const std::string bad = mla::test::python_with("") + " " MLA_TEST_DATA "/peers/bad_peer.py none";
  const RunResult r = verify({"run", "--peer", bad, "--case",
                              "decode latent h2 l16 r8 p8 v12 1q1s5 causal b4 q:f32 out:f32 cache:f32"});
  EXPECT_EQ(r.exit_code, 1) << r.err;
  EXPECT_TRUE(std::filesystem::exists(dir_ / "repro.json")) << r.err;
  EXPECT_NE((r.out + r.err).find("--backends 'peer:"), std::string::npos) << r.out << r.err;
}

/// --peer means in capabilities what it means in run: the peer alone, its claims tried.
TEST_F(PeerPrograms, CapabilitiesTakeAPeerAsRunDoes) {
  const std::string python = mla::test::python_with("numpy");
  if (python.empty()) GTEST_SKIP() << "numpy is not installed (apt-get install python3-numpy)";
  const RunResult r = verify({"capabilities", "--peer", python + " " + kPeers + "numpy_mla.py", "-o", "csv"});
  EXPECT_EQ(r.exit_code, 0) << r.out << r.err;
  EXPECT_NE(r.out.find("numpy_mla.py"), std::string::npos) << r.out;
  EXPECT_EQ(r.out.find("cpu-absorbed"), std::string::npos) << "judged alone: " << r.out;
  const RunResult none = verify({"capabilities", "--peer", "./none.py"});
  EXPECT_EQ(none.exit_code, 2) << none.out << none.err;
  EXPECT_NE(none.err.find("./none.py"), std::string::npos) << none.err;
}

TEST_F(PeerPrograms, AbsentPackagesAreSkipsWithASentence) {
  const struct {
    const char *file, *package;
  } peers[] = {{"numpy_mla.py", "numpy"},           {"torch_sdpa.py", "torch"},
               {"torch_bmm.py", "torch"},           {"flashinfer_mla.py", "flashinfer"},
               {"flash_mla_dense.py", "flash_mla"}, {"vllm_triton_mla.py", "vllm"}};
  for (const auto& peer : peers) {
    SCOPED_TRACE(peer.file);
    // Python looks beside the program first: of the same name it would import itself and never the package.
    EXPECT_NE(std::filesystem::path(peer.file).stem(), peer.package);
    // -S leaves site-packages out: no package is installed for this interpreter.
    const RunResult r =
        verify_peer(mla::test::python_with("") + " -S", peer.file, {"--case", kCases.front()});
    EXPECT_EQ(r.exit_code, 3) << r.out << r.err;
    EXPECT_NE(r.err.find(std::string("the Python package ")), std::string::npos) << r.err;
    EXPECT_EQ(r.err.find("Traceback"), std::string::npos) << r.err;
  }
}

}  // namespace
