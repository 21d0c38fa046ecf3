//! Compressed completions, basic layout; mlx5.md 2.10.
//!
//! Received frames whose entries would differ only in length and hash (or checksum) become a
//! session: one full entry, the title, and 8 bytes a frame in arrays of eight. A session takes as
//! many slots as it has frames:
//!
//! ```text
//! slot   k      k+1      k+2 .. k+7   k+8      k+9 ..      (k+16, k+24, …)
//!        title  array 0  untouched    array 1  untouched
//! ```
//!
//! The input is completions with their index; the output is bytes in the ring, the arrays first and
//! the title last. A session never wraps at the end of the ring, because DPDK reads it in one
//! piece.

use super::cqe;
use super::cqe::FILLER;
use super::ring::CqRing;
use crate::hca::{Completion, CompletionKind, Compression, Dma, RxHeaders, Unmapped};

/// Frames of the longest session: the number that the device announces as `cqe_comp_caps.max_num`.
pub(super) const SESSION_MAX: usize = 64;

const ARRAY_LEN: usize = 8;

/// A session that is being collected.
#[derive(Debug)]
pub(super) struct Session {
    format: Compression,
    title: Option<Title>,
    minis: Vec<[u8; 8]>,
    /// The `wqe_counter` that the next frame must have, since the minis do not carry it.
    counter_next: u16,
    /// Frames of sessions that were written and not yet counted.
    written: u64,
}

#[derive(Debug)]
struct Title {
    index: u32,
    completion: Completion,
    headers: RxHeaders,
    timestamp: u64,
}

impl Session {
    pub(super) fn new(format: Compression) -> Self {
        Self { format, title: None, minis: Vec::with_capacity(SESSION_MAX), counter_next: 0, written: 0 }
    }

    /// Takes a completion in, or returns `false`: then the session must be written first, and the
    /// completion begins another one ([`begin`](Self::begin)) or is written plainly.
    #[inline]
    pub(super) fn join(&mut self, index: u32, completion: &Completion, ring: &CqRing) -> bool {
        let (Some(title), CompletionKind::Received(headers)) = (&self.title, completion.kind) else { return false };
        let fits = self.minis.len() < SESSION_MAX && ring.entries_to_end(title.index) as usize > self.minis.len();
        debug_assert_eq!(index, title.index.wrapping_add(self.minis.len() as u32), "indices follow each other");
        if !fits || !self.is_alike(title, completion, &headers) {
            return false;
        }
        self.push(completion, &headers);
        true
    }

    /// Begins a session with this completion. `false` where it cannot be part of one.
    #[inline]
    pub(super) fn begin(&mut self, index: u32, completion: &Completion, timestamp: u64) -> bool {
        let CompletionKind::Received(headers) = completion.kind else { return false };
        if is_filler(&headers) {
            return false;
        }
        self.title = Some(Title { index, completion: *completion, headers, timestamp });
        self.push(completion, &headers);
        true
    }

    /// Writes the collected session; a lone frame becomes a plain entry.
    pub(super) fn finish(&mut self, ring: &CqRing, dma: &dyn Dma) -> Result<(), Unmapped> {
        let Some(title) = self.title.take() else { return Ok(()) };
        let count = self.minis.len() as u32;
        let owner = ring.owner(title.index);
        let entry = if count == 1 {
            cqe::encode(&title.completion, title.timestamp, owner)
        } else {
            self.write_arrays(title.index, ring, dma)?;
            self.written += u64::from(count);
            cqe::encode_title(&title.completion, title.timestamp, owner, count)
        };
        self.minis.clear();
        ring.publish(title.index, &entry, dma)
    }

    /// Frames of sessions that were written since this was asked last.
    pub(super) fn take_written(&mut self) -> u64 {
        std::mem::take(&mut self.written)
    }

    fn write_arrays(&self, title: u32, ring: &CqRing, dma: &dyn Dma) -> Result<(), Unmapped> {
        for (array, minis) in self.minis.chunks(ARRAY_LEN).enumerate() {
            let mut bytes = [0; 64];
            for (into, mini) in bytes.chunks_exact_mut(8).zip(minis) {
                into.copy_from_slice(mini);
            }
            // The first array cannot lie where the title does.
            let offset = if array == 0 { 1 } else { array * ARRAY_LEN };
            ring.write_inner(title.wrapping_add(offset as u32), &bytes, dma)?;
        }
        Ok(())
    }

    /// Whether the driver would read the same from the title as from a separate entry, except for
    /// the fields of the minis. Fields for which the format has no room (the hash beside checksums,
    /// and the reverse) are lost in a session, as in hardware.
    fn is_alike(&self, title: &Title, completion: &Completion, headers: &RxHeaders) -> bool {
        let first = &title.headers;
        let counter_fits = self.format == Compression::ChecksumStride || completion.wqe_counter == self.counter_next;
        counter_fits
            && !is_filler(headers)
            && completion.user_index == title.completion.user_index
            && completion.queue_number == title.completion.queue_number
            && headers.wqe_id == first.wqe_id
            && headers.hash_type == first.hash_type
            && headers.outer == first.outer
            && headers.verdicts == first.verdicts
            && headers.types == first.types
            && headers.vlan == first.vlan
            && headers.flow_tag == first.flow_tag
    }

    fn push(&mut self, completion: &Completion, headers: &RxHeaders) {
        let mut mini = [0; 8];
        match self.format {
            Compression::Hash => mini[..4].copy_from_slice(&headers.hash.to_be_bytes()),
            Compression::Checksum => mini[..2].copy_from_slice(&headers.checksum.to_be_bytes()),
            Compression::ChecksumStride => {
                mini[..2].copy_from_slice(&headers.checksum.to_be_bytes());
                mini[2..4].copy_from_slice(&completion.wqe_counter.to_be_bytes());
            }
        }
        mini[4..].copy_from_slice(&headers.byte_count.to_be_bytes());
        self.minis.push(mini);
        // In a striding queue the counter is that of the stride, and advances by the strides that
        // the frame consumed.
        let step = cqe::strides_consumed(headers.byte_count).max(1);
        self.counter_next = completion.wqe_counter.wrapping_add(step);
    }
}

/// A filler is not a frame: drivers look for its bit in a full entry.
fn is_filler(headers: &RxHeaders) -> bool {
    headers.byte_count & FILLER != 0
}
