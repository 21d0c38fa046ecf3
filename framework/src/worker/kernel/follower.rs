//! The worker's end: takes what the mirror found out and applies it to the worker's [`Host`], and
//! says whose MAC addresses it wants to be known.

use std::net::Ipv4Addr;

use super::icmp_errors::{KernelIcmpError, KernelIcmpErrors};
use crate::device::bond::ActiveLeg;
use crate::proto::{Host, HostEvent};
use crate::worker::spsc::lossless::{Consumer, Producer};

/// HostUpdate that one turn applies at most: about 10 ns each (neighbors, ring in cache), so that a
/// dump of hundreds of them does not hold up a packet for longer than some 0.2 µs.
const UPDATES_PER_TURN: usize = 16;

/// Legs of a bond that a [`LinkState`] names: two is what there is, four has room for an unusual
/// one.
pub(crate) const LEGS_MAX: usize = 4;

/// What the mirror tells a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostUpdate {
    /// Something that the host takes.
    Host(HostEvent),
    /// The interface itself changed.
    Link(LinkState),
}

/// The interface, as the kernel sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// Its number; None while there is no such interface. Another number than before: it was gone
    /// and is back, and whoever has a socket on the old one has to open it again.
    pub idx: Option<u32>,
    /// Set up by the operator, and with a carrier.
    pub up: bool,
    /// How often the carrier came up, as the kernel counts it: moves also where it went and came
    /// back before anybody looked. The switch has forgotten our memberships then.
    pub carrier_ups: u32,
    /// The number of the active leg of a bond; None where no leg works, and for all that is no
    /// bond.
    pub active_leg: Option<u32>,
    /// The numbers of a bond's legs (and of a bridge's ports), in ascending order, then zeros. What
    /// is beyond the fourth is left out.
    pub legs: [u32; LEGS_MAX],
    /// A bond in active-backup: what arrives on another leg than the active one is not for us.
    pub one_leg: bool,
}

impl LinkState {
    /// The legs of a bond.
    pub fn legs(&self) -> &[u32] {
        let count = self.legs.iter().take_while(|leg| **leg != 0).count();
        &self.legs[..count]
    }

    /// Whether there may be another switch port at the other end than `before`, that knows nothing
    /// of us.
    fn is_renewed(&self, before: &Self) -> bool {
        (self.idx, self.carrier_ups, self.active_leg) != (before.idx, before.carrier_ups, before.active_leg)
    }

    /// Whether what arrives on interface number `own` is to be counted and dropped: this is a bond
    /// in active-backup, and `own` is another interface than the active leg, or no leg works. A
    /// switch floods to the standby leg what it sends to the active one, and both would be
    /// delivered.
    #[inline]
    pub fn is_standby(&self, own: u32) -> bool {
        self.one_leg && self.active_leg != Some(own) && self.idx != Some(own)
    }
}

/// The reading end of one interface's updates. Give it to the worker that owns the interface
/// ([`Worker::follow`](crate::worker::Worker::follow)), or call [`catch_up`](Self::catch_up) in a
/// loop of one's own.
pub struct Follower {
    updates: Consumer<HostUpdate>,
    requests: Producer<Ipv4Addr>,
    icmp_errors: Option<KernelIcmpErrors>,
    link: LinkState,
    link_changes: u64,
    /// The link carries again, or another leg does, and the host is told so in the next turn.
    is_renewed: bool,
    refused: u64,
    bond: Option<Bond>,
}

/// What is told which leg of a bond is active.
struct Bond {
    active: ActiveLeg,
    /// The interface numbers of its legs, in its own order.
    legs: Vec<u32>,
}

impl Bond {
    /// No leg where the kernel has none, or one that is not ours.
    fn set(&self, link: LinkState) {
        let place = link.active_leg.and_then(|active| self.legs.iter().position(|leg| *leg == active));
        self.active.set(place.unwrap_or(usize::MAX));
    }
}

impl Follower {
    pub(super) fn new(updates: Consumer<HostUpdate>, requests: Producer<Ipv4Addr>) -> Self {
        Self {
            updates,
            requests,
            icmp_errors: None,
            link: LinkState::default(),
            link_changes: 0,
            is_renewed: false,
            refused: 0,
            bond: None,
        }
    }

