#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Runs the tests, or those named. They need root, the test equipment and
# nvidia-peermem loaded, and a soft-RoCE device rxe0.
#
#   PEERMEM_KO_DIR       where the modules are, to be loaded again by tests
#   PEERMEM_REFERENCE=1  NVIDIA's module is loaded in place of ours
#   PEERMEM_MODE         persistent, callback or callback-old (peermem/mode.py)
#   PEERMEM_CASES        regular expression: only cases whose names match
#   PEERMEM_FROM_CASE    begin with that case of the first file, and end at the first failure
#   PEERMEM_PATIENCE     seconds after which a call that does not return counts as hung
#   PEERMEM_STRESS       options for stress.py
#   PEERMEM_TIME_LIMIT   seconds that a file may take
#
# Files debug_* need an instrumented kernel, and run only when they are named.
#
# Exit status as in kselftest: 0 all passed, 1 some failed, 4 all were skipped.
set -eu
here=$(dirname "$0")

if [ "$(id -u)" != 0 ] || [ ! -d /sys/module/nvidia_peermem ] ||
	[ ! -d /sys/class/infiniband/rxe0 ]; then
	echo "TAP version 13"
	echo "1..0 # SKIP needs root, nvidia_peermem and rxe0"
	exit 4
fi
exec python3 -B "$here/runner.py" "$@"
