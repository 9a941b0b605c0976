// SPDX-License-Identifier: Apache-2.0
#include "run/backends.hpp"

#include <map>
#include <memory>

namespace mla::run {

const Backend& backend_named(const std::string& name) {
  if (!peer::is_peer_name(name)) return get_backend(name);
  static std::map<std::string, std::shared_ptr<const peer::PeerBackend>> started;
  std::shared_ptr<const peer::PeerBackend>& backend = started[name];
  if (!backend) backend = peer::open_peer(name);
  return *backend;
}

const peer::PeerBackend* as_peer(const Backend& backend) noexcept {
  return dynamic_cast<const peer::PeerBackend*>(&backend);
}

bool runs_on(const peer::PeerBackend& backend, const Device& gpu) {
  return backend.facts().device == gpu.name;
}

}  // namespace mla::run
