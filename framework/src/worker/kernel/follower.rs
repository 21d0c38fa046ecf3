//! The worker's end: applies the mirror's updates to the worker's [`Host`], and requests MAC
//! addresses of neighbors.

use std::net::Ipv4Addr;
use std::os::fd::RawFd;
use std::sync::Arc;

use super::icmp_errors::{KernelIcmpError, KernelIcmpErrors};
use super::wakeup::Wakeup;
use crate::device::bond::ActiveLeg;
use crate::proto::{Host, HostEvent};
use crate::worker::spsc::lossless::{Consumer, Producer};

/// Updates that one turn applies at most: about 10 ns each (neighbors, ring in cache), so that a
/// dump of hundreds of them does not delay a packet by more than some 0.2 µs.
const UPDATES_PER_TURN: usize = 16;

/// Legs of a bond in a [`LinkState`]: bonds usually have two, four has room for an unusual one.
pub(crate) const LEGS_MAX: usize = 4;

/// An update from the mirror to a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HostUpdate {
    /// A change of the host's tables.
    Host(HostEvent),
    /// The interface itself changed.
    Link(LinkState),
}

/// The state of the interface in the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkState {
    /// The interface index; None while there is no such interface. A changed index means that the
    /// interface was removed and created again, and sockets on the old one must be reopened.
    pub idx: Option<u32>,
    /// Set up by the operator, and with a carrier.
    pub up: bool,
    /// The kernel's count of carrier-up events: it shows a carrier loss that was over before the
    /// next poll. The switch has lost our memberships then.
    pub carrier_ups: u32,
    /// The index of the active leg of a bond; None if no leg works, and for other interfaces.
    pub active_leg: Option<u32>,
    /// The indices of a bond's legs (and of a bridge's ports), in ascending order, then zeros. Legs
    /// beyond the fourth are left out.
    pub legs: [u32; LEGS_MAX],
    /// A bond in active-backup: frames on legs other than the active one must be dropped.
    pub one_leg: bool,
}

impl LinkState {
    /// The legs of a bond.
    pub fn legs(&self) -> &[u32] {
        let count = self.legs.iter().take_while(|leg| **leg != 0).count();
        &self.legs[..count]
    }

    /// Whether the link may now lead to another switch port than `before`, with no knowledge of us.
    fn is_renewed(&self, before: &Self) -> bool {
        (self.idx, self.carrier_ups, self.active_leg) != (before.idx, before.carrier_ups, before.active_leg)
    }

    /// Whether frames that arrive on interface number `own` must be counted and dropped: the
    /// interface is a bond in active-backup, and `own` is not its active leg or no leg works. A
    /// switch floods frames to the standby leg too, and both copies would be delivered.
    #[inline]
    pub fn is_standby(&self, own: u32) -> bool {
        self.one_leg && self.active_leg != Some(own) && self.idx != Some(own)
    }
}

/// The receiving end of one interface's updates. Pass it to the worker that owns the interface
/// ([`Worker::follow`](crate::worker::Worker::follow)), or call [`catch_up`](Self::catch_up) in a
/// loop of one's own.
pub struct Follower {
    updates: Consumer<HostUpdate>,
    requests: Producer<Ipv4Addr>,
    icmp_errors: Option<KernelIcmpErrors>,
    link: LinkState,
    link_changes: u64,
    /// The carrier has returned, or the active leg has changed; the host learns it in the next
    /// turn.
    is_renewed: bool,
    refused: u64,
    bond: Option<Bond>,
    wakeups: Option<Wakeups>,
    /// The worker's thread sleeps on its wake-up.
    is_slept_on: bool,
}

/// What ends the sleep of the worker, and of the mirror.
struct Wakeups {
    own: Arc<Wakeup>,
    mirrors: Arc<Wakeup>,
}

/// The bond device whose active leg is set.
struct Bond {
    active: ActiveLeg,
    /// The interface indices of its legs, in its own order.
    legs: Vec<u32>,
}

