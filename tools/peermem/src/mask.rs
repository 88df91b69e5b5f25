// SPDX-License-Identifier: GPL-2.0

//! Replaces what tells whose machine it is, each thing by the same word everywhere.

use std::collections::HashMap;

use crate::root::Root;

/// What is replaced, and by what.
pub struct Mask {
    hosts: Vec<String>,
    words: HashMap<String, String>,
    numbers: HashMap<&'static str, usize>,
}

impl Mask {
    /// For the machine, whose name is to be replaced, too.
    pub fn new(root: &Root) -> Self {
        let host = root.value("/proc/sys/kernel/hostname").unwrap_or_default();
        let short = host.split('.').next().unwrap_or_default().to_owned();
        let mut hosts = vec![host, short];
        hosts.retain(|host| !host.is_empty() && host != "localhost");
        Self {
            hosts,
            words: HashMap::new(),
            numbers: HashMap::new(),
        }
    }

    /// The text with all of it replaced.
    pub fn apply(&mut self, text: &str) -> String {
        text.split_inclusive('\n')
            .map(|line| self.line(line))
            .collect()
    }

    fn line(&mut self, line: &str) -> String {
        let line = self.commands(line);
        let line = self.processes(&line);
        let mut masked = String::new();
        let mut rest = line.as_str();
        while !rest.is_empty() {
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            masked.push_str(&self.word(word));
            let separator = after.chars().next().map_or(0, char::len_utf8);
            masked.push_str(&after[..separator]);
            rest = &after[separator..];
        }
        masked
    }

    /// Names of processes: up to the end of a line after `comm=`, or a string in JSON.
    fn commands(&mut self, line: &str) -> String {
        if let Some((before, name)) = line.split_once(" comm=") {
            let (name, end) = match name.strip_suffix('\n') {
                Some(name) => (name, "\n"),
                None => (name, ""),
            };
            return format!("{before} comm={}{end}", self.replacement("comm", name));
        }
        self.after(line, &["\"comm\":\"", "\"comm\": \""], "comm", |text| {
            end_of_json_string(text)
        })
    }

    /// Numbers of processes, where it is clear that they are.
    fn processes(&mut self, line: &str) -> String {
        let starts = ["pid=", "pid ", "\"pid\":", "\"pid\": ", "process "];
        self.after(line, &starts, "pid", |text| {
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            digits
        })
    }

    /// Replaces what follows any of the starts, as far as `length` says; in JSON, numbers stay
    /// numbers.
    fn after(
        &mut self,
        line: &str,
        starts: &[&str],
        kind: &'static str,
        length: impl Fn(&str) -> usize,
    ) -> String {
        let mut masked = String::new();
        let mut rest = line;
        while let Some((at, start)) = first_of(rest, starts) {
            let (before, after) = rest.split_at(at + start.len());
            let (value, after) = after.split_at(length(after));
            masked.push_str(before);
            if !value.is_empty() {
                let word = self.replacement(kind, value);
                let number = kind == "pid";
                masked.push_str(if number {
                    word.trim_start_matches("pid")
                } else {
                    &word
                });
            }
            rest = after;
        }
        masked + rest
    }

    fn word(&mut self, word: &str) -> String {
        let core = word.trim_end_matches(['.', ':', '-']);
        let kind = match core {
            host if self.hosts.iter().any(|known| known == host) => "host",
            core if is_uuid(core) => "uuid",
            core if is_address(core) => "address",
            core if is_serial(core) => "serial",
            core if is_network(core) => "network",
            _ => return word.to_owned(),
        };
        format!("{}{}", self.replacement(kind, core), &word[core.len()..])
    }

    fn replacement(&mut self, kind: &'static str, value: &str) -> String {
        if let Some(known) = self.words.get(&format!("{kind} {value}")) {
            return known.clone();
        }
        let number = self.numbers.entry(kind).or_insert(0);
        *number += 1;
        let word = format!("{kind}{number}");
        self.words.insert(format!("{kind} {value}"), word.clone());
        word
    }
}

