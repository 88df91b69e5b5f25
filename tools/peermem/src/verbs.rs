// SPDX-License-Identifier: GPL-2.0

//! The little of libibverbs that registering memory takes. The library is loaded when it is needed,
//! so that everything else works without.

use std::ffi::{c_char, c_int, c_void, CStr};
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;

use libloading::{Library, Symbol};

use crate::failure::{Failure, Outcome};

const LIBRARY: &str = "libibverbs.so.1";
/// `IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ`.
const ACCESS: c_int = 1 | 2 | 4;

/// Objects of the library, of which only it knows the inside.
type Device = c_void;
type Opaque = NonNull<c_void>;

/// The functions, as `infiniband/verbs.h` declares them.
struct Functions {
    get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut Device,
    free_device_list: unsafe extern "C" fn(*mut *mut Device),
    get_device_name: unsafe extern "C" fn(*mut Device) -> *const c_char,
    open_device: unsafe extern "C" fn(*mut Device) -> *mut c_void,
    close_device: unsafe extern "C" fn(*mut c_void) -> c_int,
    alloc_pd: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
    dealloc_pd: unsafe extern "C" fn(*mut c_void) -> c_int,
    reg_mr: unsafe extern "C" fn(*mut c_void, *mut c_void, usize, c_int) -> *mut c_void,
    dereg_mr: unsafe extern "C" fn(*mut c_void) -> c_int,
}

/// The library.
pub struct Verbs {
    functions: Functions,
    // The functions are in it.
    _library: Library,
}

impl Verbs {
    /// Loads it.
    pub fn load() -> Outcome<Self> {
        // SAFETY: Loading libibverbs runs its constructors, which ask for nothing.
        let library = unsafe { Library::new(LIBRARY) }.map_err(|_| {
            Failure::error(format!(
                "{LIBRARY} cannot be loaded: install libibverbs (Debian: libibverbs1 and ibverbs-providers)"
            ))
        })?;
        // SAFETY: The types are those of the header.
        let functions = unsafe { find_all(&library) }
            .map_err(|error| Failure::error(format!("{LIBRARY}: {error}")))?;
        Ok(Self {
            functions,
            _library: library,
        })
    }

    /// Opens a device by name, or the first one.
    pub fn open(&self, name: Option<&str>) -> Outcome<Context<'_>> {
        let list = DeviceList::new(self)?;
        let names = list.names();
        let index = match name {
            Some(name) => names.iter().position(|known| known == name),
            None => (!names.is_empty()).then_some(0),
        };
        let index = index.ok_or_else(|| no_device(name, &names))?;
        // SAFETY: The device is one of the list, which is still there.
        let context = unsafe { (self.functions.open_device)(list.devices[index]) };
        Ok(Context {
            verbs: self,
            pointer: found(context, &format!("{} cannot be opened", names[index]))?,
            name: names[index].clone(),
        })
    }
}

fn no_list(error: &io::Error) -> Failure {
    let hint = match error.raw_os_error() {
        Some(libc::ENOSYS) => " (is ib_uverbs loaded?)",
        _ => "",
    };
    Failure::error(format!("no list of RDMA devices: {error}{hint}"))
}

fn no_device(name: Option<&str>, names: &[String]) -> Failure {
    Failure::error(match (name, names) {
        (_, []) => "no RDMA device that libibverbs can use (`ibv_devices` lists them)".to_owned(),
        (Some(name), names) => format!("no RDMA device {name}; there is {}", names.join(", ")),
        (None, _) => unreachable!("the first one would have done"),
    })
}

/// # Safety
///
/// The library has to be libibverbs.
unsafe fn find_all(library: &Library) -> Result<Functions, libloading::Error> {
    // SAFETY: By the above, the functions are of the types of the fields.
    unsafe {
        Ok(Functions {
            get_device_list: find(library, b"ibv_get_device_list\0")?,
            free_device_list: find(library, b"ibv_free_device_list\0")?,
            get_device_name: find(library, b"ibv_get_device_name\0")?,
            open_device: find(library, b"ibv_open_device\0")?,
            close_device: find(library, b"ibv_close_device\0")?,
            alloc_pd: find(library, b"ibv_alloc_pd\0")?,
            dealloc_pd: find(library, b"ibv_dealloc_pd\0")?,
            reg_mr: find(library, b"ibv_reg_mr\0")?,
            dereg_mr: find(library, b"ibv_dereg_mr\0")?,
        })
    }
}

/// # Safety
///
/// The function has to be of the type.
unsafe fn find<T: Copy>(library: &Library, name: &[u8]) -> Result<T, libloading::Error> {
    // SAFETY: By the above.
    let symbol: Symbol<'_, T> = unsafe { library.get(name) }?;
    Ok(*symbol)
}

fn found(pointer: *mut c_void, what: &str) -> Outcome<Opaque> {
    NonNull::new(pointer)
        .ok_or_else(|| Failure::error(format!("{what}: {}", io::Error::last_os_error())))
}

