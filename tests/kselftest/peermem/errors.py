# SPDX-License-Identifier: GPL-2.0
"""Error numbers by name."""

import errno

# Names that Python does not know, or of which it prefers another.
_NAMES = {errno.EOPNOTSUPP: "EOPNOTSUPP", 133: "EHWPOISON"}


def outcome(action):
    """Name of the errno that action() fails with, or "success"."""
    try:
        action()
    except OSError as error:
        return _NAMES.get(error.errno) or errno.errorcode.get(error.errno, str(error.errno))
    return "success"
