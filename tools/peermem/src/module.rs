// SPDX-License-Identifier: GPL-2.0

//! What the module tells in `/sys/kernel/nvidia_peermem`. The fields are called as the files, and so
//! are the keys in JSON.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::failure::{Exit, Failure, Outcome};
use crate::root::{Read, Root};

/// Where the module's files are.
pub const SYSFS: &str = "/sys/kernel/nvidia_peermem";

/// A directory of files that each hold one number.
macro_rules! numbers {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: u64,)*
        }

        impl $name {
            fn read(directory: &Directory<'_>) -> Outcome<Self> {
                Ok(Self { $($field: directory.number(stringify!($field))?,)* })
            }
        }
    };
}

numbers! {
    /// All registrations together.
    Stats {
        /// Registrations that are mapped now.
        active_mrs,
        /// Their bytes.
        active_bytes,
        /// Bytes of whole pages that are pinned now.
        pinned_bytes,
        /// Pins that stay until their memory is freed.
        orphans,
        /// Most registrations at once.
        peak_active_mrs,
        /// Most bytes at once.
        peak_active_bytes,
        /// Most pinned bytes at once.
        peak_pinned_bytes,
        /// Ranges asked about that are not GPU memory.
        not_gpu_memory,
        /// Memory freed while it was mapped.
        invalidations,
        /// Memory freed while it was pinned, but not mapped.
        freed_unmapped,
        /// Memory freed whose registration was gone.
        late_callbacks,
        /// Pages of 64 KiB that were mapped.
        gpu_pages,
        /// Scatterlist entries made of them.
        sg_entries,
    }
}

numbers! {
    /// The counters of a client of the peer-memory core.
    Counters {
        /// Registrations mapped.
        num_alloc_mrs,
        /// Registrations that no longer are.
        num_dealloc_mrs,
        /// Their pages of 64 KiB.
        num_reg_pages,
        /// Pages that no longer are.
        num_dereg_pages,
        /// Their bytes, as the application asked.
        num_reg_bytes,
        /// Bytes that no longer are.
        num_dereg_bytes,
        /// Calls by the GPU driver that memory is freed.
        num_free_callbacks,
    }
}

numbers! {
    /// What is registered of a GPU.
    GpuGauges {
        /// Registrations that are mapped now.
        active_mrs,
        /// Their bytes.
        active_bytes,
        /// Bytes of whole pages that are pinned now.
        pinned_bytes,
    }
}

numbers! {
    /// What is registered for an RDMA device.
    DeviceGauges {
        /// Registrations that are mapped now.
        active_mrs,
        /// Their bytes.
        active_bytes,
    }
}

/// A client of the peer-memory core.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Client {
    /// Its version.
    pub version: String,
    /// Its counters.
    #[serde(flatten)]
    pub counters: Counters,
}

/// A GPU of which memory was registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gpu {
    /// As `nvidia-smi -L` shows it.
    pub uuid: String,
    /// What is registered.
    #[serde(flatten)]
    pub gauges: GpuGauges,
}

/// All that the module tells, read at one time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Snapshot {
    /// Version of the module.
    pub version: String,
    /// `persistent` or `revocable`.
    pub mode: String,
    /// The module that pins GPU memory.
    pub gpu_driver: String,
    /// Its version; none if it has none.
    pub gpu_driver_version: Option<String>,
    /// The module that has the peer-memory API.
    pub peer_memory_core: String,
    /// `live` or `drain`.
    pub state: String,
    /// The limit; 0 is none.
    pub max_pinned_bytes: u64,
    /// The clients, by name.
    pub clients: BTreeMap<String, Client>,
    /// All registrations together.
    pub stats: Stats,
    /// Failed registrations, by reason.
    pub failures: BTreeMap<String, u64>,
    /// GPUs, by PCI address.
    pub gpus: BTreeMap<String, Gpu>,
    /// RDMA devices, by PCI address.
    pub devices: BTreeMap<String, DeviceGauges>,
}

