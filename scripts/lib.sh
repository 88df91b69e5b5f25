# SPDX-License-Identifier: GPL-2.0
# shellcheck shell=bash
#
# What every script of the test bed shares: where things are, how to speak to
# the user, and how to reach Debian's packages. Sourced, never run.

# shellcheck source=scripts/module.sh
. "$(dirname "${BASH_SOURCE[0]}")/module.sh"
CACHE=${PEERMEM_CACHE:-/var/cache/nvidia-peermem-rs}
# The kernel series of Debian the test bed runs on, the suite that the root is made of,
# the one that has the kernel, and the compiler that has built it.
KERNEL=${KERNEL:-7.3}
# shellcheck disable=SC2034 # for whoever sources this
case $KERNEL in
7.2*) SUITE=sid NEWEST=sid GCC=gcc-16 ;;
*) SUITE=trixie NEWEST=trixie-backports GCC=gcc-14 ;;
esac
export PEERMEM_START=${PEERMEM_START:-$(date +%s)}

# progress TEXT: one line, with the seconds since the first script started. Goes
# to the user even from within a step, whose output goes to its log.
progress() {
	printf '[%4ds] %s\n' "$(($(date +%s) - PEERMEM_START))" "$*" >&"${PEERMEM_PROGRESS_FD:-2}"
}

# quietly NAME COMMAND...: runs it, with all it says in build/logs/NAME.log.
quietly() {
	local log=$TOP/build/logs/$1.log
	shift
	mkdir -p "$TOP/build/logs"
	PEERMEM_PROGRESS_FD=3 "$@" 3>&2 >"$log" 2>&1
}

# tied COMMAND...: the command is killed when this script is.
tied() {
	setpriv --pdeathsig KILL "$@"
}

# step NAME TEXT COMMAND...: says what is being done, and if it fails, ends with
# the step's last words.
step() {
	local name=$1 text=$2
	shift 2
	progress "$text ..."
	quietly "$name" "$@" || step_failed "$name" "$text"
}

step_failed() {
	local log=$TOP/build/logs/$1.log
	echo "FAILED: $2. The end of $log:" >&2
	tail -n 20 "$log" >&2
	exit 1
}

# What demo, test and shell need. Each step finds for itself whether it is done.
prepare() {
	local time="about 5 minutes"
	need_root
	mkdir -p "$TOP/build"
	chown --reference="$TOP" "$TOP/build"
	only_run
	step root "Debian root$(unless "$(root_dir)" "about 80 s")" "$TOP/scripts/buildroot"
	case $KERNEL in
	*-debug) time="about 25 minutes" ;;
	esac
	step kernel "kernel $KERNEL and its Rust metadata$(unless "$(kernel_dir)/metadata" "$time")" "$TOP/scripts/kernel"
	step testbed "modules$(unless "$(build_dir)/ko" "about a minute")" "$TOP/scripts/build-testbed"
}

# The command-line tool, for VMs in which it is used.
prepare_tool() {
	step tool "the tool peermem$(unless "$(build_dir)/bin/peermem" "about two minutes")" "$TOP/scripts/build-tool"
}

# They would write over each other's logs. The children keep the lock, too.
only_run() {
	local fd
	exec {fd}>"$TOP/build/.run.lock"
	flock -n "$fd" || die "another run is at work in this checkout: wait for it, or use a second checkout"
}

# unless THING TIME: how long it takes to make a thing that is not there yet.
unless() {
	[ -e "$1" ] || echo " ($2, this first time)"
}

in_root() {
	"$TOP/scripts/in-root" "$@"
}

# passes NAME COMMAND...: one test, which is the command's success, in the file $results.
passes() {
	local name=$1
	progress "$name"
	if quietly "$@"; then
		echo "ok - $name"
	else
		echo "not ok - $name # see build/logs/$name.log"
	fi >>"$results"
}

# vm_tests RESULTS NAME ARGS-OF-RUN...: adds to RESULTS what the VM's output, or that of
# one VM after the other, tells of its tests. A VM that dies, whose kernel complains, or
# that tells no plan, is one more that failed.
vm_tests() {
	local results=$1 name=$2 log=$TOP/build/logs/$2.log status=0 prefix plans=1
	shift 2
	case " $* " in
	*" --pair "*) plans=2 ;;
	esac
	progress "$name (follow it in build/logs/$name.log)"
	quietly "$name" tied "$TOP/tests/vm/run" --time-limit 1200 "$@" || status=$?
	for prefix in '' '# vm1: ' '# vm2: '; do
		sed -nE "s/^$prefix((ok|not ok) |1\.\.)/\1/p" "$log"
	done >>"$results"
	[ "$(grep -cE '^(# vm.: )?1\.\.[1-9]' "$log")" = "$plans" ] || status=72
	if [ "$status" -ge 69 ] || { [ "$status" != 0 ] && ! grep -q '^\(# vm.: \)\?not ok' "$log"; }; then
		echo "not ok - $name: the VM and its kernel log # status $status, see build/logs/$name.log"
	else
		echo "ok - $name: the VM and its kernel log"
	fi >>"$results"
}

