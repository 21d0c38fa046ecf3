//! A frame from an Ethernet port: where the packet of RoCE in it begins and ends.

use core::fmt;

use crate::wire::icrc::Network;
use crate::wire::{GRH_ETHERTYPE, ROCE_PORT};

/// A frame that carries RoCE.
#[derive(Clone, Copy, Debug)]
pub struct RoceFrame<'a> {
    /// The headers in front of the BTH.
    pub network: Network<'a>,
    /// From the BTH to the ICRC.
    pub roce: &'a [u8],
}

/// Why a frame carries no RoCE.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FrameError {
    /// Shorter than its headers say.
    Short,
    /// Another Ethernet type, protocol or UDP port.
    Other,
    /// IPv4 with options or in fragments, or IPv6 with extensions, whose ICRC nobody defines.
    Header,
}

impl<'a> RoceFrame<'a> {
    /// The packet in an Ethernet frame, with a VLAN tag or without. Addresses and checksums of
    /// Ethernet, IP and UDP are not checked: the ICRC protects what counts.
    ///
    /// # Errors
    /// [`FrameError`].
    #[inline]
    pub fn parse(frame: &'a [u8]) -> Result<Self, FrameError> {
        let (_, rest) = frame.split_first_chunk::<12>().ok_or(FrameError::Short)?;
        let (ethertype, rest) = take_u16(rest)?;
        let (ethertype, rest) = match ethertype {
            0x8100 | 0x88a8 => take_u16(rest.get(2..).ok_or(FrameError::Short)?)?,
            other => (other, rest),
        };
        match ethertype {
            0x0800 => Self::parse_ipv4(rest),
            0x86dd => Self::parse_ipv6(rest),
            GRH_ETHERTYPE => Self::parse_grh(rest),
            _ => Err(FrameError::Other),
        }
    }

    fn parse_ipv4(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let (ip, rest) = bytes.split_first_chunk::<20>().ok_or(FrameError::Short)?;
        if ip[9] != 17 {
            return Err(FrameError::Other);
        }
        // More fragments, or not the first of them.
        if ip[0] != 0x45 || u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff != 0 {
            return Err(FrameError::Header);
        }
        let len = usize::from(u16::from_be_bytes([ip[2], ip[3]])).checked_sub(ip.len()).ok_or(FrameError::Short)?;
        let (udp, roce) = parse_udp(rest.get(..len).ok_or(FrameError::Short)?)?;
        Ok(Self { network: Network::Ipv4(ip, udp), roce })
    }

    fn parse_ipv6(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let (ip, payload) = parse_v6(bytes)?;
        if ip[6] != 17 {
            return Err(FrameError::Other);
        }
        let (udp, roce) = parse_udp(payload)?;
        Ok(Self { network: Network::Ipv6(ip, udp), roce })
    }

    /// The packet of RoCEv1 behind an Ethernet header.
    pub(crate) fn parse_grh(bytes: &'a [u8]) -> Result<Self, FrameError> {
        let (grh, roce) = parse_v6(bytes)?;
        if grh[6] != 0x1b {
            return Err(FrameError::Other);
        }
        Ok(Self { network: Network::Grh(grh), roce })
    }
}

fn parse_v6(bytes: &[u8]) -> Result<(&[u8; 40], &[u8]), FrameError> {
    let (ip, rest) = bytes.split_first_chunk::<40>().ok_or(FrameError::Short)?;
    if ip[0] >> 4 != 6 {
        return Err(FrameError::Header);
    }
    let len = usize::from(u16::from_be_bytes([ip[4], ip[5]]));
    Ok((ip, rest.get(..len).ok_or(FrameError::Short)?))
}

fn parse_udp(bytes: &[u8]) -> Result<(&[u8; 8], &[u8]), FrameError> {
    let (udp, rest) = bytes.split_first_chunk::<8>().ok_or(FrameError::Short)?;
    if u16::from_be_bytes([udp[2], udp[3]]) != ROCE_PORT {
        return Err(FrameError::Other);
    }
    let len = usize::from(u16::from_be_bytes([udp[4], udp[5]])).checked_sub(udp.len()).ok_or(FrameError::Short)?;
    Ok((udp, rest.get(..len).ok_or(FrameError::Short)?))
}

fn take_u16(bytes: &[u8]) -> Result<(u16, &[u8]), FrameError> {
    let (word, rest) = bytes.split_first_chunk().ok_or(FrameError::Short)?;
    Ok((u16::from_be_bytes(*word), rest))
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Short => "frame shorter than its headers say",
            Self::Other => "frame of another protocol than RoCE",
            Self::Header => "RoCE behind IP options, extensions or in fragments",
        })
    }
}

impl core::error::Error for FrameError {}
