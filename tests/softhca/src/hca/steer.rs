//! Flow rules: which queues a frame goes to; mlx5.md 1.3.
//!
//! A multicast frame is copied to the queues of all rules that match, a unicast one goes to the best rule: the lowest
//! priority number, then the one that names more bits, then the older. A rule that drops ends the walk; one with `DONT_TRAP`
//! takes a copy and lets the frame go on. What no rule named is the kernel's, and what the kernel does not want is for the
//! default rules.
//!
//! Rules with the same mask share a table that is looked up by the masked fields, so that a frame costs one look-up for each
//! kind of rule, not one for each rule.

use super::Hca;
use super::control::{Errno, FlowAction, FlowKind, FlowRequest};
use super::flow_key::{FlowKey, Match};
use super::parse::Headers;
use super::qp::Receiver;
use super::table::Table;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// All flow rules.
#[derive(Default)]
pub(super) struct Steering {
    rules: Table<Rule>,
    /// By mask.
    shapes: Vec<Shape>,
    sniffers: Vec<u32>,
    /// Rules of both default kinds, by age.
    defaults: Vec<u32>,
    made: u64,
    /// Rules that match the frame at hand; kept to be filled again.
    matching: Vec<(Rank, u32)>,
}

struct Rule {
    qp: u32,
    receiver: Receiver,
    kind: FlowKind,
    rank: Rank,
    mask: FlowKey,
    value: FlowKey,
    does: Does,
}

/// What a rule does with a frame that it matches.
#[derive(Clone, Copy)]
struct Does {
    tag: u32,
    drops: bool,
    /// A copy is taken, and the frame goes on to the next rule.
    lets_go_on: bool,
}

/// Better rules come first: priority, then how many bits it does not name, then age.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    priority: u16,
    bits_not_named: u32,
    age: u64,
}

/// The rules of one mask.
struct Shape {
    mask: FlowKey,
    rules: HashMap<FlowKey, Vec<u32>, BuildHasherDefault<KeyHasher>>,
}

/// A copy of a frame for a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) qp: u32,
    pub(super) receiver: Receiver,
    pub(super) tag: u32,
}

/// What becomes of the frame beside the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// A rule has it.
    Taken,
    /// A rule wanted nobody to have it.
    Dropped,
    /// It is the kernel's.
    Kernel,
}

/// `MLX5_IB_FLOW_LAST_PRIO` of Linux.
const PRIORITY_MAX: u16 = 15;

/// 24 bits reach the CQE.
const TAG_MAX: u32 = (1 << 24) - 1;

impl Steering {
    /// Decides over a frame: fills `copies`, which is cleared first. `kernel_wants` is asked only where no rule has it.
    #[inline]
    pub(super) fn decide(
        &mut self,
        headers: &Headers,
        frame: &[u8],
        kernel_wants: impl FnOnce() -> bool,
        copies: &mut Vec<Delivery>,
    ) -> Rest {
        copies.clear();
        for &sniffer in &self.sniffers {
            self.copy(sniffer, copies);
        }
        self.find_matching(headers, frame);
        let is_multicast = frame[0] & 1 != 0;
        let rest = self.walk(is_multicast, copies);
        if rest != Rest::Kernel || kernel_wants() {
            return rest;
        }
        self.walk_defaults(is_multicast, copies)
    }

    #[inline]
    fn find_matching(&mut self, headers: &Headers, frame: &[u8]) {
        let Self { rules, shapes, matching, .. } = self;
        matching.clear();
        let key = FlowKey::of_frame(headers, frame);
        for shape in shapes {
            for &handle in shape.rules.get(&key.masked(shape.mask)).into_iter().flatten() {
                matching.extend(rules.get(handle).map(|rule| (rule.rank, handle)));
            }
        }
        matching.sort_unstable();
    }

    #[inline]
    fn walk(&self, is_multicast: bool, copies: &mut Vec<Delivery>) -> Rest {
        let mut rest = Rest::Kernel;
        for &(_, handle) in &self.matching {
            let Some(rule) = self.rules.get(handle) else { continue };
            if rule.does.drops {
                return Rest::Dropped;
            }
            self.copy(handle, copies);
            if !rule.does.lets_go_on {
                rest = Rest::Taken;
                if !is_multicast {
                    return rest;
                }
            }
        }
        rest
    }

    fn walk_defaults(&self, is_multicast: bool, copies: &mut Vec<Delivery>) -> Rest {
        let mut rest = Rest::Kernel;
        for &handle in &self.defaults {
            let Some(rule) = self.rules.get(handle) else { continue };
            if is_multicast || rule.kind == FlowKind::AllDefault {
                self.copy(handle, copies);
                rest = Rest::Taken;
                if !is_multicast {
                    break;
                }
            }
        }
        rest
    }

