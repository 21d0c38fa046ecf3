//! The worker's part of recovery: what is missing is requested, what was requested is put in its
//! place. Sockets belong to [another thread](crate::recovery).

use market::Books;
use market::framing::Header;
use market::image::{ImageCounts, ImageRecovery};
use market::{AnswerCounts, Gap, RerequestCounts, Rerequester, Slots, Window};

use super::loops::{LoopTally, Loops};
use crate::recovery::{PACKET_LEN_MAX, RecoveryPlan};

/// Answers that are put in their place in one turn.
pub(super) const ANSWERS_PER_TURN: usize = 16;
/// Messages behind an image that are applied in one turn: some ten microseconds.
pub(super) const MESSAGES_PER_TURN: usize = 256;
/// The interval at which a worker looks for what is due. Requests wait for a millisecond, so this
/// is soon enough.
pub(super) const INTERVAL_NS: u64 = 50_000;

/// The machines of one channel.
pub(super) struct ChannelRecovery<L> {
    pub(super) requests: Option<Requests>,
    pub(super) image: Option<ImageRecovery>,
    pub(super) loops: Option<ChannelLoops<L>>,
    /// Copies of answers that wait for their turn.
    pub(super) slots: Slots,
}

/// The loops of a channel, and what the thread was told of them.
pub(super) struct ChannelLoops<L> {
    pub(super) machine: L,
    /// The thread is to join the loop of definitions.
    pub(super) are_definitions_due: bool,
    /// The thread was told that snapshots are wanted.
    pub(super) are_snapshots_asked_for: bool,
    /// What the counters have of its outcome.
    pub(super) counted: LoopTally,
}

/// The requests of a channel.
pub(super) struct Requests {
    pub(super) machine: Rerequester,
    /// Answers come on a group, to all who have asked.
    is_shared: bool,
    /// A wider hole is left to the image, where there is one.
    pub(super) hole_max: u64,
    /// Holes that were.
    pub(super) too_wide: u64,
}

impl Requests {
    /// Whether a packet may be an answer. It came from the server's address, or by its group, which
    /// anybody may forge.
    pub(super) fn is_asked(&self, header: &Header) -> bool {
        if self.is_shared { self.machine.is_asked_in_part(header) } else { self.machine.is_asked(header) }
    }
}

/// The outcome of a channel's recovery.
#[derive(Clone, Copy, Debug, Default)]
pub struct RecoveryTally {
    /// Requests for messages.
    pub requests: RerequestCounts,
    /// Their answers.
    pub answers: AnswerCounts,
    /// Holes that were left to an image because they were too wide.
    pub too_wide: u64,
    /// Images, and the messages queued for them.
    pub image: ImageCounts,
    /// What loops brought.
    pub loops: LoopTally,
}

impl<L> ChannelRecovery<L> {
    /// The memory for the recovery of a channel with at most `books_max` instruments; `None` where
    /// nothing is configured.
    pub(super) fn new<B: Books>(plan: &RecoveryPlan, window: Window, books_max: usize) -> Option<Self>
    where
        L: Loops<B>,
    {
        if plan.is_empty() {
            return None;
        }
        let requests = plan.requests.as_ref().map(|requests| Requests {
            machine: Rerequester::new(requests.retry),
            is_shared: requests.proxy.is_some(),
            hole_max: requests.hole_max,
            too_wide: 0,
        });
        let slots = if requests.is_some() { window.packets as u32 + 1 } else { 0 };
        let image = plan.image.as_ref().map(|image| ImageRecovery::new(image.policy));
        let loops = plan.loops.as_ref().and_then(|loops| L::new(loops, books_max)).map(|machine| ChannelLoops {
            machine,
            // Nothing is known of the instruments at the start.
            are_definitions_due: true,
            are_snapshots_asked_for: false,
            counted: LoopTally::default(),
        });
        Some(Self { requests, image, loops, slots: Slots::new(slots, PACKET_LEN_MAX) })
    }

    /// The books lack these messages. A definition may be among them.
    pub(super) fn gap<B: Books>(&mut self, gap: Gap)
    where
        L: Loops<B>,
    {
        if let Some(image) = &mut self.image {
            image.gap(gap);
        }
        if let Some(loops) = &mut self.loops {
            loops.machine.gap(gap);
            loops.are_definitions_due = true;
        }
    }

    /// The feed restarts.
    pub(super) fn restart<B: Books>(&mut self)
    where
        L: Loops<B>,
    {
        if let Some(requests) = &mut self.requests {
            requests.machine.forget();
        }
        if let Some(image) = &mut self.image {
            image.restart();
        }
        if let Some(loops) = &mut self.loops {
            loops.machine.restart();
            loops.are_definitions_due = true;
        }
    }

    pub(super) fn tally<B: Books>(&self, answers: AnswerCounts) -> RecoveryTally
    where
        L: Loops<B>,
    {
        RecoveryTally {
            requests: self.requests.as_ref().map(|requests| *requests.machine.counts()).unwrap_or_default(),
            too_wide: self.requests.as_ref().map_or(0, |requests| requests.too_wide),
            image: self.image.as_ref().map(|image| *image.counts()).unwrap_or_default(),
            loops: self.loops.as_ref().map(|loops| loops.machine.tally()).unwrap_or_default(),
            answers,
        }
    }
}

/// The window of a channel: a hole stays open for its requests.
pub(super) fn window_of(plan: &RecoveryPlan, window: Window) -> Window {
    let wait_ns = plan.requests.as_ref().map_or(0, |requests| requests.retry.wait_ns());
    Window { wait_ns: window.wait_ns.max(wait_ns), ..window }
}
