//! `unsafe` lives in few, small files, and each opens with the numbered invariants that its blocks
//! rely on.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::path::{Path, PathBuf};

/// All of them. A new one is a decision: it needs a reason why safe code would not do, and its line
/// here.
const FILES: &[&str] = &[
    "apps/market-ring/src/memory.rs",
    "apps/order-gateway/src/memory.rs",
    "apps/order-gateway/src/stamps.rs",
    "apps/wirepath-cli/src/namespace.rs",
    "apps/wirepath-cli/src/ping/sys.rs",
    "apps/wirepath-cli/src/sys.rs",
    "benches/src/connectx/calls.rs",
    "benches/src/live/sys.rs",
    "benches/src/prefetch.rs",
    "c/src/entry.rs",
    "c/src/foreign.rs",
    "framework/rdma-core-sys/src/inline.rs",
    "framework/rdma-core-sys/src/load.rs",
    "framework/rdma-core-sys/src/verbs/completion.rs",
    "framework/rdma-core-sys/src/verbs/context.rs",
    "framework/rdma-core-sys/src/verbs/device.rs",
    "framework/rdma-core-sys/src/verbs/fake.rs",
    "framework/rdma-core-sys/src/verbs/flow.rs",
    "framework/rdma-core-sys/src/verbs/handle.rs",
    "framework/rdma-core-sys/src/verbs/memory.rs",
    "framework/rdma-core-sys/src/verbs/own_objects.rs",
    "framework/rdma-core-sys/src/verbs/queue_pair.rs",
    "framework/rdma-core-sys/src/verbs/ring_memory.rs",
    "framework/rdma-core-sys/src/verbs/service.rs",
    "framework/rdma-core-sys/src/verbs/work_queue.rs",
    "framework/rdma-core-sys/tests/services.rs",
    "framework/src/counters/memory.rs",
    "framework/src/device/af_xdp/broker/foreign.rs",
    "framework/src/device/af_xdp/program/bpf.rs",
    "framework/src/device/af_xdp/rings/ring.rs",
    "framework/src/device/af_xdp/rings/sys.rs",
    "framework/src/device/af_xdp/rings/umem.rs",
    "framework/src/device/broker/sys.rs",
    "framework/src/device/memory/ring.rs",
    "framework/src/device/mlx5/lend/rings.rs",
    "framework/src/device/mlx5/lend/shared.rs",
    "framework/src/device/mlx5/receive/mprq_buffer.rs",
    "framework/src/device/mlx5/ring.rs",
    "framework/src/device/mlx5/send/doorbell.rs",
    "framework/src/device/mlx5/send/sq_memory.rs",
    "framework/src/device/mlx5/setup/objects.rs",
    "framework/src/mem/fifo.rs",
    "framework/src/mem/held.rs",
    "framework/src/mem/mbuf.rs",
    "framework/src/mem/metadata.rs",
    "framework/src/mem/pool.rs",
    "framework/src/mem/region.rs",
    "framework/src/mem/rx_meta.rs",
    "framework/src/mem/rx_slots.rs",
    "framework/src/sys/files.rs",
    "framework/src/sys/helper.rs",
    "framework/src/sys/interface.rs",
    "framework/src/sys/process.rs",
    "framework/src/sys/socket.rs",
    "framework/src/time/tsc.rs",
    "framework/src/wire/checksum/lanes.rs",
    "framework/src/worker/guard/socket.rs",
    "framework/src/worker/spsc/lossless.rs",
    "hugepage-setup/src/large_pages.rs",
    "hugepage-setup/src/mapping/mod.rs",
    "preload/src/abi/descriptors.rs",
    "preload/src/abi/exec.rs",
    "preload/src/abi/files.rs",
    "preload/src/abi/memory.rs",
    "preload/src/abi/mod.rs",
    "preload/src/abi/polling.rs",
    "preload/src/abi/receive.rs",
    "preload/src/abi/rights.rs",
    "preload/src/abi/send.rs",
    "preload/src/abi/socket.rs",
    "preload/src/abi/stdio.rs",
    "preload/src/engine/mod.rs",
    "preload/src/engine/signals.rs",
    "preload/src/heap.rs",
    "preload/src/probe.rs",
    "preload/src/process.rs",
    "preload/src/real.rs",
    "preload/src/rehearsal.rs",
    "preload/src/sys/mod.rs",
    "rdma/src/port/mbufs.rs",
    "rdma/src/provider/rdma_core/memory_and_queues.rs",
    "rdma/src/roce/memory.rs",
    "rdma/src/roce/prefetch.rs",
    "rdma/src/wire/crc32/clmul.rs",
    "sockets/tests/common/sys.rs",
    "tests/allocations/src/lib.rs",
    "tests/softhca/preload/src/entry.rs",
    "tests/softhca/preload/src/memory.rs",
    "tests/softhca/preload/src/pages.rs",
    "tests/softhca/preload/src/sys.rs",
    "tests/softhca/src/run/sys.rs",
    "tests/softhca/src/wire/bpf.rs",
    "tests/softhca/src/wire/sys.rs",
    "tests/src/netns.rs",
    "tests/src/nic.rs",
    "tests/src/packet.rs",
    "tests/tests/pipeline/alloc.rs",
];

