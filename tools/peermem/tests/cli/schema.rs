// SPDX-License-Identifier: GPL-2.0

//! JSON against the schemas in `schemas/`.

use std::fs;
use std::path::Path;

use jsonschema::Validator;
use serde_json::Value;

use crate::program::run_on;

fn schema(name: &str) -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("schemas/{name}.json"));
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

fn validator(name: &str) -> Validator {
    jsonschema::validator_for(&schema(name)).expect("a schema")
}

fn check(name: &str, arguments: &str, trees: &[&str]) {
    for tree in trees {
        let out = run_on(tree, arguments).out;
        assert!(!out.is_empty(), "[{tree}] {arguments}");
        valid(name, &out);
    }
}

/// Checks one value, or several that follow each other.
pub fn valid(name: &str, text: &str) {
    let validator = validator(name);
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let value = value.unwrap();
        let errors: Vec<_> = validator.iter_errors(&value).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?} in {text}");
    }
}

const LOADED: [&str; 4] = ["idle", "busy", "drain", "revocable"];

#[test]
fn status() {
    check("status", "-j status", &LOADED);
    check(
        "status",
        "-j status",
        &["not-loaded", "not-installed", "nvidias-own"],
    );
}

#[test]
fn show() {
    for object in ["mr", "client", "gpu", "link", "failures", "latency"] {
        check(
            &format!("show-{object}"),
            &format!("-j show {object}"),
            &LOADED,
        );
    }
}

#[test]
fn stats() {
    check("stats", "-j stats", &LOADED);
    check("limit", "-j limit", &LOADED);
}

#[test]
fn top() {
    check("top", "-j top -n 2 -i 0.05", &LOADED);
    check("top", "-j top -n 1", &["unprivileged"]);
}

#[test]
fn doctor() {
    check(
        "doctor",
        "-j doctor",
        &["machine", "busy", "not-loaded", "unprivileged"],
    );
}

#[test]
fn a_schema_refuses_what_it_does_not_know() {
    let right = &run_on("busy", "-j show client").out;
    let right: Value = serde_json::from_str(right).unwrap();
    let refused = |change: fn(&mut Value)| {
        let mut wrong = right.clone();
        change(&mut wrong[0]);
        !validator("show-client").is_valid(&wrong)
    };
    assert!(!refused(|_| ()));
    assert!(refused(|client| client["version"] = 1.into()));
    assert!(refused(|client| client["num_alloc_mrs"] = (-1).into()));
    assert!(refused(|client| client["other"] = 1.into()));
    assert!(refused(|client| drop(
        client.as_object_mut().unwrap().remove("name")
    )));
}
