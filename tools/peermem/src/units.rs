// SPDX-License-Identifier: GPL-2.0

//! Numbers as people write and read them.

/// Bytes with a binary unit: `1.5 GiB`.
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // What would be rounded to 1024.0 belongs to the next unit.
    while value >= 1023.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// Reads bytes, with or without a binary unit: `65536`, `64K`, `64KiB`.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    if let Some(hexadecimal) = text.strip_prefix("0x") {
        return u64::from_str_radix(hexadecimal, 16).map_err(|_| not_bytes(text));
    }
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match text[digits.len()..].trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        "t" | "tib" => 40,
        _ => return Err(not_bytes(text)),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|number| number.checked_mul(1 << shift))
        .ok_or_else(|| not_bytes(text))
}

fn not_bytes(text: &str) -> String {
    format!("{text} is no number of bytes, like 65536 or 64K")
}

/// A time with the unit that suits it: `1.2 ms`.
pub fn nanoseconds(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{:.1} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", ns as f64 / 1e6),
        _ => format!("{:.1} s", ns as f64 / 1e9),
    }
}

/// How many, with the noun as it must be: `1 MR`, `2 MRs`.
pub fn count(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ => format!("{number} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_the_largest_unit_that_leaves_one_before_the_point() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(65536), "64.0 KiB");
        assert_eq!(bytes((1 << 20) - 1), "1.0 MiB");
        assert_eq!(bytes(80 << 30), "80.0 GiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn bytes_are_read_with_and_without_unit() {
        assert_eq!(parse_bytes("65536"), Ok(65536));
        assert_eq!(parse_bytes("64K"), Ok(65536));
        assert_eq!(parse_bytes("0x10000"), Ok(65536));
        assert_eq!(parse_bytes("16 GiB"), Ok(16 << 30));
        for wrong in ["", "K", "-1", "1x", "1.5G", "0x", "0x-1", "99999999T", "ä"] {
            assert!(parse_bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_have_a_unit() {
        assert_eq!(nanoseconds(999), "999 ns");
        assert_eq!(nanoseconds(1_500), "1.5 us");
        assert_eq!(nanoseconds(2_000_000), "2.0 ms");
        assert_eq!(nanoseconds(3_100_000_000), "3.1 s");
    }
}
