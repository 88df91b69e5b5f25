// SPDX-License-Identifier: GPL-2.0

//! A client of the RDMA core's peer-memory API, as a trait.
//!
//! C header: `include/peer_mem.h`. The core calls, for each registration and in this order:
//! `acquire` (under its global mutex), `get_pages`, `dma_map`, `get_page_size`, later `dma_unmap`,
//! `put_pages`, `release`. All may sleep.

use core::{
    marker::PhantomData,
    mem::offset_of,
    ptr::{self, NonNull},
};

use kernel::{
    bindings,
    fmt,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow,
        SetOnce, //
    },
    types::ForeignOwnable, //
};
use peermem_logic::{
    errno::Errno,
    range::GPU_PAGE_SIZE, //
};

use super::{
    device::PciDevice,
    helpers,
    module::ModuleRef,
    providers::PeerMemory,
    scatterlist::ScatterList, //
};

/// What [`PeerMemoryClient::acquire`] says about a range.
pub(crate) enum Claim<R> {
    /// Not this client's memory; the core asks the next client.
    NotMine,
    /// This client's memory.
    Mine(R),
    /// This client's memory, but it cannot be registered; `get_pages` will return this.
    Refused(Errno),
}

/// Memory that an RDMA device can be given access to.
///
/// The core never calls two methods for one registration at the same time, but implementations
/// do not rely on it: it costs one lock, and cores differ.
pub(crate) trait PeerMemoryClient {
    /// Name of the client in the core.
    const NAME: &'static CStr;

    /// Whether the memory can go away while it is registered. The client then calls
    /// [`Invalidation::invalidate`], and is not asked for what cannot bear that.
    const REVOCABLE: bool;

    /// One registration, from `acquire` to `release`. It holds a [`ModuleRef`].
    type Registration: Send + Sync + 'static;

    /// Looks at `size` bytes at `addr` of the current process.
    fn acquire(addr: u64, size: u64) -> Claim<Arc<Self::Registration>>;

    /// Pins the range, which must be that of `acquire`. `core_context` names the registration in
    /// an invalidation.
    fn get_pages(
        registration: &Self::Registration,
        addr: u64,
        size: u64,
        core_context: u64,
    ) -> Result<(), Errno>;

    /// Maps the range for `device` and passes its scatterlist to `publish`.
    ///
    /// `device` is `None` if the core has no PCI device. The list must live, unchanged by us, until
    /// `release`.
    fn dma_map(
        registration: &Self::Registration,
        device: Option<PciDevice>,
        publish: impl FnOnce(&ScatterList),
    ) -> Result<(), Errno>;

    /// Undoes `dma_map`.
    fn dma_unmap(registration: &Self::Registration) -> Result<(), Errno>;

    /// Undoes `get_pages`.
    fn put_pages(registration: &Self::Registration);

    /// Ends the registration for the core: on return nobody uses its device any more. The core
    /// holds no lock.
    fn release(registration: &Self::Registration);
}

const NAME_MAX: usize = 64;

/// What [`ClientDescriptor::flags`] can have: `PEER_MEM_INVALIDATE_UNMAPS`.
const INVALIDATE_UNMAPS: u32 = 1;

/// `struct peer_memory_client_ex`.
///
/// Always the long form. In the short one, with no flags, MLNX_OFED 4.9 would read two more
/// callbacks past the end; here it finds them null, as long as there are no flags.
#[repr(C)]
pub(super) struct ClientDescriptor {
    name: [c_char; NAME_MAX],
    version: [c_char; helpers::VERSION_MAX],
    acquire:
        unsafe extern "C" fn(c_ulong, usize, *mut c_void, *mut c_char, *mut *mut c_void) -> c_int,
    get_pages: unsafe extern "C" fn(
        c_ulong,
        usize,
        c_int,
        c_int,
        *mut bindings::sg_table,
        *mut c_void,
        u64,
    ) -> c_int,
    dma_map: unsafe extern "C" fn(
        *mut bindings::sg_table,
        *mut c_void,
        *mut bindings::device,
        c_int,
        *mut c_int,
    ) -> c_int,
    dma_unmap:
        unsafe extern "C" fn(*mut bindings::sg_table, *mut c_void, *mut bindings::device) -> c_int,
    put_pages: unsafe extern "C" fn(*mut bindings::sg_table, *mut c_void),
    get_page_size: extern "C" fn(*mut c_void) -> c_ulong,
    release: unsafe extern "C" fn(*mut c_void),
    ex_size: usize,
    flags: u32,
}

