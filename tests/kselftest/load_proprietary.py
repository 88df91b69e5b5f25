#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""With the proprietary flavour of the GPU driver the kernel refuses us its symbols: the module
says so, and does not crash. In a file of its own, as it taints the kernel, which ends lockdep."""

import json
import subprocess

from peermem import ktap, modules
from peermem.equipment import expect_nothing_left
from peermem.errors import outcome
from peermem.modules import PEERMEM, TOOL, KernelLog

DRIVER = "proprietary_nvidia"


def absence():
    status = subprocess.run([TOOL, "-j", "status"], capture_output=True, text=True, check=False)
    ktap.expect_equal(status.returncode, 3, "exit status of the tool")
    return json.loads(status.stdout)["absence"]


@ktap.case("the proprietary GPU driver", ours_only="the C module is not all under the GPL")
def proprietary():
    with modules.other_gpu_driver(DRIVER), KernelLog() as log:
        ktap.expect_equal(outcome(lambda: modules.load(PEERMEM)), "ENOENT", "errno")
        lines = log.lines()
        ktap.say("\n".join(lines))
        [line] = [line for line in lines if "not loaded" in line]
        ktap.expect("the proprietary flavour cannot be used" in line, line)
        # The kernel's own lines name the symbols and the driver.
        ktap.expect(any(f"proprietary module {DRIVER}" in line for line in lines), "other lines")
        gone = absence()
        ktap.say(gone)
        ktap.expect("proprietary" in gone["last_attempt"], "the tool does not say why")


ktap.main(expect_nothing_left)
