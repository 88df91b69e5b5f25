// SPDX-License-Identifier: GPL-2.0

//! Counters, gauges and latency histograms. Everything here is atomic: counting never waits for
//! reading.

use kernel::sync::atomic::{
    Atomic,
    Relaxed, //
};
use peermem_logic::{
    histogram::{
        bucket,
        BUCKETS, //
    },
    reason::Reason, //
};

/// A number that only grows, until it is reset.
pub(crate) struct Counter(Atomic<u64>);

impl Counter {
    pub(crate) const fn new() -> Self {
        Self(Atomic::new(0))
    }

    pub(crate) fn add(&self, n: u64) {
        self.0.add(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

/// A number that grows and shrinks, and the most that it was since the last reset.
pub(crate) struct Gauge {
    now: Atomic<u64>,
    peak: Atomic<u64>,
}

impl Gauge {
    pub(crate) const fn new() -> Self {
        Self {
            now: Atomic::new(0),
            peak: Atomic::new(0),
        }
    }

    /// Returns the new value.
    pub(crate) fn add(&self, n: u64) -> u64 {
        let now = self.now.fetch_add(n, Relaxed).wrapping_add(n);
        self.raise_peak(now);
        now
    }

    pub(crate) fn sub(&self, n: u64) {
        self.now.fetch_sub(n, Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.now.load(Relaxed)
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Relaxed)
    }

    fn raise_peak(&self, now: u64) {
        let mut peak = self.peak.load(Relaxed);
        while peak < now {
            match self.peak.cmpxchg(peak, now, Relaxed) {
                Ok(_) => break,
                Err(other) => peak = other,
            }
        }
    }

    fn reset_peak(&self) {
        self.peak.store(0, Relaxed);
        self.raise_peak(self.get());
    }
}

/// What a client did; the names are those of OFED's `/sys/kernel/mm/memory_peers`.
pub(crate) struct ClientStats {
    pub(crate) num_alloc_mrs: Counter,
    pub(crate) num_dealloc_mrs: Counter,
    /// Pages of 64 KiB, and so in all that follows.
    pub(crate) num_reg_pages: Counter,
    pub(crate) num_dereg_pages: Counter,
    /// Bytes as the application asked for, not rounded.
    pub(crate) num_reg_bytes: Counter,
    pub(crate) num_dereg_bytes: Counter,
    pub(crate) num_free_callbacks: Counter,
}

impl ClientStats {
    const fn new() -> Self {
        Self {
            num_alloc_mrs: Counter::new(),
            num_dealloc_mrs: Counter::new(),
            num_reg_pages: Counter::new(),
            num_dereg_pages: Counter::new(),
            num_reg_bytes: Counter::new(),
            num_dereg_bytes: Counter::new(),
            num_free_callbacks: Counter::new(),
        }
    }

    fn counters(&self) -> [&Counter; 7] {
        [
            &self.num_alloc_mrs,
            &self.num_dealloc_mrs,
            &self.num_reg_pages,
            &self.num_dereg_pages,
            &self.num_reg_bytes,
            &self.num_dereg_bytes,
            &self.num_free_callbacks,
        ]
    }
}

/// How long the calls of one kind took, in ns.
pub(crate) struct Latency {
    pub(crate) count: Counter,
    pub(crate) sum: Counter,
    max: Gauge,
    pub(crate) buckets: [Counter; BUCKETS],
}

impl Latency {
    const fn new() -> Self {
        Self {
            count: Counter::new(),
            sum: Counter::new(),
            max: Gauge::new(),
            buckets: [const { Counter::new() }; BUCKETS],
        }
    }

    /// Notes one call.
    pub(crate) fn note(&self, ns: u64) {
        self.count.add(1);
        self.sum.add(ns);
        self.max.raise_peak(ns);
        if let Some(bucket) = self.buckets.get(bucket(ns)) {
            bucket.add(1);
        }
    }

    /// The longest of them.
    pub(crate) fn max(&self) -> u64 {
        self.max.peak()
    }

    fn reset(&self) {
        self.count.reset();
        self.sum.reset();
        self.max.reset_peak();
        self.buckets.iter().for_each(Counter::reset);
    }
}

/// All figures of the module that belong to no GPU or RDMA device.
pub(crate) struct Stats {
    /// `nv_mem`.
    pub(crate) client: ClientStats,
    /// `nv_mem_nc`.
    pub(crate) client_nc: ClientStats,
    pub(crate) active_mrs: Gauge,
    pub(crate) active_bytes: Gauge,
    pub(crate) pinned_bytes: Gauge,
    pub(crate) orphans: Gauge,
    pub(crate) not_gpu_memory: Counter,
    pub(crate) invalidations: Counter,
    pub(crate) freed_unmapped: Counter,
    pub(crate) late_callbacks: Counter,
    pub(crate) gpu_pages: Counter,
    pub(crate) sg_entries: Counter,
    failures: [Counter; Reason::COUNT],
    pub(crate) pin: Latency,
    pub(crate) map: Latency,
    pub(crate) unmap: Latency,
    pub(crate) unpin: Latency,
}

impl Stats {
    const fn new() -> Self {
        Self {
            client: ClientStats::new(),
            client_nc: ClientStats::new(),
            active_mrs: Gauge::new(),
            active_bytes: Gauge::new(),
            pinned_bytes: Gauge::new(),
            orphans: Gauge::new(),
            not_gpu_memory: Counter::new(),
            invalidations: Counter::new(),
            freed_unmapped: Counter::new(),
            late_callbacks: Counter::new(),
            gpu_pages: Counter::new(),
            sg_entries: Counter::new(),
            failures: [const { Counter::new() }; Reason::COUNT],
            pin: Latency::new(),
            map: Latency::new(),
            unmap: Latency::new(),
            unpin: Latency::new(),
        }
    }

    /// How often something failed for this reason.
    pub(crate) fn failure(&self, reason: Reason) -> Option<&Counter> {
        self.failures.get(reason as usize)
    }

    /// Counters and histograms start again from 0, peaks from what is now. A count that is made
    /// meanwhile is in or out, but not lost in part.
    pub(crate) fn reset(&self) {
        for client in [&self.client, &self.client_nc] {
            client.counters().into_iter().for_each(Counter::reset);
        }
        for gauge in [
            &self.active_mrs,
            &self.active_bytes,
            &self.pinned_bytes,
            &self.orphans,
        ] {
            gauge.reset_peak();
        }
        for counter in [
            &self.not_gpu_memory,
            &self.invalidations,
            &self.freed_unmapped,
            &self.late_callbacks,
            &self.gpu_pages,
            &self.sg_entries,
        ] {
            counter.reset();
        }
        self.failures.iter().for_each(Counter::reset);
        for latency in [&self.pin, &self.map, &self.unmap, &self.unpin] {
            latency.reset();
        }
    }
}

/// The figures of this module.
pub(crate) static STATS: Stats = Stats::new();

/// What the administrator wants, as sysfs shows and takes it.
pub(crate) struct Settings {
    draining: Atomic<u32>,
    max_pinned_bytes: Atomic<u64>,
}

/// The settings of this module.
pub(crate) static SETTINGS: Settings = Settings {
    draining: Atomic::new(0),
    max_pinned_bytes: Atomic::new(0),
};

impl Settings {
    /// No new registrations?
    pub(crate) fn draining(&self) -> bool {
        self.draining.load(Relaxed) != 0
    }

    pub(crate) fn set_draining(&self, draining: bool) {
        self.draining.store(u32::from(draining), Relaxed);
    }

    /// 0 if there is no limit.
    pub(crate) fn max_pinned_bytes(&self) -> u64 {
        self.max_pinned_bytes.load(Relaxed)
    }

    pub(crate) fn set_max_pinned_bytes(&self, bytes: u64) {
        self.max_pinned_bytes.store(bytes, Relaxed);
    }
}
