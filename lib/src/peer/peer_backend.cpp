// SPDX-License-Identifier: Apache-2.0
#include "peer/peer_backend.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/text.hpp"
#include "mla/error.hpp"

namespace mla::peer {
namespace {

namespace fs = std::filesystem;

/// Seconds for the first answer, which an interpreter and its packages are loaded for.
constexpr double kStartTimeout = 120;

class PeerPlan final : public Plan {
 public:
  PeerPlan(const PeerBackend* owner, AttentionShape shape, std::int32_t num_splits)
      : owner_(owner), shape_(std::move(shape)), num_splits_(num_splits) {}
  [[nodiscard]] std::size_t workspace_bytes() const noexcept override { return 0; }
  [[nodiscard]] std::string describe() const override {
    const Facts& facts = owner_->facts();
    std::string text = fmt::format("{} on {}", facts.name, facts.device.empty() ? "?" : facts.device);
    for (const auto& [package, version] : facts.versions) text += fmt::format(", {} {}", package, version);
    return text;
  }
  [[nodiscard]] const PeerBackend* owner() const noexcept { return owner_; }
  [[nodiscard]] const AttentionShape& shape() const noexcept { return shape_; }
  [[nodiscard]] std::int32_t num_splits() const noexcept { return num_splits_; }

 private:
  const PeerBackend* owner_;
  AttentionShape shape_;
  std::int32_t num_splits_;
};

std::vector<std::string> words_of(const std::string& command) {
  std::vector<std::string> words = text::split(command, ' ');
  std::erase(words, "");
  if (words.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "a peer must be named by its file, but the name is empty");
  }
  const std::string& file = words.front();
  std::error_code error;
  if (file.find('/') != std::string::npos && !fs::is_regular_file(file, error)) {
    throw Error(ErrorCode::kIo, fmt::format("there is no peer {}", text::quoted(file)));
  }
  if (file.ends_with(".py") && ::access(file.c_str(), X_OK) != 0) words.insert(words.begin(), "python3");
  return words;
}

}  // namespace

PeerBackend::PeerBackend(std::string name, std::string command, Options options)
    : name_(std::move(name)), command_(std::move(command)), options_(options) {
  for (const std::string& word : text::split(command_, ' ')) {
    spoken_ += (spoken_.empty() ? "" : " ") + fs::path(word).filename().string();
  }
  start();
  summary_ = facts_.summary;
  strategy_ = facts_.strategy;
  info_.name = name_;
  info_.summary = summary_;
  info_.strategy = strategy_;
  info_.edges = facts_.edges;
  info_.batch_invariant = facts_.batch_invariant;
}

PeerBackend::~PeerBackend() {
  if (!process_) return;
  try {
    process_->write_line(quit_request(next_id_), 1);
  } catch (const Error&) {
    // It is gone already.
  }
}

/// Runs f; what the library cannot say itself is who failed at what.
template <class Function>
auto PeerBackend::guarded(const char* what, Function f) const {
  try {
    return f();
  } catch (const Error& e) {
    // Its own refusal or error leaves a peer that can still be spoken to; anything else does not.
    if (e.code() == ErrorCode::kIo || e.code() == ErrorCode::kParse) process_.reset();
    if (e.code() == ErrorCode::kUnsupported) throw;
    throw Error(e.code(), fmt::format("peer {} {} (asked to {})", text::quoted(spoken_), e.what(), what),
                e.hint());
  }
}

void PeerBackend::start() const {
  const std::vector<std::string> words = words_of(command_);
  guarded("say hello", [&] {
    process_ = std::make_unique<Process>(words);
    std::int64_t id = 0;
    const std::string line = exchange([&](std::int64_t n) { return hello_request(id = n); },
                                      std::max(options_.timeout, kStartTimeout));
    facts_ = parse_hello(line, id);
  });
}

