// SPDX-License-Identifier: GPL-2.0

//! GPUDirect RDMA: gives RDMA devices access to the memory of NVIDIA GPUs.
//!
//! The module is a client of the RDMA core's peer-memory API. Data flows one way:
//! RDMA core -> `ffi::peer_memory` -> `client` -> `registration` -> `ffi::nvidia_p2p` -> GPU driver,
//! and back comes a scatterlist of DMA addresses (`ffi::scatterlist`).

mod client;
mod ffi;
mod registration;

use kernel::{
    fmt,
    prelude::*, //
};

use crate::{
    client::NvMem,
    ffi::{
        helpers,
        nvidia_p2p::{
            persistent::PinnedPages,
            revocable::{
                Callbacks,
                RevocablePages, //
            },
        },
        peer_memory::{
            RegisterError,
            Registered, //
        },
        providers::{
            GpuDriver,
            PeerMemory, //
        },
    },
};

module! {
    type: NvidiaPeermem,
    name: "nvidia_peermem",
    authors: ["The nvidia-peermem-rs authors"],
    description: "GPUDirect RDMA for NVIDIA GPUs: peer-memory client, in Rust",
    license: "GPL",
}

/// What lives as long as the module is loaded, with what depends on it in front of it.
struct NvidiaPeermem {
    _revocable: Option<Registered<NvMem<RevocablePages>>>,
    _persistent: Registered<NvMem<PinnedPages>>,
    _callbacks: Option<Callbacks>,
}

// NCCL, UCX and NVSHMEM look for this name where the core shows clients in sysfs.
const NAME: &CStr = c"nv_mem";
// Beside a revocable client, for memory that must not be revoked, as NVIDIA's module calls it.
const NAME_NC: &CStr = c"nv_mem_nc";

impl kernel::Module for NvidiaPeermem {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let parameters = Parameters::read()?;
        let driver = GpuDriver::find().map_err(refuse)?;
        let core = PeerMemory::find().map_err(refuse)?;
        let this = if parameters.persistent {
            Self::persistent(core)
        } else {
            Self::revocable(core, parameters.old_core)
        }
        .map_err(refuse)?;
        let (driver, core) = (driver.name(), core.name());
        pr_info!(
            "{} (Rust): {}; GPU driver {}, peer-memory core {}\n",
            helpers::version(),
            parameters.clients(),
            driver,
            core
        );
        Ok(this)
    }
}

impl NvidiaPeermem {
    /// One client, whose pins stay until deregistration.
    fn persistent(core: PeerMemory) -> Result<Self, RegisterError> {
        Ok(Self {
            _revocable: None,
            _persistent: Registered::new(core, NAME, false)?,
            _callbacks: None,
        })
    }

    /// Two clients: one whose pins end when the memory is freed, and, for RDMA objects that cannot
    /// bear that, one whose pins stay.
    fn revocable(core: PeerMemory, old_core: bool) -> Result<Self, RegisterError> {
        let callbacks = Callbacks::new();
        let revocable = Registered::new(core, NAME, !old_core)?;
        let persistent = Registered::new(core, NAME_NC, false)?;
        revocable.open();
        Ok(Self {
            _revocable: Some(revocable),
            _persistent: persistent,
            _callbacks: Some(callbacks),
        })
    }
}

/// The module parameters, as NVIDIA's module has them.
struct Parameters {
    /// `persistent_api_support`.
    persistent: bool,
    /// `peerdirect_support`: the core is MLNX_OFED's, 4.9 or older.
    old_core: bool,
}

impl Parameters {
    fn read() -> Result<Self> {
        Ok(Self {
            persistent: flag("persistent_api_support", helpers::persistent_api_support())?,
            old_core: flag("peerdirect_support", helpers::peerdirect_support())?,
        })
    }

    /// What the log says at load.
    fn clients(&self) -> &'static str {
        if self.persistent {
            "client nv_mem with persistent pins"
        } else {
            "clients nv_mem with revocable pins and nv_mem_nc with persistent pins"
        }
    }
}

fn flag(name: &str, value: i32) -> Result<bool> {
    match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => {
            pr_err!(
                "not loaded: {}={} is not supported, only 0 and 1\n",
                name,
                value
            );
            Err(EINVAL)
        }
    }
}

/// Says why the module cannot be loaded here.
fn refuse<E: fmt::Display + Into<Error>>(reason: E) -> Error {
    pr_err!("not loaded: {}\n", reason);
    reason.into()
}
