//! The number of buffers a pool needs, as a sum in which each part has a name and a reason. A pool
//! that is too small drops packets in a burst; one that is too large spills the cache and the
//! hugepages. The operator can read the reason for each part.

use core::fmt;

/// An itemised number of buffers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sizing {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    name: &'static str,
    buffers: usize,
    why: &'static str,
}

impl Sizing {
    /// An empty sum.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a part: its name, its number of buffers, and the reason for them.
    #[must_use]
    pub fn part(mut self, name: &'static str, buffers: usize, why: &'static str) -> Self {
        self.parts.push(Part { name, buffers, why });
        self
    }

    /// The sum of both, with all their parts.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.parts.extend(other.parts);
        self
    }

    /// The buffers in all.
    pub fn total(&self) -> usize {
        self.parts.iter().map(|part| part.buffers).sum()
    }
}

impl fmt::Display for Sizing {
    /// One line per part, then the sum.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            writeln!(f, "{:>8}  {:<14} {}", part.buffers, part.name, part.why)?;
        }
        write!(f, "{:>8}  buffers", self.total())
    }
}