/// The devices, until it is dropped.
struct DeviceList<'v> {
    verbs: &'v Verbs,
    list: NonNull<*mut Device>,
    devices: &'v [*mut Device],
}

impl<'v> DeviceList<'v> {
    fn new(verbs: &'v Verbs) -> Outcome<Self> {
        let mut count = 0;
        // SAFETY: The argument is valid.
        let list = unsafe { (verbs.functions.get_device_list)(&mut count) };
        let list = NonNull::new(list).ok_or_else(|| no_list(&io::Error::last_os_error()))?;
        Ok(Self {
            verbs,
            list,
            // SAFETY: The list has that many devices. It is freed when this is dropped, and not
            // used after, as only `&self` gives them out.
            devices: unsafe { std::slice::from_raw_parts(list.as_ptr(), count.max(0) as usize) },
        })
    }

    fn names(&self) -> Vec<String> {
        self.devices
            .iter()
            .map(|device| {
                // SAFETY: The device is one of the list; its name is a C string.
                let name =
                    unsafe { CStr::from_ptr((self.verbs.functions.get_device_name)(*device)) };
                name.to_string_lossy().into_owned()
            })
            .collect()
    }
}

impl Drop for DeviceList<'_> {
    fn drop(&mut self) {
        // SAFETY: The list is the library's, and not used any more.
        unsafe { (self.verbs.functions.free_device_list)(self.list.as_ptr()) };
    }
}

/// An open device.
pub struct Context<'v> {
    verbs: &'v Verbs,
    pointer: Opaque,
    /// The device's name.
    pub name: String,
}

impl Context<'_> {
    /// Allocates a protection domain.
    pub fn domain(&self) -> Outcome<Domain<'_>> {
        // SAFETY: The device is open.
        let pd = unsafe { (self.verbs.functions.alloc_pd)(self.pointer.as_ptr()) };
        Ok(Domain {
            context: self,
            pointer: found(pd, "no protection domain")?,
        })
    }
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        // SAFETY: The device is open, and all that was made from it is gone, as it borrows this.
        unsafe { (self.verbs.functions.close_device)(self.pointer.as_ptr()) };
    }
}

/// A protection domain.
pub struct Domain<'c> {
    context: &'c Context<'c>,
    pointer: Opaque,
}

impl Domain<'_> {
    /// Registers memory.
    pub fn register<'m>(&'m self, memory: &'m Memory, length: usize) -> io::Result<Region<'m>> {
        assert!(length <= memory.length);
        let (pd, start) = (self.pointer.as_ptr(), memory.start.as_ptr());
        // SAFETY: The memory is mapped for as long as the region exists, which borrows it. Nobody
        // makes RDMA requests on it.
        let mr = unsafe { (self.context.verbs.functions.reg_mr)(pd, start, length, ACCESS) };
        Ok(Region {
            domain: self,
            pointer: NonNull::new(mr).ok_or_else(io::Error::last_os_error)?,
            _memory: PhantomData,
        })
    }
}

impl Drop for Domain<'_> {
    fn drop(&mut self) {
        // SAFETY: The domain is there, and no region is left in it, as they borrow it.
        unsafe { (self.context.verbs.functions.dealloc_pd)(self.pointer.as_ptr()) };
    }
}

/// A memory region, until it is deregistered or dropped.
pub struct Region<'m> {
    domain: &'m Domain<'m>,
    pointer: Opaque,
    _memory: PhantomData<&'m Memory>,
}

impl Region<'_> {
    /// Deregisters it.
    pub fn deregister(self) -> io::Result<()> {
        let region = std::mem::ManuallyDrop::new(self);
        match region.end() {
            0 => Ok(()),
            errno => Err(io::Error::from_raw_os_error(errno)),
        }
    }

    fn end(&self) -> c_int {
        let functions = &self.domain.context.verbs.functions;
        // SAFETY: The region is there, and this is called once: by deregister() or by drop().
        unsafe { (functions.dereg_mr)(self.pointer.as_ptr()) }
    }
}

impl Drop for Region<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// Mapped memory.
pub struct Memory {
    start: NonNull<c_void>,
    length: usize,
}

impl Memory {
    /// Memory of the host, all of it there already.
    pub fn host(length: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        Self::map(length, flags, -1)
    }

    /// Memory of a device, shared with it.
    pub fn device(path: &std::path::Path, length: usize) -> io::Result<Self> {
        use std::os::fd::AsRawFd;
        let file = std::fs::OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)?;
        Self::map(length, libc::MAP_SHARED, file.as_raw_fd())
    }

    fn map(length: usize, flags: c_int, fd: c_int) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: A new mapping, where the kernel wants it, takes nothing from anybody.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, fd, 0) };
        match NonNull::new(start) {
            Some(start) if start.as_ptr() != libc::MAP_FAILED => Ok(Self { start, length }),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: The mapping is this one's alone, and no region is left on it.
        unsafe { libc::munmap(self.start.as_ptr(), self.length) };
    }
}
