//! Fair comparison on a shared machine: contenders take turns (A B A B …), and each is reported as
//! the median with the lowest and the highest sample beside it.

/// One contender: a sample is nanoseconds an item, over some hundred microseconds.
pub type Contender<'a> = &'a mut dyn FnMut() -> f64;

/// The samples of one contender, in the order in which they were taken.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<f64>);

impl Extend<f64> for Samples {
    fn extend<T: IntoIterator<Item = f64>>(&mut self, samples: T) {
        self.0.extend(samples);
    }
}

impl From<Vec<f64>> for Samples {
    fn from(samples: Vec<f64>) -> Self {
        Self(samples)
    }
}

/// Statistics of samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Half of the samples are below.
    pub median: f64,
    /// The lowest sample: without interference by other load.
    pub min: f64,
    /// The highest sample: with it.
    pub max: f64,
}

/// Runs the contenders `rounds` times each in turns, after one round that does not count. With zero
/// rounds none runs.
pub fn interleave<const N: usize>(rounds: usize, contenders: [Contender<'_>; N]) -> [Samples; N] {
    let mut contenders = contenders;
    let mut samples = [const { Samples(Vec::new()) }; N];
    if rounds == 0 {
        return samples;
    }
    for round in 0..=rounds {
        for (contender, samples) in contenders.iter_mut().zip(&mut samples) {
            let sample = contender();
            if round > 0 {
                samples.0.push(sample);
            }
        }
    }
    samples
}

impl Samples {
    /// Median, lowest and highest; an error where there are no samples.
    pub fn spread(&self) -> Result<Spread, String> {
        if self.0.is_empty() { Err(NOT_TIMED.to_owned()) } else { Ok(Spread::of(self.0.clone())) }
    }

    /// The ratio to `other`, turn by turn: effects of the machine on both cancel out.
    pub fn over(&self, other: &Self) -> Result<Spread, String> {
        Self(self.0.iter().zip(&other.0).map(|(ours, theirs)| ours / theirs).collect()).spread()
    }

    /// The differences to `other`, turn by turn.
    pub fn minus(&self, other: &Self) -> Result<Spread, String> {
        Self(self.0.iter().zip(&other.0).map(|(ours, theirs)| ours - theirs).collect()).spread()
    }

    /// From nanoseconds each: millions a second.
    pub fn rate(&self) -> Result<Spread, String> {
        self.spread().map(Spread::rate)
    }
}

/// The reason why a contender that did not run has no time.
const NOT_TIMED: &str = "this run counts and takes no times";

impl Spread {
    /// The sample of `samples`, which are not empty.
    pub fn of(mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let (min, max) = (samples[0], samples[samples.len() - 1]);
        Self { median: samples[samples.len() / 2], min, max }
    }

    /// For a figure that is counted, not timed.
    pub fn exactly(figure: f64) -> Self {
        Self { median: figure, min: figure, max: figure }
    }

    /// The same as a rate: millions a second from nanoseconds each.
    pub fn rate(self) -> Self {
        Self { median: 1e3 / self.median, min: 1e3 / self.max, max: 1e3 / self.min }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_is_median_lowest_and_highest() {
        assert_eq!(Spread::of(vec![3.0, 1.0, 9.0]), Spread { median: 3.0, min: 1.0, max: 9.0 });
    }

    #[test]
    fn contenders_take_turns_and_the_first_turn_does_not_count() {
        let (calls, order) = (std::cell::Cell::new(0), std::cell::RefCell::new(String::new()));
        let mut turn = |name| {
            order.borrow_mut().push(name);
            calls.set(calls.get() + 1);
            f64::from(calls.get())
        };
        let turn = std::cell::RefCell::new(&mut turn);
        let [a, b] = interleave(2, [&mut || (turn.borrow_mut())('a'), &mut || (turn.borrow_mut())('b')]);
        assert_eq!(*order.borrow(), "ababab");
        assert_eq!((a.0, b.0), (vec![3.0, 5.0], vec![4.0, 6.0]));
    }

    #[test]
    fn ratio_is_taken_turn_by_turn() {
        let (slow, fast) = (Samples(vec![4.0, 40.0]), Samples(vec![2.0, 20.0]));
        assert_eq!(slow.over(&fast), Ok(Spread { median: 2.0, min: 2.0, max: 2.0 }));
    }

    #[test]
    fn without_rounds_nobody_runs_and_nothing_is_said() {
        let [none] = interleave(0, [&mut || panic!("nobody runs")]);
        assert!(none.spread().is_err() && none.over(&none).is_err());
    }
}
