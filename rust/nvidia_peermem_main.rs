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
        peer_memory::{
            PeerMemoryClient,
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

/// What lives as long as the module is loaded.
struct NvidiaPeermem {
    _client: Registered<NvMem>,
}

impl kernel::Module for NvidiaPeermem {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        check_parameters()?;
        let driver = GpuDriver::find().map_err(refuse)?;
        let core = PeerMemory::find().map_err(refuse)?;
        let client = Registered::new(core).map_err(refuse)?;
        pr_info!(
            "{} (Rust): client {} with persistent pins; GPU driver {}, peer-memory core {}\n",
            helpers::version(),
            NvMem::NAME,
            driver.name(),
            core.name()
        );
        Ok(Self { _client: client })
    }
}

/// Refuses what NVIDIA's module has and this one has not.
fn check_parameters() -> Result {
    check_parameter("peerdirect_support", helpers::peerdirect_support(), 0)?;
    check_parameter(
        "persistent_api_support",
        helpers::persistent_api_support(),
        1,
    )
}

fn check_parameter(name: &str, value: i32, allowed: i32) -> Result {
    if value == allowed {
        return Ok(());
    }
    pr_err!(
        "not loaded: {}={} is not supported, only {}\n",
        name,
        value,
        allowed
    );
    Err(EINVAL)
}

/// Says why the module cannot be loaded here.
fn refuse<E: fmt::Display + Into<Error>>(reason: E) -> Error {
    pr_err!("not loaded: {}\n", reason);
    reason.into()
}
