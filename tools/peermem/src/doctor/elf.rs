// SPDX-License-Identifier: GPL-2.0

//! As much of a 64-bit little-endian ELF object file as a kernel module needs to be read.

/// A section.
struct Section {
    name: String,
    kind: u32,
    offset: usize,
    size: usize,
    link: usize,
}

/// A symbol.
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// Whether it has to come from elsewhere.
    pub undefined: bool,
    /// Its value, or offset in its section.
    pub value: u64,
    section: usize,
}

/// An object file.
pub struct Elf<'a> {
    bytes: &'a [u8],
    sections: Vec<Section>,
}

const SYMBOL_TABLE: u32 = 2;
const WITHOUT_BYTES: u32 = 8;
const SYMBOL_SIZE: usize = 24;
const SECTION_SIZE: usize = 64;
const ABSOLUTE: usize = 0xfff1;

impl<'a> Elf<'a> {
    /// Reads the section headers. `None`: it is no such file, or a damaged one.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        if !bytes.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let start = number(bytes, 40, 8)?;
        let count = number(bytes, 60, 2)?;
        let headers = (0..count)
            .map(|index| {
                let at = start.checked_add(index * SECTION_SIZE)?;
                bytes.get(at..at.checked_add(SECTION_SIZE)?)
            })
            .collect::<Option<Vec<_>>>()?;
        let mut sections = headers
            .iter()
            .map(|header| {
                Some(Section {
                    name: String::new(),
                    kind: number(header, 4, 4)? as u32,
                    offset: number(header, 24, 8)?,
                    size: number(header, 32, 8)?,
                    link: number(header, 40, 4)?,
                })
            })
            .collect::<Option<Vec<_>>>()?;
        let names = contents(bytes, sections.get(number(bytes, 62, 2)?)?)?;
        for (section, header) in sections.iter_mut().zip(&headers) {
            section.name = text(names, number(header, 0, 4)?)?;
        }
        Some(Self { bytes, sections })
    }

    /// The bytes of a section.
    pub fn section(&self, name: &str) -> Option<&'a [u8]> {
        let section = self.sections.iter().find(|section| section.name == name)?;
        contents(self.bytes, section)
    }

    /// All symbols that have a name.
    pub fn symbols(&self) -> Option<Vec<Symbol>> {
        let table = self.sections.iter().find(|s| s.kind == SYMBOL_TABLE)?;
        let names = contents(self.bytes, self.sections.get(table.link)?)?;
        let symbols = contents(self.bytes, table)?
            .chunks_exact(SYMBOL_SIZE)
            .map(|entry| {
                let section = number(entry, 6, 2)?;
                Some(Symbol {
                    name: text(names, number(entry, 0, 4)?)?,
                    undefined: section == 0,
                    value: number(entry, 8, 8)? as u64,
                    section,
                })
            })
            .collect::<Option<Vec<_>>>()?;
        Some(symbols.into_iter().filter(|s| !s.name.is_empty()).collect())
    }

    /// The 32 bits that a symbol stands for: its value if it is absolute, or what is there.
    pub fn word(&self, symbol: &Symbol) -> Option<u32> {
        if symbol.section == ABSOLUTE {
            return Some(symbol.value as u32);
        }
        let section = contents(self.bytes, self.sections.get(symbol.section)?)?;
        Some(number(section, usize::try_from(symbol.value).ok()?, 4)? as u32)
    }
}

fn contents<'a>(bytes: &'a [u8], section: &Section) -> Option<&'a [u8]> {
    match section.kind {
        WITHOUT_BYTES => Some(&[]),
        _ => bytes.get(section.offset..section.offset.checked_add(section.size)?),
    }
}

/// The little-endian number of `size` bytes at `at`.
pub fn number(bytes: &[u8], at: usize, size: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(size)?)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |number, &byte| (number << 8) | usize::from(byte)),
    )
}

/// The text that starts at `at` and ends before a NUL.
pub fn text(bytes: &[u8], at: usize) -> Option<String> {
    let bytes = bytes.get(at..)?.split(|&byte| byte == 0).next()?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}
