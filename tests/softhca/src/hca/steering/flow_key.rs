//! The fields by which flow rules choose, side by side in 64 bytes: of a frame, and of a rule with
//! the bits that count. A rule matches where its bits are the frame's.

use super::parse::{Headers, L3, L4};
use crate::hca::control::{Errno, FlowSpec};
use std::hash::{Hash, Hasher};

/// The fields of a frame, or of a rule, or a mask over them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FlowKey([u64; 8]);

impl Hash for FlowKey {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        for word in self.0 {
            state.write_u64(word);
        }
    }
}

/// The position of each field, as bytes of the key.
mod at {
    pub(super) const DST_MAC: usize = 0;
    pub(super) const SRC_MAC: usize = 6;
    pub(super) const ETHER_TYPE: usize = 12;
    pub(super) const VLAN: usize = 14;
    /// IPv4 addresses lie in the first four bytes.
    pub(super) const SRC_IP: usize = 16;
    pub(super) const DST_IP: usize = 32;
    /// The protocol of IPv4, the last next header of IPv6; mlx5 looks behind extensions too.
    pub(super) const PROTOCOL: usize = 48;
    pub(super) const TRAFFIC_CLASS: usize = 49;
    /// 4 bytes, of which 20 bits are the flow label.
    pub(super) const FLOW_LABEL: usize = 50;
    pub(super) const DST_PORT: usize = 54;
    pub(super) const SRC_PORT: usize = 56;
    /// 4, 6, or 0 without IP.
    pub(super) const IP_VERSION: usize = 58;
    /// The protocol whose ports are there: not in fragments.
    pub(super) const PORTS_OF: usize = 59;
    /// 1 with a C-VLAN tag.
    pub(super) const HAS_VLAN: usize = 60;
}

const TCP: u8 = 6;
const UDP: u8 = 17;

impl FlowKey {
    /// The fields of a frame.
    #[inline]
    pub(super) fn of_frame(headers: &Headers, frame: &[u8]) -> Self {
        let mut key = [0; 64];
        // Destination and source address have the same positions in the frame.
        key[at::DST_MAC..12].copy_from_slice(&frame[..12]);
        put(&mut key, at::ETHER_TYPE, &headers.ether_type.to_be_bytes());
        if let Some(tag) = headers.vlan {
            put(&mut key, at::VLAN, &tag.to_be_bytes());
            key[at::HAS_VLAN] = 1;
        }
        let l3 = &frame[headers.l3_offset..];
        match headers.l3 {
            L3::V4 => {
                key[at::IP_VERSION] = 4;
                key[at::TRAFFIC_CLASS] = l3[1];
                put(&mut key, at::SRC_IP, &l3[12..16]);
                put(&mut key, at::DST_IP, &l3[16..20]);
            }
            L3::V6 => {
                key[at::IP_VERSION] = 6;
                key[at::TRAFFIC_CLASS] = l3[0] << 4 | l3[1] >> 4;
                put(&mut key, at::FLOW_LABEL, &[0, l3[1] & 0x0f, l3[2], l3[3]]);
                put(&mut key, at::SRC_IP, &l3[8..24]);
                put(&mut key, at::DST_IP, &l3[24..40]);
            }
            L3::None => {}
        }
        key[at::PROTOCOL] = headers.protocol;
        if let Some([s0, s1, d0, d1]) = headers.ports(frame) {
            put(&mut key, at::SRC_PORT, &[s0, s1]);
            put(&mut key, at::DST_PORT, &[d0, d1]);
            key[at::PORTS_OF] = if headers.l4 == L4::Udp { UDP } else { TCP };
        }
        Self::from_bytes(&key)
    }

    /// Both, bit by bit.
    #[inline]
    pub(super) fn masked(self, mask: Self) -> Self {
        let mut words = self.0;
        for (word, bits) in words.iter_mut().zip(mask.0) {
            *word &= bits;
        }
        Self(words)
    }

    pub(super) fn bits(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    #[inline]
    fn from_bytes(bytes: &[u8; 64]) -> Self {
        let mut words = [0; 8];
        for (word, eight) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = eight.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
        }
        Self(words)
    }
}

/// The fields of a frame that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// The bits that count.
    pub(super) mask: FlowKey,
    /// The values of these fields; 0 elsewhere.
    pub(super) value: FlowKey,
}

/// A [`Match`] that is being put together.
struct Builder {
    mask: [u8; 64],
    value: [u8; 64],
}

