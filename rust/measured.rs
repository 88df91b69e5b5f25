// SPDX-License-Identifier: GPL-2.0

//! Pins of any kind, with their figures kept.
//!
//! What is pinned or mapped is counted by values that live as long as the pin or the mapping does,
//! so the gauges are right on every path.

use kernel::sync::Arc;
use peermem_logic::{
    errno::Failure,
    range::GPU_PAGE_SIZE,
    registration::Pages, //
};

use crate::{
    ffi::{
        clock::Moment,
        device::PciDevice,
        scatterlist::ScatterList, //
    },
    peers::{
        self,
        Peer, //
    },
    stats::{
        ClientStats,
        Gauge,
        Latency,
        STATS, //
    },
};

/// A pin in the gauges of pinned memory.
struct PinCount {
    gpu: Option<Arc<Peer>>,
    bytes: u64,
    orphan: bool,
}

impl PinCount {
    fn gauges(&self) -> impl Iterator<Item = &Gauge> {
        let gpu = self.gpu.as_ref().map(|gpu| &gpu.figures.pinned_bytes);
        [Some(&STATS.pinned_bytes), gpu].into_iter().flatten()
    }

    fn new(gpu: Option<Arc<Peer>>, bytes: u64) -> Self {
        let this = Self {
            gpu,
            bytes,
            orphan: false,
        };
        for gauge in this.gauges() {
            gauge.add(bytes);
        }
        this
    }

    fn orphan(&mut self) {
        self.orphan = true;
        STATS.orphans.add(1);
    }
}

impl Drop for PinCount {
    fn drop(&mut self) {
        for gauge in self.gauges() {
            gauge.sub(self.bytes);
        }
        if self.orphan {
            STATS.orphans.sub(1);
        }
    }
}

/// A mapping in the gauges and counters of memory regions.
struct MapCount {
    client: &'static ClientStats,
    gpu: Option<Arc<Peer>>,
    device: Option<Arc<Peer>>,
    size: u64,
    pages: u64,
}

impl MapCount {
    /// Pairs of gauges: regions, bytes.
    fn gauges(&self) -> impl Iterator<Item = (&Gauge, &Gauge)> {
        let all = (&STATS.active_mrs, &STATS.active_bytes);
        let peers = [&self.gpu, &self.device].into_iter().flatten();
        let peers = peers.map(|peer| (&peer.figures.active_mrs, &peer.figures.active_bytes));
        [all].into_iter().chain(peers)
    }

    fn start(self) -> Self {
        for (mrs, bytes) in self.gauges() {
            mrs.add(1);
            bytes.add(self.size);
        }
        self.client.num_alloc_mrs.add(1);
        self.client.num_reg_pages.add(self.pages);
        self.client.num_reg_bytes.add(self.size);
        STATS.gpu_pages.add(self.pages);
        self
    }
}

impl Drop for MapCount {
    fn drop(&mut self) {
        for (mrs, bytes) in self.gauges() {
            mrs.sub(1);
            bytes.sub(self.size);
        }
        self.client.num_dealloc_mrs.add(1);
        self.client.num_dereg_pages.add(self.pages);
        self.client.num_dereg_bytes.add(self.size);
    }
}

/// Whose pages they are, for the figures; it goes wherever they go.
struct Account {
    pin: PinCount,
    client: &'static ClientStats,
    /// Of the registration, in bytes, not rounded.
    size: u64,
}

impl Account {
    fn mapped(&self, device: Option<Arc<Peer>>) -> MapCount {
        MapCount {
            client: self.client,
            gpu: self.pin.gpu.clone(),
            device,
            size: self.size,
            pages: self.pin.bytes / GPU_PAGE_SIZE,
        }
        .start()
    }
}

/// Pinned pages of a registration.
pub(crate) struct Measured<P> {
    pages: P,
    account: Account,
}

/// A device to map for, and its figures.
pub(crate) struct Device {
    pci: PciDevice,
    peer: Option<Arc<Peer>>,
}

impl Device {
    /// Finds the figures. Sleeps.
    pub(crate) fn new(pci: PciDevice) -> Self {
        let peer = peers::device(&pci);
        Self { pci, peer }
    }

    /// Its figures.
    pub(crate) fn peer(&self) -> Option<&Arc<Peer>> {
        self.peer.as_ref()
    }
}

/// Measured pages, mapped.
pub(crate) struct MeasuredMapping<P: Pages> {
    mapped: P::Mapped,
    // Dropped with it.
    _map: MapCount,
    account: Account,
}

impl<P> Measured<P> {
    /// `pages`, of `bytes`, pinned on `gpu` for `size` bytes of a registration with `client`.
    pub(crate) fn new(
        pages: P,
        bytes: u64,
        gpu: Option<Arc<Peer>>,
        client: &'static ClientStats,
        size: u64,
    ) -> Self {
        Self {
            pages,
            account: Account {
                pin: PinCount::new(gpu, bytes),
                client,
                size,
            },
        }
    }
}

/// Runs `call`, and notes how long it took.
pub(crate) fn timed<R>(latency: &Latency, call: impl FnOnce() -> R) -> R {
    let start = Moment::now();
    let result = call();
    latency.note(start.elapsed());
    result
}

impl<P: Pages<Device = PciDevice, List = ScatterList>> Pages for Measured<P> {
    type Device = Device;
    type Mapped = MeasuredMapping<P>;
    type List = ScatterList;

    fn map(self, device: Device) -> Result<(Self::Mapped, ScatterList), (Self, Failure)> {
        let Self { pages, account } = self;
        match timed(&STATS.map, || pages.map(device.pci)) {
            Ok((mapped, list)) => {
                STATS.sg_entries.add(list.entries().into());
                let mapping = MeasuredMapping {
                    mapped,
                    _map: account.mapped(device.peer),
                    account,
                };
                Ok((mapping, list))
            }
            Err((pages, failure)) => Err((Self { pages, account }, failure)),
        }
    }

    fn unmap(mapping: Self::Mapped) -> Self {
        let mapped = mapping.mapped;
        Self {
            pages: timed(&STATS.unmap, || P::unmap(mapped)),
            account: mapping.account,
        }
    }

    fn unpin(self, due: impl FnOnce() -> bool) -> Result<(), Self> {
        let Self { pages, mut account } = self;
        timed(&STATS.unpin, || pages.unpin(due)).map_err(|pages| {
            account.pin.orphan();
            Self { pages, account }
        })
    }
}
