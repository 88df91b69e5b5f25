/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Memory regions of soft-RoCE on peer memory. Where rxe calls us, and nothing
 * more: mr->peer says that a region is one of ours.
 */
#ifndef RXE_PEER_H
#define RXE_PEER_H

struct rxe_dev;
struct rxe_mr;

void rxe_peer_init(void);
void rxe_peer_exit(void);

/* Host pinning failed with @gup_errno; is it peer memory? 0 or an errno. */
int rxe_peer_reg_mr(struct rxe_dev *rxe, u64 start, u64 length, int access,
		    struct rxe_mr *mr, int gup_errno);
void rxe_peer_dereg_mr(struct rxe_mr *mr);

/* The callers have checked that the range lies within the region. */
int rxe_peer_copy(struct rxe_mr *mr, u64 iova, void *addr, unsigned int length,
		  enum rxe_mr_copy_dir dir);
enum resp_states rxe_peer_atomic_op(struct rxe_mr *mr, u64 iova, int opcode,
				    u64 compare, u64 swap_add, u64 *orig_val);
enum resp_states rxe_peer_atomic_write(struct rxe_mr *mr, u64 iova, u64 value);

#endif /* RXE_PEER_H */
