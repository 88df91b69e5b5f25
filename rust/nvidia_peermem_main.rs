// SPDX-License-Identifier: GPL-2.0

//! GPUDirect RDMA: gives RDMA devices access to the memory of NVIDIA GPUs.
//!
//! The module is a client of the RDMA core's peer-memory API. Data flows one way:
//! RDMA core -> `ffi::peer_memory` -> `client` -> `registration` -> `ffi::nvidia_p2p` -> GPU driver,
//! and back comes a scatterlist of DMA addresses (`ffi::scatterlist`).

/// `write!` for what the kernel crate can print, such as its `CStr`.
macro_rules! put {
    ($to:expr, $($args:tt)*) => {
        $to.write_fmt(::kernel::prelude::fmt!($($args)*))
    };
}

mod client;
mod control;
mod failures;
mod ffi;
mod measured;
mod peers;
mod registration;
mod registry;
mod stats;

use kernel::{
    fmt,
    prelude::*, //
};

use crate::{
    client::NvMem,
    control::{
        debugfs,
        sysfs::Sysfs, //
    },
    ffi::{
        debugfs::Directory,
        globals::Globals,
        helpers,
        nvidia_p2p::{
            persistent::PinnedPages,
            revocable::RevocablePages, //
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
    registration::Client,
};

module! {
    type: NvidiaPeermem,
    name: "nvidia_peermem",
    authors: ["The nvidia-peermem-rs authors"],
    description: "GPUDirect RDMA for NVIDIA GPUs: peer-memory client, in Rust",
    license: "GPL",
}

/// What lives as long as the module is loaded. Each field depends on those that follow it.
struct NvidiaPeermem {
    _clients: Clients,
    _debugfs: Directory,
    _sysfs: Sysfs,
    _globals: Globals,
}

/// What the peer-memory core knows of us.
enum Clients {
    /// One client, whose pins stay until deregistration.
    Persistent {
        _nv_mem: Registered<NvMem<PinnedPages, false>>,
    },
    /// One whose pins end when the memory is freed, and, for RDMA objects that cannot bear that, one
    /// whose pins stay.
    Revocable {
        _nv_mem: Registered<NvMem<RevocablePages, false>>,
        _nv_mem_nc: Registered<NvMem<PinnedPages, true>>,
    },
}

impl kernel::Module for NvidiaPeermem {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        let parameters = Parameters::read()?;
        let driver = GpuDriver::find().map_err(refuse)?;
        let core = PeerMemory::find().map_err(refuse)?;
        let globals = Globals::init(!parameters.persistent);
        let sysfs = Sysfs::new(parameters.mode(), driver, core, parameters.clients())
            .inspect_err(|_| pr_err!("not loaded: cannot make /sys/kernel/nvidia_peermem\n"))?;
        let debugfs = debugfs::create();
        let clients = Clients::register(&parameters, core).map_err(refuse)?;
        let (driver, core) = (driver.name(), core.name());
        pr_info!(
            "{} (Rust): {}; GPU driver {}, peer-memory core {}\n",
            helpers::version(),
            parameters.described(),
            driver,
            core
        );
        Ok(Self {
            _clients: clients,
            _debugfs: debugfs,
            _sysfs: sysfs,
            _globals: globals,
        })
    }
}

impl Clients {
    fn register(parameters: &Parameters, core: PeerMemory) -> Result<Self, RegisterError> {
        if parameters.persistent {
            return Ok(Self::Persistent {
                _nv_mem: Registered::new(core, false)?,
            });
        }
        let nv_mem = Registered::new(core, !parameters.old_core)?;
        let nv_mem_nc = Registered::new(core, false)?;
        nv_mem.open();
        Ok(Self::Revocable {
            _nv_mem: nv_mem,
            _nv_mem_nc: nv_mem_nc,
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

    /// As sysfs shows it.
    fn mode(&self) -> &'static CStr {
        if self.persistent {
            c"persistent"
        } else {
            c"revocable"
        }
    }

    /// The clients that there will be.
    fn clients(&self) -> &'static [Client] {
        if self.persistent {
            &[Client::NvMem]
        } else {
            &[Client::NvMem, Client::NvMemNc]
        }
    }

    /// What the log says at load.
    fn described(&self) -> &'static str {
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