/// Whether a character is part of a name or address.
fn is_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '.' | ':' | '-')
}

/// The first of the starts in a text, the longest if there are two at one place.
fn first_of<'a>(text: &str, starts: &[&'a str]) -> Option<(usize, &'a str)> {
    starts
        .iter()
        .filter_map(|start| Some((text.find(start)?, *start)))
        .min_by_key(|(at, start)| (*at, usize::MAX - start.len()))
}

fn end_of_json_string(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return at,
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    text.len()
}

fn is_hex(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Lengths of the groups of hexadecimal digits, if there is nothing else.
fn groups(text: &str, separator: char) -> Option<Vec<usize>> {
    text.split(separator)
        .map(|group| is_hex(group).then_some(group.len()))
        .collect()
}

/// `GPU-5d4f...`, with or without the prefix.
fn is_uuid(text: &str) -> bool {
    let digits = text.trim_start_matches("GPU-").trim_start_matches("MIG-");
    groups(digits, '-').is_some_and(|groups| groups == [8, 4, 4, 4, 12])
}

/// `0x7f0000000000`.
fn is_address(text: &str) -> bool {
    text.strip_prefix("0x")
        .is_some_and(|digits| digits.len() >= 8 && is_hex(digits))
}

/// `00-11-22-33-44-55-66-77`, as PCI devices have it.
fn is_serial(text: &str) -> bool {
    groups(text, '-').is_some_and(|groups| groups.len() == 8 && groups.iter().all(|g| *g == 2))
}

/// Addresses of networks: MAC, GID or GUID, IPv6, IPv4.
fn is_network(text: &str) -> bool {
    let octets: Vec<&str> = text.split('.').collect();
    if octets.len() == 4 && octets.iter().all(|octet| octet.parse::<u8>().is_ok()) {
        return true;
    }
    let colons = text.matches(':').count();
    let digits = text.bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
    digits && (colons >= 3 || text.contains("::") && colons >= 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask() -> Mask {
        Mask {
            hosts: vec!["node7.example".to_owned(), "node7".to_owned()],
            words: HashMap::new(),
            numbers: HashMap::new(),
        }
    }

    #[test]
    fn the_same_is_replaced_by_the_same() {
        let mut mask = mask();
        assert_eq!(
            mask.apply("id=1 pid=4711 address=0x7f0000000000 comm=my app\n"),
            "id=1 pid=1 address=address1 comm=comm1\n"
        );
        assert_eq!(
            mask.apply("{\"pid\":4711,\"comm\":\"my app\",\"pid\": 4712}"),
            "{\"pid\":1,\"comm\":\"comm1\",\"pid\": 2}"
        );
        assert_eq!(
            mask.apply("registration of 65536 bytes by process 4711 failed: x (error -12)"),
            "registration of 65536 bytes by process 1 failed: x (error -12)"
        );
    }

    #[test]
    fn what_names_the_machine_is_replaced() {
        let mut mask = mask();
        assert_eq!(
            mask.apply("GPU-01234567-89ab-cdef-0123-456789abcdef on node7 (node7.example)."),
            "uuid1 on host1 (host2)."
        );
        assert_eq!(
            mask.apply("Device Serial Number 00-11-22-33-44-55-66-77"),
            "Device Serial Number serial1"
        );
        assert_eq!(
            mask.apply("10.1.2.3 fe80::1:2 0011:2233:4455:6677 00:11:22:33:44:55"),
            "network1 network2 network3 network4"
        );
    }

    #[test]
    fn what_a_developer_needs_stays() {
        let text = "gpu=0000:17:00.0 version 595.45.04 6.1.0 0x10de 1048576 7.3.4+deb13-amd64 x::y 00:00.0\n";
        assert_eq!(mask().apply(text), text);
    }
}
