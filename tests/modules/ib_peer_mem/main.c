// SPDX-License-Identifier: GPL-2.0
/*
 * Peer-memory core for tests: the interface and the behaviour of OFED's
 * ib_core towards its clients, beside an ib_core that has no such thing.
 */
#include <linux/module.h>

#include "core.h"

static int __init peer_init(void)
{
	return peer_debugfs_init();
}

static void __exit peer_exit(void)
{
	peer_debugfs_exit();
}

module_init(peer_init);
module_exit(peer_exit);

MODULE_DESCRIPTION("Peer-memory core with the semantics of DOCA-OFED 25.10, for tests");
MODULE_LICENSE("GPL");
