// SPDX-License-Identifier: GPL-2.0

//! What is around a registration, as far as its locks go, for threads of loom.
//!
//! The registration runs the module's own functions (`logic::registration`). Around them are, in
//! the order in which they are taken,
//!
//! - G, the core's global mutex, over `acquire`,
//! - L, the module's lock over the GPU driver's get and put,
//! - A, the GPU driver's API lock, which it holds in get and put and while it frees memory, over
//!   the free callback too,
//! - M, one for each memory region of the core: from before `get_pages` to the activation, and in
//!   `invalidate` and `stop`,
//!
//! and each registration's own lock. What the locks must keep in order is [`Watched`].

use std::{
    collections::BTreeMap,
    sync::{
        atomic::{AtomicUsize, Ordering::Relaxed},
        Arc, Mutex as Plain,
    },
    thread::panicking,
};

use loom::{
    cell::UnsafeCell,
    sync::{Condvar, Mutex, MutexGuard},
    thread::{current, ThreadId},
};
use peermem_logic::{
    errno::{Errno, Failure},
    registration::{self, Life, Pages},
};

/// A value whose readers and writers must be ordered by locks: loom complains otherwise, even if
/// they do not meet in the interleaving at hand.
struct Watched<T>(UnsafeCell<T>);

// SAFETY: loom runs one thread at a time.
unsafe impl<T> Sync for Watched<T> {}

impl<T: Copy> Watched<T> {
    fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    fn get(&self) -> T {
        // SAFETY: loom runs one thread at a time, and the reference ends here.
        self.0.with(|value| unsafe { *value })
    }

    fn set(&self, to: T) {
        // SAFETY: As in `get`.
        self.0.with_mut(|value| unsafe { *value = to });
    }
}

/// As the one in rust/registration.rs.
struct Monitor<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Monitor<T> {
    fn new(value: T) -> Self {
        Self {
            value: Mutex::new(value),
            changed: Condvar::new(),
        }
    }
}

impl<T> registration::Monitor for Monitor<T> {
    type Value = T;

    fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut *self.value.lock().unwrap());
        self.changed.notify_all();
        result
    }

    fn update_when<R>(&self, mut change: impl FnMut(&mut T) -> Option<R>) -> R {
        let mut value = self.value.lock().unwrap();
        loop {
            if let Some(result) = change(&mut *value) {
                drop(value);
                self.changed.notify_all();
                return result;
            }
            value = self.changed.wait(value).unwrap();
        }
    }
}

/// What differs from one model to the other.
#[derive(Clone, Copy)]
pub struct Rules {
    /// The core has flag UNMAPS (`peerdirect_support=0`).
    pub unmaps: bool,
    /// The core has not, and releases from within the invalidation (MLNX_OFED 4.9).
    pub releases: bool,
    /// `dma_map` works.
    pub maps: bool,
    /// The driver of the RDMA device gets as far as the activation.
    pub activates: bool,
    /// The GPU driver's put works.
    pub puts: bool,
    /// The pages can be used.
    pub usable: bool,
    /// There is L.
    pub turns: bool,
    /// How often the callback comes.
    pub callbacks: usize,
    /// Unloading waits for callbacks.
    pub waits: bool,
}

pub const RULES: Rules = Rules {
    unmaps: true,
    releases: false,
    maps: true,
    activates: true,
    puts: true,
    usable: true,
    turns: true,
    callbacks: 1,
    waits: true,
};

/// By number.
pub type Memory = usize;

/// The process that pins. The number of another is told to [`as_process`].
const OWNER: usize = 1;

loom::thread_local! {
    static PROCESS: AtomicUsize = AtomicUsize::new(OWNER);
}

/// From here on, this thread is of that process.
pub fn as_process(number: usize) {
    PROCESS.with(|process| process.store(number, Relaxed));
}

fn current_process() -> usize {
    PROCESS.with(|process| process.load(Relaxed))
}

/// A page table of the GPU driver's.
struct Table {
    address: usize,
    memory: Memory,
    ticket: u64,
    alive: Watched<bool>,
    /// Whether somebody mapped its pages.
    mapped: Watched<bool>,
}

impl Table {
    /// The driver frees it; the memory may be somebody else's in a moment.
    fn end(&self) {
        assert!(!self.mapped.get(), "memory is let go with a DMA mapping");
        self.alive.set(false);
    }
}

/// Behind A.
struct Driver {
    freed: Vec<Memory>,
    tables: Vec<Arc<Table>>,
}

