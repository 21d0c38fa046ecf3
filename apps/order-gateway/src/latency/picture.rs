//! The measurements as a picture: a histogram of each stage, with a line for each arrival. Times
//! are on a logarithmic axis, the same for all stages.

use core::fmt::Write;

use hdrhistogram::Histogram;
use wirepath::time::Duration;

use super::{Arrival, Latency, Stage};

/// In pixels: panels in a row, their size, the area of their lines.
const COLUMNS: usize = 2;
const WIDTH: usize = 440;
const HEIGHT: usize = 200;
const LEFT: f64 = 16.0;
const RIGHT: f64 = 424.0;
const TOP: f64 = 76.0;
const BOTTOM: f64 = 172.0;
/// Of the arrivals; readable for the color-blind.
const COLORS: [&str; Arrival::ALL.len()] = ["#d55e00", "#0072b2", "#009e73"];
/// Steps of a power of ten.
const STEPS: usize = 12;

impl Latency {
    /// An SVG.
    pub fn picture(&self) -> String {
        let (width, height) = (COLUMNS * WIDTH, Stage::ALL.len().div_ceil(COLUMNS) * HEIGHT);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
             font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
        );
        let axis = Axis::of(self);
        for (idx, stage) in Stage::ALL.into_iter().enumerate() {
            let (x, y) = (idx % COLUMNS * WIDTH, idx / COLUMNS * HEIGHT);
            let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
            let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"18\" font-weight=\"bold\">{}</text>", stage.name());
            match self.missing[stage as usize] {
                Some(why) => drop(writeln!(svg, "<text x=\"{LEFT}\" y=\"34\">not available: {}</text>", escaped(why))),
                None => self.panel(stage, &axis, &mut svg),
            }
            svg.push_str("</g>\n");
        }
        svg.push_str("</svg>\n");
        svg
    }

    fn panel(&self, stage: Stage, axis: &Axis, svg: &mut String) {
        axis.draw(svg);
        let y_of_line = |idx: usize| 34 + 14 * idx;
        for (idx, arrival) in Arrival::ALL.into_iter().enumerate() {
            let values = self.histogram(stage, arrival);
            if values.is_empty() {
                continue;
            }
            let at = |quantile| Duration::from_nanos(values.value_at_quantile(quantile));
            let _ = writeln!(
                svg,
                "<text x=\"{LEFT}\" y=\"{}\" fill=\"{}\">{}: {} requests, p50 {}, p99 {}, max {}</text>",
                y_of_line(idx),
                COLORS[idx],
                arrival.name(),
                values.len(),
                at(0.5),
                at(0.99),
                Duration::from_nanos(values.max()),
            );
            let _ = writeln!(svg, "<path d=\"{}\" stroke=\"{}\" fill=\"none\"/>", axis.steps(values), COLORS[idx]);
        }
    }
}

/// The axis of times, from one power of ten to another.
struct Axis {
    from: u32,
    to: u32,
}

impl Axis {
    fn of(latency: &Latency) -> Self {
        let all = || latency.histograms.iter().flatten().filter(|values| !values.is_empty());
        let from = all().map(|values| values.min().max(1).ilog10()).min().unwrap_or(0);
        let to = all().map(|values| values.max().max(1).ilog10() + 1).max().unwrap_or(from + 1);
        Self { from, to }
    }

    fn x(&self, step: usize) -> f64 {
        LEFT + step as f64 * (RIGHT - LEFT) / self.count() as f64
    }

    fn count(&self) -> usize {
        (self.to - self.from) as usize * STEPS
    }

    fn step(&self, ns: u64) -> usize {
        let step = ((ns.max(1) as f64).log10() - f64::from(self.from)) * STEPS as f64;
        (step.max(0.0) as usize).min(self.count() - 1)
    }

    /// The shares of the steps, of which the highest one is as high as the panel.
    fn steps(&self, values: &Histogram<u64>) -> String {
        let mut counts = vec![0; self.count()];
        for value in values.iter_recorded() {
            counts[self.step(value.value_iterated_to())] += value.count_since_last_iteration();
        }
        let highest = counts.iter().copied().max().unwrap_or(0).max(1);
        let mut path = format!("M{LEFT} {BOTTOM}");
        for (step, count) in counts.into_iter().enumerate() {
            let y = BOTTOM - count as f64 / highest as f64 * (BOTTOM - TOP);
            let _ = write!(path, "V{y:.1}H{:.1}", self.x(step + 1));
        }
        path
    }

    fn draw(&self, svg: &mut String) {
        let _ = writeln!(svg, "<path d=\"M{LEFT} {BOTTOM}H{RIGHT}\" stroke=\"#999\"/>");
        for decade in self.from..=self.to {
            let (x, below) = (self.x((decade - self.from) as usize * STEPS), BOTTOM + 14.0);
            let _ = writeln!(svg, "<path d=\"M{x:.1} {TOP}V{BOTTOM}\" stroke=\"#ddd\"/>");
            let (number, unit) = match decade {
                0..3 => (10u64.pow(decade), "ns"),
                3..6 => (10u64.pow(decade - 3), "µs"),
                6..9 => (10u64.pow(decade - 6), "ms"),
                _ => (10u64.pow(decade - 9), "s"),
            };
            let _ = writeln!(
                svg,
                "<text x=\"{x:.1}\" y=\"{below}\" fill=\"#777\" text-anchor=\"middle\">{number} {unit}</text>"
            );
        }
    }
}

/// A text, escaped for XML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