static_assert!(size_of::<ClientDescriptor>() == 152);
static_assert!(offset_of!(ClientDescriptor, version) == 64);
static_assert!(offset_of!(ClientDescriptor, acquire) == 80);
static_assert!(offset_of!(ClientDescriptor, release) == 128);
static_assert!(offset_of!(ClientDescriptor, ex_size) == 136);
static_assert!(offset_of!(ClientDescriptor, flags) == 144);

/// `invalidate_peer_memory`.
type InvalidateFn = unsafe extern "C" fn(*mut c_void, u64) -> c_int;

#[allow(improper_ctypes)] // `struct device` has empty members in some configurations.
extern "C" {
    pub(super) fn ib_register_peer_memory_client(
        client: *const ClientDescriptor,
        invalidate_callback: *mut Option<InvalidateFn>,
    ) -> *mut c_void;
    pub(super) fn ib_unregister_peer_memory_client(reg_handle: *mut c_void);
}

/// Why a client could not be made known to the core. Its text is what the kernel log shows.
#[derive(Clone, Copy)]
pub(crate) enum RegisterError {
    /// No memory for the descriptor.
    NoMemory,
    /// The core refused the client of this name. It does not say why: as a rule the name is taken,
    /// if the core looks at names at all.
    Refused(&'static CStr),
}

impl From<RegisterError> for Error {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::NoMemory => ENOMEM,
            // EEXIST would make modprobe report success.
            RegisterError::Refused(_) => EBUSY,
        }
    }
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory => f.write_str("out of memory"),
            Self::Refused(name) => {
                f.write_str("the peer-memory core refused the client ")?;
                fmt::Display::fmt(name, f)?;
                f.write_str(
                    ": is another module serving it (nv_peer_mem, or NVIDIA's nvidia-peermem)?",
                )
            }
        }
    }
}

/// How a revocable client makes the core end all DMA of a registration.
///
/// # Invariants
///
/// `function` and `handle` came from `ib_register_peer_memory_client`, and stay valid as long as
/// there is a [`ModuleRef`]: the client is unregistered when the module is unloaded.
#[derive(Clone, Copy)]
pub(crate) struct Invalidation {
    function: InvalidateFn,
    handle: NonNull<c_void>,
}

// SAFETY: The core lets any thread invalidate.
unsafe impl Send for Invalidation {}
// SAFETY: As above.
unsafe impl Sync for Invalidation {}

/// Set when the module is loaded, before it claims anything for the revocable client.
static INVALIDATION: SetOnce<Invalidation> = SetOnce::new();

impl Invalidation {
    /// `None` until the module is loaded: nothing that could be revoked may be registered.
    pub(crate) fn get() -> Option<Self> {
        INVALIDATION.copy()
    }

    /// On return there is no DMA for the registration of this context any more. Sleeps, and takes
    /// a lock of the core that it may hold when it calls `get_pages` to `put_pages`.
    pub(crate) fn invalidate(self, core_context: u64, _module: &ModuleRef) {
        // SAFETY: By the type invariant and `_module`. The core looks the context up, it may be
        // one that is gone. The result is always 0.
        unsafe { (self.function)(self.handle.as_ptr(), core_context) };
    }
}

/// A client known to the core; dropping it ends that.
///
/// # Invariants
///
/// `handle` came from `ib_register_peer_memory_client` with `descriptor` and was not unregistered.
pub(crate) struct Registered<C> {
    handle: NonNull<c_void>,
    /// The core's function, for a revocable client.
    invalidate: Option<InvalidateFn>,
    // The core reads it until the client is unregistered.
    _descriptor: Pin<KBox<ClientDescriptor>>,
    _client: PhantomData<C>,
}

// SAFETY: The handle is only used to unregister, which any thread may do.
unsafe impl<C> Send for Registered<C> {}
// SAFETY: A shared reference only gives copies of the handle.
unsafe impl<C> Sync for Registered<C> {}

