//! A queue around another one hands on each method of its trait, writes it, or says by name that
//! the default of the trait is right. A method that it missed would work, but by the default, and
//! the shorter path of the device inside would be lost without a word.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The traits of a device, of which a wrapper implements one or several.
const TRAITS: [&str; 4] = ["Device", "Queue", "RxQueue", "TxQueue"];

/// An arm of `forward!` that writes several methods, and those beside the one that names it.
const INCLUDED: [(&str, &[&str]); 3] =
    [("wait_fd", &["arm"]), ("ring_doorbell", &["defer_doorbell"]), ("prepost", &["preposted", "fire_preposted"])];

/// Folders of the repository that hold packages.
const FOLDERS: [&str; 7] = ["framework", "sockets", "preload", "rdma", "apps", "benches", "tests"];

#[test]
fn wrappers_name_each_method_that_has_a_default() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let contract = std::fs::read_to_string(root.join("framework/src/device/mod.rs")).unwrap();
    let (mut wrappers, mut wrong) = (0, Vec::new());
    for file in FOLDERS.iter().flat_map(|folder| rust_files(&root.join(folder))) {
        let text = std::fs::read_to_string(&file).unwrap();
        for wrapper in wrappers_of(&text) {
            wrappers += 1;
            let missing = wrapper.missing(&contract);
            if !missing.is_empty() {
                let place = file.strip_prefix(&root).unwrap().display();
                wrong.push(format!("{place}: {} misses {}", wrapper.head, missing.join(", ")));
            }
        }
    }
    assert!(wrong.is_empty(), "methods that a wrapper neither writes, nor forwards, nor names:\n{}", wrong.join("\n"));
    assert!(wrappers > 20, "only {wrappers} wrappers below {}: this test no longer finds them", root.display());
}

#[test]
fn method_that_a_wrapper_misses_is_named() {
    let contract = "pub trait TxQueue {\n    fn post(&mut self);\n\n    fn urgent(\n        &mut self,\n    ) {\n        self.post()\n    }\n\n    fn defer(&mut self) {}\n}\n";
    let check = |body: &str, expected: &[&str]| {
        let text = format!("impl<T: TxQueue> TxQueue for Around<T> {{\n{body}}}\n");
        let wrappers = wrappers_of(&text);
        assert_eq!(wrappers[0].missing(contract), expected, "{body}");
    };
    check("    fn post(&mut self) {}\n", &["defer", "urgent"]);
    check("    forward!(inner: post, defer, urgent);\n", &[]);
    check("    fn urgent(&mut self) {}\n    forward!(\n        inner: post;\n        by_default: defer\n    );\n", &[]);
    check("    forward!(by_default: defer);\n", &["urgent"]);
    assert!(wrappers_of("impl TxQueue for Device {\n    fn post(&mut self) {}\n}\n").is_empty());
    assert_eq!(wrappers_of("impl TxQueue for Marked<'_> {\n    forward!(tx: post);\n}\n").len(), 1);
}

/// An implementation of a trait of the contract around another one.
struct Wrapper<'a> {
    head: &'a str,
    of: &'a str,
    body: &'a str,
}

impl Wrapper<'_> {
    fn missing(&self, contract: &str) -> Vec<String> {
        let named = self.named();
        defaults_of(contract, self.of).into_iter().filter(|method| !named.contains(method.as_str())).collect()
    }

    /// The methods that it writes, forwards, or leaves to the default.
    fn named(&self) -> BTreeSet<&str> {
        let written =
            self.body.match_indices("\n    fn ").map(|(start, head)| first_name(&self.body[start + head.len()..]));
        let mut named: BTreeSet<_> = written.collect();
        for (start, head) in self.body.match_indices("forward!(") {
            let list = self.body[start + head.len()..].split(')').next().unwrap();
            for group in list.split(';') {
                let (field, methods) = group.split_once(':').unwrap();
                for method in methods.split(',').map(str::trim) {
                    let is_forwarded = field.trim() != "by_default";
                    let included = INCLUDED.iter().find(|(name, _)| is_forwarded && *name == method);
                    named.extend(included.into_iter().flat_map(|(_, others)| *others));
                    named.insert(method);
                }
            }
        }
        named
    }
}

/// The implementations in a file that are generic over their own trait, or that forward.
fn wrappers_of(text: &str) -> Vec<Wrapper<'_>> {
    let mut wrappers = Vec::new();
    for (start, _) in text.match_indices("\nimpl").map(|(start, _)| (start + 1, ())).chain([(0, ())]) {
        let block = &text[start..];
        if !block.starts_with("impl") {
            continue;
        }
        let Some((head, rest)) = block.split_once(" {\n") else { continue };
        let Some(of) = TRAITS.into_iter().find(|of| head.contains(&format!("{of} for ")) && is_whole(head, of)) else {
            continue;
        };
        let body = &block[head.len() + 2..head.len() + 2 + rest.find("\n}").map_or(rest.len(), |end| end + 1)];
        if head.contains(&format!(": {of}")) || body.contains("forward!(") {
            wrappers.push(Wrapper { head, of, body });
        }
    }
    wrappers
}

/// Whether the head implements the trait, and not one whose name ends as this one's.
fn is_whole(head: &str, of: &str) -> bool {
    let start = head.find(&format!("{of} for ")).unwrap();
    head[..start].ends_with([' ', '>'])
}

/// The methods of a trait that have a body, in order of their names.
fn defaults_of(contract: &str, of: &str) -> BTreeSet<String> {
    let start = contract.find(&format!("\npub trait {of}")).or_else(|| contract.starts_with("pub trait").then_some(0));
    let body = contract[start.unwrap()..].trim_start().split("\n}").next().unwrap();
    let methods = body.match_indices("\n    fn ").map(|(start, head)| &body[start + head.len()..]);
    methods.filter(|rest| has_body(rest)).map(|rest| first_name(rest).to_owned()).collect()
}

/// Whether the text that begins with a method's name goes on with a body, and not with a semicolon.
fn has_body(rest: &str) -> bool {
    rest.find('{').is_some_and(|brace| rest.find(';').is_none_or(|semicolon| brace < semicolon))
}

fn first_name(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}
