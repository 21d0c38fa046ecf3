//! A TCP connection is made of parts, each in a separate file whose head says which rooms write it.
//! This test reads the code of TCP and checks that. All rooms may call the verbs of a part and read
//! it; tests may write everything.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::path::{Path, PathBuf};

/// The rooms of TCP: folders and files of `proto/tcp`.
const ROOMS: [&str; 9] = ["calls", "input", "listening", "loss", "machine", "output", "route_watch", "state", "timers"];

/// The fields of `Connection` that are of no part; each says why.
const WHOLE: [&str; 4] = ["flow", "generation", "taken", "consumer"];

/// A field of `Connection` that is a part, and the rooms that write it.
struct Part {
    field: String,
    rooms: Vec<String>,
}

#[test]
fn parts_of_a_connection_are_written_by_the_rooms_that_their_heads_name() {
    let tcp = Path::new(env!("CARGO_MANIFEST_DIR")).join("../framework/src/proto/tcp");
    let mut parts = parts(&tcp.join("state"));
    assert!(parts.len() > 30, "only {} parts: this test no longer finds them", parts.len());
    let homeless: Vec<&str> = parts
        .iter()
        .filter(|part| part.rooms.is_empty() != WHOLE.contains(&&*part.field))
        .map(|part| &*part.field)
        .collect();
    assert_eq!(homeless, [""; 0], "fields whose part has no room");
    parts.retain(|part| !part.rooms.is_empty());
    let (mut count, mut wrong) = (0, Vec::new());
    for file in rust_files(&tcp) {
        let name = file.strip_prefix(&tcp).unwrap();
        if name.starts_with("tests") || name.starts_with("state/connection") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        count += writes(&text, &parts).len();
        wrong.extend(wrong_writes(name, &text, &parts));
    }
    assert!(wrong.is_empty(), "written by rooms that the heads of the parts do not name:\n{}", wrong.join("\n"));
    assert!(count > 100, "only {count} writes: this test no longer finds the code");
}

#[test]
fn write_of_another_room_is_named_with_file_and_line() {
    let parts = [Part { field: "snd".into(), rooms: vec!["input".into()] }];
    let check = |file: &str, text: &str, expected: &[&str]| {
        assert_eq!(wrong_writes(Path::new(file), text, &parts), expected, "{file}: {text}");
    };
    check("loss/rack.rs", "fn f() {\n    connection.snd.una += 1;\n}", &["loss/rack.rs:2: loss writes snd"]);
    check("loss/rack.rs", "(self.a, self.connection.snd.una) = (1, 2);", &["loss/rack.rs:1: loss writes snd"]);
    check("timers.rs", "match x {\n    Some(y) => self.snd.una = y,\n}", &["timers.rs:2: timers writes snd"]);
    check("timers.rs", "take(&mut connection.snd.una);", &["timers.rs:1: timers writes snd"]);
    check("input/fin.rs", "connection.snd.una += 1;", &[]);
    check("loss/rack.rs", "let una = connection.snd.una; if una == connection.snd.nxt { other.snd_una = una; }", &[]);
    check("loss/rack.rs", "// connection.snd.una = 1;\nx = connection.snd.una;", &[]);
    check("loss/rack.rs", "#[cfg(test)]\nmod tests { fn f() { connection.snd.una = 1; } }", &[]);
}

/// The fields of `Connection`, and the rooms that the head of the file of their type names in its
/// first sentence that says "Written by".
fn parts(folder: &Path) -> Vec<Part> {
    let texts: Vec<String> = rust_files(folder).iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    let connection = texts.iter().find_map(|text| text.split("struct Connection {").nth(1)).unwrap();
    let fields = connection.split("\n}\n").next().unwrap().lines().filter(|line| !line.trim_start().starts_with('/'));
    let mut parts = Vec::new();
    for line in fields {
        let Some((field, kind)) = line.trim_end_matches(',').rsplit_once(": ") else { continue };
        let is_its = |text: &&String| ["struct ", "enum "].iter().any(|item| names_item(text, item, kind));
        let head = texts.iter().find(is_its).map_or(String::new(), |text| {
            text.lines().take_while(|line| line.starts_with("//!")).map(|line| &line[3..]).collect()
        });
        let said = head.split("Written by").nth(1).unwrap_or_default().split(". ").next().unwrap();
        let rooms = said.split('`').filter(|word| ROOMS.contains(word)).map(str::to_owned).collect();
        parts.push(Part { field: field.rsplit(' ').next().unwrap().to_owned(), rooms });
    }
    parts
}

/// Whether the text has this item, with fields in braces or in brackets.
fn names_item(text: &str, item: &str, name: &str) -> bool {
    [" {", "("].iter().any(|fields| text.contains(&format!("{item}{name}{fields}")))
}

fn wrong_writes(file: &Path, text: &str, parts: &[Part]) -> Vec<String> {
    let room = file.iter().next().unwrap().to_str().unwrap().trim_end_matches(".rs");
    let wrong = writes(text, parts).into_iter().filter(|(_, part)| part.rooms.iter().all(|name| name != room));
    wrong.map(|(line, part)| format!("{}:{line}: {room} writes {}", file.display(), part.field)).collect()
}

/// The parts that are written, with the lines: by an assignment, or by passing a `&mut` of the
/// part.
fn writes<'a>(text: &str, parts: &'a [Part]) -> Vec<(usize, &'a Part)> {
    let code: String = text.lines().map(|line| line.split("//").next().unwrap().to_owned() + "\n").collect();
    let code = &code[..code.find("#[cfg(test)]").unwrap_or(code.len())];
    let mut found = Vec::new();
    let mut start = 0;
    for statement in code.split_inclusive([';', '{', '}']) {
        let from = statement.rfind("=>").map_or(0, |arrow| arrow + 2);
        let assigned =
            [" = ", " =\n", " += ", " -= ", " |= ", " &= "].iter().filter_map(|op| statement[from..].find(op));
        let is_new = statement[from..].split_whitespace().any(|word| word == "let");
        let end = assigned.min().filter(|_| !is_new).map_or(from, |len| from + len);
        // An index in brackets is only read.
        let left = (from, statement[from..end].split('[').next().unwrap());
        let lent = statement
            .match_indices("&mut ")
            .map(|(at, _)| (at, statement[at + 5..].split([',', ')', ';', '[']).next().unwrap()));
        for (at, place) in lent.chain([left]) {
            for path in place.split(|c: char| !(c.is_alphanumeric() || "_.".contains(c))) {
                let words: Vec<&str> = path.split('.').collect();
                let behind =
                    words.windows(2).filter(|pair| ["connection", "self"].contains(&pair[0])).map(|pair| pair[1]);
                let line = code[..start + at].matches('\n').count()
                    + 1
                    + place[..place.find(path).unwrap()].matches('\n').count();
                found.extend(
                    behind.filter_map(|word| parts.iter().find(|part| part.field == word)).map(|part| (line, part)),
                );
            }
        }
        start += statement.len();
    }
    found
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] }).collect()
}