    /// Applies what is new, 16 updates at most, and returns how many. About 1 ns where there are
    /// none; no allocation, no system call. Where the carrier came back or a bond moved to another
    /// leg, the host has no link until the next call, so that nodes, which look once a turn, tell
    /// the switch anew of our groups and addresses, however short it was.
    #[inline]
    pub fn catch_up(&mut self, host: &mut Host) -> usize {
        if core::mem::take(&mut self.is_renewed) {
            // A link needs no room.
            let _ = host.apply(HostEvent::Link { is_up: self.link.up });
        }
        let Self { updates, link, link_changes, is_renewed, refused, bond, .. } = self;
        updates.pop_each(UPDATES_PER_TURN, |updates| match updates {
            HostUpdate::Host(event) => *refused += u64::from(host.apply(event).is_err()),
            HostUpdate::Link(state) => {
                *is_renewed = state.up && (*is_renewed || *link_changes > 0 && state.is_renewed(link));
                (*link, *link_changes) = (state, *link_changes + 1);
                let _ = host.apply(HostEvent::Link { is_up: state.up && !*is_renewed });
                bond.iter().for_each(|bond| bond.set(state));
            }
        })
    }

    /// Has a [`BondDevice`](crate::device::bond::BondDevice) use the leg that the kernel reports,
    /// now and with each change that [`catch_up`](Self::catch_up) applies. `legs` are the interface
    /// numbers of its legs, in its own order. While the kernel reports none of them (no leg works,
    /// or the bond is in a mode without an active one), all that arrives is dropped by name and
    /// nothing can be sent.
    ///
    /// ```no_run
    /// # use wirepath::device::{DeviceError, af_xdp::{AfXdpConfig, AfXdpDevice}, bond::BondDevice};
    /// # use wirepath::worker::kernel::{Follower, Link};
    /// /// The legs are those that `Mirror::legs` names, and the follower is that of the bond.
    /// fn open(bond: &Link, legs: &[&Link], follower: &mut Follower) -> Result<BondDevice<AfXdpDevice>, DeviceError> {
    ///     let ports = legs.iter().map(|leg| AfXdpDevice::open(&AfXdpConfig::new(&leg.name)));
    ///     let device = BondDevice::new(&*bond.name, ports.collect::<Result<_, _>>()?)?;
    ///     follower.steer_bond(device.active_leg(), legs.iter().map(|leg| leg.idx).collect());
    ///     Ok(device)
    /// }
    /// ```
    pub fn steer_bond(&mut self, active: ActiveLeg, legs: Vec<u32>) {
        let bond = Bond { active, legs };
        bond.set(self.link);
        self.bond = Some(bond);
    }

    /// Wants the MAC address of a next hop: the mirror asks the kernel for it within 10 to 20 ms,
    /// and the answer comes as any other updates. Repeated for as long as a neighbor is in use,
    /// each 30 s for instance, it keeps the kernel from forgetting it; a second wish within a
    /// second waits until that is over. False where the ring is full, or the mirror is gone: wish
    /// again later.
    ///
    /// ```
    /// # use wirepath::{pipeline::Egress, worker::kernel::Follower};
    /// /// At the end of a turn.
    /// fn pass_neighbor_requests(egress: &mut Egress, follower: &mut Follower) {
    ///     while let Some(request) = egress.next_neighbor_request() {
    ///         follower.want(request.next_hop);
    ///     }
    /// }
    /// ```
    ///
    /// A push, some ns; no allocation, no system call.
    #[inline]
    pub fn want(&mut self, next_hop: Ipv4Addr) -> bool {
        !self.requests.is_closed() && self.requests.push(next_hop).is_ok()
    }

    /// Hears what comes to the kernel about our flows, from now on.
    pub fn listen(&mut self, icmp_errors: KernelIcmpErrors) {
        self.icmp_errors = Some(icmp_errors);
    }

    /// The next packet that came to the kernel, which the worker's pipeline is to see too. About 1
    /// ns where there is none.
    #[inline]
    pub fn next_icmp_error(&mut self) -> Option<KernelIcmpError> {
        self.icmp_errors.as_mut()?.next()
    }

    /// The interface, as last told. Without an index until the first updates.
    pub fn link(&self) -> LinkState {
        self.link
    }

    /// Moves with each change of [`link`](Self::link): whoever has to act on one compares this
    /// number, once a turn.
    #[inline]
    pub fn link_changes(&self) -> u64 {
        self.link_changes
    }

    /// HostUpdate that the host refused: neighbors for which it has no room beside those that
    /// others told it. What can never fit is not sent, and is in the mirror's counters.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The mirror has ended: what the host knows gets old from now on.
    pub fn is_orphaned(&self) -> bool {
        self.updates.is_closed()
    }
}
