//! The words and numbers of the file, each checked while it is parsed.

use std::net::Ipv4Addr;

use serde::Deserialize;
use wirepath::device::pcap::Pace;
use wirepath::mem::BURST_MAX;

use crate::values;

/// Declares a number or word that is checked while it is parsed, so that the error has its line and
/// column.
macro_rules! checked {
    ($($name:ident($inner:ty) from $from:literal as $from_type:ty: $check:expr;)*) => { $(
        #[derive(Clone, Copy, Debug, Deserialize)]
        #[serde(try_from = $from)]
        pub(super) struct $name(pub(super) $inner);

        impl TryFrom<$from_type> for $name {
            type Error = String;

            fn try_from(value: $from_type) -> Result<Self, String> {
                let check: fn($from_type) -> Result<$inner, String> = $check;
                check(value).map(Self)
            }
        }
    )* };
}

checked! {
    BurstLen(usize) from "i64" as i64: |value| within(value, 1, BURST_MAX as u64, "frames in a burst");
    // Counts have 32 bits; the free memory is checked before it is allocated.
    Count(usize) from "i64" as i64: |value| within(value, 1, 1 << 31, "items");
    // Fragments alone may hold 256 buffers, and packets that wait behind a hole leave a burst for
    // receiving.
    Buffers(usize) from "i64" as i64: |value| within(value, 512, 1 << 24, "packet buffers");
    WindowPackets(usize) from "i64" as i64: |value| within(value, 0, 4_096, "packets that wait");
    FrameLen(usize) from "i64" as i64: |value| within(value, 64, 65_000, "bytes of a frame");
    Port(u16) from "i64" as i64: |value| within(value, 1, 65_535, "a port").map(|port| port as u16);
    Vlan(u16) from "i64" as i64: |value| within(value, 1, 4_094, "a VLAN").map(|vlan| vlan as u16);
    PaceWord(Pace) from "String" as String: |text| values::parse_pace(&text);
    Sender(Ipv4Addr) from "String" as String: |text| parse_sender(&text);
}

/// The number of a core, or the word `any`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged, expecting = "use the number of a core, or \"any\"")]
pub(super) enum Cpu {
    Core(usize),
    Word(CpuWord),
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum CpuWord {
    Any,
}

pub(super) fn within(value: i64, least: u64, most: u64, what: &str) -> Result<usize, String> {
    match u64::try_from(value) {
        Ok(value) if (least..=most).contains(&value) => Ok(value as usize),
        _ => Err(format!("{value} is out of range for {what}: use {least} to {most}")),
    }
}

/// The address of a sender.
///
/// # Errors
///
/// It is none, or one that cannot send: what to write instead.
pub fn parse_sender(text: &str) -> Result<Ipv4Addr, String> {
    const FORM: &str = "use the address of a sender, for example 198.51.100.1";
    let address: Ipv4Addr = text.parse().map_err(|_| format!("{text:?} is not an IPv4 address; {FORM}"))?;
    if address.is_multicast() || address.is_broadcast() || address.is_unspecified() {
        return Err(format!("{address} cannot send; {FORM}"));
    }
    Ok(address)
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Hugepages {
    #[default]
    Prefer,
    Require,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ChecksumWord {
    AcceptPartial,
    Verify,
    Ignore,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum FirstWord {
    #[default]
    One,
    Anywhere,
}
