//! Checks that the targets of references in documents and comments exist: links, the sections of
//! docs/mlx5.md, the README's program; and that no file is empty.
#![allow(clippy::unwrap_used)] // a panic here is the report

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// All files of the repository with this extension, except for build results.
fn files(extension: &str) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![root().to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if path.is_symlink() || name == "target" || name.starts_with('.') {
                continue;
            } else if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == extension) {
                found.push(path);
            }
        }
    }
    found
}

/// The lines of a document that are not code, by their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter_map(move |(idx, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        (!is_code && !is_fence).then_some((idx + 1, line))
    })
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    let anchor = |(_, line): (usize, &str)| {
        let heading = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        heading.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).collect()
    };
    headings.map(anchor).collect()
}

#[test]
fn no_file_is_empty() {
    let tracked = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output();
    let Some(tracked) = tracked.ok().filter(|listed| listed.status.success()) else {
        println!("SKIPPED no_file_is_empty: git does not list the files here");
        return;
    };
    let names = String::from_utf8(tracked.stdout).unwrap();
    let is_empty = |name: &&str| fs::metadata(root().join(name)).is_ok_and(|file| file.len() == 0);
    let empty: Vec<_> = names.split_terminator('\0').filter(is_empty).collect();
    assert!(empty.is_empty(), "a shell's slip, or files that say nothing: {empty:?}");
}

