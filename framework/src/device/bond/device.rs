//! The legs, and the choice of the active one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::rx::BondRx;
use super::tx::BondTx;
use crate::counters::Scope;
use crate::device::steering::{Rule, RuleId, SteerError};
use crate::device::{Capabilities, Device, DeviceError, DeviceErrorKind, Queue, RxOffloads, TxOffloads};
use crate::forward;
use crate::mem::{Layout, Pool, Sizing};

/// The index of the active leg in the bond. Any thread may set it; the worker reads it once per
/// turn.
#[derive(Clone, Debug, Default)]
pub struct ActiveLeg(Arc<AtomicUsize>);

impl ActiveLeg {
    /// Makes leg `idx` active from the next turn on. An index without a leg selects no leg:
    /// received frames are dropped, and none can be sent.
    pub fn set(&self, idx: usize) {
        self.0.store(idx, Ordering::Relaxed);
    }

    /// The active leg.
    #[inline]
    pub fn get(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// Several ports as one.
pub struct BondDevice<D> {
    name: String,
    legs: Vec<D>,
    active: ActiveLeg,
    /// For each rule its ids on the legs.
    rules: Vec<(RuleId, Vec<RuleId>)>,
    rules_made: u32,
}

/// A queue of each leg, before a worker opens them.
pub struct BondQueue<Q> {
    legs: Vec<Q>,
    active: ActiveLeg,
}

impl<D: Device> BondDevice<D> {
    /// The bond `name` of `legs`, the first of which is active. At least one leg is needed.
    pub fn new(name: impl Into<String>, legs: Vec<D>) -> Result<Self, DeviceError> {
        let name = name.into();
        if legs.is_empty() {
            return Err(DeviceError::new(
                DeviceErrorKind::InvalidConfig,
                format!("bond {name} has no legs: name the interfaces that it is made of"),
            ));
        }
        Ok(Self { name, legs, active: ActiveLeg::default(), rules: Vec::new(), rules_made: 0 })
    }

    /// A handle to read and set the active leg.
    pub fn active_leg(&self) -> ActiveLeg {
        self.active.clone()
    }
}

impl<D: Device> Device for BondDevice<D> {
    type Queue = BondQueue<D::Queue>;

    fn name(&self) -> &str {
        &self.name
    }

    /// The capabilities that all legs have.
    fn capabilities(&self) -> Capabilities {
        let each = self.legs.iter().map(Device::capabilities);
        each.reduce(common).expect("a bond has a leg")
    }

    fn take_queue(&mut self, idx: u16) -> Result<Self::Queue, DeviceError> {
        let legs: Result<_, _> = self.legs.iter_mut().map(|leg| leg.take_queue(idx)).collect();
        Ok(BondQueue { legs: legs?, active: self.active.clone() })
    }

    /// Installs the rule on all legs or on none.
    fn steer(&mut self, rule: &Rule, idx: u16) -> Result<RuleId, SteerError> {
        let mut on_legs = Vec::with_capacity(self.legs.len());
        for leg in &mut self.legs {
            match leg.steer(rule, idx) {
                Ok(id) => on_legs.push(id),
                Err(error) => {
                    for (leg, id) in self.legs.iter_mut().zip(on_legs) {
                        // The rule was installed a moment ago.
                        let _ = leg.unsteer(id);
                    }
                    return Err(error);
                }
            }
        }
        let id = RuleId(self.rules_made);
        self.rules_made += 1;
        self.rules.push((id, on_legs));
        Ok(id)
    }

    fn unsteer(&mut self, id: RuleId) -> Result<(), SteerError> {
        let idx = self.rules.iter().position(|(held, _)| *held == id).ok_or(SteerError::NoRule { id })?;
        let (_, on_legs) = self.rules.remove(idx);
        let taken = self.legs.iter_mut().zip(on_legs).map(|(leg, id)| leg.unsteer(id));
        taken.fold(Ok(()), Result::and)
    }
}

impl<Q: Queue> Queue for BondQueue<Q> {
    type Rx = BondRx<Q::Rx>;
    type Tx = BondTx<Q::Tx>;

    fn open(self, pool: &Pool, scope: &Scope) -> Result<(Self::Rx, Self::Tx), DeviceError> {
        let (mut rxs, mut txs) = (Vec::new(), Vec::new());
        for (idx, leg) in self.legs.into_iter().enumerate() {
            let (rx, tx) = leg.open(pool, &scope.scope(&format!("leg{idx}")))?;
            rxs.push(rx);
            txs.push(tx);
        }
        let rx = BondRx::new(rxs, self.active.clone(), &scope.scope("bond"));
        Ok((rx, BondTx::new(txs, self.active)))
    }

    fn layout(&self, frame_len_max: usize) -> Layout {
        self.legs[0].layout(frame_len_max)
    }

    fn buffers(&self) -> Sizing {
        self.legs.iter().fold(Sizing::new(), |sum, leg| sum.and(leg.buffers()))
    }

    // One pool cannot be cut from the memory of several legs.
    forward!(by_default: region);
}

/// The capabilities that both legs have.
fn common(a: Capabilities, b: Capabilities) -> Capabilities {
    Capabilities {
        queues: a.queues.min(b.queues),
        frame_len_max: a.frame_len_max.min(b.frame_len_max),
        tx_segments_max: a.tx_segments_max.min(b.tx_segments_max),
        rx: RxOffloads {
            ip_checksum: a.rx.ip_checksum && b.rx.ip_checksum,
            l4_checksum: a.rx.l4_checksum && b.rx.l4_checksum,
            timestamp: a.rx.timestamp && b.rx.timestamp,
            hash: a.rx.hash && b.rx.hash,
            // If one leg strips tags, a reader must check the metadata.
            vlan: a.rx.vlan || b.rx.vlan,
            // Each leg assigns its flow tags independently.
            flow_tag: false,
        },
        tx: TxOffloads {
            ip_checksum: a.tx.ip_checksum && b.tx.ip_checksum,
            l4_checksum: a.tx.l4_checksum && b.tx.l4_checksum,
            segmentation_len_max: a.tx.segmentation_len_max.min(b.tx.segmentation_len_max),
            vlan: a.tx.vlan && b.tx.vlan,
            timestamp: false,
        },
        steering: a.steering.intersection(b.steering),
        rules_max: a.rules_max.min(b.rules_max),
    }
}
