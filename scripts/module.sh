# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What it takes to build the module against a kernel, and no more: this is all of
# lib.sh that is installed for DKMS. Sourced, never run.

# modinfo, modprobe and depmod; Debian's users do not have it.
PATH=$PATH:/usr/sbin:/sbin

TOP=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

die() {
	echo "$(basename "$0"): $*" >&2
	exit 1
}

# hash12 FILE...: a short name for the contents of files.
hash12() {
	cat "$@" | sha256sum | cut -c1-12
}

# kernel_config KDIR NAME: the value of an option of the kernel, if it is set.
kernel_config() {
	sed -n "s/^CONFIG_$2=\"\{0,1\}\([^\"]*\)\"\{0,1\}\$/\1/p" "$1/.config"
}

# kernel_compiler KDIR: its command. A distribution's clang calls itself "Debian clang".
kernel_compiler() {
	sed -nE 's/^CONFIG_CC_VERSION_TEXT="(.* )?(clang) version .*/\2/p; t; s/^CONFIG_CC_VERSION_TEXT="([^ ]*) .*/\1/p' "$1/.config"
}

# kernel_toolchain KDIR: make's arguments for the compiler that built the kernel.
kernel_toolchain() {
	local cc
	cc=$(kernel_compiler "$1")
	case $cc in
	*clang*) echo LLVM=1 ;;
	*-gcc*) echo "CC=$cc" "CROSS_COMPILE=${cc%gcc*}" ;;
	*) echo "CC=$cc" ;;
	esac
}

# use_kernels_rustc KDIR: puts the rustc that built the kernel first in PATH, if it is
# here at all: what comes first may be a user's own, or one of several of a distribution.
use_kernels_rustc() {
	local wanted candidate
	wanted=$(kernel_config "$1" RUSTC_VERSION_TEXT)
	while read -r candidate; do
		if [ -x "$candidate" ] && [ "$("$candidate" --version 2>/dev/null)" = "$wanted" ]; then
			PATH=$(dirname "$candidate"):$PATH
			return
		fi
	done < <(type -aP rustc; printf '%s\n' /usr/bin/rustc /usr/lib/rust-*/bin/rustc)
}

# kbuild KDIR SOURCE OUTPUT ARGS...: what is built is never among the sources.
kbuild() {
	local kdir=$1 source=$2 output=$3
	shift 3
	mkdir -p "$output"
	# shellcheck disable=SC2046 # several words
	make -C "$kdir" $(kernel_toolchain "$kdir") M="$source" MO="$output" "$@"
}

# installed_provider RELEASE SYMBOL: the file of the module that has the symbol on a
# kernel, as depmod found it; modprobe will load that one.
installed_provider() {
	local symbols=/lib/modules/$1/modules.symbols name
	[ -e "$symbols" ] || return 0
	name=$(sed -n "s/^alias symbol:$2 //p" "$symbols" | head -n1)
	[ -z "$name" ] || modinfo -k "$1" -n "$name" 2>/dev/null || :
}

module_version() {
	sed -n 's/^nvidia-peermem-version := //p' "$TOP/Kbuild"
}