    /// One copy for a queue, whatever the number of rules that lead there: with the tag of the best.
    #[inline]
    fn copy(&self, handle: u32, copies: &mut Vec<Delivery>) {
        if let Some(&Rule { qp, receiver, does: Does { tag, .. }, .. }) = self.rules.get(handle)
            && copies.iter().all(|copy| copy.qp != qp)
        {
            copies.push(Delivery { qp, receiver, tag });
        }
    }

    pub(super) fn has_rules(&self) -> bool {
        self.rules.iter().next().is_some()
    }

    fn insert(&mut self, rule: Rule) -> u32 {
        let (kind, mask, value) = (rule.kind, rule.mask, rule.value);
        let handle = self.rules.insert(rule);
        match kind {
            FlowKind::Sniffer => self.sniffers.push(handle),
            FlowKind::AllDefault | FlowKind::MulticastDefault => self.defaults.push(handle),
            FlowKind::Normal => self.shape(mask).rules.entry(value).or_default().push(handle),
        }
        handle
    }

    /// The rules of this mask, to which one is to be added.
    fn shape(&mut self, mask: FlowKey) -> &mut Shape {
        let known = self.shapes.iter().position(|shape| shape.mask == mask);
        let idx = known.unwrap_or_else(|| {
            self.shapes.push(Shape { mask, rules: HashMap::default() });
            self.shapes.len() - 1
        });
        &mut self.shapes[idx]
    }

    fn remove(&mut self, handle: u32) -> Option<Rule> {
        let rule = self.rules.remove(handle)?;
        self.sniffers.retain(|&of| of != handle);
        self.defaults.retain(|&of| of != handle);
        if let Some(idx) = self.shapes.iter().position(|shape| shape.mask == rule.mask) {
            let rules = &mut self.shapes[idx].rules;
            if let Some(same) = rules.get_mut(&rule.value) {
                same.retain(|&of| of != handle);
                if same.is_empty() {
                    rules.remove(&rule.value);
                }
            }
            if rules.is_empty() {
                self.shapes.swap_remove(idx);
            }
        }
        Some(rule)
    }
}

impl Hca {
    /// Makes a flow rule, which works from the next frame on. EINVAL for a QP that does not receive or specs that contradict each
    /// other, EOPNOTSUPP for what this NIC cannot choose by, ENOMEM for a priority beyond 15 (as the kernel says it), ENOSPC where
    /// the table is full.
    pub fn create_flow(&mut self, request: &FlowRequest) -> Result<u32, Errno> {
        check_attributes(request)?;
        let does = Does::of_actions(request)?;
        let Match { mask, value } = Match::of_specs(&request.specs)?;
        if self.steering.rules.iter().count() >= self.config.flows_max {
            return Err(Errno(libc::ENOSPC));
        }
        let FlowRequest { qp, kind, priority, .. } = *request;
        let receiver = self.hold_qp(qp)?;
        self.steering.made += 1;
        let rank = Rank { priority, bits_not_named: u32::MAX - mask.bits(), age: self.steering.made };
        Ok(self.steering.insert(Rule { qp, receiver, kind, rank, mask, value, does }))
    }

    /// Takes a flow rule away: it does not work from the next frame on.
    pub fn destroy_flow(&mut self, handle: u32) -> Result<(), Errno> {
        let rule = self.steering.remove(handle).ok_or(Errno(libc::EINVAL))?;
        self.release_qp(rule.qp);
        Ok(())
    }
}

impl FlowRequest {
    /// `IBV_FLOW_ATTR_FLAGS_DONT_TRAP`.
    pub const DONT_TRAP: u32 = 1 << 1;
    /// `IBV_FLOW_ATTR_FLAGS_EGRESS`.
    pub const EGRESS: u32 = 1 << 2;
}

fn check_attributes(request: &FlowRequest) -> Result<(), Errno> {
    if request.priority > PRIORITY_MAX {
        return Err(Errno(libc::ENOMEM));
    }
    match request.flags & !FlowRequest::DONT_TRAP {
        0 => Ok(()),
        FlowRequest::EGRESS => Err(Errno(libc::EOPNOTSUPP)),
        _ => Err(Errno(libc::EINVAL)),
    }
}

impl Does {
    /// A tag belongs to a normal rule, and has 24 bits.
    fn of_actions(request: &FlowRequest) -> Result<Self, Errno> {
        let lets_go_on = request.flags & FlowRequest::DONT_TRAP != 0;
        let mut does = Self { tag: 0, drops: false, lets_go_on };
        for action in &request.actions {
            match *action {
                FlowAction::Drop => does.drops = true,
                FlowAction::Tag(tag) if tag <= TAG_MAX && request.kind == FlowKind::Normal => does.tag = tag,
                FlowAction::Tag(_) => return Err(Errno(libc::EINVAL)),
            }
        }
        Ok(does)
    }
}

/// Multiply and rotate, a word at a time: nobody attacks this table, and each frame asks it.
#[derive(Default)]
struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 32)
    }
}

#[cfg(test)]
mod tests;
