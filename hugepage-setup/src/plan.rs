//! The target, and the one step to reach it. Decides; touches nothing.

use std::fmt;

use crate::reserve::ReserveError;
use crate::size::format_option;
use crate::sysfs::{Machine, Memory, Pool};
use crate::{ONE_GIB, TWO_MIB, format_size};

/// The target of a reservation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Bytes of one page.
    pub page_size: u64,
    /// On this node; `None` is the whole machine, where the kernel spreads the pages over its
    /// nodes.
    pub node: Option<u32>,
    /// Total number of pages, including those in use.
    pub pages: u64,
    /// Whether more pages are acceptable.
    pub bound: Bound,
}

impl Target {
    /// The command that reserves it.
    pub fn command(&self) -> String {
        let mut command = format!("hugepage-setup apply --pages {}", self.pages);
        if self.page_size != TWO_MIB {
            command += &format!(" --page-size {}", format_option(self.page_size));
        }
        if let Some(node) = self.node {
            command += &format!(" --node {node}");
        }
        if self.bound == Bound::Exactly {
            command += " --shrink";
        }
        command
    }
}

/// The meaning of a [`Target`]'s number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// At least that many: nothing is ever released.
    AtLeast,
    /// Exactly that many: surplus pages are released, but only if no page of the pool is in use.
    Exactly,
}

/// The step from the current state to the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The target is reached.
    Nothing,
    /// Reserve this many more pages.
    Raise(u64),
    /// Release this many pages, none of them in use.
    Lower(u64),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => write!(f, "nothing"),
            Self::Raise(pages) => write!(f, "reserve {pages} more"),
            Self::Lower(pages) => write!(f, "give {pages} back"),
        }
    }
}

/// Determines the step from `machine` to `target`.
///
/// # Errors
/// There is no such page size or node, the memory does not suffice, or pages should be released
/// while some are in use.
pub fn decide(machine: &Machine, target: &Target) -> Result<Step, ReserveError> {
    let pool = find_pool(machine, target)?;
    // Surplus pages vanish with their user, so they do not count as reserved; a raise turns them
    // into reserved ones.
    let now = pool.persistent();
    if target.pages > now {
        check_memory(machine, target, pool)?;
        return Ok(Step::Raise(target.pages - now));
    }
    if target.pages == now || target.bound == Bound::AtLeast {
        return Ok(Step::Nothing);
    }
    // The kernel counts promised pages only for the whole machine, so one promise anywhere protects
    // every node.
    let promised = machine.pool(target.page_size, None).map_or(0, |pool| pool.reserved);
    match pool.in_use().max(promised) {
        0 => Ok(Step::Lower(now - target.pages)),
        in_use => Err(ReserveError::InUse { target: target.clone(), total: pool.total, in_use }),
    }
}

/// Memory that the machine must keep for everything else: a sixteenth, at most 1 GiB. With less,
/// page cache and kernel buffers are squeezed until the out-of-memory killer acts; hugepages are
/// never reclaimed under pressure.
pub fn memory_kept(memory: Memory) -> u64 {
    (memory.total / 16).min(ONE_GIB)
}

fn find_pool<'a>(machine: &'a Machine, target: &Target) -> Result<&'a Pool, ReserveError> {
    if let Some(node) = target.node
        && machine.node(node).is_none()
    {
        return Err(ReserveError::NoSuchNode { node, nodes: machine.nodes.iter().map(|node| node.id).collect() });
    }
    machine.pool(target.page_size, target.node).ok_or_else(|| ReserveError::NoSuchPageSize {
        page_size: target.page_size,
        page_sizes: machine.pools.iter().map(|pool| pool.page_size).collect(),
    })
}

