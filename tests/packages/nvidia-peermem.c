// SPDX-License-Identifier: GPL-2.0
/* What NVIDIA's driver packages install under our name; for the tests of who wins. */
#include <linux/module.h>

MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION("550.163.01-mock");
MODULE_DESCRIPTION("NVIDIA's own, for tests of packages");
