/* SPDX-License-Identifier: GPL-2.0 */
/* What the audit found, for debugfs. */
#ifndef PEER_AUDIT_H
#define PEER_AUDIT_H

#include <linux/types.h>

struct peer_violations {
	u64 count;
	char last[192];
};

void peer_violations_read(struct peer_violations *copy);

#endif /* PEER_AUDIT_H */
