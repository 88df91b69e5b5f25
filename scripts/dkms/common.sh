# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What the scripts share that DKMS and the packages call. Sourced, never run.

# shellcheck source=scripts/module.sh
. "$(dirname "${BASH_SOURCE[0]}")/../module.sh"
# What became of the module for each kernel: `peermem doctor` reads it.
STATE=/var/lib/nvidia-peermem-rs/kernels
# The Rust metadata of kernels whose distribution ships none.
METADATA=/var/cache/nvidia-peermem-rs/dkms

# record RELEASE built|skipped REASON: nothing fails because it cannot be written down.
record() {
	{
		mkdir -p "$STATE" &&
			printf '%s\n' "result: $2" "reason: $3" "providers: $(providers "$1")" >"$STATE/$1.new" &&
			mv "$STATE/$1.new" "$STATE/$1"
	} || :
}

# is_there RELEASE: modprobe finds what DKMS has installed, whatever is recorded.
is_there() {
	local link
	for link in "/lib/modules/$1/updates/nvidia-peermem-rs/nvidia-peermem.ko"*; do
		[ -e "$link" ] && [ -e "/var/lib/dkms/nvidia-peermem-rs/kernel-$1-$(uname -m)" ] && return
	done
	return 1
}

# recorded RELEASE KEY
recorded() {
	[ ! -e "$STATE/$1" ] || sed -n "s/^$2: //p" "$STATE/$1"
}

# providers RELEASE: tells one state of the drivers the module is linked with from another.
providers() {
	local symbol file
	for symbol in ib_register_peer_memory_client nvidia_p2p_get_pages; do
		file=$(installed_provider "$1" "$symbol")
		{ [ -z "$file" ] || cat "$file"; } | sha256sum | cut -c1-12
	done | xargs
}

# private_tree RELEASE KDIR: where the metadata for these very headers is, or would be.
private_tree() {
	echo "$METADATA/$1-$(hash12 "$2/.config" "$2/Module.symvers" "$TOP/scripts/rust-metadata" "$TOP/scripts/dkms/metadata")"
}

has_metadata() {
	[ -s "$1/rust/libkernel.rmeta" ]
}

# forget_metadata RELEASE: not that of a kernel whose name only begins like this one's.
forget_metadata() {
	rm -rf "${METADATA:?}/$1"-[0-9a-f]???????????{,.*}
}

# tree_for RELEASE KDIR: the tree to build against.
tree_for() {
	if has_metadata "$2"; then
		echo "$2"
	else
		private_tree "$1" "$2"
	fi
}
