// SPDX-License-Identifier: GPL-2.0

//! Times: of the day, and between two looks.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Reads seconds, like `2` or `0.5`.
pub fn interval(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .filter(|seconds| (0.01..=86400.0).contains(seconds))
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("{text} is no number of seconds between 0.01 and 86400"))
}

/// The local time of the day, to the millisecond.
pub fn time_of_day() -> String {
    format_local(c"%H:%M:%S", true)
}

/// The local date and time, for names of files.
pub fn stamp() -> String {
    format_local(c"%Y%m%d-%H%M%S", false)
}

fn format_local(format: &std::ffi::CStr, milliseconds: bool) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let seconds = now.as_secs() as libc::time_t;
    let mut buffer = [0u8; 64];
    // SAFETY: `tm` may be all zeroes; all pointers are valid for these calls, and the format is a
    // C string. The length given is that of the buffer.
    let length = unsafe {
        let mut broken_down = std::mem::zeroed();
        libc::localtime_r(&seconds, &mut broken_down);
        let (start, length) = (buffer.as_mut_ptr().cast(), buffer.len());
        libc::strftime(start, length, format.as_ptr(), &broken_down)
    };
    let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
    match milliseconds {
        true => format!("{text}.{:03}", now.subsec_millis()),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_neither_nothing_nor_endless() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "NaN", "inf", "x", ""] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_time_of_day_has_its_form() {
        let time = time_of_day();
        let shape: String = time
            .chars()
            .map(|c| if c.is_ascii_digit() { '0' } else { c })
            .collect();
        assert_eq!(shape, "00:00:00.000");
    }
}
