// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

}  // namespace

int main(int argc, char** argv) {
  using namespace mla;
  using namespace mla::verify_app;
  return cli::guard("mla-verify", [&] {
    std::optional<int> exit_code;
    const verify_app::Request request = read_command_line(argc, argv, exit_code);
    if (exit_code) return *exit_code;
    cli::install_interrupt_handler();
    hand_over_device_mutants();
    return std::visit(
        Overloaded{
            [](const GoldenRequest& r) { return golden(r); },
            [](const RunRequest& r) { return r.replay.empty() ? run(r) : replay(r); },
            [](const CapabilitiesRequest& r) { return capabilities(r); },
            [](const WorkerRequest& r) { return serve(r); },
            [](const OraclesRequest& r) { return list_oracles(r); },
            [](const LayerRequest& r) { return layer(r); }, [](const IndexRequest& r) { return index(r); },
            [](const MutantsRequest& r) { return r.backend.empty() ? mutants(r) : device_mutants(r); }},
        request);
  });
}
