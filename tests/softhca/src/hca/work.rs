//! The parts of the NIC that a running queue needs: everything but the queues.

use super::completion::Cqs;
use super::config::Config;
use super::control::EventKind;
use super::counters::Counters;
use super::diagnosis::Diagnoses;
use super::environment::{Environment, LinkState};
use super::hostile::Chance;
use super::memory::Memory;

/// Parts of [`Hca`](super::Hca), borrowed for one step.
pub(super) struct Work<'a, 'o> {
    pub(super) config: &'a Config,
    pub(super) memory: &'a mut Memory,
    pub(super) cqs: &'a mut Cqs,
    pub(super) counters: &'a mut Counters,
    pub(super) diagnoses: &'a mut Diagnoses,
    pub(super) chance: &'a mut Chance,
    pub(super) link: LinkState,
    pub(super) environment: &'a mut Environment<'o>,
    /// Handles of QPs, and what has happened to them; their clients get an event after the step.
    pub(super) qp_events: &'a mut Vec<(u32, EventKind)>,
}
