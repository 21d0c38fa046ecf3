//! The plot of a section: a small chart for each promised figure, run by run, as SVG. Each machine
//! has a separate line, because times of two machines cannot be compared.

use core::fmt::Write;

use super::page::number;
use super::{Figure, History, Machine, Section};

/// In pixels: charts in a row, their size, the area of their lines.
const COLUMNS: usize = 3;
const WIDTH: usize = 320;
const HEIGHT: usize = 170;
const LEFT: f64 = 12.0;
const RIGHT: f64 = 304.0;
const TOP: f64 = 56.0;
const BOTTOM: f64 = 140.0;
/// Colors of the machines in the order in which they first appear; readable for the color-blind.
const COLORS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
/// Letters in a line of a chart's heading.
const LETTERS: usize = 44;

/// The picture; `None` where no promised figure was measured.
pub(super) fn render(history: &History, section: Section) -> Option<String> {
    // A line for something that must never happen, such as allocations, would show nothing.
    let is_charted = |figure: &Figure| figure.promise.is_some_and(|promise| promise.must > 0.0);
    let charts: Vec<_> = history.latest(section).into_iter().filter(|(figure, _)| is_charted(figure)).collect();
    if charts.is_empty() {
        return None;
    }
    let mut machines: Vec<&Machine> = Vec::new();
    for run in history.runs() {
        if !machines.contains(&&run.machine) {
            machines.push(&run.machine);
        }
    }
    let (width, height) = (COLUMNS * WIDTH, charts.len().div_ceil(COLUMNS) * HEIGHT);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for (idx, (figure, _)) in charts.into_iter().enumerate() {
        let (x, y) = (idx % COLUMNS * WIDTH, idx / COLUMNS * HEIGHT);
        let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
        chart(&mut svg, history, figure, &machines);
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    Some(svg)
}

/// A point of a chart: run, machine, value.
struct Point<'a> {
    date: &'a str,
    machine: usize,
    median: f64,
}

fn chart(svg: &mut String, history: &History, figure: &Figure, machines: &[&Machine]) {
    let points: Vec<Point<'_>> = history
        .runs()
        .iter()
        .filter_map(|run| {
            let median = run.figures.iter().find(|other| other.name() == figure.name())?.median;
            let machine = machines.iter().position(|&machine| *machine == run.machine)?;
            Some(Point { date: &run.date[..10], machine, median })
        })
        .collect();
    let must = figure.promise.map_or(0.0, |promise| promise.must);
    let highest = points.iter().map(|point| point.median).fold(must, f64::max);
    let y = |value: f64| BOTTOM - value / (highest * 1.1) * (BOTTOM - TOP);
    let x = |idx: usize| match points.len() {
        1 => (LEFT + RIGHT) / 2.0,
        len => LEFT + idx as f64 * (RIGHT - LEFT) / (len - 1) as f64,
    };
    heading(svg, figure);
    let _ = writeln!(svg, "<path d=\"M{LEFT} {BOTTOM}H{RIGHT}\" stroke=\"#999\"/>");
    let _ = writeln!(svg, "<path d=\"M{LEFT} {:.1}H{RIGHT}\" stroke=\"#999\" stroke-dasharray=\"4 3\"/>", y(must));
    for (machine, color) in (0..machines.len()).zip(COLORS.into_iter().cycle()) {
        let own = || points.iter().enumerate().filter(|(_, point)| point.machine == machine);
        let line: Vec<_> = own().map(|(idx, point)| format!("{:.1} {:.1}", x(idx), y(point.median))).collect();
        let _ = writeln!(svg, "<path d=\"M{}\" stroke=\"{color}\" fill=\"none\"/>", line.join("L"));
        for (idx, point) in own() {
            let _ = writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\" fill=\"{color}\"/>",
                x(idx),
                y(point.median)
            );
        }
    }
    if let [first, .., last] | [first @ last] = &points[..] {
        let below = BOTTOM + 14.0;
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{below}\" fill=\"#777\">{}</text>", first.date);
        if last.date != first.date {
            let _ = writeln!(
                svg,
                "<text x=\"{RIGHT}\" y=\"{below}\" fill=\"#777\" text-anchor=\"end\">{}</text>",
                last.date
            );
        }
    }
}

/// The figure's description, in two lines, and its latest value.
fn heading(svg: &mut String, figure: &Figure) {
    let lines = match &figure.of {
        Some(of) => [first_letters(of), first_letters(&figure.what)],
        None => split_in_two(&figure.what),
    };
    for (line, y) in lines.iter().zip([16.0, 31.0]) {
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"{y}\">{}</text>", escaped(line));
    }
    let promise = figure
        .promise
        .map_or(String::new(), |promise| format!(", must be {} {}", promise.bound.symbol(), promise.must));
    let unit = escaped(&figure.unit);
    let _ = writeln!(
        svg,
        "<text x=\"{LEFT}\" y=\"46\" font-weight=\"bold\">{} {unit}{promise}</text>",
        number(figure.median)
    );
}

/// As much of a text as fits into a line.
fn first_letters(text: &str) -> String {
    let shown: String = text.chars().take(LETTERS).collect();
    if shown.len() < text.len() { shown + "…" } else { shown }
}

/// A text as two lines, split between words where there are several.
fn split_in_two(text: &str) -> [String; 2] {
    let Some((end, _)) = text.char_indices().nth(LETTERS) else { return [text.to_owned(), String::new()] };
    let cut = text[..end].rfind(' ').unwrap_or(end);
    [text[..cut].to_owned(), first_letters(text[cut..].trim_start())]
}

/// A text, escaped for XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str =
        r#"{"date":"2026-11-01T10:30:00Z","commit":"cfb19a6","machine":{"cpu":"a CPU","cores":2,"kernel":"6"},"#;

    fn plot(figures: &str) -> Option<String> {
        let history = History::parse(&format!("{RUN}\"figures\":[{figures}]}}\n")).expect("it is sound");
        render(&history, Section::Memory)
    }

    #[test]
    fn figure_without_a_promise_or_of_none_has_no_chart() {
        for promise in ["", r#","promise":{"bound":"<=","must":0}"#] {
            let figure = r#"{"section":"memory","what":"it","unit":"ns","median":1,"min":1,"max":1"#;
            assert_eq!(plot(&format!("{figure}{promise}}}")), None, "{promise}");
        }
    }

    #[test]
    fn name_cannot_leave_its_heading_and_no_number_is_broken() {
        let figure = r#"{"section":"memory","what":"</text><script>","unit":"&x","median":0,"min":0,"max":0,
            "promise":{"bound":"<=","must":0.5}}"#;
        let plot = plot(&figure.replace('\n', "")).expect("it is promised");
        assert!(plot.contains("&lt;/text&gt;&lt;script&gt;") && plot.contains("&amp;x") && !plot.contains("<script"));
        assert!(!plot.contains("NaN") && !plot.contains("inf"), "{plot}");
    }
}
