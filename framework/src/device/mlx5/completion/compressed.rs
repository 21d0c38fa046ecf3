//! Compressed CQE sessions (mlx5.md 2.10): a title like any CQE, then eight bytes per frame in
//! arrays of eight.
//!
//! ```text
//!  slot    k      k+1      k+2 .. k+7   k+8      k+9 .. k+15   k+16     ...  k+N
//!          title  array 0  holes        array 1  holes         array 2       the next CQE
//! ```
//!
//! Opening a session copies all of it out and returns its slots to the NIC. From then on it is a
//! list, and a burst may end anywhere in it. The slots hold arbitrary bytes at the owner bits, so
//! they are invalidated.

use super::cq::{Cq, MINIS};
use crate::mem::{MetaTemplate, Templated};

/// Frames of the longest session that the devices of docs/mlx5.md report (`cqe_comp_caps.max_num`,
/// mlx5.md 1.4).
const FRAMES_MAX: usize = 64;

/// The format of a mini CQE's upper half; the lower half is the byte count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mini {
    /// The hash of the frame.
    Hash,
    /// Its checksum.
    Checksum,
    /// Its checksum and, with several frames per WQE, its first stride.
    ChecksumStride,
}

/// A session with frames left, or an empty one.
pub(crate) struct Session {
    /// As written by the NIC.
    minis: [[u64; MINIS]; FRAMES_MAX / MINIS],
    count: usize,
    next: usize,
    /// The title CQE's metadata, shared by all frames.
    title: MetaTemplate,
    mini: Mini,
}

/// A title with an impossible number of frames: none, or too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Impossible;

impl Session {
    /// An empty session; any title will do.
    pub(crate) fn new(mini: Mini, title: MetaTemplate) -> Self {
        Self { minis: [[0; MINIS]; FRAMES_MAX / MINIS], count: 0, next: 0, title, mini }
    }

    /// Whether each frame has a hash; otherwise no frame has one.
    #[inline(always)]
    pub(crate) fn has_hashes(&self) -> bool {
        self.mini == Mini::Hash
    }

    /// Frames that are left.
    #[inline(always)]
    pub(crate) fn left(&self) -> usize {
        self.count - self.next
    }

    /// Reads the session of `count` frames, at most `possible`, whose title is the oldest entry of
    /// `cq`, and consumes its entries.
    #[inline(always)]
    pub(crate) fn open(&mut self, cq: &mut Cq, count: u32, possible: u32) -> Result<(), Impossible> {
        let max = possible.min(cq.count()).min(FRAMES_MAX as u32);
        if count == 0 || count > max {
            return Err(Impossible);
        }
        cq.take_minis(count, &mut self.minis);
        (self.count, self.next) = (count as usize, 0);
        Ok(())
    }

    /// Sets the title CQE's metadata.
    #[inline(always)]
    pub(crate) fn set_title(&mut self, title: MetaTemplate) {
        self.title = title;
    }

    /// The metadata of the `count` next frames, by index from the next one on. Panics if fewer are
    /// left.
    #[inline(always)]
    pub(crate) fn metas<const HASHES: bool>(&self, count: usize) -> impl Fn(usize) -> Templated {
        let (minis, title) = (&self.minis.as_flattened()[self.next..self.count][..count], self.title);
        move |idx| alike::<HASHES>(minis[idx], title)
    }

    /// Consumes the `count` next frames.
    #[inline(always)]
    pub(crate) fn advance(&mut self, count: usize) {
        self.next += count;
    }

    /// The metadata of the next frame, with its first stride if the format has it.
    pub(crate) fn peek(&self) -> Option<(Templated, Option<u16>)> {
        let mini = *self.minis.as_flattened()[..self.count].get(self.next)?;
        let first = (self.mini == Mini::ChecksumStride).then_some((u64::from_be(mini) >> 32) as u16);
        Some((self.alike(mini), first))
    }

    /// Takes the metadata of the next frame.
    pub(crate) fn next(&mut self) -> Option<Templated> {
        let (alike, _) = self.peek()?;
        self.next += 1;
        Some(alike)
    }

    fn alike(&self, mini: u64) -> Templated {
        if self.has_hashes() { alike::<true>(mini, self.title) } else { alike::<false>(mini, self.title) }
    }

    /// Discards the remaining frames; returns how many.
    pub(crate) fn close(&mut self) -> usize {
        let left = self.left();
        self.next = self.count;
        left
    }
}

#[inline(always)]
fn alike<const HASHES: bool>(mini: u64, template: MetaTemplate) -> Templated {
    let mini = u64::from_be(mini);
    Templated { len: mini as u32, template, hash: HASHES.then_some((mini >> 32) as u32) }
}