impl Match {
    /// All specs must match. Refuses what the kernel's driver refuses (Linux, `mlx5/fs.c`,
    /// `parse_flow_attr`, `is_valid_ethertype`): EOPNOTSUPP for fields that it does not support,
    /// EINVAL where specs contradict each other.
    pub(super) fn of_specs(specs: &[FlowSpec]) -> Result<Self, Errno> {
        let mut builder = Builder { mask: [0; 64], value: [0; 64] };
        for spec in specs {
            match spec {
                FlowSpec::Ethernet { value, mask } => builder.ethernet(value, mask)?,
                FlowSpec::Ipv4 { value, mask } => builder.ipv4(value, mask)?,
                FlowSpec::Ipv6 { value, mask } => builder.ipv6(value, mask)?,
                FlowSpec::Tcp { value, mask } => builder.ports(TCP, value, mask)?,
                FlowSpec::Udp { value, mask } => builder.ports(UDP, value, mask)?,
            }
        }
        builder.check_ether_type()?;
        let mask = FlowKey::from_bytes(&builder.mask);
        Ok(Self { mask, value: FlowKey::from_bytes(&builder.value).masked(mask) })
    }
}

impl Builder {
    fn ethernet(&mut self, value: &[u8; 16], mask: &[u8; 16]) -> Result<(), Errno> {
        self.want(at::DST_MAC, &value[..6], &mask[..6])?;
        self.want(at::SRC_MAC, &value[6..12], &mask[6..12])?;
        self.want(at::ETHER_TYPE, &value[12..14], &mask[12..14])?;
        if mask[14..] != [0; 2] {
            self.want(at::HAS_VLAN, &[1], &[1])?;
        }
        self.want(at::VLAN, &value[14..], &mask[14..])
    }

    fn ipv4(&mut self, value: &[u8; 12], mask: &[u8; 12]) -> Result<(), Errno> {
        if mask[10..] != [0; 2] {
            return Err(Errno(libc::EOPNOTSUPP)); // ttl and flags
        }
        self.want(at::IP_VERSION, &[4], &[0xff])?;
        self.want(at::SRC_IP, &value[..4], &mask[..4])?;
        self.want(at::DST_IP, &value[4..8], &mask[4..8])?;
        self.want(at::PROTOCOL, &value[8..9], &mask[8..9])?;
        self.want(at::TRAFFIC_CLASS, &value[9..10], &mask[9..10])
    }

    fn ipv6(&mut self, value: &[u8; 40], mask: &[u8; 40]) -> Result<(), Errno> {
        if mask[38..] != [0; 2] {
            return Err(Errno(libc::EOPNOTSUPP)); // hop limit and what follows
        }
        self.want(at::IP_VERSION, &[6], &[0xff])?;
        self.want(at::SRC_IP, &value[..16], &mask[..16])?;
        self.want(at::DST_IP, &value[16..32], &mask[16..32])?;
        self.want(at::FLOW_LABEL + 1, &[value[33] & 0x0f], &[mask[33] & 0x0f])?;
        self.want(at::FLOW_LABEL + 2, &value[34..36], &mask[34..36])?;
        self.want(at::PROTOCOL, &value[36..37], &mask[36..37])?;
        self.want(at::TRAFFIC_CLASS, &value[37..38], &mask[37..38])
    }

    fn ports(&mut self, protocol: u8, value: &[u8; 4], mask: &[u8; 4]) -> Result<(), Errno> {
        self.want(at::PROTOCOL, &[protocol], &[0xff])?;
        if *mask != [0; 4] {
            // Without ports the rule is about the protocol alone, which fragments have too.
            self.want(at::PORTS_OF, &[protocol], &[0xff])?;
        }
        self.want(at::DST_PORT, &value[..2], &mask[..2])?;
        self.want(at::SRC_PORT, &value[2..], &mask[2..])
    }

    /// Adds bits that count. EINVAL where another spec wants them otherwise.
    fn want(&mut self, at: usize, value: &[u8], mask: &[u8]) -> Result<(), Errno> {
        for (place, (&value, &mask)) in (at..).zip(value.iter().zip(mask)) {
            let both = self.mask[place] & mask;
            if (self.value[place] ^ value) & both != 0 {
                return Err(Errno(libc::EINVAL));
            }
            self.mask[place] |= mask;
            self.value[place] |= value & mask;
        }
        Ok(())
    }

    /// An EtherType beside an IP spec must be that of this IP.
    fn check_ether_type(&self) -> Result<(), Errno> {
        let field = at::ETHER_TYPE..at::ETHER_TYPE + 2;
        let wanted = match (self.mask[at::IP_VERSION], self.value[at::IP_VERSION]) {
            (0xff, 4) => [0x08, 0x00],
            (0xff, _) => [0x86, 0xdd],
            _ => return Ok(()),
        };
        if self.mask[field.clone()] != [0xff; 2] || self.value[field] == wanted {
            Ok(())
        } else {
            Err(Errno(libc::EINVAL))
        }
    }
}

fn put(key: &mut [u8; 64], at: usize, field: &[u8]) {
    key[at..at + field.len()].copy_from_slice(field);
}