impl Snapshot {
    /// Reads it all. Fails if the module is not loaded.
    pub fn read(root: &Root) -> Outcome<Self> {
        let directory = Directory::top(root)?;
        let gpu_driver = directory.text("gpu_driver")?;
        Ok(Self {
            version: directory.text("version")?,
            mode: directory.text("mode")?,
            gpu_driver_version: root.value(&format!("/sys/module/{gpu_driver}/version")),
            gpu_driver,
            peer_memory_core: directory.text("peer_memory_core")?,
            state: directory.text("state")?,
            max_pinned_bytes: directory.number("max_pinned_bytes")?,
            clients: directory.each("clients", read_client)?,
            stats: Stats::read(&directory.below("stats"))?,
            failures: directory.numbers("failures")?,
            gpus: directory.each("gpus", read_gpu)?,
            devices: directory.each("devices", DeviceGauges::read)?,
        })
    }

    /// Whether new registrations are refused.
    pub fn drains(&self) -> bool {
        self.state == "drain"
    }

    /// Registrations that failed, for whatever reason.
    pub fn failed(&self) -> u64 {
        self.failures.values().sum()
    }

    /// A counter of all clients together.
    pub fn total(&self, counter: impl Fn(&Counters) -> u64) -> u64 {
        self.clients
            .values()
            .map(|client| counter(&client.counters))
            .sum()
    }
}

/// Whether the module is loaded.
pub fn is_loaded(root: &Root) -> bool {
    root.exists(SYSFS)
}

/// What every command says that needs the module.
pub fn not_loaded() -> Failure {
    Failure::new(
        Exit::NotLoaded,
        "nvidia_peermem is not loaded (`peermem status` says why)",
    )
}

fn read_client(directory: &Directory<'_>) -> Outcome<Client> {
    Ok(Client {
        version: directory.text("version")?,
        counters: Counters::read(directory)?,
    })
}

fn read_gpu(directory: &Directory<'_>) -> Outcome<Gpu> {
    Ok(Gpu {
        uuid: directory.text("uuid")?,
        gauges: GpuGauges::read(directory)?,
    })
}

/// A directory of the module's files.
struct Directory<'a> {
    root: &'a Root,
    path: String,
}

impl<'a> Directory<'a> {
    fn top(root: &'a Root) -> Outcome<Self> {
        match is_loaded(root) {
            true => Ok(Self {
                root,
                path: SYSFS.to_owned(),
            }),
            false => Err(not_loaded()),
        }
    }

    fn below(&self, name: &str) -> Self {
        Self {
            root: self.root,
            path: format!("{}/{name}", self.path),
        }
    }

    fn text(&self, name: &str) -> Outcome<String> {
        let path = format!("{}/{name}", self.path);
        match self.root.read(&path) {
            // It goes to terminals.
            Read::Contents(text) => Ok(text.trim().replace(char::is_control, "?")),
            Read::Missing if !is_loaded(self.root) => Err(not_loaded()),
            Read::Missing => Err(Failure::error(format!(
                "{path} is missing: peermem and the module are of different versions"
            ))),
            Read::Denied => Err(Failure::new(
                Exit::Permission,
                format!("{path} may not be read"),
            )),
            Read::Failed(error) => Err(Failure::error(format!("{path}: {error}"))),
        }
    }

    fn number(&self, name: &str) -> Outcome<u64> {
        let text = self.text(name)?;
        text.parse()
            .map_err(|_| Failure::error(format!("{}/{name}: not a number: {text}", self.path)))
    }

    fn numbers(&self, name: &str) -> Outcome<BTreeMap<String, u64>> {
        let directory = self.below(name);
        self.root
            .names(&directory.path)
            .into_iter()
            .map(|file| Ok((file.clone(), directory.number(&file)?)))
            .collect()
    }

    fn each<T>(
        &self,
        name: &str,
        read: impl Fn(&Directory<'_>) -> Outcome<T>,
    ) -> Outcome<BTreeMap<String, T>> {
        let directory = self.below(name);
        self.root
            .names(&directory.path)
            .into_iter()
            .map(|entry| Ok((entry.clone(), read(&directory.below(&entry))?)))
            .collect()
    }
}
