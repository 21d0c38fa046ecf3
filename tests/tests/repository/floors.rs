//! The drawing of the floors in executable form: an arrow between the floors of `framework` may
//! only point down. The test reads the imports of the code; a link in a comment is not an arrow.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::path::{Path, PathBuf};

/// Each floor with the lower floors that it may name. `sys` is below all: system calls, `core` and
/// `std` only. `door of X` means the items that X itself exports, not its modules: a pipeline knows
/// the contract of devices but no device, and a worker holds machines but does not access their
/// inside. Tests build frames and need a concrete device, so they may name every floor that is
/// above their own in this list, and its modules.
const FLOORS: [(&str, &[&str]); 12] = [
    ("sys", &[]),
    ("counters", &["sys"]),
    ("time", &[]),
    ("wire", &[]),
    ("mem", &["time", "counters"]),
    ("proto", &["wire", "time"]),
    ("device", &["mem", "time", "counters", "wire", "sys"]),
    ("pipeline", &["door of device", "wire", "proto", "mem", "time", "counters"]),
    ("worker", &["pipeline", "device", "mem", "time", "counters", "wire", "sys", "door of proto"]),
    ("port", &["worker", "pipeline", "device", "time", "counters", "wire", "sys", "door of proto"]),
    ("testing", &["device", "proto", "pipeline"]),
    ("prelude", &["port", "worker", "pipeline", "door of proto", "time"]),
];

/// The rooms of `worker`, each with those below that it may name: a builder knows no live port,
/// which hands one out, and the threads beside the workers know neither.
const ROOMS_OF_WORKER: [(&str, &[&str]); 14] = [
    ("topology", &[]),
    ("stop", &[]),
    ("seed", &[]),
    ("reload", &[]),
    ("spsc", &[]),
    ("affinity", &["topology"]),
    ("timeline", &["spsc"]),
    ("kernel", &["seed", "spsc", "stop"]),
    ("guard", &[]),
    ("group", &["affinity", "topology", "stop"]),
    ("poll", &["kernel", "stop"]),
    ("builder", &["poll", "group", "kernel", "affinity", "seed", "topology"]),
    ("live", &["builder", "poll", "kernel", "timeline", "seed", "stop", "topology"]),
    ("broker", &["live", "kernel", "stop"]),
];

/// The types that `worker` exports, and the rooms they are of.
const TYPES_OF_WORKER: [(&str, &str); 15] = [
    ("HostDescription", "builder"),
    ("HostProvider", "builder"),
    ("WorkerBuilder", "builder"),
    ("WorkerBuilderError", "builder"),
    ("PoolSetupError", "group"),
    ("WorkerContext", "group"),
    ("WorkerGroup", "group"),
    ("WorkerGroupError", "group"),
    ("WorkerSpec", "group"),
    ("Ended", "poll"),
    ("Parts", "poll"),
    ("Worker", "poll"),
    ("ReloadSignal", "reload"),
    ("random_seed", "seed"),
    ("StopFlag", "stop"),
];

/// Macros are exported at the root of the crate, whatever floor they are of.
const MACROS: [(&str, &str); 2] = [("drop_reasons", "counters"), ("forward", "device")];

#[test]
fn arrows_point_down() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../framework/src");
    let (mut arrows, mut wrong) = (0, Vec::new());
    for file in rust_files(&src) {
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(&src).unwrap();
        arrows += text.matches("use crate::").count();
        wrong.extend(wrong_arrows(name, &text));
    }
    assert!(wrong.is_empty(), "arrows that do not point down:\n{}", wrong.join("\n"));
    assert!(arrows > 50, "only {arrows} arrows in {}: this test no longer finds the code", src.display());
}

