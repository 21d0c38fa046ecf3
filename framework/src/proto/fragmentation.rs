//! IPv4 fragmentation: splits a datagram that exceeds the MTU (RFC 791 3.2), without touching its
//! bytes.
//!
//! [`FragmentPlan`] yields offset, length and flag of one fragment after the other; the sender
//! copies or references the payload accordingly. [`copied_options`] selects the options that later
//! fragments repeat.

use core::fmt;

use arrayvec::ArrayVec;

use crate::wire::ipv4::{Ipv4Error, Ipv4Option, OPTIONS_LEN_MAX};

/// A datagram that is to be sent.
#[derive(Clone, Copy, Debug)]
pub struct FragmentRequest {
    /// Bytes after the IP header.
    pub payload_len: usize,
    /// Bytes of the first fragment's header, all options included.
    pub header_len: usize,
    /// Bytes of the other fragments' headers: 20 and the options that are copied.
    pub later_header_len: usize,
    /// Bytes that one packet may have, IP header included.
    pub mtu: usize,
    /// The sender forbids fragments (the DF bit).
    pub dont_fragment: bool,
}

/// One packet of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentPiece {
    /// First byte of the payload that it carries; a multiple of 8.
    pub offset: usize,
    /// Bytes that it carries; a multiple of 8 in all but the last.
    pub len: usize,
    /// The "more fragments" flag.
    pub more: bool,
}

/// Why a datagram cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentationError {
    /// The datagram exceeds the MTU and may not be fragmented: ICMP reports this MTU to the sender
    /// (RFC 1191 4).
    DontFragment {
        /// Bytes that would fit, IP header included.
        mtu: usize,
    },
    /// The MTU leaves no room for 8 bytes after the header.
    MtuTooSmall {
        /// The MTU in question.
        mtu: usize,
    },
    /// Header and payload exceed 65,535 bytes: no datagram can be that long.
    Oversize,
}

impl fmt::Display for FragmentationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DontFragment { mtu } => write!(f, "the datagram exceeds the MTU of {mtu} bytes and must not be cut"),
            Self::MtuTooSmall { mtu } => write!(f, "an MTU of {mtu} bytes has no room for a header and 8 bytes"),
            Self::Oversize => f.write_str("the datagram exceeds 65,535 bytes with its header"),
        }
    }
}

impl core::error::Error for FragmentationError {}

/// The packets of one datagram, in order; a single one with MF clear where it fits.
#[derive(Clone, Debug)]
pub struct FragmentPlan {
    payload_len: usize,
    first_len_max: usize,
    later_len_max: usize,
    offset: usize,
    done: bool,
}

impl FragmentPlan {
    /// Computes the plan; nothing may be sent where this fails.
    pub fn new(request: FragmentRequest) -> Result<Self, FragmentationError> {
        let FragmentRequest { payload_len, header_len, later_header_len, mtu, dont_fragment } = request;
        if header_len + payload_len > 65_535 {
            return Err(FragmentationError::Oversize);
        }
        if header_len + payload_len <= mtu {
            return Ok(Self { payload_len, first_len_max: payload_len, later_len_max: 0, offset: 0, done: false });
        }
        if dont_fragment {
            return Err(FragmentationError::DontFragment { mtu });
        }
        let room = |header_len: usize| mtu.saturating_sub(header_len) / 8 * 8;
        if room(header_len) == 0 || room(later_header_len) == 0 {
            return Err(FragmentationError::MtuTooSmall { mtu });
        }
        // The last fragment need not be a multiple of 8 bytes and could take up to 7 bytes more.
        // That would save a packet only where 8 does not divide the room in the MTU, and RFC 791's
        // procedure rounds all fragments down too.
        Ok(Self {
            payload_len,
            first_len_max: room(header_len),
            later_len_max: room(later_header_len),
            offset: 0,
            done: false,
        })
    }
}

impl Iterator for FragmentPlan {
    type Item = FragmentPiece;

    fn next(&mut self) -> Option<FragmentPiece> {
        if self.done {
            return None;
        }
        let len_max = if self.offset == 0 { self.first_len_max } else { self.later_len_max };
        let offset = self.offset;
        let len = len_max.min(self.payload_len - offset);
        self.offset += len;
        self.done = self.offset == self.payload_len;
        Some(FragmentPiece { offset, len, more: !self.done })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let count = match (self.done, self.offset) {
            (true, _) => 0,
            (false, 0) => match self.payload_len - self.first_len_max.min(self.payload_len) {
                0 => 1,
                rest => 1 + rest.div_ceil(self.later_len_max),
            },
            (false, offset) => (self.payload_len - offset).div_ceil(self.later_len_max),
        };
        (count, Some(count))
    }
}

impl ExactSizeIterator for FragmentPlan {}

