//! Flow rules: they decide to which queues a frame goes; mlx5.md 1.3, and Linux's implementation
//! (`mlx5/fs.c`, `mlx5/core/fs_core.c`).
//!
//! The kernel keeps a table for each priority. Rules that match the same fields with the same
//! values are one entry of the table with several destinations: each of their queues gets a copy,
//! of unicast frames too. A frame matches one entry of a table: here the one with more bits, then
//! the older. An entry takes the frame or drops it. An entry of `DONT_TRAP` rules, which have
//! separate tables, takes a copy and lets the frame go on to the next table. Rules for groups share
//! one table after all others, whatever their priority. Frames that no rule matches are the
//! kernel's, and those that the kernel does not want are for the default rules.
//!
//! Rules with the same mask share a map whose keys are the masked fields, so a frame costs one
//! look-up for each mask, not one for each rule.

use super::flow_key::{FlowKey, Match};
use super::parse::Headers;
use crate::hca::Hca;
use crate::hca::control::{Errno, FlowAction, FlowKind, FlowRequest, FlowSpec};
use crate::hca::qp::Receiver;
use crate::hca::table::Table;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// All flow rules.
#[derive(Default)]
pub(in crate::hca) struct Steering {
    rules: Table<Rule>,
    /// By mask.
    shapes: Vec<Shape>,
    sniffers: Vec<u32>,
    /// Rules of both default kinds, by age.
    defaults: Vec<u32>,
    made: u64,
    /// Rules that match the frame at hand; kept to be filled again.
    matching: Vec<(Entry, u32)>,
}

struct Rule {
    qp: u32,
    receiver: Receiver,
    kind: FlowKind,
    entry: Entry,
    mask: FlowKey,
    value: FlowKey,
    does: Does,
}

/// The effect of a rule on a frame that it matches.
#[derive(Clone, Copy)]
struct Does {
    tag: u32,
    drops: bool,
    /// A copy is taken, and the frame goes on to the next rule.
    lets_go_on: bool,
}

/// An entry of the kernel's tables, which all rules with its fields and values share. A frame finds
/// the least one of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    table: u16,
    bits_not_named: u32,
    /// The age of its first rule.
    age: u64,
}

/// The rules of one mask.
struct Shape {
    mask: FlowKey,
    rules: HashMap<FlowKey, Vec<u32>, BuildHasherDefault<KeyHasher>>,
}

/// A copy of a frame for a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) struct Delivery {
    pub(in crate::hca) qp: u32,
    pub(in crate::hca) receiver: Receiver,
    pub(in crate::hca) tag: u32,
}

/// The fate of the frame besides the copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::hca) enum Rest {
    /// A rule has it.
    Taken,
    /// A rule dropped it.
    Dropped,
    /// It is the kernel's.
    Kernel,
}

/// `MLX5_IB_FLOW_LAST_PRIO` of Linux.
const PRIORITY_MAX: u16 = 15;

/// `MLX5_IB_FLOW_MCAST_PRIO` of Linux: behind the two tables of each priority.
const TABLE_OF_GROUPS: u16 = 2 * (PRIORITY_MAX + 1);

/// 24 bits reach the CQE.
const TAG_MAX: u32 = (1 << 24) - 1;

