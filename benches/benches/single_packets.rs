//! Single packets against sub-bursts, warm and cold, with small and large tables: the figures
//! behind `docs/decisions/0001-single-packets.md`. Each line's shapes take turns. `QUICK=1` takes
//! fewer samples.

use wirepath_benches::is_quick;
use wirepath_benches::measure::cores;
use wirepath_benches::measure::sampling::interleave;
use wirepath_benches::measure::table::{Line, heading};
use wirepath_benches::single_packets::{Shape, Spread, Workshop};

/// Packets in one sample: some milliseconds.
const SAMPLE: usize = 32_768;

fn main() {
    if let Some([_, second]) = cores::two() {
        cores::pin(second);
    }
    let samples = if is_quick() { 21 } else { 101 };
    println!("single packets against sub-bursts of 32, {samples} samples a line\n\n{}", heading());
    for (name, packets) in [("warm frames", 256), ("cold frames (60 MB)", 32_768)] {
        for flows in [64, 100_000, 1_000_000] {
            compare(&format!("{name}, {flows} flows"), Spread { packets, flows }, samples);
        }
    }
}

fn compare(name: &str, spread: Spread, samples: usize) {
    let mut workshops = [(); 4].map(|()| Workshop::new(spread));
    let [single, single_look, sub, sub_look] = &mut workshops;
    let [single, single_look, sub, sub_look] = interleave(
        samples,
        [
            &mut || single.time(Shape::Single, SAMPLE),
            &mut || single_look.time(Shape::SingleWithLook, SAMPLE),
            &mut || sub.time(Shape::SubBursts, SAMPLE),
            &mut || sub_look.time(Shape::SubBurstsWithLook, SAMPLE),
        ],
    );
    println!("{}", Line::new(&format!("{name}: single"), "ns", single.spread()));
    println!("{}", Line::new("  single, buckets asked for before", "ns", single_look.spread()));
    println!("{}", Line::new("  sub-bursts", "ns", sub.spread()));
    println!("{}", Line::new("  sub-bursts, buckets asked for before", "ns", sub_look.spread()));
    println!("{}", Line::new("  sub-bursts over single", "x", sub.over(&single)));
}