/// The options that later fragments carry: those with the copy bit (RFC 791 3.1), padded to whole
/// words with the end of the option list. `options` are those of the first header; an error among
/// them is returned unchanged.
pub fn copied_options<'a>(
    options: impl Iterator<Item = Result<Ipv4Option<'a>, Ipv4Error>>,
) -> Result<ArrayVec<u8, OPTIONS_LEN_MAX>, Ipv4Error> {
    const END_OF_LIST: u8 = 0;
    let mut copied = ArrayVec::new();
    for option in options {
        let option = option?;
        if !option.is_copied() {
            continue;
        }
        let len = option.data.len() + 2;
        if len > copied.remaining_capacity() {
            return Err(Ipv4Error::Option);
        }
        copied.extend([option.kind, len as u8].into_iter().chain(option.data.iter().copied()));
    }
    while !copied.len().is_multiple_of(4) {
        copied.push(END_OF_LIST);
    }
    Ok(copied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(payload_len: usize, mtu: usize) -> FragmentRequest {
        FragmentRequest { payload_len, header_len: 20, later_header_len: 20, mtu, dont_fragment: false }
    }

    fn pieces(payload_len: usize, mtu: usize) -> Vec<(usize, usize, bool)> {
        let plan = FragmentPlan::new(request(payload_len, mtu)).unwrap();
        plan.map(|piece| (piece.offset, piece.len, piece.more)).collect()
    }

    #[test]
    fn datagram_that_must_not_be_cut_says_the_mtu() {
        let request = FragmentRequest { dont_fragment: true, ..request(1481, 1500) };
        assert_eq!(FragmentPlan::new(request).err(), Some(FragmentationError::DontFragment { mtu: 1500 }));
    }

    #[test]
    fn datagram_that_fits_is_not_cut_even_if_it_may_not_be() {
        let request = FragmentRequest { dont_fragment: true, ..request(1480, 1500) };
        let all: Vec<_> = FragmentPlan::new(request).unwrap().collect();
        assert_eq!(all, [FragmentPiece { offset: 0, len: 1480, more: false }]);
        assert_eq!(pieces(0, 1500), [(0, 0, false)]);
    }

    #[test]
    fn mtu_without_room_for_eight_bytes_is_refused() {
        assert_eq!(FragmentPlan::new(request(100, 27)).err(), Some(FragmentationError::MtuTooSmall { mtu: 27 }));
        assert_eq!(FragmentPlan::new(request(100, 0)).err(), Some(FragmentationError::MtuTooSmall { mtu: 0 }));
        assert_eq!(pieces(17, 28), [(0, 8, true), (8, 8, true), (16, 1, false)]);
    }

    #[test]
    fn payload_of_more_than_64_kib_is_refused() {
        assert_eq!(FragmentPlan::new(request(65_516, 1500)).err(), Some(FragmentationError::Oversize));
        assert_eq!(pieces(65_515, 1500).len(), 45);
    }

    #[test]
    fn mtu_that_is_no_multiple_of_eight_is_rounded_down() {
        assert_eq!(pieces(2000, 1499), [(0, 1472, true), (1472, 528, false)]);
    }

    #[test]
    fn later_fragments_use_the_room_of_options_that_are_not_copied() {
        let request = FragmentRequest { header_len: 60, ..request(3000, 1500) };
        let all: Vec<_> = FragmentPlan::new(request).unwrap().map(|piece| piece.len).collect();
        assert_eq!(all, [1440, 1480, 80]);
    }

    fn copied(options: &[(u8, &[u8])]) -> Result<Vec<u8>, Ipv4Error> {
        let options = options.iter().map(|(kind, data)| Ok(Ipv4Option { kind: *kind, data }));
        copied_options(options).map(|copied| copied.to_vec())
    }

    #[test]
    fn malformed_option_is_an_error() {
        assert_eq!(copied_options([Err(Ipv4Error::Option)].into_iter()), Err(Ipv4Error::Option));
        // More than a header can hold.
        assert_eq!(copied(&[(148, &[0; 37]), (148, &[0; 2])]), Err(Ipv4Error::Option));
        assert_eq!(copied(&[(148, &[0; 38])]).unwrap().len(), 40);
    }

    #[test]
    fn only_options_with_the_copy_bit_are_copied() {
        // Record route (7) is not copied, router alert (148) is.
        assert_eq!(copied(&[(7, &[4]), (148, &[0, 0])]).unwrap(), [148, 4, 0, 0]);
        assert_eq!(copied(&[(7, &[4])]).unwrap(), []);
    }

    #[test]
    fn copied_options_are_padded_to_whole_words() {
        assert_eq!(copied(&[(131, &[4])]).unwrap(), [131, 3, 4, 0]);
    }

    proptest! {
        #[test]
        fn pieces_cover_the_payload_and_fit_the_mtu(
            payload_len in 0usize..65_456, options in 0usize..11, copied in 0usize..11, mtu in 68usize..10_000,
        ) {
            let (header_len, later_header_len) = (20 + 4 * options, 20 + 4 * copied.min(options));
            let request = FragmentRequest { payload_len, header_len, later_header_len, mtu, dont_fragment: false };
            let mut plan = FragmentPlan::new(request).unwrap();
            let mut end = 0;
            loop {
                let left = plan.len();
                let Some(piece) = plan.next() else { break };
                prop_assert_eq!(plan.len() + 1, left);
                prop_assert_eq!(piece.offset, end);
                prop_assert_eq!(piece.offset % 8, 0);
                prop_assert!(!piece.more || piece.len % 8 == 0);
                let piece_header_len = if end == 0 { header_len } else { later_header_len };
                prop_assert!(piece.len + piece_header_len <= mtu);
                end += piece.len;
                prop_assert_eq!(piece.more, end < payload_len);
            }
            prop_assert_eq!(end, payload_len);
        }
    }
}
