# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the tests share that run on machines of their own. Sourced, never run.

state=/var/lib/nvidia-peermem-rs/kernels

# check NAME COMMAND...: one test, which is the command's success.
check() {
	local name=$1 said
	shift
	if said=$("$@" 2>&1); then
		echo "ok - $name"
	else
		echo "not ok - $name"
		echo "# ${said//$'\n'/$'\n# '}"
	fi
}

# the_release: of the kernel that Debian has installed.
the_release() {
	local build
	for build in /lib/modules/*/build; do
		[ -L "$build" ] && basename "$(dirname "$build")"
	done | head -n1
}

# is_built RELEASE: there is a module for that kernel, and modprobe takes it.
is_built() {
	local file
	file=$(modinfo -k "$1" -n nvidia-peermem) || return
	case $file in
	/lib/modules/"$1"/updates/nvidia-peermem-rs/nvidia-peermem.ko*) ;;
	*) echo "modprobe takes $file"; return 1 ;;
	esac
	modinfo -F vermagic "$file" | grep -F "$1 "
}

# is_skipped RELEASE WORDS: there is none, and the reason has these words.
is_skipped() {
	local file
	cat "$state/$1"
	grep -qx 'result: skipped' "$state/$1" && grep '^reason: ' "$state/$1" | grep -q -- "$2" || return
	file=$(modinfo -k "$1" -n nvidia-peermem 2>/dev/null) || return 0
	[ "${file#*nvidia-peermem-rs/}" = "$file" ]
}

not() {
	! "$@"
}

# install_packages NAME...: those that were built here.
install_packages() {
	local name files=()
	for name in "$@"; do
		files+=(/out/"$name"_*.deb)
	done
	apt-get -qqy -o Dpkg::Use-Pty=0 install "${files[@]}"
}

# number: makes of the tests on its input those of a plan; fails if one of them did.
number() {
	awk '/^(not )?ok / { bad += /^not/; sub(/ok -/, "ok " ++n " -") } { print } END { exit bad > 0 }'
}