need_root() {
	[ "$(id -u)" = 0 ] || die "needs root (it makes a Debian root and mounts it): run it with sudo"
}

root_dir() {
	echo "$CACHE/root-$SUITE-$(hash12 "$TOP/scripts/buildroot")"
}

# The kernel of the series which scripts/kernel fetched last.
kernel_dir() {
	readlink -m "$CACHE/kernel-$KERNEL"
}

kernel_release() {
	[ -d "$(kernel_dir)" ] || die "no kernel $KERNEL in $CACHE: run scripts/kernel first"
	basename "$(kernel_dir)" | sed 's/^linux-//'
}

build_dir() {
	echo "$TOP/build/$(kernel_release)"
}

# locked NAME COMMAND...: two builds of the same thing must not meet. The lock
# dies with this script, the children do not inherit it.
locked() {
	local name=$1 fd
	shift
	mkdir -p "$CACHE"
	exec {fd}>"$CACHE/.$name.lock"
	flock -n "$fd" || { progress "waiting for another run, which is at the $name" && flock "$fd"; } ||
		die "cannot lock $CACHE/.$name.lock"
	"$@" {fd}>&-
	exec {fd}>&-
}

# The machine's own Debian mirror, so that a site's mirror, or a proxy for one,
# works here too. apt itself reads its configuration, in whatever format.
mirror() {
	local uri=${PEERMEM_MIRROR:-$(configured_mirror)}
	[ -n "$uri" ] || uri=$(apt-get update >&2 && configured_mirror)
	case $uri in
	'') die "no Debian mirror in apt's configuration: name one in PEERMEM_MIRROR (as in a line of sources.list)" ;;
	mirror+file:*) grep -m1 -oE '^[a-z+]+://[^[:space:]]+' "${uri#mirror+file:}" ;;
	*://*) echo "${uri%/}" ;;
	*) die "the Debian mirror \"$uri\" is no URI: see PEERMEM_MIRROR" ;;
	esac
}

# Third-party sources are told by the origin in their indexes, and Debian's
# security archive, which has no backports, by its label.
configured_mirror() {
	# shellcheck disable=SC2016 # the variables are apt's
	apt-get indextargets --format '$(LABEL) $(ORIGIN) $(REPO_URI)' 'Created-By: Packages' |
		awk '$1 == "Debian" && $2 == "Debian" { print $3; exit }'
}

# contrib has the NVIDIA module that serves as reference. Mirrors that keep a day of sid
# serve indexes that are past their date.
sources_list() {
	local uri suite suites=("$SUITE" "$SUITE-updates" "$NEWEST") options=
	uri=$(mirror) || exit
	[ "$SUITE" != sid ] || suites=(sid) options=" check-valid-until=no"
	for suite in "${suites[@]}"; do
		echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg$options] $uri $suite main contrib"
	done
}

# The machine's proxies, certificates, retries and the like.
apt_acquire_settings() {
	apt-config dump | grep '^Acquire::' |
		grep -vE '^Acquire::(IndexTargets|Changelogs|CompressionTypes|Languages|GzipIndexes|cdrom)'
}

# suite_apt TOOL ARGS...: the machine's apt-get or apt-cache, looking at the
# suite's packages instead of the machine's.
suite_apt() {
	local tool=$1 state=$CACHE/apt-$SUITE
	shift
	"$tool" -qq -o Dir::State="$state/state" -o Dir::State::status="$state/status" \
		-o Dir::Cache="$state/cache" -o Dir::Etc::SourceList="$state/sources.list" \
		-o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::Preferences=/dev/null \
		-o Dir::Etc::PreferencesParts=/dev/null -o APT::Sandbox::User=root "$@"
}

suite_apt_update() {
	local state=$CACHE/apt-$SUITE
	mkdir -p "$state/state/lists/partial" "$state/cache/archives/partial"
	: >"$state/status"
	sources_list >"$state/sources.list"
	suite_apt apt-get update
}