impl<C: PeerMemoryClient> Registered<C> {
    /// Makes the client known to the core. Sleeps.
    ///
    /// `unmaps` tells the core that the client undoes mappings after an invalidation by itself,
    /// which cores of MLNX_OFED 4.9 and older must not be told.
    ///
    /// The client can be called before this returns.
    pub(crate) fn new(_core: PeerMemory, unmaps: bool) -> Result<Self, RegisterError> {
        let descriptor =
            KBox::pin(Self::describe(unmaps), GFP_KERNEL).map_err(|_| RegisterError::NoMemory)?;
        let mut invalidate = None;
        let callback: *mut Option<InvalidateFn> = if C::REVOCABLE {
            &mut invalidate
        } else {
            ptr::null_mut()
        };
        // SAFETY: `_core` proves that the function exists. The descriptor is pinned and outlives the
        // client; its callbacks are code of this module and follow the contract of the header.
        // `callback` is null or a valid place for a pointer to a function.
        let handle = unsafe { ib_register_peer_memory_client(&*descriptor, callback) };
        // INVARIANT: Just registered.
        Ok(Self {
            handle: NonNull::new(handle).ok_or(RegisterError::Refused(C::NAME))?,
            invalidate,
            _descriptor: descriptor,
            _client: PhantomData,
        })
    }

    fn describe(unmaps: bool) -> ClientDescriptor {
        let mut version = c_array(helpers::version());
        if unmaps {
            // There are flags.
            version[helpers::VERSION_MAX - 1] = 1;
        }
        ClientDescriptor {
            name: c_array(C::NAME),
            version,
            acquire: acquire::<C>,
            get_pages: get_pages::<C>,
            dma_map: dma_map::<C>,
            dma_unmap: dma_unmap::<C>,
            put_pages: put_pages::<C>,
            get_page_size,
            release: release::<C>,
            ex_size: if unmaps {
                size_of::<ClientDescriptor>()
            } else {
                0
            },
            flags: if unmaps { INVALIDATE_UNMAPS } else { 0 },
        }
    }

    /// Lets a revocable client claim memory. Nothing that the module's init does can fail after it:
    /// a registration may outlive its context in the core, and only the module waits for it.
    pub(crate) fn open(&self) {
        if let Some(function) = self.invalidate {
            // INVARIANT: Both are the core's.
            let _ = INVALIDATION.populate(Invalidation {
                function,
                handle: self.handle,
            });
        }
    }
}

impl<C> Drop for Registered<C> {
    fn drop(&mut self) {
        // SAFETY: By the type invariant the client is registered. This returns when the core is
        // through with all of its registrations.
        unsafe { ib_unregister_peer_memory_client(self.handle.as_ptr()) };
    }
}

/// `text` as a C string in an array, cut where the last byte of the array must stay 0.
fn c_array<const N: usize>(text: &CStr) -> [c_char; N] {
    let mut array = [0; N];
    // One byte less than would fit: a non-zero last byte of the version is a flag.
    let room = N.saturating_sub(1);
    for (to, from) in array.iter_mut().take(room).zip(text.to_bytes_with_nul()) {
        *to = *from;
    }
    array
}

/// What a `client_context` stands for.
///
/// It is made by `acquire` and ended by `release`. A refusal must not fail for lack of memory, so
/// it has none: its errno is the context, in the range of addresses that hold no objects.
enum Context<'a, R: 'static> {
    Registration(ArcBorrow<'a, R>),
    Refused(Errno),
}

/// A context that stands for `errno`.
fn refusal(errno: Errno) -> *mut c_void {
    ptr::without_provenance_mut(errno.to_negative() as usize)
}

/// The errno that a context stands for, if it is no registration.
fn refused(context: *mut c_void) -> Option<Errno> {
    const MAX_ERRNO: usize = bindings::MAX_ERRNO as usize;
    (context.addr() >= MAX_ERRNO.wrapping_neg())
        .then(|| Errno::from_driver(context.addr() as c_int))
}

/// # Safety
///
/// `context` came from [`acquire`] of the same client and is not released while `'a` lasts.
unsafe fn context<'a, R: 'static>(context: *mut c_void) -> Context<'a, R> {
    match refused(context) {
        Some(errno) => Context::Refused(errno),
        // SAFETY: All other contexts came from `into_foreign` in `acquire`, and only `release`
        // takes them back.
        None => Context::Registration(unsafe { Arc::<R>::borrow(context) }),
    }
}

/// 0 or a negative errno.
fn to_c(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => errno.to_negative(),
    }
}