/// Behind G.
struct Client {
    registered: bool,
    /// How many regions use it.
    users: usize,
}

struct Module {
    references: usize,
    going: bool,
}

/// A reference to the module.
struct ModuleRef(Arc<World>);

impl ModuleRef {
    fn get(world: &Arc<World>) -> Option<Self> {
        let mut module = world.module.lock().unwrap();
        if module.going {
            return None;
        }
        module.references += 1;
        Some(Self(world.clone()))
    }
}

impl Drop for ModuleRef {
    fn drop(&mut self) {
        if !panicking() {
            self.0.module.lock().unwrap().references -= 1;
        }
    }
}

pub struct World {
    rules: Rules,
    /// G.
    client: Mutex<Client>,
    /// Woken when users become fewer.
    released: Condvar,
    /// L.
    tables: Mutex<()>,
    /// A.
    driver: Mutex<Driver>,
    tickets: Mutex<BTreeMap<u64, Arc<Registration>>>,
    last_ticket: AtomicUsize,
    /// The core's regions by what it calls them.
    regions: Mutex<BTreeMap<u64, Arc<Region>>>,
    /// What is mapped, by ticket, and whether the RDMA device does DMA there.
    mapped: Plain<BTreeMap<u64, bool>>,
    module: Mutex<Module>,
    /// Whether the module's code is there.
    text: Watched<bool>,
}

impl World {
    pub fn new(rules: Rules) -> Arc<Self> {
        Arc::new(Self {
            rules,
            client: Mutex::new(Client {
                registered: true,
                users: 0,
            }),
            released: Condvar::new(),
            tables: Mutex::new(()),
            driver: Mutex::new(Driver {
                freed: Vec::new(),
                tables: Vec::new(),
            }),
            tickets: Mutex::new(BTreeMap::new()),
            last_ticket: AtomicUsize::new(0),
            regions: Mutex::new(BTreeMap::new()),
            mapped: Plain::new(BTreeMap::new()),
            module: Mutex::new(Module {
                references: 0,
                going: false,
            }),
            text: Watched::new(true),
        })
    }

    fn executes_module(&self) {
        assert!(self.text.get(), "the module's code is gone");
    }

    /// How many pins there are.
    pub fn pins(&self) -> usize {
        self.driver.lock().unwrap().tables.len()
    }

    /// At the end of a model.
    pub fn nothing_is_left(&self) {
        assert_eq!(self.pins(), 0, "pins");
        assert!(self.mapped.lock().unwrap().is_empty(), "mappings");
        assert!(self.tickets.lock().unwrap().is_empty(), "tickets");
        assert_eq!(self.module.lock().unwrap().references, 0, "references");
        assert_eq!(self.client.lock().unwrap().users, 0, "users");
        assert!(self.regions.lock().unwrap().is_empty(), "regions");
    }
}

// The GPU driver.
impl World {
    /// nvidia_p2p_get_pages.
    fn get(&self, memory: Memory, ticket: u64) -> Option<Arc<Table>> {
        let mut driver = self.driver.lock().unwrap();
        if driver.freed.contains(&memory) {
            return None;
        }
        // An address that was used before, if there is one.
        let address = (0..)
            .find(|&address| driver.tables.iter().all(|table| table.address != address))
            .unwrap();
        let table = Arc::new(Table {
            address,
            memory,
            ticket,
            alive: Watched::new(true),
            mapped: Watched::new(false),
        });
        driver.tables.push(table.clone());
        Some(table)
    }

    /// nvidia_p2p_put_pages, which knows a table by its address.
    fn put(&self, pin: &Pin) -> bool {
        let mut driver = self.driver.lock().unwrap();
        if !self.rules.puts {
            return false;
        }
        assert_eq!(current_process(), OWNER, "put in another process");
        let address = pin.table.address;
        let found = driver.tables.iter().position(|t| t.address == address);
        if let Some(found) = found {
            let table = driver.tables.remove(found);
            assert!(
                Arc::ptr_eq(&table, &pin.table),
                "somebody else's pin is put"
            );
            table.end();
        }
        true
    }

    /// The application, or the end of its process, frees the memory.
    pub fn free(&self, memory: Memory) {
        let mut driver = self.driver.lock().unwrap();
        for table in &driver.tables {
            if table.memory == memory {
                for _ in 0..self.rules.callbacks {
                    self.free_callback(table.ticket);
                }
                table.end();
            }
        }
        driver.tables.retain(|table| table.memory != memory);
        driver.freed.push(memory);
    }
}

