# SPDX-License-Identifier: GPL-2.0
#
# The module is built by the kernel's build system (see Kbuild); this file calls
# it, and the scripts that do everything else.

PREFIX ?= /usr/local
KERNELRELEASE ?= $(shell uname -r)
KDIR ?= /lib/modules/$(KERNELRELEASE)/build

export KERNEL KBUILD_EXTRA_SYMBOLS PEERMEM_CACHE PEERMEM_MIRROR

.DEFAULT_GOAL := all
.PHONY: all modules install modules_install uninstall tool install-tool dkms-install deb rpm sources clean help demo test test-reference test-debug test-packages bench shell testbed fmt clippy update clean-cache

## On a machine with GPUs
all: modules		## build nvidia-peermem.ko against KDIR (default: the running kernel)
modules:
	+@scripts/build-module "$(KDIR)" modules

install: modules_install	## install it for that kernel (DESTDIR, INSTALL_MOD_DIR and the like work)
modules_install: modules
	+@INSTALL_MOD_PATH="$${INSTALL_MOD_PATH-$(DESTDIR)}" scripts/build-module "$(KDIR)" modules_install

dkms-install:		## let DKMS build it for every kernel, now and later (with DESTDIR: only put its source there)
	@scripts/install-dkms "$(DESTDIR)"
	@[ -n "$(DESTDIR)" ] || scripts/dkms/register

uninstall:		## take back whatever the install targets have installed
	@scripts/uninstall "$(DESTDIR)" "$(PREFIX)"

tool:			## build the command-line tool with cargo: build/tools/release/peermem
	@cargo build --release --locked --manifest-path tools/peermem/Cargo.toml --target-dir build/tools

install-tool: tool	## install it, with its man pages and completions (DESTDIR, PREFIX)
	@scripts/install-tool build/tools/release/peermem "$(DESTDIR)$(PREFIX)"

## Packages, into build/packages
sources:		## the tarballs they are built from: the project, and the crates of the tool
	@scripts/packaging/source build/packages

deb: sources		## Debian's (needs dpkg-dev, debhelper, dh-dkms, cargo)
	@scripts/packaging/deb build/packages

rpm: sources		## RPMs (needs rpmbuild, cargo)
	@scripts/packaging/rpm build/packages

clean:			## remove everything that was built (build/)
	@rm -rf build

## In virtual machines, without any hardware; these need root, and Debian 12 or 13
demo:			## show RDMA into the memory of two mock GPUs, every byte checked
	@scripts/demo

test:			## run every test; closes with the number of passed, failed and skipped ones
	@scripts/test

test-reference:		## run tests on NVIDIA's own module, to prove the equipment true, and that the tests find faults
	@scripts/test-reference

test-debug:		## run the life of registrations on a kernel that checks memory, locks, leaks and DMA
	@scripts/test-debug

test-packages:		## install, upgrade and remove the packages on machines of their own, and boot one
	@scripts/test-packages

bench:			## measure beside NVIDIA's own module, counting instructions; see build/bench
	@scripts/bench

shell:			## a shell in a VM with everything loaded; exit turns the VM off
	@scripts/shell

testbed:		## build the test equipment and the module for the VM's kernel, no more
	@scripts/prepare

update:			## look for a newer kernel of the series (KERNEL, default 7.3)
	@scripts/kernel --update

clean-cache:		## remove the Debian root and the kernels (PEERMEM_CACHE)
	@scripts/clean-cache

## For developers
fmt:			## format the Rust code
	@scripts/prepare root
	@scripts/format

clippy:			## lint the Rust code
	@scripts/prepare
	@scripts/build-testbed --clippy

help:			## this list
	@awk -F':.*## |## ' '/^## / { print "\n" $$2 ":" } /^[a-z_-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' Makefile
	@echo
	@echo "Variables: KERNELRELEASE or KDIR, and KBUILD_EXTRA_SYMBOLS, for all and install; LOAD=equipment, stock or none"
	@echo "for shell, to load less; PEERMEM_CACHE and PEERMEM_MIRROR for everything in VMs."
