//! Every script of `tests/scripts`: the name of a file is a fact about our TCP. One alone:
//! `SCRIPT=name`.

use wirepath_tests::script;

#[test]
fn every_script_comes_true() {
    let folder = script::folder();
    let wanted = std::env::var("SCRIPT").ok();
    let scripts = script::find(&folder).expect("tests/scripts is a folder");
    let (mut played, mut failed) = (0, Vec::new());
    for (name, path) in &scripts {
        let is_failing = path.strip_prefix(&folder).is_ok_and(|path| path.starts_with("failing"));
        if wanted.as_ref().map_or(is_failing, |wanted| wanted != name) {
            continue;
        }
        let text = std::fs::read_to_string(path).expect("a script is text");
        let outcome = std::panic::catch_unwind(|| script::run(&text));
        played += 1;
        match outcome {
            Ok(Ok(())) => (),
            Ok(Err(error)) => failed.push(format!("{}:{error}", path.display())),
            Err(_) => failed.push(format!("{}: the machine panics", path.display())),
        }
    }
    assert!(played > 0, "no script{}", wanted.map_or(String::new(), |name| format!(" is named {name}.pkt")));
    println!("{} of {played} scripts come true", played - failed.len());
    assert!(failed.is_empty(), "{} of {played} scripts do not come true:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn facts_have_names_of_their_own() {
    let scripts = script::find(&script::folder()).expect("tests/scripts is a folder");
    for pair in scripts.windows(2) {
        assert_ne!(pair[0].0, pair[1].0, "two scripts prove the same");
    }
}

/// docs/tcp-requirements.md: each numbered demand is listed there, and the proof that it names
/// exists.
#[test]
fn requirements_name_proofs_that_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is a folder of the repository");
    let table = std::fs::read_to_string(root.join("docs/tcp-requirements.md")).expect("the table is there");
    let scripts = script::find(&script::folder()).expect("tests/scripts is a folder");
    let (mut numbers, mut wrong) = (Vec::new(), Vec::new());
    for line in table.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        numbers.extend(cells[1].split(", ").filter_map(|number| number.parse::<usize>().ok()));
        for name in cells[3].split('`').skip(1).step_by(2) {
            let exists = match name.rsplit_once(".rs::") {
                Some((file, test)) => has_test(root, file, test),
                // Other words there are code.
                None if name.contains(|letter: char| letter.is_uppercase()) => true,
                None => scripts.iter().any(|(script, _)| script == name),
            };
            if !exists {
                wrong.push(name.to_owned());
            }
        }
    }
    assert_eq!(wrong, [""; 0], "nobody finds these");
    assert_eq!(numbers, (1..=69).collect::<Vec<_>>(), "RFC 9293, appendix B");
}

fn has_test(root: &std::path::Path, file: &str, test: &str) -> bool {
    let folder = if file.starts_with("tests/") { root.to_owned() } else { root.join("framework/src") };
    let text = std::fs::read_to_string(folder.join(format!("{file}.rs"))).unwrap_or_default();
    text.contains(&format!("fn {test}("))
}