/// As `RevocablePages` of rust/ffi/nvidia_p2p/revocable.rs.
struct Pin {
    world: Arc<World>,
    table: Arc<Table>,
    owner: usize,
}

impl Pin {
    fn new(world: &Arc<World>, memory: Memory, ticket: u64) -> Option<Self> {
        let turn = world.turn();
        let table = world.get(memory, ticket);
        drop(turn);
        let table = table?;
        assert!(table.alive.get(), "addresses are copied from a dead table");
        Some(Self {
            world: world.clone(),
            table,
            owner: current_process(),
        })
    }
}

impl Pages for Pin {
    type Device = ();
    type Mapped = Mapping;
    type List = ();

    fn map(self, (): ()) -> Result<(Mapping, ()), (Self, Failure)> {
        assert!(self.table.alive.get(), "memory that is gone is mapped");
        if !self.world.rules.maps {
            return Err((self, Failure::Map(Errno::EIO)));
        }
        self.table.mapped.set(true);
        let mut mapped = self.world.mapped.lock().unwrap();
        assert_eq!(mapped.insert(self.table.ticket, false), None);
        drop(mapped);
        Ok((Mapping(self), ()))
    }

    fn unmap(mapping: Mapping) -> Self {
        let Mapping(pin) = mapping;
        pin.table.mapped.set(false);
        let dma = pin.world.mapped.lock().unwrap().remove(&pin.table.ticket);
        assert_eq!(dma, Some(false), "unmapped once, and not under DMA");
        pin
    }

    fn unpin(self, due: impl FnOnce() -> bool) -> Result<(), Self> {
        if self.owner != current_process() {
            return Err(self);
        }
        let turn = self.world.turn();
        let gone = !due() || self.world.put(&self);
        drop(turn);
        if gone {
            Ok(())
        } else {
            Err(self)
        }
    }
}

struct Mapping(Pin);

/// As in rust/registration.rs.
struct Registration {
    world: Arc<World>,
    ticket: u64,
    life: Monitor<Life<Pin>>,
    revoker: Plain<Option<ThreadId>>,
    _module: ModuleRef,
}

// The module. rust/registration.rs, rust/client.rs, rust/registry.rs.
impl World {
    fn turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.rules.turns.then(|| self.tables.lock().unwrap())
    }

    fn acquire(self: &Arc<Self>, memory: Memory) -> Option<Arc<Registration>> {
        self.executes_module();
        let module = ModuleRef::get(self)?;
        let ticket = self.last_ticket.fetch_add(1, Relaxed) as u64;
        let registration = Arc::new(Registration {
            world: self.clone(),
            ticket,
            life: Monitor::new(Life::pinning()),
            revoker: Plain::new(None),
            _module: module,
        });
        let target = registration.clone();
        self.tickets.lock().unwrap().insert(ticket, target);
        let Some(pin) = Pin::new(self, memory, ticket) else {
            registration::pin_failed(&registration.life);
            self.close(ticket);
            return None;
        };
        registration::pinned(&registration.life, pin);
        if !self.rules.usable {
            registration.release();
            return None;
        }
        Some(registration)
    }

    fn close(&self, ticket: u64) {
        let target = self.tickets.lock().unwrap().remove(&ticket);
        drop(target);
    }

    fn free_callback(&self, ticket: u64) {
        self.executes_module();
        let target = self.tickets.lock().unwrap().get(&ticket).cloned();
        if let Some(target) = target {
            target.revoke();
        }
        self.executes_module();
    }
}

impl Registration {
    fn dma_unmap_and_put(&self) {
        registration::dma_unmap(&self.life).unwrap();
        registration::put_pages(&self.life).unwrap();
    }

    fn release(&self) {
        if *self.revoker.lock().unwrap() == Some(current().id()) {
            return;
        }
        if registration::release(&self.life) {
            self.world.close(self.ticket);
        }
    }

    fn revoke(&self) {
        *self.revoker.lock().unwrap() = Some(current().id());
        registration::freed(&self.life, |region| self.world.invalidate(region));
        *self.revoker.lock().unwrap() = None;
        self.world.close(self.ticket);
    }
}

#[derive(Clone, Copy, PartialEq)]
enum RegionState {
    Unmapped,
    Mapped,
    Invalidated,
}

/// A memory region of the core's.
pub struct Region {
    world: Arc<World>,
    number: u64,
    /// Given back with `release`.
    registration: Plain<Option<Arc<Registration>>>,
    /// M.
    state: Mutex<RegionState>,
}

