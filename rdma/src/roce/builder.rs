//! A packet, header by header, into a frame buffer.

use zerocopy::{Immutable, IntoBytes};

use super::path::Template;
use crate::wire::bth::Bth;
use crate::wire::icrc::ICRC_LEN;

/// Bytes of the longest headers between the BTH and a payload: a RETH and immediate data. An
/// AtomicETH is longer, and has no payload behind it.
const EXTENDED_MAX: usize = 20;

/// The bytes that a frame may have for payloads of `mtu` bytes.
pub(crate) const fn frame_len_max(mtu: u32) -> usize {
    Template::LEN_MAX + Bth::LEN + EXTENDED_MAX + mtu as usize + ICRC_LEN
}

// As the documentation of `Mtu` says.
const _: () = assert!(frame_len_max(0) == 102);

/// Writes behind the place of the path's headers.
pub(super) struct Builder<'a> {
    frame: &'a mut [u8],
    roce_at: usize,
    end: usize,
}

impl<'a> Builder<'a> {
    /// Begins with the path's headers and the BTH.
    #[inline]
    pub(super) fn new(frame: &'a mut [u8], template: &Template, bth: &Bth) -> Self {
        let roce_at = template.copy_to(frame);
        let mut builder = Self { frame, roce_at, end: roce_at };
        builder.push(bth);
        builder
    }

    /// Adds a header.
    #[inline]
    pub(super) fn push(&mut self, header: &(impl IntoBytes + Immutable + ?Sized)) {
        let bytes = header.as_bytes();
        self.frame[self.end..self.end + bytes.len()].copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Adds bytes that the caller fills.
    #[inline]
    pub(super) fn payload(&mut self, len: usize) -> &mut [u8] {
        let from = self.end;
        self.end += len;
        &mut self.frame[from..from + len]
    }

    /// Adds pad and ICRC, and to the headers in front the length; returns the bytes of the frame.
    #[inline]
    pub(super) fn finish(self, template: &Template) -> usize {
        let Self { frame, roce_at, end } = self;
        let roce_end = roce_at + (end - roce_at).next_multiple_of(4);
        // The ICRC goes where there are more than the pad.
        frame[end..end + ICRC_LEN].copy_from_slice(&[0; ICRC_LEN]);
        let (headers, roce) = frame.split_at_mut(roce_at);
        template.complete(headers, roce_end - roce_at + ICRC_LEN);
        let icrc = template.icrc(headers, &roce[..roce_end - roce_at]);
        roce[roce_end - roce_at..][..ICRC_LEN].copy_from_slice(&icrc);
        roce_end + ICRC_LEN
    }
}

/// Zero bytes behind a payload.
#[inline]
pub(super) const fn pad(len: u32) -> u8 {
    (len.wrapping_neg() & 3) as u8
}
