//! The figures as data: a history of runs, and the page and the plots that are generated from it.
//!
//! ```text
//!  report ─▶ Run ─▶ docs/figures/history.jsonl ─▶ docs/figures.md, docs/figures/*.svg
//!           (record)          (history)             (page)          (plot)
//! ```
//! Page and plots depend on the history alone, so that they can be regenerated without measuring.

pub mod history;
pub mod record;

mod page;
mod plot;
mod section;

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

pub use history::{Figure, History, Machine, Run};
pub use section::Section;

/// The folder `docs` of this repository.
pub fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("docs")
}

/// The path of the history in `docs`.
pub fn history_path(docs: &Path) -> PathBuf {
    docs.join("figures/history.jsonl")
}

/// The files that are generated from a history, by their paths in `docs`.
pub fn files(history: &History) -> Vec<(PathBuf, String)> {
    let page = (PathBuf::from("figures.md"), page::render(history));
    let plots = Section::ALL
        .into_iter()
        .filter_map(|section| Some((Path::new("figures").join(section.plot()), plot::render(history, section)?)));
    [page].into_iter().chain(plots).collect()
}

/// Writes page and plots of the history into `docs`. The error is a sentence.
pub fn regenerate(docs: &Path) -> Result<(), String> {
    let history = History::read(&history_path(docs))?;
    for (path, text) in files(&history) {
        let path = docs.join(path);
        fs::write(&path, text).map_err(|error| unwritten(&path, &error))?;
    }
    Ok(())
}

/// Appends a run to the history in `docs`, and regenerates page and plots. A broken history stays
/// unchanged.
pub fn append(docs: &Path, run: &Run) -> Result<(), String> {
    let path = history_path(docs);
    History::read(&path)?;
    let mut line = history::line(run)? + "\n";
    // An editor may have left the last line without a newline.
    if fs::read(&path).is_ok_and(|text| text.last().is_some_and(|&last| last != b'\n')) {
        line.insert(0, '\n');
    }
    let file = fs::OpenOptions::new().create(true).append(true).open(&path);
    file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(|error| unwritten(&path, &error))?;
    regenerate(docs)
}

fn unwritten(path: &Path, error: &io::Error) -> String {
    format!("{} was not written: {error}; make it writable, then `make figures`", path.display())
}