#[test]
fn links_of_documents_lead_somewhere() {
    let (mut links, mut wrong) = (0, Vec::new());
    for file in files("md") {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in prose(&text) {
            let targets = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
            for (target, _) in targets.filter(|(target, _)| !target.contains("://") && !target.contains(' ')) {
                links += 1;
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = if path.is_empty() { file.clone() } else { file.with_file_name("").join(path) };
                let is_there = match anchor {
                    "" => path.exists(),
                    _ => fs::read_to_string(&path).is_ok_and(|text| anchors(&text).contains(anchor)),
                };
                if !is_there {
                    wrong.push(format!("{}:{number}: {target}", file.strip_prefix(root()).unwrap().display()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
    assert!(links > 100, "only {links} links: this test no longer finds the documents");
}

/// The number that a text begins with, such as `2.9` of `2.9, bytes 20`.
fn section(text: &str) -> Option<&str> {
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let number = text[..end].trim_end_matches('.');
    (!number.is_empty()).then_some(number)
}

/// The sections that a citation names, after `mlx5.md`: `2.9`, `2.2 to 2.6`, `2.7, 3.5, 3.7`,
/// `section 3`, `1.1 step 7`. After the first section, a number without a point is not a section.
fn cited(mut text: &str) -> Vec<&str> {
    let mut cited = Vec::new();
    loop {
        text = text.trim_start_matches([' ', ',']);
        text = ["section ", "to ", "and "].iter().find_map(|word| text.strip_prefix(word)).unwrap_or(text);
        let number = section(text).filter(|number| cited.is_empty() || number.contains('.'));
        let Some(number) = number else { return cited };
        cited.push(number);
        text = &text[number.len()..];
    }
}

/// The text of a comment that has its line alone.
fn comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    ["//!", "///", "//"].iter().find_map(|mark| line.strip_prefix(mark))
}

/// Whether a text can be wrapped: a table, a drawing and a single word cannot.
fn can_wrap(text: &str) -> bool {
    let text = text.trim();
    text.contains(' ') && !text.starts_with('|') && !text.contains("   ") && !text.contains(['─', '│', '═'])
}

/// The numbers of the lines that are too long in a document, or in the comments of a source.
fn long_lines(text: &str, is_source: bool) -> Vec<usize> {
    let (mut is_code, mut long) = (false, Vec::new());
    for (idx, line) in text.lines().enumerate() {
        let Some(words) = (if is_source { comment(line) } else { Some(line) }) else { continue };
        is_code ^= words.trim_start().starts_with("```");
        if !is_code && line.chars().count() > 100 && can_wrap(words) {
            long.push(idx + 1);
        }
    }
    long
}

#[test]
fn lines_of_documents_and_comments_end_at_100_columns() {
    let mut wrong = Vec::new();
    for file in files("md").into_iter().chain(files("rs")) {
        let is_source = file.extension().is_some_and(|extension| extension == "rs");
        let name = file.strip_prefix(root()).unwrap().display();
        let long = long_lines(&fs::read_to_string(&file).unwrap(), is_source);
        wrong.extend(long.into_iter().map(|number| format!("{name}:{number}")));
    }
    assert!(wrong.is_empty(), "wrap these at 100 columns:\n{}", wrong.join("\n"));
    let word = "word ".repeat(20);
    assert_eq!(long_lines(&format!("{word}\n{word}x\n```\n{word}x\n```\n| {word}x |"), false), [2]);
    assert_eq!(long_lines(&format!("// {word}\nlet {word};"), true), [1]);
}

/// Whose functions have long names too.
const OTHER_LIBRARIES: [&str; 3] = ["ef_", "zf_", "mlx5_"];

/// The tests that a document names: code of five words or more, behind a file's name or alone.
fn tests_named(text: &str) -> impl Iterator<Item = &str> {
    let codes = prose(text).flat_map(|(_, line)| line.split('`').skip(1).step_by(2));
    let names = codes.map(|code| code.rsplit("::").next().unwrap_or(code));
    let is_word = |letter: char| letter == '_' || letter.is_ascii_lowercase() || letter.is_ascii_digit();
    names.filter(move |name| name.matches('_').count() >= 4 && name.chars().all(is_word))
}

#[test]
fn tests_that_documents_name_exist() {
    let sources: String = files("rs").iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let functions: BTreeSet<&str> =
        sources.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next()).collect();
    let (mut named, mut missing) = (0, Vec::new());
    // The changelog names tests of its time, and the page of TCP's requirements has a test of its
    // own.
    let is_checked = |file: &PathBuf| !file.ends_with("CHANGELOG.md") && !file.ends_with("tcp-requirements.md");
    for file in files("md").into_iter().filter(is_checked) {
        let text = fs::read_to_string(&file).unwrap();
        for name in tests_named(&text).filter(|name| !OTHER_LIBRARIES.iter().any(|other| name.starts_with(other))) {
            named += 1;
            if !functions.contains(name) {
                missing.push(format!("{}: {name}", file.display()));
            }
        }
    }
    assert!(missing.is_empty(), "documents name tests that are gone:\n{}", missing.join("\n"));
    assert!(named > 200, "only {named} names: this test no longer finds them");
}

/// A merge of two branches repeats what both have in another place.
#[test]
fn no_entry_of_the_changelog_stands_twice() {
    let text = fs::read_to_string(root().join("CHANGELOG.md")).unwrap();
    let (mut seen, mut twice) = (BTreeSet::new(), Vec::new());
    let entries = text.split("\n- ").skip(1).map(|entry| entry.split("\n#").next().unwrap().trim());
    entries.for_each(|entry| twice.extend((!seen.insert(entry)).then_some(entry)));
    assert!(twice.is_empty(), "these stand twice:\n{}", twice.join("\n"));
    assert!(seen.len() > 100, "{} entries were found", seen.len());
}

#[test]
fn cited_sections_of_the_device_exist() {
    let page = fs::read_to_string(root().join("docs/mlx5.md")).unwrap();
    let headings = prose(&page).filter_map(|(_, line)| section(line.strip_prefix('#')?.trim_start_matches('#').trim()));
    let sections: BTreeSet<&str> = headings.collect();
    let steps =
        prose(&page).filter(|(_, line)| line.split_once(". ").is_some_and(|(number, _)| number == "11")).count();
    assert_eq!(steps, 1, "section 1.1 has the steps 1 to 11");
    let (mut citations, mut wrong) = (0, Vec::new());
    for file in files("rs").into_iter().filter(|file| !file.ends_with("tests/tests/repository/documents.rs")) {
        let text = fs::read_to_string(&file).unwrap();
        for (idx, line) in text.lines().enumerate() {
            // With a folder before it, it is a link to the page as a whole.
            for behind in line.split("mlx5.md").skip(1).filter(|_| !line.contains("docs/mlx5.md")) {
                citations += 1;
                let cited = cited(behind);
                if cited.is_empty() || cited.iter().any(|section| !sections.contains(section)) {
                    wrong.push(format!(
                        "{}:{}: {}",
                        file.strip_prefix(root()).unwrap().display(),
                        idx + 1,
                        line.trim()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "docs/mlx5.md has no such section:\n{}", wrong.join("\n"));
    assert!(citations > 50, "only {citations} citations: this test no longer finds the comments");
}

#[test]
fn citations_are_read_as_people_read_them() {
    assert_eq!(cited(" 2.9, bytes 20, 28 and 29."), ["2.9"]);
    assert_eq!(cited(" 2.2 to 2.7) describes"), ["2.2", "2.7"]);
    assert_eq!(cited(" 2.7, 3.5, 3.7), and"), ["2.7", "3.5", "3.7"]);
    assert_eq!(cited(" 3.5, 512 bytes."), ["3.5"]);
    assert_eq!(cited(" section 3; the structs"), ["3"]);
    assert_eq!(cited(" 1.1 step 7"), ["1.1"]);
    assert_eq!(cited(") and so on"), [""; 0]);
}

/// The text between fences of `language`, a fence each.
fn fenced<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let opening = format!("```{language}\n");
    text.split(&*opening).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn programs_of_the_readme_and_of_the_library_s_front_page_are_the_examples() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let library = fs::read_to_string(root().join("framework/src/lib.rs")).unwrap();
    let programs = fenced(&readme, "rust");
    // The number of lines of code that each may have.
    let examples = [("receiver.rs", 15), ("tick_to_order.rs", 60)];
    assert_eq!(programs.len(), examples.len());
    for (program, (name, lines_max)) in programs.iter().zip(examples) {
        let example = fs::read_to_string(root().join("framework/examples").join(name)).unwrap();
        let code: Vec<&str> = example.lines().skip_while(|line| line.starts_with("//!") || line.is_empty()).collect();
        assert_eq!(program.trim_end(), code.join("\n").trim_end(), "{name}");
        assert!(library.contains(&format!("#![doc = include_str!(\"../examples/{name}\")]")), "{name}");
        let lines = code.iter().filter(|line| !line.is_empty()).count();
        assert!(lines <= lines_max, "{name} has {lines} lines of code, of at most {lines_max}");
    }
}

#[test]
fn readme_is_a_screen_and_a_half() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    let mut is_code = false;
    let is_prose = |line: &&str| {
        let is_fence = line.starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    };
    let lines = readme.lines().filter(is_prose).count();
    assert!(lines <= 60, "{lines} lines outside code: what is more belongs into docs");
}

/// With `CARGO_TARGET_DIR` cargo builds elsewhere, and the verbs run the programs from there.
#[test]
fn verbs_run_what_cargo_built_where_it_was_told_to() {
    for verb in ["run", "sim", "soak", "metal"] {
        let mut make = Command::new("make");
        // Within `make test` the outer make's options would be taken over.
        make.args(["-n", verb, "DEV=a", "PEER=b"]).current_dir(root()).env_remove("MAKEFLAGS");
        let Ok(output) = make.env("CARGO_TARGET_DIR", "/elsewhere").output() else {
            println!("SKIPPED verbs_run_what_cargo_built_where_it_was_told_to: make is not installed");
            return;
        };
        let commands = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && commands.contains("/elsewhere/"), "{verb}: {commands}");
        assert!(!commands.contains(" target/"), "{verb} runs what is not there: {commands}");
    }
}

/// The public fields of structs of options with a `Default`, with their comments.
fn options(text: &str) -> Vec<(String, String)> {
    const ENDINGS: [&str; 7] = ["Config", "Options", "Capacity", "Policy", "Keepalive", "Window", "Faults"];
    let (mut found, mut name, mut doc, mut head) = (Vec::new(), None, String::new(), String::new());
    for line in text.lines() {
        if line == "}" {
            name = None;
        } else if let Some(rest) = line.strip_prefix("pub struct ") {
            let is_option = |name: &&str| {
                let has_default = head.contains("Default") || text.contains(&format!("impl Default for {name} {{"));
                // The options of a SYN are a header's, not a configuration's.
                has_default && **name != *"SynOptions" && ENDINGS.iter().any(|ending| name.ends_with(ending))
            };
            name = rest.strip_suffix(" {").filter(is_option);
            doc.clear();
        } else if let (Some(name), Some((field, _))) =
            (name, line.strip_prefix("    pub ").and_then(|line| line.split_once(':')))
        {
            found.push((format!("{name}::{field}"), std::mem::take(&mut doc)));
        } else if let Some(words) = line.trim_start().strip_prefix("///") {
            doc.push_str(words);
        }
        head = if line.starts_with("#[") { head + line } else { String::new() };
    }
    found
}

#[test]
fn each_option_says_its_default() {
    let is_public = |file: &PathBuf| {
        let name = file.strip_prefix(root()).unwrap().to_str().unwrap();
        let folders = [
            "framework",
            "sockets",
            "rdma",
            "apps/market",
            "apps/market-ring",
            "apps/matching-engine",
            "apps/order-entry",
        ];
        folders.iter().any(|folder| name.starts_with(&format!("{folder}/src/"))) && !name.contains("/testing/")
    };
    let texts = files("rs").into_iter().filter(is_public).map(|file| fs::read_to_string(file).unwrap());
    let found: Vec<_> = texts.flat_map(|text| options(&text)).collect();
    assert!(found.len() > 80, "only {} options: this test no longer finds them", found.len());
    let silent: Vec<&str> =
        found.iter().filter(|(_, doc)| !doc.to_lowercase().contains("default")).map(|(name, _)| &**name).collect();
    assert!(silent.is_empty(), "these do not say `By default …`: {}", silent.join(", "));
    let text = "#[derive(Default)]\npub struct AConfig {\n    /// One.\n    pub one: u8,\n}\npub struct BConfig {\n    pub two: u8,\n}";
    assert_eq!(options(text), [("AConfig::one".to_owned(), " One.".to_owned())]);
}