fn check_memory(machine: &Machine, target: &Target, pool: &Pool) -> Result<(), ReserveError> {
    let memory = machine.memory_of(target.node);
    let wanted = target.pages.saturating_sub(pool.total).saturating_mul(target.page_size);
    let kept = memory_kept(memory);
    // A total of 0: this kernel does not report it, so it must decide itself.
    if memory.total > 0 && wanted > memory.available.saturating_sub(kept) {
        return Err(ReserveError::Memory { target: target.clone(), wanted, available: memory.available, kept });
    }
    Ok(())
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pages = if self.pages == 1 { "page" } else { "pages" };
        write!(f, "{} {pages} of {}", self.pages, format_size(self.page_size))?;
        match self.node {
            Some(node) => write!(f, " on node {node}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numa::Node;

    fn pool(total: u64, free: u64, reserved: u64, surplus: u64) -> Pool {
        Pool { page_size: TWO_MIB, total, free, reserved, surplus }
    }

    fn machine(pool: Pool) -> Machine {
        let memory = Memory { total: 16 << 30, available: 8 << 30 };
        Machine { pools: vec![pool], memory, ..Machine::default() }
    }

    fn target(pages: u64, bound: Bound) -> Target {
        Target { page_size: TWO_MIB, node: None, pages, bound }
    }

    #[test]
    fn pool_in_use_is_never_lowered() {
        // One touched page, or one promised page: either protects all ten.
        for used in [pool(10, 9, 0, 0), pool(10, 10, 1, 0)] {
            let result = decide(&machine(used), &target(4, Bound::Exactly));
            assert!(matches!(result, Err(ReserveError::InUse { in_use: 1, .. })), "{result:?}");
        }
    }

    #[test]
    fn pages_promised_anywhere_protect_every_node() {
        let node = Node { id: 0, cpus: vec![], memory: Memory::default(), pools: vec![pool(10, 10, 0, 0)] };
        let machine = Machine { nodes: vec![node], ..machine(pool(20, 20, 3, 0)) };
        let result = decide(&machine, &Target { node: Some(0), ..target(4, Bound::Exactly) });
        assert!(matches!(result, Err(ReserveError::InUse { in_use: 3, .. })), "{result:?}");
    }

    #[test]
    fn at_least_never_lowers() {
        assert_eq!(decide(&machine(pool(10, 10, 0, 0)), &target(4, Bound::AtLeast)).unwrap(), Step::Nothing);
    }

    #[test]
    fn unused_pool_is_lowered_on_request() {
        assert_eq!(decide(&machine(pool(10, 10, 0, 0)), &target(4, Bound::Exactly)).unwrap(), Step::Lower(6));
    }

    #[test]
    fn surplus_pages_do_not_count_as_reserved() {
        assert_eq!(decide(&machine(pool(10, 0, 0, 4)), &target(10, Bound::AtLeast)).unwrap(), Step::Raise(4));
    }

    #[test]
    fn memory_for_everything_else_is_kept() {
        // 8 GiB available, 1 GiB kept: 3584 pages of 2 MiB are the most.
        let machine = machine(pool(0, 0, 0, 0));
        assert_eq!(decide(&machine, &target(3584, Bound::AtLeast)).unwrap(), Step::Raise(3584));
        assert!(matches!(decide(&machine, &target(3585, Bound::AtLeast)), Err(ReserveError::Memory { .. })));
        assert!(matches!(decide(&machine, &target(u64::MAX, Bound::AtLeast)), Err(ReserveError::Memory { .. })));
    }

    #[test]
    fn absent_node_and_page_size_are_named() {
        let machine = machine(pool(0, 0, 0, 0));
        let elsewhere = Target { node: Some(3), ..target(1, Bound::AtLeast) };
        assert!(matches!(decide(&machine, &elsewhere), Err(ReserveError::NoSuchNode { node: 3, .. })));
        let other = Target { page_size: ONE_GIB, ..target(1, Bound::AtLeast) };
        assert!(matches!(decide(&machine, &other), Err(ReserveError::NoSuchPageSize { page_size: ONE_GIB, .. })));
    }
}