impl Bond {
    /// Sets no leg if the kernel reports none, or one that the device does not have.
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
            wakeups: None,
            is_slept_on: false,
        }
    }

    /// The mirror and the listener for ICMP errors wake the worker by `own`, and it wakes the
    /// mirror by `mirrors`.
    pub(super) fn woken_by(self, own: Arc<Wakeup>, mirrors: Arc<Wakeup>) -> Self {
        Self { wakeups: Some(Wakeups { own, mirrors }), ..self }
    }

    /// What wakes the worker, for a thread that sends it something.
    pub(in crate::worker) fn wakeup(&self) -> Option<Arc<Wakeup>> {
        self.wakeups.as_ref().map(|wakeups| Arc::clone(&wakeups.own))
    }

    /// The worker's thread sleeps on this descriptor too from now on.
    pub(in crate::worker) fn sleep_on(&mut self) -> Option<RawFd> {
        self.is_slept_on = self.wakeups.is_some();
        self.wakeups.as_ref().map(|wakeups| wakeups.own.fd())
    }

    /// Whether the worker's thread sleeps on that descriptor.
    pub(in crate::worker) fn is_slept_on(&self) -> bool {
        self.is_slept_on
    }

    /// Before the worker's thread sleeps: whether something is to be applied first.
    pub(in crate::worker) fn arm(&mut self) -> bool {
        let Some(wakeups) = self.wakeups.as_ref().filter(|_| self.is_slept_on) else { return false };
        wakeups.own.arm();
        !self.updates.is_empty() || self.icmp_errors.as_mut().is_some_and(|errors| !errors.is_empty())
    }

    /// Applies new updates, at most 16, and returns how many. About 1 ns if there are none; no
    /// allocation, no system call. If the carrier has returned or a bond has failed over, the host
    /// reports no link until the next call. The nodes, which check the link once per turn, then
    /// announce our groups and addresses to the switch again, however short the loss was.
    #[inline]
    pub fn catch_up(&mut self, host: &mut Host) -> usize {
        if core::mem::take(&mut self.is_renewed) {
            // A link update needs no room.
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

    /// Makes a [`BondDevice`](crate::device::bond::BondDevice) use the active leg that the kernel
    /// reports, now and after each change that [`catch_up`](Self::catch_up) applies. `legs` are the
    /// interface indices of its legs, in its own order. While the kernel reports none of them (no
    /// leg works, or the bond is in a mode without an active leg), received frames are dropped by
    /// name and none can be sent.
    ///
    /// ```no_run
    /// # use wirepath::device::{DeviceError, af_xdp::{AfXdpConfig, AfXdpDevice}, bond::BondDevice};
    /// # use wirepath::worker::kernel::{Follower, KernelLink};
    /// /// The legs are those of `Mirror::legs`, and the follower is that of the bond.
    /// fn open(bond: &KernelLink, legs: &[&KernelLink], follower: &mut Follower) -> Result<BondDevice<AfXdpDevice>, DeviceError> {
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

    /// Requests the MAC address of a next hop: the mirror asks the kernel to resolve it within 10
    /// to 20 ms, or at once where the worker's thread is one that sleeps, and the answer arrives
    /// like other updates. Repeating the request while a neighbor is in use, for instance every
    /// 30 s, keeps the kernel's entry alive; a repetition within one second is delayed until that
    /// second is over. False if the ring is full, or the mirror is gone: repeat the request later.
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
    /// A push, some ns; no allocation, and a system call only where the worker's thread is one that
    /// sleeps ([`Worker::update_fd`](crate::worker::Worker::update_fd)).
    #[inline]
    pub fn want(&mut self, next_hop: Ipv4Addr) -> bool {
        let is_pushed = !self.requests.is_closed() && self.requests.push(next_hop).is_ok();
        if let Some(wakeups) = &self.wakeups {
            wakeups.mirrors.wake();
        }
        is_pushed
    }

    /// Receives the kernel's copies of ICMP errors about our flows, from now on.
    pub(crate) fn listen(&mut self, icmp_errors: KernelIcmpErrors) {
        self.icmp_errors = Some(icmp_errors);
    }

    /// The next ICMP error that the kernel received, for the worker's pipeline. About 1 ns if there
    /// is none.
    #[inline]
    pub(crate) fn next_icmp_error(&mut self) -> Option<KernelIcmpError> {
        self.icmp_errors.as_mut()?.next()
    }

    /// The last known state of the interface. Without an index until the first updates.
    pub fn link(&self) -> LinkState {
        self.link
    }

    /// Incremented with each change of [`link`](Self::link): compare this number once per turn to
    /// react to changes.
    #[inline]
    pub fn link_changes(&self) -> u64 {
        self.link_changes
    }

    /// Updates that the host refused: neighbors for which its table has no room beside those from
    /// other sources. The mirror does not send updates that can never fit; it counts them.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Whether the link is reported as lost for one turn, which the next ends.
    pub(crate) fn is_renewing(&self) -> bool {
        self.is_renewed
    }

    /// The mirror has ended: the host's tables are no longer updated.
    pub fn is_orphaned(&self) -> bool {
        self.updates.is_closed()
    }
}