#[test]
fn arrows_between_the_rooms_of_worker_point_down() {
    let worker = Path::new(env!("CARGO_MANIFEST_DIR")).join("../framework/src/worker");
    let is_a_room = |file: &PathBuf| file != &worker.join("mod.rs") && !file.starts_with(worker.join("tests"));
    let (mut arrows, mut wrong) = (0, Vec::new());
    for file in rust_files(&worker).into_iter().filter(is_a_room) {
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.strip_prefix(&worker).unwrap();
        let named = rooms_named(name, &text);
        arrows += named.len();
        let room = first_part(name);
        let (_, allowed) = ROOMS_OF_WORKER.iter().find(|(known, _)| *known == room).expect("every room is in the list");
        let other = named.into_iter().filter(|named| *named != room && !allowed.contains(&named.as_str()));
        wrong.extend(other.map(|named| format!("{}: {room} -> {named}", name.display())));
    }
    assert!(wrong.is_empty(), "arrows between rooms that do not point down:\n{}", wrong.join("\n"));
    assert!(arrows > 40, "only {arrows} arrows: this test no longer finds the code");
}

/// The list is an order: each room names rooms above itself in the list, so that there is no
/// circle.
#[test]
fn rooms_of_worker_have_an_order() {
    for (idx, (room, below)) in ROOMS_OF_WORKER.iter().enumerate() {
        let before = &ROOMS_OF_WORKER[..idx];
        let is_before = |name: &&&str| before.iter().any(|(known, _)| known == *name);
        assert_eq!(below.iter().filter(is_before).count(), below.len(), "{room}: {below:?}");
    }
}

#[test]
fn rooms_are_found_by_module_and_by_type() {
    let check = |text: &str, expected: &[&str]| {
        assert_eq!(rooms_named(Path::new("builder/hosting.rs"), text), expected, "{text}");
    };
    check("use crate::worker::live::LiveHost;", &["live"]);
    check("use crate::worker::{StopFlag, poll};", &["stop", "poll"]);
    check("use super::super::live::LiveHost;", &["live"]);
    check("// crate::worker::live", &[]);
    check("#[cfg(test)]\nmod tests {\n    use crate::worker::live::LiveHost;\n}", &[]);
}

/// The packets and the device of RoCE, and the texts before them, are free of the framework: only
/// the node on a port (`rdma/src/port`) knows it.
#[test]
fn roce_knows_no_framework() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("../rdma/src");
    let rooms = ["wire", "roce", "out_of_band", "provider", "mirror", "snapshot"].map(|room| src.join(room));
    let files: Vec<PathBuf> = rooms.iter().flat_map(|room| rust_files(room)).collect();
    let wrong: Vec<_> = files
        .iter()
        .filter(|file| {
            let text = std::fs::read_to_string(file).unwrap();
            let mut code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            code.any(|line| line.contains("wirepath::") || line.contains("crate::port"))
        })
        .collect();
    assert!(wrong.is_empty(), "files that name the framework: {wrong:?}");
    assert!(files.len() > 20, "only {} files below {}", files.len(), src.display());
}

#[test]
fn upward_arrow_is_named_with_file_and_line() {
    let check = |file: &str, text: &str, expected: &[&str]| {
        assert_eq!(wrong_arrows(Path::new(file), text), expected, "{file}: {text}");
    };
    check("wire/udp.rs", "\nuse crate::mem::Mbuf;", &["framework/src/wire/udp.rs:2: wire -> mem"]);
    check("mem/pool.rs", "use crate::{time::Instant, proto};", &["framework/src/mem/pool.rs:1: mem -> {"]);
    check("time.rs", "use super::counters::Block;", &["framework/src/time.rs:1: time -> counters"]);
    check(
        "proto/host/mod.rs",
        "fn f(_: super::super::mem::Mbuf) {}",
        &["framework/src/proto/host/mod.rs:1: proto -> mem"],
    );
    check(
        "pipeline/udp/node.rs",
        "use crate::device::{Offload, pcap::Reader};",
        &["framework/src/pipeline/udp/node.rs:1: pipeline -> device"],
    );
    check("pipeline/udp/node.rs", "use crate::device::{Offload, TxQueue};\n//! [`crate::worker::run`]", &[]);
    check("pipeline/udp/tests.rs", "use crate::device::memory::pair;", &[]);
    check("pipeline/timestamps.rs", "use crate::forward;", &[]);
    check("proto/timers.rs", "use crate::forward;", &["framework/src/proto/timers.rs:1: proto -> device"]);
    check("wire/tests.rs", "use crate::mem::Mbuf;", &["framework/src/wire/tests.rs:1: wire -> mem"]);
}

