//! The page and the plots in docs are those of the history beside them.

use std::fs;
use std::path::PathBuf;

use wirepath_benches::figures::{self, History};

#[test]
fn page_and_plots_are_those_of_the_history() {
    let docs = figures::docs();
    let history = History::read(&figures::history_path(&docs)).expect("each line is sound");
    assert!(!history.runs().is_empty(), "there is a history");
    for (path, text) in figures::files(&history) {
        let found = fs::read_to_string(docs.join(&path)).unwrap_or_default();
        // Not `assert_eq`, which would print both files.
        assert!(found == text, "{} is not what the history says: `make figures`, and commit it", path.display());
    }
}

#[test]
fn plots_are_all_of_the_page() {
    let docs = figures::docs();
    let history = History::read(&figures::history_path(&docs)).expect("each line is sound");
    let made: Vec<PathBuf> = figures::files(&history).into_iter().map(|(path, _)| docs.join(path)).collect();
    for entry in fs::read_dir(docs.join("figures")).expect("it is a folder") {
        let path = entry.expect("it can be read").path();
        let is_plot = path.extension().is_some_and(|extension| extension == "svg");
        assert!(!is_plot || made.contains(&path), "{} is of no section any more: delete it", path.display());
    }
}
