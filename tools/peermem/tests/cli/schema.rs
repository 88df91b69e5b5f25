// SPDX-License-Identifier: GPL-2.0

//! JSON against the schemas in `schemas/`.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use crate::program::run_on;

fn schema(name: &str) -> Value {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("schemas/{name}.json"));
    serde_json::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

/// What is wrong with a value, by a schema. Knows the keywords that the schemas here use, and no
/// others.
fn errors(schema: &Value, value: &Value) -> Vec<String> {
    let keywords = schema.as_object().expect("a schema is an object");
    keywords
        .iter()
        .flat_map(|(keyword, rule)| broken(keywords, keyword, rule, value))
        .collect()
}

fn broken(schema: &Map<String, Value>, keyword: &str, rule: &Value, value: &Value) -> Vec<String> {
    let kept = match keyword {
        "$schema" | "title" => true,
        "type" => has_type(value, rule.as_str().unwrap()),
        "const" => value == rule,
        "enum" => list(rule).contains(value),
        "minimum" => value.as_f64().is_none_or(|n| n >= rule.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|n| n <= rule.as_f64().unwrap()),
        "pattern" => value.as_str().is_none_or(|text| matches(rule, text)),
        "anyOf" => fitting(rule, value) >= 1,
        "oneOf" => fitting(rule, value) == 1,
        "required" => list(rule)
            .iter()
            .all(|key| value.get(key.as_str().unwrap()).is_some()),
        "items" => return each(array(value), |_, item| errors(rule, item)),
        "properties" => return each(members(value), |key, v| known(rule, key, v)),
        "additionalProperties" => {
            return each(members(value), |key, v| other(schema, rule, key, v))
        }
        "propertyNames" => return each(members(value), |key, _| errors(rule, &key.into())),
        keyword => panic!("unknown keyword {keyword}"),
    };
    match kept {
        true => Vec::new(),
        false => vec![format!("{value} breaks {keyword} {rule}")],
    }
}

fn has_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        name => panic!("unknown type {name}"),
    }
}

fn list(rule: &Value) -> &Vec<Value> {
    rule.as_array().expect("a list")
}

fn matches(pattern: &Value, text: &str) -> bool {
    regex_lite::Regex::new(pattern.as_str().unwrap())
        .unwrap()
        .is_match(text)
}

fn fitting(rule: &Value, value: &Value) -> usize {
    let fits = |schema: &&Value| errors(schema, value).is_empty();
    list(rule).iter().filter(fits).count()
}

fn members(value: &Value) -> Vec<(&str, &Value)> {
    let members = value.as_object().into_iter().flatten();
    members.map(|(key, value)| (key.as_str(), value)).collect()
}

fn array(value: &Value) -> Vec<(&str, &Value)> {
    let items = value.as_array().into_iter().flatten();
    items.map(|item| ("", item)).collect()
}

fn each(parts: Vec<(&str, &Value)>, check: impl Fn(&str, &Value) -> Vec<String>) -> Vec<String> {
    parts
        .into_iter()
        .flat_map(|(key, value)| check(key, value))
        .collect()
}

fn known(properties: &Value, key: &str, value: &Value) -> Vec<String> {
    match properties.get(key) {
        Some(schema) => errors(schema, value),
        None => Vec::new(),
    }
}

fn other(schema: &Map<String, Value>, rule: &Value, key: &str, value: &Value) -> Vec<String> {
    let named = schema.get("properties").and_then(|all| all.get(key));
    match (named, rule) {
        (Some(_), _) | (None, Value::Bool(true)) => Vec::new(),
        (None, Value::Bool(false)) => vec![format!("{key} is unknown")],
        (None, rule) => errors(rule, value),
    }
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
    let schema = schema(name);
    for value in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        let errors = errors(&schema, &value.unwrap());
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
fn a_schema_refuses_what_it_does_not_know() {
    let right = &run_on("busy", "-j show client").out;
    let right: Value = serde_json::from_str(right).unwrap();
    let refused = |change: fn(&mut Value)| {
        let mut wrong = right.clone();
        change(&mut wrong[0]);
        !errors(&schema("show-client"), &wrong).is_empty()
    };
    assert!(!refused(|_| ()));
    assert!(refused(|client| client["version"] = 1.into()));
    assert!(refused(|client| client["num_alloc_mrs"] = (-1).into()));
    assert!(refused(|client| client["other"] = 1.into()));
    assert!(refused(|client| drop(
        client.as_object_mut().unwrap().remove("name")
    )));
}
