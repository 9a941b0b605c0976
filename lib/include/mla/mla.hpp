// SPDX-License-Identifier: Apache-2.0
#pragma once

// Everything public, for quick programs; the parts compile alone too.
#include "mla/backend.hpp"       // IWYU pragma: export
#include "mla/cache.hpp"         // IWYU pragma: export
#include "mla/capacity.hpp"      // IWYU pragma: export
#include "mla/device.hpp"        // IWYU pragma: export
#include "mla/device_bench.hpp"  // IWYU pragma: export
#include "mla/device_ops.hpp"    // IWYU pragma: export
#include "mla/dims.hpp"          // IWYU pragma: export
#include "mla/dtype.hpp"         // IWYU pragma: export
#include "mla/error.hpp"         // IWYU pragma: export
#include "mla/formats.hpp"       // IWYU pragma: export
#include "mla/index.hpp"         // IWYU pragma: export
#include "mla/layer.hpp"         // IWYU pragma: export
#include "mla/memory.hpp"        // IWYU pragma: export
#include "mla/model.hpp"         // IWYU pragma: export
#include "mla/numerics.hpp"      // IWYU pragma: export
#include "mla/random.hpp"        // IWYU pragma: export
#include "mla/random_rows.hpp"   // IWYU pragma: export
#include "mla/reference.hpp"     // IWYU pragma: export
#include "mla/safetensors.hpp"   // IWYU pragma: export
#include "mla/selector.hpp"      // IWYU pragma: export
#include "mla/shape.hpp"         // IWYU pragma: export
#include "mla/tensor.hpp"        // IWYU pragma: export
#include "mla/version.hpp"       // IWYU pragma: export
