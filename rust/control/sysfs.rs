// SPDX-License-Identifier: GPL-2.0

//! `/sys/kernel/nvidia_peermem`: one value a file, for all to read, with no process and no address.
//!
//! `Documentation/ABI/testing/sysfs-kernel-nvidia_peermem` describes each.

use kernel::{
    fmt::{
        self,
        Write, //
    },
    prelude::*,
    sync::Arc, //
};
use peermem_logic::reason::Reason;

use crate::{
    ffi::{
        device::PciName,
        globals::ROOT,
        helpers,
        nvidia_p2p::GpuIdentity,
        providers::{
            GpuDriver,
            PeerMemory, //
        },
        sysfs::{
            Directory,
            Input,
            Text,
            Value, //
        },
    },
    peers::{
        self,
        Figures, //
    },
    registration::Client,
    stats::{
        Counter,
        Gauge,
        SETTINGS,
        STATS, //
    },
};

impl Value for &'static Counter {
    fn show(&self, to: &mut Text<'_>) -> fmt::Result {
        put!(to, "{}", self.get())
    }
}

impl Value for &'static Gauge {
    fn show(&self, to: &mut Text<'_>) -> fmt::Result {
        put!(to, "{}", self.get())
    }
}

/// What a gauge was at most.
struct Peak(&'static Gauge);

impl Value for Peak {
    fn show(&self, to: &mut Text<'_>) -> fmt::Result {
        put!(to, "{}", self.0.peak())
    }
}

/// Something that does not change.
struct Constant<T>(T);

impl<T: fmt::Display + Send + Sync> Value for Constant<T> {
    fn show(&self, to: &mut Text<'_>) -> fmt::Result {
        put!(to, "{}", self.0)
    }
}

/// A figure of a GPU or an RDMA device.
struct Figure {
    figures: Arc<Figures>,
    which: fn(&Figures) -> &Gauge,
}

impl Value for Figure {
    fn show(&self, to: &mut Text<'_>) -> fmt::Result {
        put!(to, "{}", (self.which)(&self.figures).get())
    }
}

/// The UUID of a GPU, as nvidia-smi writes it.
struct Uuid([u8; GpuIdentity::UUID_LEN]);

impl Value for Uuid {
    fn show(&self, to: &mut Text<'_>) -> fmt::Result {
        to.write_str("GPU-")?;
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                to.write_str("-")?;
            }
            put!(to, "{:02x}", *byte)?;
        }
        Ok(())
    }
}

/// Whether new registrations are wanted.
struct State;

impl Value for State {
    fn show(&self, to: &mut Text<'_>) -> fmt::Result {
        to.write_str(if SETTINGS.draining() { "drain" } else { "live" })
    }

    fn store(&self, value: Input<'_>) -> Result {
        if value.is(c"drain") {
            SETTINGS.set_draining(true);
        } else if value.is(c"live") {
            SETTINGS.set_draining(false);
        } else {
            return Err(EINVAL);
        }
        Ok(())
    }
}

/// The limit on pinned memory.
struct MaxPinnedBytes;

impl Value for MaxPinnedBytes {
    fn show(&self, to: &mut Text<'_>) -> fmt::Result {
        put!(to, "{}", SETTINGS.max_pinned_bytes())
    }

    fn store(&self, value: Input<'_>) -> Result {
        SETTINGS.set_max_pinned_bytes(value.number()?);
        Ok(())
    }
}

/// Starts the counters again.
struct StatsReset;

impl Value for StatsReset {
    fn show(&self, _to: &mut Text<'_>) -> fmt::Result {
        Err(fmt::Error)
    }

    fn store(&self, value: Input<'_>) -> Result {
        if value.number()? != 1 {
            return Err(EINVAL);
        }
        STATS.reset();
        Ok(())
    }
}

/// The directories, from the inside out: dropped in this order.
pub(crate) struct Sysfs {
    _clients: [Option<Directory>; 2],
    _parts: [Directory; 3],
    _root: Published,
}

/// The directory that those of GPUs and RDMA devices are added to, as long as this value lives.
struct Published;

impl Drop for Published {
    fn drop(&mut self) {
        peers::clear();
        let root = ROOT.lock().take();
        drop(root);
    }
}

/// Where GPUs and RDMA devices get their directories.
pub(crate) struct Root {
    gpus: Directory,
    devices: Directory,
    // Dropped after what is in it.
    _top: Directory,
}