impl Steering {
    /// Decides over a frame: fills `copies`, which is cleared first. `kernel_wants` is asked only
    /// where no rule has it.
    #[inline]
    pub(in crate::hca) fn decide(
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
        let rest = self.walk(copies);
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
                matching.extend(rules.get(handle).map(|rule| (rule.entry, handle)));
            }
        }
        matching.sort_unstable();
    }

    /// From table to table, until an entry keeps the frame.
    #[inline]
    fn walk(&self, copies: &mut Vec<Delivery>) -> Rest {
        let mut found: Option<Entry> = None;
        let mut rest = Rest::Kernel;
        for &(entry, handle) in &self.matching {
            let Some(rule) = self.rules.get(handle) else { continue };
            if found.is_some_and(|found| found.table == entry.table && found != entry) {
                continue;
            }
            if rest == Rest::Taken && found != Some(entry) {
                return rest;
            }
            if rule.does.drops {
                return Rest::Dropped;
            }
            found = Some(entry);
            self.copy(handle, copies);
            rest = if rule.does.lets_go_on { Rest::Kernel } else { Rest::Taken };
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
            }
        }
        rest
    }

    /// Makes one copy for a queue, even if several rules lead there; it has the tag of the first
    /// rule.
    #[inline]
    fn copy(&self, handle: u32, copies: &mut Vec<Delivery>) {
        if let Some(&Rule { qp, receiver, does: Does { tag, .. }, .. }) = self.rules.get(handle)
            && copies.iter().all(|copy| copy.qp != qp)
        {
            copies.push(Delivery { qp, receiver, tag });
        }
    }

    pub(in crate::hca) fn has_rules(&self) -> bool {
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

    /// The entry of which this rule becomes a destination, with its effect. EEXIST where the
    /// entry's rules have another tag than this rule, or where only one of them drops
    /// (`check_conflicting_ftes`).
    fn entry(&self, table: u16, wanted: &Match, does: Does, tag: Option<u32>) -> Result<Option<(Entry, Does)>, Errno> {
        let alike = self.shapes.iter().find(|shape| shape.mask == wanted.mask);
        let mut alike = alike.and_then(|shape| shape.rules.get(&wanted.value)).into_iter().flatten();
        let Some(rule) = alike.find_map(|&handle| self.rules.get(handle).filter(|rule| rule.entry.table == table))
        else {
            return Ok(None);
        };
        if rule.does.drops != does.drops || tag.is_some_and(|tag| tag != rule.does.tag) {
            return Err(Errno(libc::EEXIST));
        }
        Ok(Some((rule.entry, rule.does)))
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
    /// Makes a flow rule, which is effective from the next frame on. EINVAL for a QP that does not
    /// receive or specs that contradict each other, EOPNOTSUPP for fields that this NIC cannot
    /// match, ENOMEM for a priority beyond 15 (as in the kernel), ENOSPC where the table is full,
    /// EEXIST where a rule for the same frames has another tag, or drops the frames that this one
    /// takes.
    pub fn create_flow(&mut self, request: &FlowRequest) -> Result<u32, Errno> {
        check_attributes(request)?;
        let (does, tag) = Does::of_actions(request)?;
        let wanted = Match::of_specs(&request.specs)?;
        if self.steering.rules.iter().count() >= self.config.flows_max {
            return Err(Errno(libc::ENOSPC));
        }
        let FlowRequest { qp, kind, .. } = *request;
        let table = table_of(request);
        let shared = if kind == FlowKind::Normal { self.steering.entry(table, &wanted, does, tag)? } else { None };
        let receiver = self.hold_qp(qp)?;
        self.steering.made += 1;
        let Match { mask, value } = wanted;
        let own = Entry { table, bits_not_named: u32::MAX - mask.bits(), age: self.steering.made };
        let (entry, does) = shared.unwrap_or((own, does));
        Ok(self.steering.insert(Rule { qp, receiver, kind, entry, mask, value, does }))
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

/// `ib_prio_to_core_prio` and `get_flow_table` of Linux.
fn table_of(request: &FlowRequest) -> u16 {
    let lets_go_on = request.flags & FlowRequest::DONT_TRAP != 0;
    match (is_for_group(&request.specs), lets_go_on) {
        (true, false) => TABLE_OF_GROUPS,
        (_, true) => 2 * request.priority,
        (false, false) => 2 * request.priority + 1,
    }
}

/// `flow_is_multicast_only` of Linux: by the first spec alone.
fn is_for_group(specs: &[FlowSpec]) -> bool {
    match specs.first() {
        Some(FlowSpec::Ethernet { value, mask }) => value[0] & mask[0] & 1 != 0,
        Some(FlowSpec::Ipv4 { value, .. }) => value[4] & 0xf0 == 0xe0,
        _ => false,
    }
}

impl Does {
    /// And the tag, where one is wanted. It belongs to a normal rule, and has 24 bits.
    fn of_actions(request: &FlowRequest) -> Result<(Self, Option<u32>), Errno> {
        let lets_go_on = request.flags & FlowRequest::DONT_TRAP != 0;
        let (mut does, mut wanted) = (Self { tag: 0, drops: false, lets_go_on }, None);
        for action in &request.actions {
            match *action {
                FlowAction::Drop => does.drops = true,
                FlowAction::Tag(tag) if tag <= TAG_MAX && request.kind == FlowKind::Normal => wanted = Some(tag),
                FlowAction::Tag(_) => return Err(Errno(libc::EINVAL)),
            }
        }
        does.tag = wanted.unwrap_or(0);
        Ok((does, wanted))
    }
}

/// Multiply and rotate, a word at a time: fast, because each frame is looked up, and not secure,
/// because no one attacks this table.
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
