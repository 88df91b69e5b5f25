# SPDX-License-Identifier: GPL-2.0
"""What the tests of nvidia-peermem share; a test file imports the modules it needs."""
