//! The page: a table for each section, with the latest value of each figure.

use core::fmt::Write;

use super::{Figure, History, Section, plot};

const INTRODUCTION: &str = "\
# Figures

<!-- Made by `make figures` from figures/history.jsonl. What is changed here by hand is lost. -->

What `make bench` measured, and beside it what the project promises. Contenders take turns (A B A B
…); each figure is the median, with the lowest and the highest sample. Instructions are counted by
callgrind, because they are the same on every run; times depend on the machine and on who else uses
it. *Must* is a promise, *hope* what we should like it to be, *floor* what plain C without a
framework takes, measured once on a Zen 4 core of 3.6 GHz. A figure that the last run has not
measured keeps its last row; [the runs](#runs) say when, of which commit and on what machine.

`make bench` measures all but the last section, appends the run to [the
history](figures/history.jsonl), and makes this page and its plots again. `make bench PART=tcp` does
so for a part. `make figures` makes page and plots from the history without measuring. `QUICK=1`
takes fewer samples, so its runs are not recorded. `cargo bench -p wirepath-benches --bench report`
prints the same table, takes a part as well (`-- tcp`), and records nothing. A figure is known by
its name: who renames one renames it in the history too, and who drops one takes it out there.

In the plots each machine is a line of its own, oldest run left, and the promise is dashed.
";

/// The page of a history.
pub(super) fn render(history: &History) -> String {
    let mut page = INTRODUCTION.to_owned();
    for section in Section::ALL {
        table(&mut page, section, history);
    }
    runs(&mut page, history);
    page
}

fn table(page: &mut String, section: Section, history: &History) {
    let figures = history.latest(section);
    let _ = write!(page, "\n## {}\n\n{}\n\n", section.title(), wrapped(section.note()));
    if figures.is_empty() {
        page.push_str("Not measured yet.\n");
        return;
    }
    if plot::render(history, section).is_some() {
        let _ = write!(page, "![What was measured, run by run](figures/{})\n\n", section.plot());
    }
    page.push_str("| figure | median | min to max | must | hope | floor | run |\n|---|---|---|---|---|---|---|\n");
    let mut head = None;
    for (figure, run) in figures {
        // The figure itself may not have been measured, although its parts were.
        if figure.of.is_some() && head != figure.of.as_deref() {
            let _ = writeln!(page, "| {} | | | | | | |", cell(figure.head()));
        }
        head = Some(figure.head());
        let date = &history.runs()[run].date[..10];
        row(page, figure, &format!("{} ({date})", run + 1));
    }
}

fn row(page: &mut String, figure: &Figure, run: &str) {
    let unit = cell(&figure.unit);
    let indent = if figure.of.is_some() { "&emsp;" } else { "" };
    let median = format!("{} {unit}", number(figure.median));
    let is_missed = figure.promise.is_some_and(|promise| !promise.is_kept(figure.median));
    let median = if is_missed { format!("**{median}, missed**") } else { median };
    let range = match figure.min == figure.max {
        true => String::new(),
        false => format!("{} to {}", number(figure.min), number(figure.max)),
    };
    let limit = |limit: Option<f64>| match (figure.promise, limit) {
        (Some(promise), Some(limit)) => format!("{} {limit}", promise.bound.symbol()),
        _ => String::new(),
    };
    let must = limit(figure.promise.map(|promise| promise.must));
    let hope = limit(figure.promise.and_then(|promise| promise.hope));
    let floor = figure.floor.map_or(String::new(), number);
    let what = cell(&figure.what);
    let _ = writeln!(page, "| {indent}{what} | {median} | {range} | {must} | {hope} | {floor} | {run} |");
}

fn runs(page: &mut String, history: &History) {
    page.push_str("\n## Runs\n\n");
    if history.runs().is_empty() {
        page.push_str("None yet.\n");
        return;
    }
    page.push_str("| run | date | commit | machine | figures |\n|---|---|---|---|---|\n");
    for (idx, run) in history.runs().iter().enumerate() {
        let date = run.date.replace('T', " ").replace('Z', " UTC");
        let machine = format!("{} x {}, Linux {}", run.machine.cores, run.machine.cpu, run.machine.kernel);
        let _ =
            writeln!(page, "| {} | {date} | {} | {} | {} |", idx + 1, run.commit, cell(&machine), run.figures.len());
    }
    page.push_str("\nA `+` behind a commit: the tree had changes that were not committed.\n");
}

/// A paragraph in lines of 100 columns.
fn wrapped(text: &str) -> String {
    let (mut lines, mut column) = (String::new(), 0);
    for word in text.split(' ') {
        let len = word.chars().count();
        if column > 0 {
            let is_full = column + 1 + len > 100;
            lines.push(if is_full { '\n' } else { ' ' });
            column = if is_full { 0 } else { column + 1 };
        }
        lines.push_str(word);
        column += len;
    }
    lines
}

/// Rounds to about three digits; counts stay exact.
pub(super) fn number(figure: f64) -> String {
    match figure {
        _ if figure.fract() == 0.0 => format!("{figure:.0}"),
        ..10.0 => format!("{figure:.2}"),
        ..1000.0 => format!("{figure:.1}"),
        _ => format!("{figure:.0}"),
    }
}

/// A text, escaped for a cell of a table.
fn cell(text: &str) -> String {
    text.chars().fold(String::new(), |mut cell, letter| {
        match letter {
            '&' => cell.push_str("&amp;"),
            '<' => cell.push_str("&lt;"),
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '!' | '~' => cell.extend(['\\', letter]),
            _ => cell.push(letter),
        }
        cell
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_cannot_leave_its_cell() {
        assert_eq!(
            cell("a | b <img src=x> [c](d) `e` &f; ibv_poll_cq"),
            r"a \| b &lt;img src=x> \[c\](d) \`e\` &amp;f; ibv\_poll\_cq"
        );
    }

    #[test]
    fn counts_are_whole_and_times_have_three_digits() {
        assert_eq!([219.0, 9.314, 231.27, 3295.4, 0.0].map(number), ["219", "9.31", "231.3", "3295", "0"]);
    }
}
