// SPDX-License-Identifier: Apache-2.0
// cuda-naive with one fault, as backends of their own: see faults.hpp.
#include "naive/faults.hpp"

#include <utility>

#include "naive/mutants/naive_faults.hpp"

namespace mla {

const Backend& naive_backend();  // the one of this library, whose kernel has the faults

namespace kernels {

NaiveFault& active_naive_fault() {
  static NaiveFault fault = NaiveFault::kNone;
  return fault;
}

}  // namespace kernels

namespace {

using kernels::NaiveFault;

struct Named {
  NaiveMutant what;
  NaiveFault fault;
};
constexpr Named kMutants[] = {
    {{"cuda-naive/sound", "nothing: it must survive", "", true}, NaiveFault::kNone},
    {{"cuda-naive/scale-1.01", "the softmax scale is 1 % too large", "", false}, NaiveFault::kScale},
    {{"cuda-naive/drop-newest", "the newest key is not seen", "", false}, NaiveFault::kDropNewest},
    {{"cuda-naive/drop-oldest", "key 0 is not seen", "", false}, NaiveFault::kDropOldest},
    {{"cuda-naive/mask-later", "every query sees one key too many", "MLA-028", false},
     NaiveFault::kMaskLater},
    {{"cuda-naive/minus-one-is-zero", "index -1 reads key 0", "MLA-005 MLA-059", false},
     NaiveFault::kMinusOneIsZero},
    {{"cuda-naive/table-row-zero", "every request reads row 0 of the block table", "MLA-055", false},
     NaiveFault::kTableRowZero},
    {{"cuda-naive/no-rotary", "k_pe is ignored", "MLA-075", false}, NaiveFault::kNoRotary},
    {{"cuda-naive/last-tile-lost", "the last of several tiles is left out", "MLA-099", false},
     NaiveFault::kLastTileLost},
    {{"cuda-naive/hidden-bf16-scores", "scores are bf16, which the profile does not say", "", false},
     NaiveFault::kHalfScores},
    {{"cuda-naive/hidden-bf16-p", "P is bf16, which the profile does not say", "", false},
     NaiveFault::kHalfWeights},
    {{"cuda-naive/no-maximum", "exp without subtracting the maximum", "", false}, NaiveFault::kNoMaximum},
    {{"cuda-naive/no-rescale", "sums are not rescaled when the maximum grows", "", false},
     NaiveFault::kNoRescale},
    {{"cuda-naive/no-barrier", "weights are read while other warps write them", "MLA-097", false},
     NaiveFault::kNoBarrier},
    {{"cuda-naive/lse-base-2", "the LSE is in base 2", "MLA-035 MLA-037", false}, NaiveFault::kLseBase2},
    {{"cuda-naive/lse-not-written", "the LSE is not stored", "MLA-046", false}, NaiveFault::kLseUnwritten},
    {{"cuda-naive/empty-not-written", "rows of empty requests keep what stood there", "MLA-007 MLA-008",
      false},
     NaiveFault::kEmptyUnwritten},
    {{"cuda-naive/lse-plus-inf", "the LSE of an empty row is +inf", "MLA-041", false}, NaiveFault::kEmptyLse},
    {{"cuda-naive/head-tile", "heads past a multiple of 16 repeat the one before", "MLA-094 MLA-107", false},
     NaiveFault::kHeadTile},
    {{"cuda-naive/packed-query", "the strides of q are ignored", "", false}, NaiveFault::kPackedQuery},
    {{"cuda-naive/writes-padding", "it writes behind the last channel of a row", "MLA-096", false},
     NaiveFault::kWritesPadding},
    {{"cuda-naive/illegal-address", "more than 5 keys: it writes where no memory is", "MLA-013 MLA-017",
      false},
     NaiveFault::kIllegal},
    {{"cuda-naive/endless", "more than 5 keys: head 1 never ends", "", false}, NaiveFault::kEndless}};

class FaultyBackend final : public Backend {
 public:
  explicit FaultyBackend(const Named& named, std::string name)
      : fault_(named.fault), name_(std::move(name)), info_(naive_backend().info()) {
    info_.name = name_;
  }
  [[nodiscard]] const BackendInfo& info() const noexcept override { return info_; }
  [[nodiscard]] RoundingProfile rounding(const AttentionShape& shape) const override {
    return naive_backend().rounding(shape);
  }
  [[nodiscard]] Support supports(const AttentionShape& shape, const Device& device) const override {
    return naive_backend().supports(shape, device);
  }
  [[nodiscard]] std::unique_ptr<Plan> plan(const AttentionShape& shape, const Device& device,
                                           const PlanOptions& options) const override {
    return naive_backend().plan(shape, device, options);
  }
  void run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
           Stream stream) const override {
    kernels::active_naive_fault() = fault_;
    naive_backend().run(plan, args, workspace, stream);
  }

 private:
  NaiveFault fault_;
  std::string name_;
  BackendInfo info_;
};

}  // namespace

std::vector<NaiveMutant> naive_mutants() {
  std::vector<NaiveMutant> list;
  for (const Named& named : kMutants) list.push_back(named.what);
  return list;
}

std::shared_ptr<const Backend> make_naive_mutant(std::string_view name, std::string backend_name) {
  for (const Named& named : kMutants) {
    if (named.what.name == name) return std::make_shared<FaultyBackend>(named, std::move(backend_name));
  }
  return nullptr;
}

}  // namespace mla
