//! The two ports of the wire, their rules, and the queue that a worker takes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::ring::{Consumer, HEAD_LEN_MAX, Producer, ring};
use super::rx::MemoryRx;
use super::tx::MemoryTx;
use crate::counters::Scope;
use crate::device::steering::{Fields, Rule, RuleId, SteerError};
use crate::device::{Capabilities, Device, DeviceError, DeviceErrorKind, Queue, RxOffloads, TxOffloads, rings};
use crate::mem::{Pool, Sizing};
use crate::wire::{ipv4, tcp};

/// The size and features of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryConfig {
    /// Ring length of each direction in frames; rounded up to a power of two. More slots absorb
    /// longer bursts and need more cache. By default 256.
    pub slots: u32,
    /// Bytes of the longest frame, Ethernet header to last payload byte. By default 1,522: an MTU
    /// of 1500 with two VLAN tags.
    pub frame_len_max: usize,
    /// Accepts frames without TCP and UDP checksums, and marks all received ones as good: as
    /// virtual links do, because memory corrupts no frame. By default off.
    pub skips_checksums: bool,
    /// Verifies the checksums of long TCP segments on receive, as a NIC does: during the copy, so
    /// that their bytes are read once. By default off.
    pub verifies_checksums: bool,
    /// Segments TCP packets that are longer than a frame, and fills in requested checksums, as a
    /// NIC does. By default off.
    pub segments: bool,
}

impl Default for MemoryConfig {
    /// 256 frames of an MTU of 1500 with two VLAN tags: 400 KiB per direction, which stays in the
    /// L2 cache.
    fn default() -> Self {
        Self {
            slots: 256,
            frame_len_max: 1500 + 14 + 8,
            skips_checksums: false,
            verifies_checksums: false,
            segments: false,
        }
    }
}

impl MemoryConfig {
    /// The actual ring length of a direction.
    pub(super) fn ring_len(&self) -> u32 {
        self.slots.max(2).next_power_of_two()
    }

    /// Bytes of the longest TCP payload for segmentation: with the shortest usual segments (RFC
    /// 9293 3.7.1) it fills a quarter of the ring; a longer one would often wait for room.
    fn segmentation_len_max(&self) -> usize {
        const MSS_DEFAULT: usize = 536;
        let longest = u16::MAX as usize - ipv4::HEADER_LEN - tcp::HEADER_LEN - tcp::OPTIONS_LEN_MAX;
        if self.segments { longest.min(self.ring_len() as usize / 4 * MSS_DEFAULT) } else { 0 }
    }
}

/// Maximum number of rules. Each frame is compared with the rules one by one, which is good enough
/// for a test device.
const RULES_MAX: usize = 1024;

/// Makes two ports connected by a wire, named `<name>.0` and `<name>.1`.
pub fn pair(name: &str, config: MemoryConfig) -> (MemoryDevice, MemoryDevice) {
    let slots = config.ring_len();
    let (tx0, rx1) = ring(slots, config.frame_len_max);
    let (tx1, rx0) = ring(slots, config.frame_len_max);
    let port = |idx, tx, rx| {
        let rules = Arc::new(Rules::default());
        let ends = Some(Ends { tx, rx });
        MemoryDevice { name: format!("{name}.{idx}"), config, ends, rules }
    };
    (port(0, tx0, rx0), port(1, tx1, rx1))
}

/// One port of the wire. It has one queue.
pub struct MemoryDevice {
    name: String,
    config: MemoryConfig,
    ends: Option<Ends>,
    rules: Arc<Rules>,
}

/// This port's ends of the two rings.
struct Ends {
    tx: Producer,
    rx: Consumer,
}

/// The port's queue, before a worker opens it.
pub struct MemoryQueue {
    name: String,
    config: MemoryConfig,
    ends: Ends,
    rules: Arc<Rules>,
}

impl Device for MemoryDevice {
    type Queue = MemoryQueue;