impl Sysfs {
    /// Makes all that is there from the start.
    pub(crate) fn new(
        mode: &'static CStr,
        driver: GpuDriver,
        core: PeerMemory,
        clients: &[Client],
    ) -> Result<Self> {
        let mut top = Directory::in_kernel(c"nvidia_peermem", 7)?;
        top.file(c"version", Constant(helpers::version()))?;
        top.file(c"mode", Constant(mode))?;
        top.file(c"gpu_driver", Constant(driver.name()))?;
        top.file(c"peer_memory_core", Constant(core.name()))?;
        top.add(c"state", 0o644, State)?;
        top.add(c"max_pinned_bytes", 0o644, MaxPinnedBytes)?;
        top.add(c"stats_reset", 0o200, StatsReset)?;

        let all_clients = top.directory(c"clients", 0)?;
        let mut parts = [None, None];
        for (part, client) in parts.iter_mut().zip(clients) {
            *part = Some(client_directory(&all_clients, *client)?);
        }
        let (stats, failures) = (stats_directory(&top)?, failures_directory(&top)?);
        let root = Root {
            gpus: top.directory(c"gpus", 0)?,
            devices: top.directory(c"devices", 0)?,
            _top: top,
        };
        *ROOT.lock() = Some(root);
        Ok(Self {
            _clients: parts,
            _parts: [all_clients, stats, failures],
            _root: Published,
        })
    }
}

fn client_directory(clients: &Directory, client: Client) -> Result<Directory> {
    let mut directory = clients.directory(client.name(), 8)?;
    let stats = client.stats();
    directory.file(c"version", Constant(helpers::version()))?;
    directory.file(c"num_alloc_mrs", &stats.num_alloc_mrs)?;
    directory.file(c"num_dealloc_mrs", &stats.num_dealloc_mrs)?;
    directory.file(c"num_reg_pages", &stats.num_reg_pages)?;
    directory.file(c"num_dereg_pages", &stats.num_dereg_pages)?;
    directory.file(c"num_reg_bytes", &stats.num_reg_bytes)?;
    directory.file(c"num_dereg_bytes", &stats.num_dereg_bytes)?;
    directory.file(c"num_free_callbacks", &stats.num_free_callbacks)?;
    Ok(directory)
}

fn stats_directory(top: &Directory) -> Result<Directory> {
    let mut directory = top.directory(c"stats", 13)?;
    directory.file(c"active_mrs", &STATS.active_mrs)?;
    directory.file(c"active_bytes", &STATS.active_bytes)?;
    directory.file(c"pinned_bytes", &STATS.pinned_bytes)?;
    directory.file(c"orphans", &STATS.orphans)?;
    directory.file(c"peak_active_mrs", Peak(&STATS.active_mrs))?;
    directory.file(c"peak_active_bytes", Peak(&STATS.active_bytes))?;
    directory.file(c"peak_pinned_bytes", Peak(&STATS.pinned_bytes))?;
    directory.file(c"not_gpu_memory", &STATS.not_gpu_memory)?;
    directory.file(c"invalidations", &STATS.invalidations)?;
    directory.file(c"freed_unmapped", &STATS.freed_unmapped)?;
    directory.file(c"late_callbacks", &STATS.late_callbacks)?;
    directory.file(c"gpu_pages", &STATS.gpu_pages)?;
    directory.file(c"sg_entries", &STATS.sg_entries)?;
    Ok(directory)
}

fn failures_directory(top: &Directory) -> Result<Directory> {
    let mut directory = top.directory(c"failures", Reason::COUNT)?;
    for reason in Reason::ALL {
        if let Some(counter) = STATS.failure(reason) {
            directory.file(reason.name(), counter)?;
        }
    }
    Ok(directory)
}

/// The directory of a GPU.
pub(crate) fn gpu_directory(
    name: &PciName,
    uuid: [u8; GpuIdentity::UUID_LEN],
    figures: &Arc<Figures>,
) -> Result<Directory> {
    let mut directory = {
        let root = ROOT.lock();
        root.as_ref()
            .ok_or(ENODEV)?
            .gpus
            .directory(name.as_c_str(), 4)?
    };
    directory.file(c"uuid", Uuid(uuid))?;
    peer_files(&mut directory, figures)?;
    directory.file(
        c"pinned_bytes",
        Figure {
            figures: figures.clone(),
            which: |figures| &figures.pinned_bytes,
        },
    )?;
    Ok(directory)
}

/// The directory of an RDMA device.
pub(crate) fn device_directory(name: &PciName, figures: &Arc<Figures>) -> Result<Directory> {
    let mut directory = {
        let root = ROOT.lock();
        root.as_ref()
            .ok_or(ENODEV)?
            .devices
            .directory(name.as_c_str(), 2)?
    };
    peer_files(&mut directory, figures)?;
    Ok(directory)
}

fn peer_files(directory: &mut Directory, figures: &Arc<Figures>) -> Result {
    directory.file(
        c"active_mrs",
        Figure {
            figures: figures.clone(),
            which: |figures| &figures.active_mrs,
        },
    )?;
    directory.file(
        c"active_bytes",
        Figure {
            figures: figures.clone(),
            which: |figures| &figures.active_bytes,
        },
    )
}
