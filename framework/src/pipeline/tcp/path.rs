//! The way of a connection's frames: the link header prepared, and when that was true.

use core::net::Ipv4Addr;

use super::super::answer::{LINK_LEN_MAX, link_header};
use super::super::node::Cx;
use super::super::resolver;
use crate::proto::tcp::TcpConfig;
use crate::proto::{NeighbourWish, Resolution};
use crate::time::{Duration, Instant};
use crate::wire::{EtherType, MacAddr};

/// How soon a way that was lost is looked for again though nothing seems to have changed.
const RETRY: Duration = Duration::from_secs(1);

/// A prepared link header. It follows its host, as a UDP flow does.
#[derive(Clone, Copy)]
pub(super) struct Path {
    /// What the host looked like when it was prepared; 0 is never.
    seen: u64,
    /// When to look again in any case.
    until: Instant,
    /// The next hop that is asked for, where the header has no destination yet.
    asked: Option<Ipv4Addr>,
    link: [u8; LINK_LEN_MAX],
    /// 0 where there is no way.
    link_len: u8,
}

const _: () = assert!(size_of::<Path>() <= TcpConfig::PATH_LEN);

/// What a frame has to do.
pub(super) enum Way<'a> {
    /// Leave with this link header.
    Known(&'a [u8]),
    /// Leave with this link header, whose destination is still to be written, when the neighbour has answered.
    Asked(&'a [u8], NeighbourWish),
    /// There is none.
    Lost,
}

impl Path {
    /// Not prepared.
    pub(super) const NONE: Self =
        Self { seen: 0, until: Instant::ZERO, asked: None, link: [0; LINK_LEN_MAX], link_len: 0 };

    /// The link header, where the neighbour is known.
    pub(super) fn known(&self) -> &[u8] {
        if self.asked.is_some() { &[] } else { &self.link[..usize::from(self.link_len)] }
    }

    /// The way now, prepared anew where the host has changed: two loads and compares where not. `news` hears of what was prepared.
    #[inline]
    pub(super) fn way(
        &mut self,
        source: Ipv4Addr,
        destination: Ipv4Addr,
        cx: &mut Cx<'_>,
        news: impl FnOnce(&Self),
    ) -> Way<'_> {
        if self.seen != changes(cx) || cx.now >= self.until {
            self.prepare(source, destination, cx);
            news(self);
        }
        let link = &self.link[..usize::from(self.link_len)];
        match self.asked {
            _ if link.is_empty() => Way::Lost,
            None => Way::Known(link),
            Some(next_hop) => Way::Asked(link, NeighbourWish { next_hop, source }),
        }
    }

    #[cold]
    fn prepare(&mut self, source: Ipv4Addr, destination: Ipv4Addr, cx: &mut Cx<'_>) {
        (self.link_len, self.until) = (0, cx.now + RETRY);
        let found = match cx.host.resolve(destination, cx.now) {
            _ if !cx.host.is_up() => None,
            Resolution::Station { mac, .. } => {
                let next_hop = cx.host.route(destination).and_then(|route| route.gateway).unwrap_or(destination);
                if cx.host.has_learned(next_hop) {
                    // Without room it is not kept fresh, and asked for when it is gone.
                    let _ = resolver::keep(NeighbourWish { next_hop, source }, cx);
                }
                Some((mac, None))
            }
            Resolution::NeighbourMissing { next_hop, .. } => {
                resolver::keep(NeighbourWish { next_hop, source }, cx).then_some((MacAddr::ZERO, Some(next_hop)))
            }
            Resolution::Group { .. } | Resolution::Own | Resolution::NoRoute => None,
        };
        if let Some((mac, asked)) = found {
            let (link, len) = link_header(mac, EtherType::IPV4, &cx.host.vlan(), cx.host);
            (self.link, self.link_len, self.asked, self.until) = (link, len as u8, asked, Instant::MAX);
        }
        self.seen = changes(cx);
    }
}

/// Moves with whatever the way depends on, and is never 0.
#[inline]
pub(super) fn changes(cx: &Cx<'_>) -> u64 {
    cx.host.changes() + 1
}
