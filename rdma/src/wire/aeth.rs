//! The acknowledge header: a syndrome and the number of messages that are done (InfiniBand 9.7.5).

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The header as it lies in the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Aeth(U32);

/// What an acknowledgment says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syndrome {
    /// All is well. The code says how many receives the responder has left: [`credits`].
    Ack(u8),
    /// No receive was there: again after the time of the code, [`rnr_timer_ns`].
    RnrNak(u8),
    /// The request failed.
    Nak(Nak),
    /// A number that the specification keeps for later.
    Reserved(u8),
}

/// Why a responder refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Nak {
    /// A packet is missing: the requester goes back to the packet that the responder expects.
    PsnSequence = 0,
    /// The request breaks a rule of the transport.
    InvalidRequest = 1,
    /// The key, the range or the rights of the memory are wrong.
    RemoteAccess = 2,
    /// The responder cannot go on.
    RemoteOperational = 3,
}

impl Nak {
    /// The refusal in the words of the specification.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PsnSequence => "NAK: PSN sequence error",
            Self::InvalidRequest => "NAK: invalid request",
            Self::RemoteAccess => "NAK: remote access error",
            Self::RemoteOperational => "NAK: remote operational error",
        }
    }
}

/// The code of a responder that says nothing about its receives.
pub const NO_CREDITS: u8 = 31;

const RNR: u8 = 0x20;
const NAK: u8 = 0x60;
const CODE: u8 = 0x1f;

impl Aeth {
    /// Bytes of the header.
    pub const LEN: usize = size_of::<Self>();

    /// A header; `msn` is the number of messages that the responder has done, of which 24 bits
    /// travel.
    #[inline]
    pub fn new(syndrome: Syndrome, msn: u32) -> Self {
        let byte = match syndrome {
            Syndrome::Ack(code) => code & CODE,
            Syndrome::RnrNak(code) => RNR | code & CODE,
            Syndrome::Nak(nak) => NAK | nak as u8,
            Syndrome::Reserved(byte) => byte,
        };
        Self(U32::new(u32::from(byte) << 24 | msn & 0xff_ffff))
    }

    /// What it says.
    #[inline]
    pub fn syndrome(&self) -> Syndrome {
        let [byte, ..] = self.0.to_bytes();
        match (byte & !CODE, byte & CODE) {
            (0, code) => Syndrome::Ack(code),
            (RNR, code) => Syndrome::RnrNak(code),
            (NAK, 0) => Syndrome::Nak(Nak::PsnSequence),
            (NAK, 1) => Syndrome::Nak(Nak::InvalidRequest),
            (NAK, 2) => Syndrome::Nak(Nak::RemoteAccess),
            (NAK, 3) => Syndrome::Nak(Nak::RemoteOperational),
            _ => Syndrome::Reserved(byte),
        }
    }

    /// The low 24 bits of the number of messages that the responder has done.
    #[inline]
    pub fn msn(&self) -> u32 {
        self.0.get() & 0xff_ffff
    }
}

/// The receives that a responder has left, by the code of its acknowledgment; `None` for
/// [`NO_CREDITS`] (InfiniBand table 45).
#[inline]
pub const fn credits(code: u8) -> Option<u32> {
    match code & CODE {
        NO_CREDITS => None,
        // 0, 1, 2, 3, 4, 6, 8, 12, 16, 24 ...: a power of two and one and a half of it.
        code @ 0..=1 => Some(code as u32),
        code => Some((2 + (code as u32 & 1)) << (code / 2 - 1)),
    }
}

/// The greatest code that promises no more than `receives`.
#[inline]
pub const fn credit_code(receives: u32) -> u8 {
    match receives {
        0..=1 => receives as u8,
        32_768.. => 30,
        receives => {
            let exponent = receives.ilog2();
            (2 * exponent + (receives >> (exponent - 1) & 1)) as u8
        }
    }
}

/// How long a requester waits before it asks again, in nanoseconds, by the code of an RNR NAK
/// (InfiniBand table 46).
#[inline]
pub const fn rnr_timer_ns(code: u8) -> u64 {
    match code & CODE {
        0 => 655_360_000,
        code @ 1..=3 => code as u64 * 10_000,
        code => ((2 + (code as u64 & 1)) << (code / 2 - 1)) * 10_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credits_are_those_of_the_table() {
        let table = [
            0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
            4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768,
        ];
        for (code, receives) in (0..).zip(table) {
            assert_eq!(credits(code), Some(receives), "code {code}");
            assert_eq!(credit_code(receives), code);
        }
        assert_eq!(credits(NO_CREDITS), None);
        assert_eq!([5, 7, 100, 40_000].map(credit_code).map(credits), [4, 6, 96, 32_768].map(Some));
    }

    #[test]
    fn rnr_timers_are_those_of_the_table() {
        let hundredths_of_ms = [
            65_536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072,
            4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152,
        ];
        for (code, hundredths) in (0..).zip(hundredths_of_ms) {
            assert_eq!(rnr_timer_ns(code), hundredths * 10_000, "code {code}");
        }
    }

    #[test]
    fn each_syndrome_is_written_as_it_is_read() {
        for byte in 0..=255 {
            let header = Aeth::read_from_bytes(&[byte, 1, 2, 3]).unwrap();
            assert_eq!(Aeth::new(header.syndrome(), 0xff01_0203), header);
            assert_eq!(header.msn(), 0x01_0203);
        }
    }
}