/// # Safety
///
/// `client_context` must be valid for a write. The core calls this only while the client is
/// registered.
unsafe extern "C" fn acquire<C: PeerMemoryClient>(
    addr: c_ulong,
    size: usize,
    _peer_mem_private_data: *mut c_void,
    _peer_mem_name: *mut c_char,
    client_context: *mut *mut c_void,
) -> c_int {
    const MINE: c_int = 1;
    const NOT_MINE: c_int = 0;
    let context = match C::acquire(addr as u64, size as u64) {
        Claim::NotMine => return NOT_MINE,
        Claim::Mine(registration) => registration.into_foreign(),
        Claim::Refused(errno) => match ModuleRef::get() {
            Some(module) => {
                module.into_foreign();
                refusal(errno)
            }
            None => return NOT_MINE,
        },
    };
    // SAFETY: By the safety requirements.
    unsafe { *client_context = context };
    MINE
}

/// # Safety
///
/// As for [`context()`].
unsafe extern "C" fn get_pages<C: PeerMemoryClient>(
    addr: c_ulong,
    size: usize,
    _write: c_int,
    _force: c_int,
    _sg_head: *mut bindings::sg_table,
    client_context: *mut c_void,
    core_context: u64,
) -> c_int {
    // SAFETY: By the safety requirements.
    match unsafe { context::<C::Registration>(client_context) } {
        Context::Registration(registration) => to_c(C::get_pages(
            &registration,
            addr as u64,
            size as u64,
            core_context,
        )),
        Context::Refused(errno) => errno.to_negative(),
    }
}

/// # Safety
///
/// As for [`context()`]; `sg_head` and `nmap` must be valid for writes, and `dma_device` null or
/// a live device.
unsafe extern "C" fn dma_map<C: PeerMemoryClient>(
    sg_head: *mut bindings::sg_table,
    client_context: *mut c_void,
    dma_device: *mut bindings::device,
    _dmasync: c_int,
    nmap: *mut c_int,
) -> c_int {
    // SAFETY: By the safety requirements.
    let registration = match unsafe { context::<C::Registration>(client_context) } {
        Context::Registration(registration) => registration,
        Context::Refused(errno) => return errno.to_negative(),
    };
    // SAFETY: By the safety requirements.
    let device = unsafe { PciDevice::from_dma_device(dma_device) };
    to_c(C::dma_map(&registration, device, |list| {
        let header = list.header();
        // `nmap` may be the `nents` of this very table.
        // SAFETY: By the safety requirements. The entries stay until `release`, as the contract
        // of the header wants.
        unsafe {
            *sg_head = header;
            *nmap = header.nents as c_int;
        }
    }))
}

/// # Safety
///
/// As for [`context()`].
unsafe extern "C" fn dma_unmap<C: PeerMemoryClient>(
    _sg_head: *mut bindings::sg_table,
    client_context: *mut c_void,
    _dma_device: *mut bindings::device,
) -> c_int {
    // SAFETY: By the safety requirements.
    match unsafe { context::<C::Registration>(client_context) } {
        Context::Registration(registration) => to_c(C::dma_unmap(&registration)),
        Context::Refused(errno) => errno.to_negative(),
    }
}

/// # Safety
///
/// As for [`context()`].
unsafe extern "C" fn put_pages<C: PeerMemoryClient>(
    _sg_head: *mut bindings::sg_table,
    client_context: *mut c_void,
) {
    // SAFETY: By the safety requirements.
    if let Context::Registration(registration) = unsafe { context(client_context) } {
        C::put_pages(&registration);
    }
}

/// The core calls this after every successful `dma_map`, although its header says "obsolete".
extern "C" fn get_page_size(_client_context: *mut c_void) -> c_ulong {
    GPU_PAGE_SIZE as c_ulong
}

/// # Safety
///
/// `client_context` came from [`acquire`] of the same client; nobody uses it any more.
unsafe extern "C" fn release<C: PeerMemoryClient>(client_context: *mut c_void) {
    if refused(client_context).is_some() {
        // SAFETY: `acquire` left this reference with the context.
        drop(unsafe { ModuleRef::from_foreign() });
        return;
    }
    // SAFETY: All contexts that are no refusals came from `into_foreign` in `acquire`; by the safety
    // requirements nothing borrows this one any more.
    let registration = unsafe { Arc::<C::Registration>::from_foreign(client_context) };
    C::release(&registration);
}
