#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A peer made with mla_peer that asks for time in every call, not only in the first, and then declines."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "peers"))

from mla_peer import Unsupported, serve  # noqa: E402


class PatientPeer:
    def __init__(self, wait):
        self.wait, self.calls = wait, 0

    def hello(self):
        self.wait(30)
        return {"name": "patient", "summary": "asks for time", "strategy": "absorbed", "device": "cpu", "versions": {}}

    def supports(self, shape, splits):
        self.wait(30)
        return None

    def run(self, call):
        self.wait(30)
        self.calls += 1
        raise Unsupported(f"call {self.calls} waited in vain")


serve(PatientPeer)
