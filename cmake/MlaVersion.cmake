# SPDX-License-Identifier: Apache-2.0
# The one place that knows the version.
set(MLA_VERSION 0.1.0)
