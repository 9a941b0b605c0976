// SPDX-License-Identifier: Apache-2.0
#include "verify/judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <string>

#include "mla/error.hpp"
#include "peer/process.hpp"
#include "verify/judge_lines.hpp"
#include "verify/suite.hpp"

namespace mla::verify {
namespace {

/// A reference cannot hang: this long means that something else is wrong.
constexpr double kReferenceTimeout = 3600;
/// Floating-point operations a second that the slowest backend does: what a hurried judge waits for.
constexpr double kSlowest = 1e8;
constexpr double kLeastTimeout = 5;
/// Calls of the backend that an oracle may make beyond its repeats.
constexpr double kOracleCalls = 500;

const Participant& participant_of(const Participants& participants, const std::string& name) {
  if (const Participant* const p = participants.find(name)) return *p;
  throw Error(ErrorCode::kParse, fmt::format("a worker was asked for the unknown backend '{}'", name));
}

/// What the backend says, and whether the case fits into this machine.
Support possible(const Case& c, const Participant& participant) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  const double needed = bytes_of(c), there = static_cast<double>(host_device().memory_bytes);
  if (needed > 0.9 * there) {
    return Support::no(fmt::format("judging it takes about {:.0f} GiB of memory, and this machine has {:.0f}",
                                   needed / kGiB, there / kGiB));
  }
  return participant.backend->supports(c.shape, participant.machine.device);
}

std::string answer(LocalJudge& judge, const Participants& participants, const JudgeRequest& request) {
  const Participant& participant = participant_of(participants, request.backend);
  if (request.oracle.empty()) {
    if (possible(request.c, participant)) judge.prepare(request.c, *participant.backend);
    std::cout << kReadyLine << std::endl;
    return to_line(judge.judge(request.c, participant));
  }
  std::cout << kReadyLine << std::endl;
  return to_line(judge.ask(get_oracle(request.oracle),
                           {participant.backend, participant.machine, request.c, request.repeats}));
}

}  // namespace

Judge::~Judge() = default;

CaseRun& LocalJudge::run_of(const Case& c) {
  if (!run_ || run_->problem().get_case() != c) run_ = std::make_unique<CaseRun>(c);
  return *run_;
}

Verdict LocalJudge::judge(const Case& c, const Participant& participant) {
  // Asked first: making a large case takes longer than all else.
  if (const Support support = possible(c, participant); !support) {
    Verdict verdict;
    verdict.c = c;
    verdict.backend = participant.backend->info().name;
    verdict.outcome = Outcome::kUnsupported;
    verdict.reason = support.why;
    return verdict;
  }
  return run_of(c).judge(*participant.backend, participant.machine);
}

OracleOutcome LocalJudge::ask(const Oracle& oracle, const OracleSubject& subject) {
  return ask_oracle(oracle, subject);
}

void LocalJudge::prepare(const Case& c, const Backend& backend) {
  run_of(c).prepare(backend);
}

IsolatedJudge::IsolatedJudge(Options options) : options_(std::move(options)) {}
IsolatedJudge::~IsolatedJudge() = default;

IsolatedJudge::Answer IsolatedJudge::exchange(const std::string& request, double timeout) {
  using Talk = peer::Process::Outcome;
  if (!process_) process_ = std::make_unique<peer::Process>(options_.command);
  Answer answer;
  Talk read = process_->try_write(request, kReferenceTimeout);
  for (double patience = kReferenceTimeout; read == Talk::kDone; patience = timeout) {
    read = process_->try_read(answer.line, patience);
    if (read == Talk::kDone && answer.line != kReadyLine) return answer;
  }
  if (read == Talk::kSilent) {
    answer.failure = Failure::kHang;
    answer.reason = fmt::format("it gave no answer within {:g} s", timeout);
  } else {
    answer.failure = Failure::kCrash;
    answer.reason = fmt::format("it {}", process_->how_it_ended());
  }
  process_.reset();
  return answer;
}

Verdict IsolatedJudge::judge(const Case& c, const Participant& participant) {
  const std::string name(participant.backend->info().name);
  double timeout = options_.timeout;
  if (options_.hurry) timeout = std::min(timeout, kLeastTimeout + work_of(c) / kSlowest);
  const Answer answer = exchange(to_line(JudgeRequest{name, c, {}, 1}), timeout);
  if (answer.failure == Failure::kNone) {
    Verdict verdict = parse_verdict(answer.line);
    if (verdict.failure == Failure::kThrew && participant.backend->info().on_device) process_.reset();
    return verdict;
  }
  Verdict verdict;
  verdict.c = c;
  verdict.backend = name;
  verdict.outcome = Outcome::kFailed;
  verdict.failure = answer.failure;
  verdict.reason = answer.reason;
  return verdict;
}

OracleOutcome IsolatedJudge::ask(const Oracle& oracle, const OracleSubject& subject) {
  const std::string name(subject.backend->info().name);
  double timeout = options_.timeout;
  if (options_.hurry) {
    const double calls = kOracleCalls + subject.repeats;
    timeout = std::min(timeout, kLeastTimeout + calls * work_of(subject.base) / kSlowest);
  }
  const Answer answer =
      exchange(to_line(JudgeRequest{name, subject.base, std::string(oracle.name), subject.repeats}), timeout);
  if (answer.failure != Failure::kNone) return {Outcome::kFailed, answer.reason, answer.failure};
  OracleOutcome outcome = parse_outcome(answer.line);
  if (outcome.failure == Failure::kThrew && subject.backend->info().on_device) process_.reset();
  return outcome;
}

void serve_judge(const Participants& participants) {
  LocalJudge judge;
  for (std::string line; std::getline(std::cin, line);)
    std::cout << answer(judge, participants, parse_request(line)) << std::endl;
}

}  // namespace mla::verify
