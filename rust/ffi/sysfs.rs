// SPDX-License-Identifier: GPL-2.0

//! Directories and files in sysfs.
//!
//! C header: [`include/linux/kobject.h`](srctree/include/linux/kobject.h)

use core::{
    pin::Pin,
    ptr::NonNull,
    slice, //
};

use kernel::{
    bindings,
    container_of,
    fmt,
    prelude::*, //
};

use super::helpers;

/// What a file shows and takes: one value.
pub(crate) trait Value: Send + Sync {
    /// Writes the value. A newline follows by itself.
    fn show(&self, to: &mut Text<'_>) -> fmt::Result;

    /// Takes a new value.
    fn store(&self, _value: Input<'_>) -> Result {
        Err(EPERM)
    }
}

/// Room for text, which takes no more than fits.
pub(crate) struct Text<'a> {
    room: &'a mut [u8],
    used: usize,
}

impl<'a> Text<'a> {
    pub(super) fn new(room: &'a mut [u8]) -> Self {
        Self { room, used: 0 }
    }

    /// Bytes written so far.
    pub(super) fn len(&self) -> usize {
        self.used
    }
}

impl fmt::Write for Text<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let rest = self.room.get_mut(self.used..).ok_or(fmt::Error)?;
        let rest = rest.get_mut(..text.len()).ok_or(fmt::Error)?;
        for (to, from) in rest.iter_mut().zip(text.as_bytes()) {
            *to = *from;
        }
        self.used = self.used.wrapping_add(text.len());
        Ok(())
    }
}

/// What was written to a file.
///
/// # Invariants
///
/// `0` is a string that ends in NUL.
pub(crate) struct Input<'a>(&'a [u8]);

impl Input<'_> {
    /// Whether it is this word, with or without a newline.
    pub(crate) fn is(&self, word: &CStr) -> bool {
        // SAFETY: Both are strings that end in NUL.
        unsafe { bindings::sysfs_streq(self.0.as_ptr(), word.as_char_ptr()) }
    }

    /// It as a number, decimal or with 0x.
    pub(crate) fn number(&self) -> Result<u64> {
        let mut number = 0;
        // SAFETY: It is a string that ends in NUL; `number` is a valid place.
        kernel::error::to_result(unsafe { bindings::kstrtoull(self.0.as_ptr(), 0, &mut number) })?;
        Ok(number)
    }
}

/// One file.
struct File {
    attribute: bindings::kobj_attribute,
    value: KBox<dyn Value>,
}

/// A directory with its files; dropping it removes them, and waits for who is reading.
///
/// # Invariants
///
/// `kobject` came from `kobject_create_and_add`, and its reference is this value's. Each of `files`
/// is in it.
pub(crate) struct Directory {
    kobject: NonNull<bindings::kobject>,
    files: KVec<Pin<KBox<File>>>,
}

// SAFETY: Directories may be changed and removed by any thread.
unsafe impl Send for Directory {}
// SAFETY: A shared reference is only good for making directories in it, which any thread may do.
unsafe impl Sync for Directory {}

impl Directory {
    /// A directory in `/sys/kernel`, with room for so many files.
    pub(crate) fn in_kernel(name: &CStr, files: usize) -> Result<Self> {
        // SAFETY: The kernel set it at boot, and nobody changes it.
        Self::create(name, unsafe { bindings::kernel_kobj }, files)
    }

    /// A directory in this one, which must live as long.
    pub(crate) fn directory(&self, name: &CStr, files: usize) -> Result<Self> {
        Self::create(name, self.kobject.as_ptr(), files)
    }

    fn create(name: &CStr, parent: *mut bindings::kobject, files: usize) -> Result<Self> {
        let files = KVec::with_capacity(files, GFP_KERNEL)?;
        // SAFETY: `parent` is alive, by the type invariant if it is one of ours.
        let kobject = unsafe { bindings::kobject_create_and_add(name.as_char_ptr(), parent) };
        // INVARIANT: Just made, and empty.
        Ok(Self {
            kobject: NonNull::new(kobject).ok_or(ENOMEM)?,
            files,
        })
    }

    /// Adds a file that all can read.
    pub(crate) fn file(&mut self, name: &'static CStr, value: impl Value + 'static) -> Result {
        self.add(name, 0o444, value)
    }

    /// Adds a file with other permissions.
    pub(crate) fn add(
        &mut self,
        name: &'static CStr,
        mode: u16,
        value: impl Value + 'static,
    ) -> Result {
        let value: KBox<dyn Value> = KBox::new(value, GFP_KERNEL)?;
        let mut file = KBox::new(
            File {
                attribute: Default::default(),
                value,
            },
            GFP_KERNEL,
        )?;
        if self.files.len() == self.files.capacity() {
            return Err(ENOSPC);
        }
        // SAFETY: The file is on the heap, and stays there until the directory is removed.
        kernel::error::to_result(unsafe {
            helpers::peermem_helper_sysfs_file(
                self.kobject.as_ptr(),
                &mut file.attribute,
                name.as_char_ptr(),
                mode,
                show,
                store,
            )
        })?;
        // INVARIANT: Just added. There is room.
        let _ = self.files.push_within_capacity(KBox::into_pin(file));
        Ok(())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: By the type invariant it is ours. This waits for who is in `show` or `store`;
        // nobody comes later, and the files may go.
        unsafe {
            bindings::kobject_del(self.kobject.as_ptr());
            bindings::kobject_put(self.kobject.as_ptr());
        }
    }
}

/// # Safety
///
/// `attribute` is that of a [`File`] which is alive.
unsafe fn value<'a>(attribute: *mut bindings::kobj_attribute) -> &'a dyn Value {
    // SAFETY: By the safety requirements.
    unsafe { &*(*container_of!(attribute, File, attribute)).value }
}

/// # Safety
///
/// As sysfs calls it: `attribute` is that of a [`File`], `buf` has room for a page.
unsafe extern "C" fn show(
    _kobject: *mut bindings::kobject,
    attribute: *mut bindings::kobj_attribute,
    buf: *mut c_char,
) -> isize {
    // SAFETY: By the safety requirements.
    let (value, room) = unsafe {
        (
            value(attribute),
            slice::from_raw_parts_mut(buf, bindings::PAGE_SIZE),
        )
    };
    let mut text = Text::new(room);
    match value
        .show(&mut text)
        .and_then(|()| fmt::Write::write_str(&mut text, "\n"))
    {
        Ok(()) => text.len() as isize,
        Err(_) => EIO.to_errno() as isize,
    }
}

/// # Safety
///
/// As sysfs calls it: `attribute` is that of a [`File`], `buf` has `count` bytes and a NUL.
unsafe extern "C" fn store(
    _kobject: *mut bindings::kobject,
    attribute: *mut bindings::kobj_attribute,
    buf: *const c_char,
    count: usize,
) -> isize {
    // SAFETY: By the safety requirements.
    let (value, bytes) = unsafe {
        (
            value(attribute),
            slice::from_raw_parts(buf, count.wrapping_add(1)),
        )
    };
    // INVARIANT: By the safety requirements.
    match value.store(Input(bytes)) {
        Ok(()) => count as isize,
        Err(error) => error.to_errno() as isize,
    }
}