std::string PeerBackend::exchange(const std::function<std::string(std::int64_t)>& make,
                                  double timeout) const {
  const std::int64_t id = next_id_++;
  process_->write_line(make(id), timeout);
  while (true) {
    std::string line = process_->read_line(timeout);
    const std::optional<double> wait = wait_of(line, id);
    if (!wait) return line;
    timeout = *wait;
  }
}

const PeerBackend::Answer& PeerBackend::ask(const AttentionShape& shape, std::int32_t num_splits) const {
  const std::scoped_lock lock(mutex_);
  const std::string key = fmt::format("{} {}", to_text(shape), num_splits);
  if (const auto it = answers_.find(key); it != answers_.end()) return it->second;
  Answer answer;
  try {
    if (!process_) start();
    answer.shape = guarded("say what it supports", [&] {
      std::int64_t id = 0;
      const std::string line = exchange(
          [&](std::int64_t n) { return supports_request(id = n, shape, num_splits); }, options_.timeout);
      return parse_supports(line, id, facts_);
    });
  } catch (const Error& e) {
    if (e.code() == ErrorCode::kUnsupported) {
      answer.shape.support = Support::no(e.what());
    } else {
      answer.failure = e.what();
    }
  }
  return answers_.emplace(key, std::move(answer)).first->second;
}

RoundingProfile PeerBackend::rounding(const AttentionShape& shape) const {
  const Answer& answer = ask(shape, 0);
  return answer.failure.empty() ? answer.shape.rounding : facts_.rounding;
}

Support PeerBackend::supports(const AttentionShape& shape, const Device& /*device*/) const {
  if (Support separate = without_shared_prefix(shape); !separate)
    return separate;  // the protocol has no word for it
  return ask(shape, 0).shape.support;
}

std::unique_ptr<Plan> PeerBackend::plan(const AttentionShape& shape, const Device& /*device*/,
                                        const PlanOptions& options) const {
  const Answer& answer = ask(shape, options.num_splits);
  if (!answer.failure.empty()) throw Error(ErrorCode::kIo, answer.failure);
  if (!answer.shape.support) throw Error(ErrorCode::kUnsupported, answer.shape.support.why);
  return std::make_unique<PeerPlan>(this, shape, options.num_splits);
}

Call PeerBackend::call_of(const Plan& plan, const AttentionArgs& args) const {
  const auto* own = dynamic_cast<const PeerPlan*>(&plan);
  if (own == nullptr || own->owner() != this) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("the plan ({}) was not made by {}", plan.describe(), name_));
  }
  Call call;
  call.in = folder_.file("in.safetensors").string();
  call.out = folder_.file("out.safetensors").string();
  if (args.lse) call.lse = args.lse.dtype;
  call.softmax_scale = args.softmax_scale;
  call.num_splits = own->num_splits();
  fs::remove(call.out);  // an answer must bring its own
  write_inputs(call.in, own->shape(), args);
  if (!process_) start();
  return call;
}

void PeerBackend::run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> /*workspace*/,
                      Stream /*stream*/) const {
  const std::scoped_lock lock(mutex_);
  const Call call = call_of(plan, args);
  const AttentionShape& shape = static_cast<const PeerPlan&>(plan).shape();
  guarded("run", [&] {
    std::int64_t id = 0;
    const std::string line =
        exchange([&](std::int64_t n) { return run_request(id = n, shape, call); }, options_.timeout);
    static_cast<void>(parse_run(line, id));
    read_outputs(call.out, args);
  });
}

TimeAnswer PeerBackend::time(const Plan& plan, const AttentionArgs& args, const TimeRules& rules) const {
  const std::scoped_lock lock(mutex_);
  const Call call = call_of(plan, args);
  const AttentionShape& shape = static_cast<const PeerPlan&>(plan).shape();
  return guarded("time itself", [&] {
    std::int64_t id = 0;
    const std::string line =
        exchange([&](std::int64_t n) { return time_request(id = n, shape, call, rules); }, options_.timeout);
    return parse_time(line, id);
  });
}

}  // namespace mla::peer
