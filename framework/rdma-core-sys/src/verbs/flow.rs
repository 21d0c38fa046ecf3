//! A flow rule installed in the device.
//!
//! Invariants:
//! 1. A flow's handle stands before its QP.
//! 2. The bytes of a rule are an `ibv_flow_attr` and as many specifications as it states, aligned
//!    to eight.

use std::sync::Arc;

use super::error::VerbsError;
use super::handle::Handle;
use super::queue_pair::QueuePair;
use super::rule::FlowRule;
use crate::bindings::ibv_flow;
use crate::inline;

/// An installed rule: matching packets go to its QP until the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Flow(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    handle: Handle<ibv_flow>,
    qp: QueuePair,
}

impl Flow {
    /// Installs a rule in the device. It takes effect before the call returns, some tens of
    /// microseconds to milliseconds later.
    ///
    /// # Errors
    /// The table is full (`ENOSPC`, `ENOMEM`), the device cannot match these fields
    /// (`is_unsupported`, `EINVAL`), or permission is missing (`EPERM`: CAP_NET_RAW).
    pub fn create(qp: &QueuePair, rule: &FlowRule) -> Result<Self, VerbsError> {
        let mut words = rule.encode();
        // SAFETY: the QP lives; 2.
        let raw = unsafe { inline::ibv_create_flow(qp.as_ptr(), words.as_mut_ptr().cast()) };
        let raw = VerbsError::check_object("ibv_create_flow", raw)?;
        // SAFETY: new, 1.
        let handle = unsafe { Handle::new(raw, inline::ibv_destroy_flow) }.of(qp.pd().context().own_objects(), None);
        Ok(Self(Arc::new(Inner { handle, qp: qp.clone() })))
    }

    /// The QP that receives its packets.
    pub fn qp(&self) -> &QueuePair {
        &self.0.qp
    }

    /// The raw object. Valid as long as a clone of this handle is.
    pub fn as_ptr(&self) -> *mut ibv_flow {
        self.0.handle.as_ptr()
    }
}
