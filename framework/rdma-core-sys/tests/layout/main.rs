//! The bindings against the headers of the distribution: a C program prints sizes, alignments,
//! offsets and constants, and the test compares them with ours. It prints SKIPPED if there is no
//! compiler or no libibverbs-dev.
#![allow(clippy::unwrap_used)] // a panic here is the report

use core::mem::offset_of;
use std::fmt::Write;
use std::fs;
use std::process::Command;

use rdma_core_sys::bindings::*;

/// The rdma-core version that the bindings were generated from.
const GENERATED_FROM: u32 = 44;

/// A struct or union, with its layout in Rust.
struct Layout {
    c_type: &'static str,
    len: usize,
    align: usize,
    fields: Vec<(&'static str, usize)>,
}

macro_rules! structs {
    ($($kind:ident $name:ident { $($($part:ident).+),* })*) => {
        fn structs() -> Vec<Layout> {
            vec![$(Layout {
                c_type: concat!(stringify!($kind), " ", stringify!($name)),
                len: size_of::<$name>(),
                align: align_of::<$name>(),
                fields: vec![$((concat!($(".", stringify!($part)),+), offset_of!($name, $($part).+))),*],
            }),*]
        }
    };
}

macro_rules! constants {
    ($($name:ident,)*) => {
        #[allow(clippy::unnecessary_cast)] // they are of several types
        fn constants() -> Vec<(&'static str, i64)> {
            vec![$((stringify!($name), $name as i64)),*]
        }
    };
}

include!("table.rs");

#[test]
fn bindings_are_those_of_the_installed_headers() {
    let test = "bindings_are_those_of_the_installed_headers";
    let Some(version) = installed_version() else {
        return println!("SKIPPED {test}: apt install libibverbs-dev pkg-config");
    };
    if version < GENERATED_FROM {
        return println!("SKIPPED {test}: the headers are of rdma-core {version}, ours of {GENERATED_FROM}");
    }
    let Some(said) = compile_and_run(&c_program()) else {
        return println!("SKIPPED {test}: there is no C compiler");
    };
    let mut said = said.lines().map(|line| line.parse::<i64>().unwrap());
    let mut next = || said.next().expect("the C program prints a line for each question");
    let mut wrong = Vec::new();
    for Layout { c_type, len, align, fields } in structs() {
        let (c_len, c_align) = (next(), next());
        // Later releases append to structs, and verbs_context grows at its front.
        let grown = c_len - i64::try_from(len).unwrap();
        let shift = if c_type == "struct verbs_context" { grown } else { 0 };
        if grown < 0 || (grown > 0 && version == GENERATED_FROM) || c_align != i64::try_from(align).unwrap() {
            wrong.push(format!("{c_type}: {c_len} bytes aligned to {c_align}, ours {len} aligned to {align}"));
        }
        for (field, offset) in fields {
            let (c_offset, offset) = (next(), i64::try_from(offset).unwrap());
            if c_offset != offset + shift {
                wrong.push(format!("{c_type}{field}: at {c_offset}, ours at {offset}"));
            }
        }
    }
    for (name, value) in constants() {
        let c_value = next();
        if c_value != value {
            wrong.push(format!("{name}: {c_value}, ours {value}"));
        }
    }
    assert!(wrong.is_empty(), "bindings differ from the headers of rdma-core {version}:\n{}", wrong.join("\n"));
}

#[test]
fn each_struct_of_the_bindings_is_compared() {
    let bindings = include_str!("../../src/bindings.rs");
    let compared: Vec<_> = structs().iter().map(|layout| layout.c_type.split(' ').nth(1).unwrap()).collect();
    let mut missing = Vec::new();
    for definition in bindings.split("#[repr(C").skip(1) {
        let name = definition.split("\npub ").nth(1).unwrap().split_whitespace().nth(1).unwrap();
        // Nested ones are compared within those around them; opaque ones have no fields to compare.
        let has_fields = !definition.contains("_address: u8")
            && !definition.contains("_unused: ")
            && !definition.contains("_bindgen_opaque_blob");
        if has_fields && !name.contains("indgen") && !compared.contains(&name) {
            missing.push(name);
        }
    }
    assert!(missing.is_empty() && compared.len() > 90, "{} compared, not {missing:?}: run generate.sh", compared.len());
}

/// 44 of `1.14.44.0`.
fn installed_version() -> Option<u32> {
    let output = Command::new("pkg-config").args(["--modversion", "libibverbs"]).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().split('.').nth(2)?.parse().ok()
}

fn c_program() -> String {
    let mut text = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <infiniband/verbs.h>\n#include <infiniband/mlx5dv.h>\n\
         #define SAY(value) printf(\"%lld\\n\", (long long)(value))\nint main(void) {\n",
    );
    for Layout { c_type, fields, .. } in structs() {
        writeln!(text, "SAY(sizeof({c_type})); SAY(_Alignof({c_type}));").unwrap();
        for (field, _) in fields {
            writeln!(text, "SAY(offsetof({c_type}, {}));", name_in_c(field)).unwrap();
        }
    }
    for (name, _) in constants() {
        writeln!(text, "SAY({name});").unwrap();
    }
    text + "}\n"
}

/// `.wr.rdma.rkey` without the names that bindgen made up: for members without a name in C, and for
/// keywords of Rust.
fn name_in_c(field: &str) -> String {
    let parts = field.split('.').filter(|part| !part.is_empty() && !part.starts_with("__bindgen_anon"));
    parts.map(|part| part.strip_suffix('_').unwrap_or(part)).collect::<Vec<_>>().join(".")
}

fn compile_and_run(program: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let (source, binary) = (folder.path().join("layout.c"), folder.path().join("layout"));
    fs::write(&source, program).unwrap();
    let compiled = Command::new("cc").arg(&source).arg("-o").arg(&binary).output().ok()?;
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    Some(String::from_utf8(Command::new(&binary).output().unwrap().stdout).unwrap())
}