fn wrong_arrows(file: &Path, text: &str) -> Vec<String> {
    let floor = file.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
    let (_, allowed) = FLOORS.iter().find(|(name, _)| *name == floor).unwrap_or(&("", &[]));
    let code: String = text.lines().map(|line| line.split("//").next().unwrap().to_owned() + "\n").collect();
    let tests_from = code.find("\nmod tests {").unwrap_or(code.len());
    let modules_deep = file.with_extension("").iter().filter(|name| *name != "mod").count();
    let mut wrong = Vec::new();
    for root in ["crate::", &"super::".repeat(modules_deep)] {
        for (start, _) in code.match_indices(root) {
            let path = &code[start + root.len()..];
            let of_macro = MACROS.iter().find(|(name, _)| *name == first_name(path)).map(|(_, floor)| *floor);
            let target = of_macro.unwrap_or_else(|| first_name(path));
            if root != "crate::" && !FLOORS.iter().any(|(name, _)| *name == target) {
                continue;
            }
            let at_the_door = of_macro.is_some() || stays_at_the_door(path);
            let door = allowed.contains(&&*format!("door of {target}")) && at_the_door;
            let in_tests = start > tests_from || file.to_str().unwrap().contains("tests");
            let below = FLOORS.iter().take_while(|(name, _)| *name != floor).any(|(name, _)| *name == target);
            let fine = target == floor || allowed.contains(&target) || door || (in_tests && below);
            if !fine {
                let line = code[..start].matches('\n').count() + 1;
                wrong.push(format!("framework/src/{}:{line}: {floor} -> {target}", file.display()));
            }
        }
    }
    wrong
}

/// The rooms of `worker` that a file names outside its tests, by a module or by a type.
fn rooms_named(file: &Path, text: &str) -> Vec<String> {
    if file.ends_with("tests.rs") || file.iter().any(|part| part == "tests") {
        return Vec::new();
    }
    let code: String = text.lines().map(|line| line.split("//").next().unwrap().to_owned() + "\n").collect();
    let code = &code[..code.find("\nmod tests {").unwrap_or(code.len())];
    let deep = file.with_extension("").iter().filter(|name| *name != "mod").count();
    let mut named = Vec::new();
    for root in ["crate::worker::", &"super::".repeat(deep)] {
        for (start, _) in code.match_indices(root).filter(|(start, _)| !code[..*start].ends_with("super::")) {
            let path = &code[start + root.len()..];
            let names = path.strip_prefix('{').map_or(first_name(path), |group| group.split('}').next().unwrap());
            named.extend(names.split(',').filter_map(|name| room_of(first_name(name.trim()))));
        }
    }
    named
}

fn room_of(name: &str) -> Option<String> {
    let of_type = TYPES_OF_WORKER.iter().find(|(known, _)| *known == name).map(|(_, room)| *room);
    let room = of_type.or_else(|| ROOMS_OF_WORKER.iter().map(|(room, _)| *room).find(|room| *room == name));
    room.map(str::to_owned)
}

fn first_part(file: &Path) -> &str {
    file.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs")
}

/// Of `device::{Offload, TxQueue}` the word `device`. A group at the root is `{`, which no floor
/// may name: one `use` a floor keeps the arrows readable, here and for people.
fn first_name(path: &str) -> &str {
    let end = path.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(path.len());
    &path[..end.max(1).min(path.len())]
}

/// Types and traits are exported by the floor itself; a small letter is one of its modules.
fn stays_at_the_door(path: &str) -> bool {
    let inside = path[first_name(path).len()..].trim_start_matches("::");
    let names = inside.strip_prefix('{').map_or(first_name(inside), |group| group.split('}').next().unwrap());
    names.split(',').all(|name| name.trim().is_empty() || name.trim().starts_with(|c: char| c.is_uppercase()))
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] }).collect()
}
