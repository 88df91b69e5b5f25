# SPDX-License-Identifier: GPL-2.0
#
# The module is built by the kernel's build system (see Kbuild); this file calls
# it, and the scripts that do everything else.

PREFIX ?= /usr/local
KDIR ?= /lib/modules/$(shell uname -r)/build

export KERNEL KBUILD_EXTRA_SYMBOLS PEERMEM_CACHE PEERMEM_MIRROR

.DEFAULT_GOAL := all
.PHONY: all modules install modules_install tool install-tool clean help demo test test-reference test-debug shell testbed fmt clippy update clean-cache

## On a machine with GPUs
all: modules		## build nvidia-peermem.ko against KDIR (default: the running kernel)
modules:
	+@scripts/build-module "$(KDIR)" modules

install: modules_install	## install it for that kernel (INSTALL_MOD_PATH and the like work)
modules_install: modules
	+@scripts/build-module "$(KDIR)" modules_install

tool:			## build the command-line tool with cargo: build/tools/release/peermem
	@cargo build --release --locked --manifest-path tools/peermem/Cargo.toml --target-dir build/tools

install-tool: tool	## install it, with its man pages and completions (DESTDIR, PREFIX)
	@scripts/install-tool build/tools/release/peermem "$(DESTDIR)$(PREFIX)"

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
	@echo "Variables: KDIR and KBUILD_EXTRA_SYMBOLS for all and install; LOAD=equipment, stock or none"
	@echo "for shell, to load less; PEERMEM_CACHE and PEERMEM_MIRROR for everything in VMs."
