# SPDX-License-Identifier: GPL-2.0
"""Which module is under test, and how it is loaded.

    PEERMEM_REFERENCE=1                 NVIDIA's own module, in place of ours
    PEERMEM_MODE=persistent             pins stay until deregistration (the default of ours)
    PEERMEM_MODE=callback               the GPU driver calls when memory is freed; what
                                        NVIDIA's 550 always does
    PEERMEM_MODE=callback-old           as that, for cores that unmap by themselves
"""

import os

REFERENCE = os.environ.get("PEERMEM_REFERENCE") == "1"
_PERSISTENT, _CALLBACK, _CALLBACK_OLD = "persistent", "callback", "callback-old"
MODE = os.environ.get("PEERMEM_MODE") or (_CALLBACK if REFERENCE else _PERSISTENT)
_PARAMETERS = {
    _PERSISTENT: "",
    _CALLBACK: "persistent_api_support=0",
    _CALLBACK_OLD: "persistent_api_support=0 peerdirect_support=1",
}
# 550 has no such parameter.
_REFERENCE_PARAMETERS = {_CALLBACK: "", _CALLBACK_OLD: "peerdirect_support=1"}

PARAMETERS = (_REFERENCE_PARAMETERS if REFERENCE else _PARAMETERS)[MODE]
# Memory that is freed leaves its registrations at once, and does not stay until their end.
CALLBACK = MODE != _PERSISTENT
