// SPDX-License-Identifier: GPL-2.0

//! Files of lines in debugfs.
//!
//! C header: [`include/linux/debugfs.h`](srctree/include/linux/debugfs.h)
//!
//! Only reading goes through our code, and debugfs keeps count of that: a file that is still open
//! when the module is gone reads as an error, and closes without us.

use kernel::{
    bindings, fmt,
    prelude::*,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};

use super::sysfs::Text;

/// What a file shows: lines, each with a number by which the next one is found.
pub(crate) trait Lines {
    /// The number of the first line from `from` on, which `write` gets to write, without newline.
    fn line(from: u64, to: &mut Text<'_>) -> Option<(u64, fmt::Result)>;
}

/// Longest line, in bytes.
const LINE: usize = 1 << OFFSET_BITS;

/// A position in the file is a line's number, and an offset in the line.
const OFFSET_BITS: u32 = 11;

/// A directory; dropping it removes it, and waits for who is reading.
pub(crate) struct Directory(*mut bindings::dentry);

// SAFETY: It may be removed by any thread.
unsafe impl Send for Directory {}
// SAFETY: As above, and files may be added by any thread.
unsafe impl Sync for Directory {}

impl Directory {
    /// A directory at the top. Without debugfs there is none, and nothing else comes of it.
    pub(crate) fn new(name: &CStr) -> Self {
        // SAFETY: No parent is the top. Errors are values that all functions of debugfs take.
        Self(unsafe { bindings::debugfs_create_dir(name.as_char_ptr(), core::ptr::null_mut()) })
    }

    /// Adds a file for root.
    pub(crate) fn file<L: Lines>(&self, name: &CStr) {
        // SAFETY: The operations live as long as the module, longer than the directory.
        unsafe {
            bindings::debugfs_create_file_short(
                name.as_char_ptr(),
                0o400,
                self.0,
                core::ptr::null_mut(),
                core::ptr::null(),
                Operations::<L>::TABLE,
            )
        };
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: It is ours, or an error.
        unsafe { bindings::debugfs_remove(self.0) };
    }
}

struct Operations<L>(core::marker::PhantomData<L>);

impl<L: Lines> Operations<L> {
    const TABLE: &'static bindings::debugfs_short_fops = &bindings::debugfs_short_fops {
        read: Some(read::<L>),
        write: None,
        llseek: None,
    };
}

/// # Safety
///
/// As the VFS calls it: `buf` is a pointer of user space, `pos` is valid.
unsafe extern "C" fn read<L: Lines>(
    _file: *mut bindings::file,
    buf: *mut c_char,
    len: usize,
    pos: *mut bindings::loff_t,
) -> isize {
    // SAFETY: By the safety requirements.
    let pos = unsafe { &mut *pos };
    match read_lines::<L>(UserPtr::from_ptr(buf.cast()), len, *pos as u64) {
        Ok((bytes, next)) => {
            *pos = next as bindings::loff_t;
            bytes as isize
        }
        Err(error) => error.to_errno() as isize,
    }
}

/// As many whole lines as fit, or a part of one that does not.
fn read_lines<L: Lines>(to: UserPtr, len: usize, from: u64) -> Result<(usize, u64)> {
    let mut room = KBox::new([0u8; LINE], GFP_KERNEL)?;
    let mut to = UserSlice::new(to, len).writer();
    let mut pos = from;
    while !to.is_empty() {
        let (number, offset) = (pos >> OFFSET_BITS, (pos % LINE as u64) as usize);
        let mut text = Text::new(&mut *room);
        let Some((found, result)) = L::line(number, &mut text) else {
            break;
        };
        // A line that is too long is cut.
        let _ = result.and_then(|()| fmt::Write::write_str(&mut text, "\n"));
        let end = text.len();
        // The line that was being read may be gone.
        let start = if found == number { offset.min(end) } else { 0 };
        let part = room.get(start..end).ok_or(EIO)?;
        let fits = part.len().min(to.len());
        if fits < part.len() && to.len() < len {
            break;
        }
        to.write_slice(part.get(..fits).ok_or(EIO)?)?;
        pos = if fits < part.len() {
            found << OFFSET_BITS | start.wrapping_add(fits) as u64
        } else {
            found.wrapping_add(1) << OFFSET_BITS
        };
    }
    Ok((len.wrapping_sub(to.len()), pos))
}