    fn name(&self) -> &str {
        &self.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            queues: 1,
            frame_len_max: self.config.frame_len_max,
            tx_segments_max: usize::MAX,
            rx: RxOffloads {
                flow_tag: true,
                l4_checksum: self.config.skips_checksums || self.config.verifies_checksums,
                ..RxOffloads::default()
            },
            tx: TxOffloads {
                ip_checksum: self.config.segments,
                l4_checksum: self.config.segments || self.config.skips_checksums,
                segmentation_len_max: self.config.segmentation_len_max(),
                vlan: true,
                timestamp: true,
            },
            steering: Fields::ALL,
            rules_max: RULES_MAX,
        }
    }

    fn take_queue(&mut self, idx: u16) -> Result<MemoryQueue, DeviceError> {
        if idx != 0 {
            return Err(DeviceError::NoQueue { device: self.name.clone(), idx, queues: 1 });
        }
        let Some(ends) = self.ends.take() else {
            return Err(DeviceError::QueueTaken { device: self.name.clone(), idx });
        };
        Ok(MemoryQueue { name: self.name.clone(), config: self.config, ends, rules: Arc::clone(&self.rules) })
    }

    fn steer(&mut self, rule: &Rule, idx: u16) -> Result<RuleId, SteerError> {
        rule.check()?;
        if idx != 0 {
            return Err(SteerError::NoQueue { idx });
        }
        self.rules.add(*rule)
    }

    fn unsteer(&mut self, id: RuleId) -> Result<(), SteerError> {
        self.rules.remove(id)
    }
}

impl Queue for MemoryQueue {
    type Rx = MemoryRx;
    type Tx = MemoryTx;

    fn open(self, pool: &Pool, scope: &Scope) -> Result<(MemoryRx, MemoryTx), DeviceError> {
        let data_room = pool.layout().data_room();
        if data_room < self.config.frame_len_max {
            return Err(DeviceError::BuffersTooSmall {
                device: self.name,
                frame_len_max: self.config.frame_len_max,
                data_room,
            });
        }
        if self.config.segments && self.config.frame_len_max <= HEAD_LEN_MAX {
            return Err(DeviceError::new(
                DeviceErrorKind::InvalidConfig,
                format!(
                    "{} is to cut segments, but frames of {} bytes may have no room behind their headers: \
                 set frame_len_max above {HEAD_LEN_MAX}, or leave segments off",
                    self.name, self.config.frame_len_max
                ),
            ));
        }
        let rx = MemoryRx::new(self.ends.rx, self.rules, &self.config, scope);
        Ok((rx, MemoryTx::new(self.ends.tx, &self.config, scope)))
    }

    fn buffers(&self) -> Sizing {
        rings(self.config.ring_len(), self.config.ring_len())
    }
}

/// The rules of a port, shared by the device, which changes them, and the queue, which copies them
/// after a change.
#[derive(Default)]
pub(super) struct Rules {
    /// Incremented after each change, so that the queue checks one word per burst.
    version: AtomicU64,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    rules: Vec<(RuleId, Rule)>,
    next_id: u32,
}

impl Rules {
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// A copy of the current rules. Locks and allocates: once per change.
    pub(super) fn copy(&self) -> Vec<Rule> {
        self.table().rules.iter().map(|&(_, rule)| rule).collect()
    }

    fn add(&self, rule: Rule) -> Result<RuleId, SteerError> {
        let mut table = self.table();
        if table.rules.len() >= RULES_MAX {
            return Err(SteerError::TableFull { rules_max: RULES_MAX });
        }
        let id = RuleId(table.next_id);
        table.next_id += 1;
        table.rules.push((id, rule));
        self.version.fetch_add(1, Ordering::Release);
        Ok(id)
    }

    fn remove(&self, id: RuleId) -> Result<(), SteerError> {
        let mut table = self.table();
        let place = table.rules.iter().position(|&(other, _)| other == id).ok_or(SteerError::NoRule { id })?;
        table.rules.remove(place);
        self.version.fetch_add(1, Ordering::Release);
        Ok(())
    }

    fn table(&self) -> std::sync::MutexGuard<'_, Table> {
        // The table is whole after every statement, so a panic with the lock held leaves it usable.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