// The core, of DOCA-OFED 25.10. tests/modules/ib_peer_mem/umem.c has the same at length.
impl World {
    /// What `ibv_reg_mr` begins with: `None` if the memory is nobody's.
    pub fn claim(self: &Arc<Self>, memory: Memory) -> Option<Arc<Region>> {
        let mut client = self.client.lock().unwrap();
        if !client.registered {
            return None;
        }
        let registration = self.acquire(memory)?;
        client.users += 1;
        Some(Arc::new(Region {
            world: self.clone(),
            number: registration.ticket,
            registration: Plain::new(Some(registration)),
            state: Mutex::new(RegionState::Unmapped),
        }))
    }

    fn invalidate(&self, number: u64) {
        let region = self.regions.lock().unwrap().get(&number).cloned();
        if let Some(region) = region {
            region.invalidate();
        }
    }

    /// `rmmod`: `false` if the module is in use.
    pub fn unload(&self) -> bool {
        {
            let mut module = self.module.lock().unwrap();
            if module.references > 0 {
                return false;
            }
            module.going = true;
        }
        // ib_unregister_peer_memory_client
        let mut client = self.client.lock().unwrap();
        client.registered = false;
        while client.users > 0 {
            client = self.released.wait(client).unwrap();
        }
        drop(client);
        // What was not counted: a callback that gave back the last reference.
        if self.rules.waits {
            drop(self.driver.lock().unwrap());
        }
        self.text.set(false);
        true
    }
}

impl Region {
    fn registration(&self) -> Arc<Registration> {
        self.registration.lock().unwrap().clone().unwrap()
    }

    /// What `ibv_reg_mr` goes on with. If it fails there is no region.
    pub fn map(self: &Arc<Self>) -> bool {
        let registration = self.registration();
        let mut state = self.state.lock().unwrap();
        let regions = &self.world.regions;
        regions.lock().unwrap().insert(self.number, self.clone());
        let mut result = registration::get_pages(&registration.life, self.number);
        if result.is_ok() {
            result = registration::dma_map(&registration.life, (), |()| {});
            if result.is_err() {
                registration::put_pages(&registration.life).unwrap();
            }
        }
        if result.is_err() {
            drop(registration);
            regions.lock().unwrap().remove(&self.number);
            drop(state);
            self.release();
            return false;
        }
        *state = RegionState::Mapped;
        if !self.world.rules.activates {
            drop(registration);
            self.stop(state);
            self.end();
            return false;
        }
        self.begin_dma();
        true
    }

    fn invalidate(&self) {
        let mut state = self.state.lock().unwrap();
        if *state != RegionState::Mapped {
            return;
        }
        self.end_dma();
        if self.world.rules.unmaps {
            *state = RegionState::Invalidated;
        } else {
            self.registration().dma_unmap_and_put();
            *state = RegionState::Unmapped;
            if self.world.rules.releases {
                self.release();
            }
        }
    }

    /// `ibv_dereg_mr`.
    pub fn deregister(&self) {
        self.end_dma();
        self.stop(self.state.lock().unwrap());
        self.end();
    }

    fn begin_dma(&self) {
        let mut mapped = self.world.mapped.lock().unwrap();
        *mapped.get_mut(&self.number).expect("DMA without mapping") = true;
    }

    fn end_dma(&self) {
        if let Some(dma) = self.world.mapped.lock().unwrap().get_mut(&self.number) {
            *dma = false;
        }
    }

    fn stop(&self, mut state: MutexGuard<'_, RegionState>) {
        let mapped = *state == RegionState::Mapped;
        let unmap = || {
            if mapped {
                self.registration().dma_unmap_and_put();
            }
        };
        if self.world.rules.unmaps {
            *state = RegionState::Unmapped;
            drop(state);
            unmap();
        } else {
            unmap();
            *state = RegionState::Unmapped;
        }
    }

    fn end(&self) {
        self.world.regions.lock().unwrap().remove(&self.number);
        self.release();
    }

    /// Without the rest if the region never came into being.
    pub fn release(&self) {
        let Some(registration) = self.registration.lock().unwrap().take() else {
            assert!(self.world.rules.releases, "released twice");
            return;
        };
        self.world.executes_module();
        registration.release();
        drop(registration);
        self.world.executes_module();
        let mapped = self.world.mapped.lock().unwrap();
        let inside = self.world.rules.releases;
        assert!(
            inside || !mapped.contains_key(&self.number),
            "released with a DMA mapping"
        );
        drop(mapped);
        self.world.client.lock().unwrap().users -= 1;
        self.world.released.notify_all();
    }
}
