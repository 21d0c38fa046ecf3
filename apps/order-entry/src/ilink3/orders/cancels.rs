//! The numbers of cancels: a refusal of a message as a whole names its number alone.

/// Cancels that are remembered: more than wait for an answer at once.
const CANCELS: usize = 1 << 12;

/// The order that each of the last cancels named, by the cancel's number.
#[derive(Debug)]
pub(super) struct Cancels(Box<[(u32, u64)]>);

impl Cancels {
    pub(super) fn new() -> Self {
        Self(vec![(0, 0); CANCELS].into_boxed_slice())
    }

    pub(super) fn note(&mut self, number: u32, id: u64) {
        self.0[number as usize % CANCELS] = (number, id);
    }

    /// The client id of the order that the cancel `number` named.
    pub(super) fn get(&self, number: u32) -> Option<u64> {
        let (of, id) = self.0[number as usize % CANCELS];
        (of == number && number > 0).then_some(id)
    }
}