#[test]
fn unsafe_code_is_denied_everywhere() {
    let workspace = read("Cargo.toml");
    assert!(workspace.contains("\nunsafe_code = \"deny\"\n"), "the lints of the workspace no longer deny unsafe_code");
    assert!(
        workspace.contains("\nundocumented_unsafe_blocks = \"deny\"\n"),
        "clippy no longer demands a SAFETY comment over each unsafe block"
    );
    let members = workspace.split("members = [").nth(1).unwrap().split(']').next().unwrap();
    for member in members.split(',').map(|name| name.trim().trim_matches('"')).filter(|name| !name.is_empty()) {
        let manifest = read(&format!("{member}/Cargo.toml"));
        assert!(
            manifest.contains("[lints]\nworkspace = true\n"),
            "{member}/Cargo.toml does not take the workspace's lints"
        );
    }
}

#[test]
fn only_the_named_files_allow_unsafe_code() {
    let mut found = Vec::new();
    for folder in ["framework", "sockets", "rdma", "c", "apps", "hugepage-setup", "preload", "benches", "tests"] {
        for file in rust_files(&root().join(folder)) {
            if file.extension().is_none_or(|extension| extension != "rs") {
                continue;
            }
            let name = file.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            let text = std::fs::read_to_string(&file).unwrap();
            found.extend(allowed_modules(&name, &text));
        }
    }
    found.sort();
    assert_eq!(found, FILES, "files that allow unsafe code (left) and those that are named here (right)");
}

#[test]
fn each_opens_with_numbered_invariants() {
    for file in FILES {
        let text = read(file);
        let mut opening = text.lines().take_while(|line| line.starts_with("//!")).map(|line| line[3..].trim());
        let invariants = opening.find(|line| line.to_lowercase().contains("invariants"));
        // Files that share their rules with a neighbor name that file instead of repeating the
        // rules.
        let shared = invariants.is_some_and(|line| line.contains("those of [`"));
        let numbered = invariants.is_some() && opening.any(|line| line.starts_with("1. "));
        assert!(numbered || shared, "{file} does not open with `Invariants:` and a numbered list");
    }
}

/// The files for which `text` lifts the denial: the module that the attribute stands over, or the
/// file itself.
fn allowed_modules(file: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        let lifts =
            line.starts_with('#') && line.contains("unsafe_code") && !line.contains("deny") && !line.contains("forbid");
        if !lifts {
            continue;
        }
        let module = lines.peek().and_then(|next| next.strip_suffix(';')?.split_once("mod ")).map(|(_, name)| name);
        found.push(match module {
            Some(name) => file_of_module(&folder_of_modules(file).join(name)),
            None => file.to_owned(),
        });
    }
    found
}

/// The file of a module: of its name, or the door of the folder of its name.
fn file_of_module(module: &Path) -> String {
    let beside = module.with_extension("rs");
    let file = if root().join(&beside).exists() { beside } else { module.join("mod.rs") };
    file.to_str().unwrap().to_owned()
}

/// The folder of the modules that `file` names: its own folder, or the one with the file's name.
fn folder_of_modules(file: &str) -> PathBuf {
    let file = Path::new(file);
    let is_root = file.file_stem().is_some_and(|stem| ["lib", "main", "mod"].iter().any(|root| stem == *root));
    if is_root { file.with_file_name("") } else { file.with_extension("") }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] }).collect()
}

fn read(file: &str) -> String {
    std::fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
