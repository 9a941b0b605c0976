// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "peer/peer_backend.hpp"

namespace mla::run {

/// The backend of a point: one of the build or a plug-in by name, or "peer:FILE", a kernel in another process
/// that is started at the first call and lives as long as the program. Throws as get_backend and PeerBackend
/// do.
[[nodiscard]] const Backend& backend_named(const std::string& name);

/// The peer behind a backend, or null.
[[nodiscard]] const peer::PeerBackend* as_peer(const Backend& backend) noexcept;
/// Whether a peer says that it computes on this GPU.
[[nodiscard]] bool runs_on(const peer::PeerBackend& backend, const Device& gpu);

}  // namespace mla::run
