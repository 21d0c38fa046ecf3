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

/// A method of each trait without a default: an implementation that calls it on a field is around
/// another one.
const CALLED: [(&str, &str); 4] =
    [("Device", ".take_queue("), ("Queue", ".open(pool"), ("RxQueue", ".receive("), ("TxQueue", ".ring_doorbell(")];

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
            let place = file.strip_prefix(&root).unwrap().display();
            if !missing.is_empty() {
                wrong.push(format!("{place}: {} misses {}", wrapper.head, missing.join(", ")));
            }
            let unknown = wrapper.unknown(&contract);
            if !unknown.is_empty() {
                wrong.push(format!("{place}: {} names what has no default: {}", wrapper.head, unknown.join(", ")));
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
    let called =
        "impl TxQueue for Timed {\n    fn ring_doorbell(&mut self) {\n        self.tx.ring_doorbell()\n    }\n}\n";
    assert_eq!(wrappers_of(called).len(), 1);
    let unknown = wrappers_of("impl TxQueue for Marked<'_> {\n    forward!(by_default: post, defer, gone);\n}\n");
    assert_eq!(unknown[0].unknown(contract), ["gone", "post"]);
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

    /// What it leaves to a default that the trait does not have.
    fn unknown(&self, contract: &str) -> Vec<&str> {
        let defaults = defaults_of(contract, self.of);
        let kept: BTreeSet<_> = self.lists().filter(|(is_kept, _)| *is_kept).map(|(_, method)| method).collect();
        kept.into_iter().filter(|method| !defaults.contains(*method)).collect()
    }

    /// The names in its `forward!`, and whether each is left to the default.
    fn lists(&self) -> impl Iterator<Item = (bool, &str)> {
        let lists = self.body.match_indices("forward!(").map(|(start, head)| &self.body[start + head.len()..]);
        let groups = lists.flat_map(|rest| rest.split(')').next().unwrap().split(';'));
        groups.flat_map(|group| {
            let (field, methods) = group.split_once(':').unwrap();
            let is_kept = field.trim() == "by_default";
            methods.split(',').map(move |method| (is_kept, method.trim()))
        })
    }

    /// The methods that it writes, forwards, or leaves to the default.
    fn named(&self) -> BTreeSet<&str> {
        let written =
            self.body.match_indices("\n    fn ").map(|(start, head)| first_name(&self.body[start + head.len()..]));
        let mut named: BTreeSet<_> = written.collect();
        for (is_kept, method) in self.lists() {
            let included = INCLUDED.iter().find(|(name, _)| !is_kept && *name == method);
            named.extend(included.into_iter().flat_map(|(_, others)| *others));
            named.insert(method);
        }
        named
    }
}

/// The implementations in a file that are generic over their own trait, that forward, or that call
/// the trait's method of a field.
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
        let (_, called) = CALLED.iter().find(|(name, _)| *name == of).unwrap();
        let calls = body.match_indices(called).any(|(start, _)| is_field(&body[..start]));
        if head.contains(&format!(": {of}")) || body.contains("forward!(") || calls {
            wrappers.push(Wrapper { head, of, body });
        }
    }
    wrappers
}

/// Whether the text ends with a field of `self`.
fn is_field(text: &str) -> bool {
    text.trim_end_matches(|c: char| c.is_alphanumeric() || c == '_').ends_with("self.")
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
