// SPDX-License-Identifier: GPL-2.0

//! The text exposition format, read by a strict parser.

use std::collections::{BTreeMap, BTreeSet};

use crate::program::run_on;

/// A sample: name, labels, value.
struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

/// All of an exposition.
#[derive(Default)]
struct Exposition {
    kinds: BTreeMap<String, String>,
    samples: Vec<Sample>,
}

impl Exposition {
    fn of(tree: &str) -> Self {
        let text = run_on(tree, "stats --prometheus").out;
        assert!(text.ends_with('\n'));
        let mut this = Self::default();
        let mut helped = BTreeSet::new();
        for line in text.lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, help) = help.split_once(' ').unwrap();
                assert!(!help.is_empty() && helped.insert(name.to_owned()), "{line}");
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert!(helped.contains(name), "TYPE before HELP: {line}");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert_eq!(
                    this.kinds.insert(name.to_owned(), kind.to_owned()),
                    None,
                    "{line}"
                );
            } else {
                this.samples.push(sample(line));
            }
        }
        this
    }

    fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let sample = self.samples.iter().find(|sample| {
            sample.name == name
                && labels
                    .iter()
                    .all(|(label, value)| sample.labels.get(*label).is_some_and(|v| v == value))
        });
        sample.map(|sample| sample.value)
    }
}

fn sample(line: &str) -> Sample {
    let (name, labels, value) = match line.split_once('{') {
        Some((name, rest)) => {
            let (labels, value) = rest.rsplit_once("} ").expect(line);
            (name, parse_labels(labels), value)
        }
        None => {
            let (name, value) = line.split_once(' ').expect(line);
            (name, BTreeMap::new(), value)
        }
    };
    assert!(is_name(name), "{line}");
    Sample {
        name: name.to_owned(),
        labels,
        value: value.parse().expect(line),
    }
}

fn parse_labels(text: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").expect(text);
        let end = after.find('"').expect(text);
        assert!(is_name(name) && !after[..end].contains('\\'), "{text}");
        assert_eq!(
            labels.insert(name.to_owned(), after[..end].to_owned()),
            None,
            "{text}"
        );
        rest = after[end + 1..].trim_start_matches(',');
    }
    labels
}

fn is_name(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !text.starts_with(|c: char| c.is_ascii_digit())
}

/// The family that a sample belongs to.
fn family<'a>(exposition: &Exposition, name: &'a str) -> &'a str {
    let of_histogram = ["_bucket", "_sum", "_count"]
        .iter()
        .filter_map(|end| name.strip_suffix(end))
        .find(|name| {
            exposition
                .kinds
                .get(*name)
                .is_some_and(|kind| kind == "histogram")
        });
    of_histogram.unwrap_or(name)
}

#[test]
fn names_and_kinds_fit() {
    for tree in [
        "idle",
        "busy",
        "drain",
        "revocable",
        "unprivileged",
        "not-loaded",
    ] {
        let exposition = Exposition::of(tree);
        for sample in &exposition.samples {
            let family = family(&exposition, &sample.name);
            let kind = exposition.kinds.get(family).expect(family);
            assert!(family.starts_with("nvidia_peermem_"), "{family}");
            assert_eq!(
                kind == "counter",
                family.ends_with("_total"),
                "{family} is a {kind}"
            );
        }
    }
}

#[test]
fn each_series_is_there_once() {
    for tree in ["busy", "revocable"] {
        let mut seen = BTreeSet::new();
        for sample in Exposition::of(tree).samples {
            let series = format!("{}{:?}", sample.name, sample.labels);
            assert!(seen.insert(series.clone()), "{series}");
        }
    }
}

#[test]
fn values_are_those_of_the_module() {
    let page = Exposition::of("busy");
    let value =
        |name: &str, labels: &[(&str, &str)]| page.value(&format!("nvidia_peermem_{name}"), labels);
    assert_eq!(value("up", &[]), Some(1.0));
    assert_eq!(value("active_mrs", &[]), Some(4.0));
    assert_eq!(
        value("mrs_registered_total", &[("client", "nv_mem")]),
        Some(12.0)
    );
    assert_eq!(
        value("failures_total", &[("reason", "pin_enomem")]),
        Some(2.0)
    );
    assert_eq!(
        value("gpu_active_bytes", &[("gpu", "0000:65:00.0")]),
        Some(1073741824.0)
    );
    assert_eq!(
        value(
            "device_active_mrs",
            &[("device", "mlx5_0"), ("pci", "0000:18:00.0")]
        ),
        Some(3.0)
    );
    assert_eq!(value("draining", &[]), Some(0.0));
    assert_eq!(
        Exposition::of("not-loaded").value("nvidia_peermem_up", &[]),
        Some(0.0)
    );
    assert_eq!(
        Exposition::of("drain").value("nvidia_peermem_draining", &[]),
        Some(1.0)
    );
}

#[test]
fn histograms_count_up_to_all() {
    let page = Exposition::of("busy");
    let name = "nvidia_peermem_call_duration_seconds";
    for call in ["pin", "map", "unmap", "unpin"] {
        let counts: Vec<f64> = page
            .samples
            .iter()
            .filter(|sample| {
                sample.name == format!("{name}_bucket") && sample.labels["call"] == call
            })
            .map(|sample| sample.value)
            .collect();
        assert!(
            counts.len() == 41 && counts.windows(2).all(|pair| pair[0] <= pair[1]),
            "{counts:?}"
        );
        assert_eq!(
            counts.last().copied(),
            page.value(&format!("{name}_count"), &[("call", call)])
        );
    }
    assert_eq!(
        page.value(&format!("{name}_sum"), &[("call", "pin")]),
        Some(0.0014)
    );
}
