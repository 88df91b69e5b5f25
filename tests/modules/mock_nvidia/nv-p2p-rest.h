/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * What nv-p2p.h of NVIDIA's open kernel modules declares besides the calls of a
 * peer-memory client. Own text.
 */
#ifndef _MOCK_NV_P2P_REST_H
#define _MOCK_NV_P2P_REST_H

#include <linux/types.h>

struct pci_dev;
struct nvidia_p2p_params;
struct nvidia_p2p_rsync_reg_info;

#define NVIDIA_P2P_RSYNC_DRIVER_VERSION	0x00010001

struct nvidia_p2p_rsync_driver {
	u32	version;
	int	(*get_relaxed_ordering_mode)(int *mode, void *data);
	void	(*put_relaxed_ordering_mode)(int mode, void *data);
	void	(*wait_for_rsync)(struct pci_dev *gpu, void *data);
};

/* Only of drivers before 525.105.17: get_pages without callback is persistent. */
extern int nvidia_p2p_cap_persistent_pages;

int nvidia_p2p_init_mapping(u64 p2p_token, struct nvidia_p2p_params *params,
			    void (*destroy_callback)(void *data), void *data);
int nvidia_p2p_destroy_mapping(u64 p2p_token);
int nvidia_p2p_register_rsync_driver(struct nvidia_p2p_rsync_driver *driver,
				     void *data);
void nvidia_p2p_unregister_rsync_driver(struct nvidia_p2p_rsync_driver *driver,
					void *data);
int nvidia_p2p_get_rsync_registers(struct nvidia_p2p_rsync_reg_info **reg_info);
void nvidia_p2p_put_rsync_registers(struct nvidia_p2p_rsync_reg_info *reg_info);

#endif /* _MOCK_NV_P2P_REST_H */
