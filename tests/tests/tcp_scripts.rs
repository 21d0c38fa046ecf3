//! Every script of `tests/scripts`: the name of a file is a fact about our TCP. One alone: `SCRIPT=name`.

use std::time::{Duration, Instant};

use wirepath_tests::script;

/// A script is virtual time: what takes longer than this waits for something real.
const TIME_MAX: Duration = Duration::from_secs(2);

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
        let start = Instant::now();
        let outcome = std::panic::catch_unwind(|| script::run(&text));
        played += 1;
        match outcome {
            Ok(Ok(())) if start.elapsed() < TIME_MAX => (),
            Ok(Ok(())) => failed.push(format!("{}: it took {:?}", path.display(), start.elapsed())),
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
