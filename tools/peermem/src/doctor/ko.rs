// SPDX-License-Identifier: GPL-2.0

//! What a kernel module's file says about itself, compressed or not.

use std::collections::BTreeMap;
use std::io::Read as _;

use super::elf::{self, Elf};

/// A module's file.
#[derive(Default)]
pub struct Ko {
    info: Vec<(String, String)>,
    /// The symbols that it needs, and the versions that it was built with, where it has any.
    pub needs: BTreeMap<String, Option<u32>>,
    /// The symbols that it exports, and their versions.
    pub exports: BTreeMap<String, Option<u32>>,
    /// The common name of its signer, empty if the signature does not tell.
    pub signer: Option<String>,
}

impl Ko {
    /// Reads a file of this name with these bytes.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, String> {
        let bytes = decompress(name, bytes)?;
        Self::from_elf(&bytes).ok_or_else(|| "not a kernel module, or damaged".to_owned())
    }

    fn from_elf(bytes: &[u8]) -> Option<Self> {
        let elf = Elf::parse(bytes)?;
        let mut ko = Self {
            info: info(elf.section(".modinfo").unwrap_or_default()),
            signer: signer(bytes),
            ..Self::default()
        };
        let built_with = versions(&elf);
        for symbol in elf.symbols()? {
            if symbol.undefined {
                let version = built_with.get(&symbol.name).copied();
                ko.needs.insert(symbol.name, version);
            } else if let Some(name) = symbol.name.strip_prefix("__ksymtab_") {
                ko.exports.entry(name.to_owned()).or_default();
            } else if let Some(name) = symbol.name.strip_prefix("__crc_") {
                ko.exports.insert(name.to_owned(), elf.word(&symbol));
            }
        }
        Some(ko)
    }

    /// A value of its `modinfo`.
    pub fn info(&self, key: &str) -> Option<&str> {
        let found = self.info.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }
}

fn decompress(name: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let result = match name.rsplit('.').next() {
        Some("gz") => flate2::read::GzDecoder::new(bytes)
            .read_to_end(&mut out)
            .map(drop)
            .map_err(|error| error.to_string()),
        Some("xz") => {
            lzma_rs::xz_decompress(&mut &bytes[..], &mut out).map_err(|error| format!("{error:?}"))
        }
        Some("zst") => ruzstd::StreamingDecoder::new(bytes)
            .map_err(|error| error.to_string())
            .and_then(|mut decoder| {
                decoder
                    .read_to_end(&mut out)
                    .map(drop)
                    .map_err(|error| error.to_string())
            }),
        _ => return Ok(bytes.to_owned()),
    };
    result
        .map(|()| out)
        .map_err(|error| format!("cannot be decompressed: {error}"))
}

fn info(section: &[u8]) -> Vec<(String, String)> {
    section
        .split(|&byte| byte == 0)
        .filter_map(|entry| {
            let entry = String::from_utf8_lossy(entry);
            let (key, value) = entry.split_once('=')?;
            Some((key.to_owned(), value.to_owned()))
        })
        .collect()
}

/// The versions of the symbols that a module needs, in the old form or the extended one.
fn versions(elf: &Elf) -> BTreeMap<String, u32> {
    const ENTRY: usize = 64;
    const NAME: usize = 8;
    let mut versions = BTreeMap::new();
    for entry in elf
        .section("__versions")
        .unwrap_or_default()
        .chunks_exact(ENTRY)
    {
        if let (Some(version), Some(name)) = (elf::number(entry, 0, 4), elf::text(entry, NAME)) {
            versions.insert(name, version as u32);
        }
    }
    let numbers = elf.section("__version_ext_crcs").unwrap_or_default();
    let names = elf.section("__version_ext_names").unwrap_or_default();
    let names = names.split(|&byte| byte == 0);
    for (number, name) in numbers.chunks_exact(4).zip(names) {
        let name = String::from_utf8_lossy(name).into_owned();
        versions.extend(elf::number(number, 0, 4).map(|version| (name, version as u32)));
    }
    versions
}

/// Who signed it: the last common name of the issuer in the signature at the file's end.
fn signer(bytes: &[u8]) -> Option<String> {
    const MARK: &[u8] = b"~Module signature appended~\n";
    const TRAILER: usize = 12;
    let rest = bytes.strip_suffix(MARK)?;
    let trailer = rest.get(rest.len().checked_sub(TRAILER)?..)?;
    let length = u32::from_be_bytes(trailer[8..].try_into().ok()?) as usize;
    let end = rest.len() - TRAILER;
    let signature = rest.get(end.checked_sub(length)?..end)?;
    Some(common_name(signature).unwrap_or_default())
}

/// In DER: the object identifier 2.5.4.3, a string's tag, its length, and the string.
fn common_name(der: &[u8]) -> Option<String> {
    const COMMON_NAME: &[u8] = &[0x06, 0x03, 0x55, 0x04, 0x03];
    let at = der
        .windows(COMMON_NAME.len())
        .rposition(|window| window == COMMON_NAME)?;
    let string = der.get(at + COMMON_NAME.len() + 1..)?;
    let (&length, string) = string.split_first()?;
    let name = string.get(..usize::from(length))?;
    Some(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_module_is_said_to_be_none() {
        assert!(Ko::parse("a.ko", b"").is_err());
        assert!(Ko::parse("a.ko", b"\x7fELF\x02\x01").is_err());
        assert!(Ko::parse("a.ko.zst", b"rubbish").is_err());
        assert!(Ko::parse("a.ko.xz", b"rubbish").is_err());
        assert!(Ko::parse("a.ko.gz", b"rubbish").is_err());
    }

    #[test]
    fn damaged_headers_are_survived() {
        let mut bytes = vec![0xff; 4096];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        assert!(Ko::parse("a.ko", &bytes).is_err());
    }

    #[test]
    fn the_signer_is_found() {
        let mut file = b"module".to_vec();
        let der = b"\x06\x03\x55\x04\x03\x0c\x04Test";
        file.extend(der);
        file.extend([0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, der.len() as u8]);
        file.extend(b"~Module signature appended~\n");
        assert_eq!(signer(&file).as_deref(), Some("Test"));
        assert_eq!(signer(b"module"), None);
    }
}
