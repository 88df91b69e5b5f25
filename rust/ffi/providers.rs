// SPDX-License-Identifier: GPL-2.0

//! The two modules this one stands between, and whether they are there.
//!
//! Their functions are weak symbols. The kernel binds them at load and counts us as a user of
//! their modules, as with any symbol; but where one is missing it sets a null address instead of
//! refusing the load with "Unknown symbol", and we can say in one line what to do about it.
//! (`symbol_get` is no way out: since Linux 6.6 it refuses symbols that are not GPL-only, which
//! those of the peer-memory core are.)

use core::{
    arch::global_asm,
    hint::black_box, //
};

use kernel::{
    bindings,
    fmt,
    prelude::*, //
};
use pin_init::init_zeroed;

use super::{
    compat,
    nvidia_p2p::{
        nvidia_p2p_dma_map_pages,
        nvidia_p2p_dma_unmap_pages,
        nvidia_p2p_get_pages,
        nvidia_p2p_get_pages_persistent,
        nvidia_p2p_put_pages,
        nvidia_p2p_put_pages_persistent, //
    },
    peer_memory::{
        ib_register_peer_memory_client,
        ib_unregister_peer_memory_client, //
    },
};

global_asm!(
    ".weak ib_register_peer_memory_client",
    ".weak ib_unregister_peer_memory_client",
    ".weak nvidia_p2p_get_pages",
    ".weak nvidia_p2p_put_pages",
    ".weak nvidia_p2p_get_pages_persistent",
    ".weak nvidia_p2p_put_pages_persistent",
    ".weak nvidia_p2p_dma_map_pages",
    ".weak nvidia_p2p_dma_unmap_pages",
);

/// Whether the kernel found these weak symbols.
fn present(symbols: &[*const ()]) -> bool {
    // The compiler takes addresses of functions for non-null; `black_box` keeps that from it.
    black_box(symbols).iter().all(|symbol| !symbol.is_null())
}

/// The name of the module that a function is in. It is found out beforehand: what prints must not
/// allocate, it may run with interrupts off.
#[derive(Clone, Copy)]
struct Owner([u8; Self::LEN]);

impl Owner {
    /// More than `MODULE_NAME_LEN`.
    const LEN: usize = 64;

    fn of(function: *const ()) -> Self {
        let mut name = [0; Self::LEN];
        let symbol = symbol_name(function);
        // "function [module]", or just "function" if it is built into the kernel.
        let module = symbol.as_ref().ok().and_then(|symbol| {
            let mut parts = symbol.split(|&c| c == b'[' || c == b']' || c == 0);
            parts.nth(1).filter(|module| !module.is_empty())
        });
        let module = match (&symbol, module) {
            (_, Some(module)) => module,
            (Ok(_), None) => b"the kernel",
            (Err(_), _) => b"(out of memory)",
        };
        for (to, from) in name.iter_mut().zip(module) {
            *to = *from;
        }
        Self(name)
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.0.split(|&c| c == 0).next().unwrap_or_default();
        f.write_str(core::str::from_utf8(name).unwrap_or_default())
    }
}

/// More than `KSYM_SYMBOL_LEN`: the name, and numbers and punctuation of less than as much.
const SYMBOL_LEN: usize = 2 * bindings::KSYM_NAME_LEN as usize;

/// The kernel's name for the function at `address`, up to a NUL.
fn symbol_name(address: *const ()) -> Result<KBox<[u8; SYMBOL_LEN]>> {
    let mut name = KBox::init(init_zeroed::<[u8; SYMBOL_LEN]>(), GFP_KERNEL)?;
    // SAFETY: `name` has room for KSYM_SYMBOL_LEN bytes; any address may be asked for.
    unsafe { bindings::sprint_symbol_no_offset(name.as_mut_ptr(), address as c_ulong) };
    Ok(name)
}

/// Why the module cannot work here. Its text is what the kernel log shows.
#[derive(Clone, Copy)]
pub(crate) enum Missing {
    /// None of the GPU driver's symbols.
    GpuDriver,
    /// The GPU driver has no persistent pins: it is older than 525.105.17 or 535.43.02.
    PersistentPins,
    /// None of the peer-memory core's symbols.
    PeerMemory,
}

impl From<Missing> for Error {
    fn from(missing: Missing) -> Self {
        match missing {
            // As the kernel itself answers where a symbol is missing.
            Missing::GpuDriver | Missing::PeerMemory => ENOENT,
            Missing::PersistentPins => compat::eopnotsupp(),
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GpuDriver => {
                "no GPU driver symbols: load NVIDIA's open GPU kernel modules first \
                 (the proprietary flavour cannot be used)"
            }
            Self::PersistentPins => {
                "the GPU driver has no persistent pins (nvidia_p2p_get_pages_persistent and what \
                 goes with it): it must be 525.105.17, 535.43.02 or newer"
            }
            Self::PeerMemory => {
                "no peer-memory API: the RDMA core has no ib_register_peer_memory_client \
                 (DOCA-OFED has; applications that use DMA-BUF need neither)"
            }
        })
    }
}

/// Proof that the functions of the GPU driver are there.
#[derive(Clone, Copy)]
pub(crate) struct GpuDriver(());

impl GpuDriver {
    /// Looks for everything that `nvidia_p2p` calls.
    pub(crate) fn find() -> Result<Self, Missing> {
        if !present(&[
            nvidia_p2p_get_pages as *const (),
            nvidia_p2p_put_pages as *const (),
            nvidia_p2p_dma_map_pages as *const (),
            nvidia_p2p_dma_unmap_pages as *const (),
        ]) {
            Err(Missing::GpuDriver)
        } else if !present(&[
            nvidia_p2p_get_pages_persistent as *const (),
            nvidia_p2p_put_pages_persistent as *const (),
        ]) {
            Err(Missing::PersistentPins)
        } else {
            Ok(Self(()))
        }
    }

    /// The name of the driver's module. Sleeps.
    pub(crate) fn name(self) -> impl fmt::Display + Send + Sync + 'static {
        Owner::of(nvidia_p2p_get_pages_persistent as *const ())
    }
}

/// Proof that the functions of the peer-memory core are there.
#[derive(Clone, Copy)]
pub(crate) struct PeerMemory(());

impl PeerMemory {
    /// Looks for everything that `peer_memory` calls.
    pub(crate) fn find() -> Result<Self, Missing> {
        if present(&[
            ib_register_peer_memory_client as *const (),
            ib_unregister_peer_memory_client as *const (),
        ]) {
            Ok(Self(()))
        } else {
            Err(Missing::PeerMemory)
        }
    }

    /// The name of the core's module. Sleeps.
    pub(crate) fn name(self) -> impl fmt::Display + Send + Sync + 'static {
        Owner::of(ib_register_peer_memory_client as *const ())
    }
}
