// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "mla/backend.hpp"
#include "peer/messages.hpp"
#include "peer/process.hpp"
#include "peer/tensors.hpp"

namespace mla::peer {

/// A kernel that lives in another process and speaks peers/PROTOCOL.md, presented as a backend on host
/// memory. The process is started when the object is made, and again after it crashed or hung: that is the
/// failure of one call only.
class PeerBackend final : public Backend {
 public:
  struct Options {
    double timeout =
        120;  ///< seconds for one answer (the first: at least 120); a peer that compiles asks for more itself
  };

  /// `command`: a file, and blank-separated arguments. A file that is not executable and ends in .py runs
  /// under python3. Throws kUnsupported with the peer's sentence if it skips, kIo or kParse if it cannot be
  /// started or does not speak the protocol.
  PeerBackend(std::string name, std::string command, Options options);
  PeerBackend(std::string name, std::string command)
      : PeerBackend(std::move(name), std::move(command), Options{}) {}
  ~PeerBackend() override;

  [[nodiscard]] const Facts& facts() const noexcept { return facts_; }
  [[nodiscard]] const BackendInfo& info() const noexcept override { return info_; }
  [[nodiscard]] RoundingProfile rounding(const AttentionShape& shape) const override;
  /// A peer that fails to answer is not believed to refuse: it is said to support the shape, and plan()
  /// throws what happened, so that a crash is a failure and never a hole in the table.
  [[nodiscard]] Support supports(const AttentionShape& shape, const Device& device) const override;
  [[nodiscard]] std::unique_ptr<Plan> plan(const AttentionShape& shape, const Device& device,
                                           const PlanOptions& options = {}) const override;
  /// Writes the inputs to a file, asks, and reads the outputs. Throws kUnsupported as the peer says; kDevice,
  /// kIo or kParse for its error, its end, its silence or an answer that is none, each with a sentence.
  void run(const Plan& plan, const AttentionArgs& args, std::span<std::byte> workspace,
           Stream stream = {}) const override;
  /// The peer times itself on the same inputs. Throws as run() does.
  [[nodiscard]] TimeAnswer time(const Plan& plan, const AttentionArgs& args, const TimeRules& rules) const;

 private:
  struct Answer {
    ShapeAnswer shape;
    std::string failure;  ///< what happened instead of an answer
  };
  const Answer& ask(const AttentionShape& shape, std::int32_t num_splits) const;
  void start() const;
  /// Sends the request that `make(id)` gives and returns the answer's line. After any failure the process is
  /// gone.
  [[nodiscard]] std::string exchange(const std::function<std::string(std::int64_t)>& make,
                                     double timeout) const;
  template <class Function>
  auto guarded(const char* what, Function f) const;
  [[nodiscard]] Call call_of(const Plan& plan, const AttentionArgs& args) const;

  std::string name_, command_;
  std::string spoken_;  ///< the command without folders, for messages
  Options options_;
  mutable Facts facts_;
  std::string summary_, strategy_;
  BackendInfo info_;
  mutable std::mutex mutex_;
  mutable std::unique_ptr<Process> process_;
  mutable std::int64_t next_id_ = 0;
  mutable std::unordered_map<std::string, Answer> answers_;  ///< by shape and splits
  Folder folder_;
};

/// "peer:FILE [ARGUMENTS]" as a backend's name.
inline constexpr std::string_view kPeerPrefix = "peer:";
[[nodiscard]] inline bool is_peer_name(std::string_view name) noexcept {
  return name.starts_with(kPeerPrefix);
}

/// The backend of a name that starts with kPeerPrefix; the same object for the same name while one is alive.
[[nodiscard]] std::shared_ptr<const PeerBackend> open_peer(const std::string& name,
                                                           PeerBackend::Options options = {});

}  // namespace mla::peer
