//! The page and the plots in docs match the history beside them.

use std::fs;
use std::path::PathBuf;

use wirepath_benches::figures::{self, History, Run};

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

/// A new folder `docs` with a history, and our newest run.
fn docs_with(history: &str) -> (tempfile::TempDir, Run) {
    let ours = History::read(&figures::history_path(&figures::docs())).expect("each line is sound");
    let docs = tempfile::tempdir().expect("there is room");
    fs::create_dir(docs.path().join("figures")).expect("it can be made");
    fs::write(figures::history_path(docs.path()), history).expect("it can be written");
    (docs, ours.runs().last().expect("there is a history").clone())
}

#[test]
fn run_of_a_part_appends_its_figures_and_leaves_all_else() {
    let (docs, run) = docs_with("");
    figures::append(docs.path(), &run).expect("it is sound");
    let before = fs::read_to_string(figures::history_path(docs.path())).expect("it is there");
    let of_part = Run { figures: run.figures[..1].to_vec(), ..run.clone() };
    // An editor may leave it so.
    fs::write(figures::history_path(docs.path()), before.trim_end()).expect("it can be written");
    figures::append(docs.path(), &of_part).expect("it is sound");
    let after = fs::read_to_string(figures::history_path(docs.path())).expect("it is there");
    assert!(after.starts_with(&before) && after.ends_with('\n'));
    assert_eq!(History::parse(&after).expect("each line is sound").runs(), [run.clone(), of_part]);
    let page = fs::read_to_string(docs.path().join("figures.md")).expect("it is there");
    for figure in &run.figures {
        assert!(page.contains(&figure.what.replace('_', r"\_")), "{} keeps its row", figure.what);
    }
}

#[test]
fn broken_history_is_left_alone() {
    const BROKEN: &str = "{\"date\":\"2026\n";
    let (docs, run) = docs_with(BROKEN);
    let why = figures::append(docs.path(), &run).expect_err("the line is broken");
    assert!(why.contains("history.jsonl, line 1: ") && why.contains("mend the line"), "{why}");
    assert_eq!(fs::read_to_string(figures::history_path(docs.path())).expect("it is there"), BROKEN);
    assert!(!docs.path().join("figures.md").exists());
}
