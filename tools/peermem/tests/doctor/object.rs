// SPDX-License-Identifier: GPL-2.0

//! Module files for the trees, made from a description:
//!
//! ```text
//! info license=GPL            a line of its modinfo
//! needs NAME [0xVERSION]      a symbol that it needs
//! exports NAME [0xVERSION]    a symbol that it exports
//! extended                    the versions of needed symbols are in the extended form
//! absolute                    the versions of exported symbols are absolute symbols
//! signer NAME                 it is signed
//! ```

use std::io::Write;

const ABSOLUTE: u16 = 0xfff1;
const VERSIONS_OF_EXPORTS: u16 = 1;

#[derive(Default)]
struct Section {
    name: &'static str,
    kind: u32,
    link: u32,
    bytes: Vec<u8>,
}

#[derive(Default)]
struct Description {
    info: Vec<u8>,
    needs: Vec<(String, Option<u32>)>,
    exports: Vec<(String, Option<u32>)>,
    extended: bool,
    absolute: bool,
    signer: Option<String>,
}

/// A module's file of this name, compressed if its name says so.
pub fn file(name: &str, description: &[&str]) -> Vec<u8> {
    let description = Description::parse(description);
    let mut bytes = object(&description.sections());
    if let Some(signer) = &description.signer {
        bytes.extend(signature(signer));
    }
    match name.ends_with(".gz") {
        true => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Default::default());
            encoder.write_all(&bytes).expect("room in memory");
            encoder.finish().expect("room in memory")
        }
        false => bytes,
    }
}

impl Description {
    fn parse(lines: &[&str]) -> Self {
        let mut this = Self::default();
        for line in lines {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "info" => this.info.extend(format!("{rest}\0").bytes()),
                "needs" => this.needs.push(symbol(rest)),
                "exports" => this.exports.push(symbol(rest)),
                "extended" => this.extended = true,
                "absolute" => this.absolute = true,
                "signer" => this.signer = Some(rest.to_owned()),
                _ => panic!("not understood: {line}"),
            }
        }
        this
    }

    /// The sections, the one with the versions of exports first.
    fn sections(&self) -> Vec<Section> {
        let (symbols, names, versions) = self.symbols();
        let mut sections = vec![
            section("__kcrctab", 1, versions),
            section(".modinfo", 1, self.info.clone()),
            Section {
                link: 4,
                ..section(".symtab", 2, symbols)
            },
            section(".strtab", 3, names),
        ];
        let built_with = self.needs.iter().filter_map(|(n, v)| Some((n, (*v)?)));
        if self.extended {
            let (mut numbers, mut names) = (Vec::new(), Vec::new());
            for (name, version) in built_with {
                numbers.extend(version.to_le_bytes());
                names.extend(format!("{name}\0").bytes());
            }
            sections.push(section("__version_ext_crcs", 1, numbers));
            sections.push(section("__version_ext_names", 1, names));
        } else {
            let mut entries = Vec::new();
            for (name, version) in built_with {
                let mut entry = u64::from(version).to_le_bytes().to_vec();
                entry.extend(name.bytes());
                entry.resize(64, 0);
                entries.extend(entry);
            }
            sections.push(section("__versions", 1, entries));
        }
        sections
    }

    /// The symbol table, its names, and the section of versions.
    fn symbols(&self) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
        let (mut table, mut names, mut versions) = (vec![0; 24], vec![0], Vec::new());
        let mut add = |name: &str, section: u16, value: u64| {
            table.extend((names.len() as u32).to_le_bytes());
            table.extend([0x10, 0]);
            table.extend(section.to_le_bytes());
            table.extend(value.to_le_bytes());
            table.extend(0_u64.to_le_bytes());
            names.extend(format!("{name}\0").bytes());
        };
        for (name, _) in &self.needs {
            add(name, 0, 0);
        }
        for (name, version) in &self.exports {
            add(&format!("__ksymtab_{name}"), 2, 0);
            match version {
                Some(version) if self.absolute => {
                    add(&format!("__crc_{name}"), ABSOLUTE, u64::from(*version));
                }
                Some(version) => {
                    let at = versions.len() as u64;
                    add(&format!("__crc_{name}"), VERSIONS_OF_EXPORTS, at);
                    versions.extend(version.to_le_bytes());
                }
                None => {}
            }
        }
        (table, names, versions)
    }
}

fn symbol(text: &str) -> (String, Option<u32>) {
    match text.split_once(" 0x") {
        Some((name, version)) => {
            let version = u32::from_str_radix(version, 16).expect("a version");
            (name.to_owned(), Some(version))
        }
        None => (text.to_owned(), None),
    }
}

fn section(name: &'static str, kind: u32, bytes: Vec<u8>) -> Section {
    Section {
        name,
        kind,
        bytes,
        ..Section::default()
    }
}

/// A relocatable object of these sections, after the empty one, and one with their names.
fn object(sections: &[Section]) -> Vec<u8> {
    const HEADER: usize = 64;
    let mut names = vec![0];
    let mut contents = Vec::new();
    let mut headers = vec![0; HEADER];
    let mut add = |name: &str, kind: u32, link: u32, bytes: Option<&[u8]>| {
        let at = names.len() as u32;
        names.extend(format!("{name}\0").bytes());
        let bytes = bytes.unwrap_or(&names).to_vec();
        let offset = (HEADER + contents.len()) as u64;
        headers.extend(at.to_le_bytes());
        headers.extend(kind.to_le_bytes());
        headers.extend([0; 16]);
        headers.extend(offset.to_le_bytes());
        headers.extend((bytes.len() as u64).to_le_bytes());
        headers.extend(link.to_le_bytes());
        headers.extend([0; 20]);
        contents.extend(bytes);
    };
    for section in sections {
        add(
            section.name,
            section.kind,
            section.link,
            Some(&section.bytes),
        );
    }
    add(".shstrtab", 3, 0, None);
    let count = sections.len() as u16 + 2;
    let mut object = b"\x7fELF\x02\x01\x01".to_vec();
    object.resize(16, 0);
    object.extend([1, 0, 62, 0, 1, 0, 0, 0]);
    object.extend([0; 16]);
    object.extend(((HEADER + contents.len()) as u64).to_le_bytes());
    object.extend([0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 64, 0]);
    object.extend(count.to_le_bytes());
    object.extend((count - 1).to_le_bytes());
    object.extend(contents);
    object.extend(headers);
    object
}

/// A stand-in for a signature: no more than the name of the signer, and what follows it.
fn signature(signer: &str) -> Vec<u8> {
    let mut der = vec![0x06, 0x03, 0x55, 0x04, 0x03, 0x0c, signer.len() as u8];
    der.extend(signer.bytes());
    let length = der.len() as u32;
    der.extend([0, 0, 2, 0, 0, 0, 0, 0]);
    der.extend(length.to_be_bytes());
    der.extend(b"~Module signature appended~\n");
    der
}
