//! What a feed asks of its servers: missing messages, an image of all books. The sockets are those
//! of feed-handler's recovery thread, at the other end of two rings.

use core::fmt;
use std::sync::mpsc::{Receiver, channel};

use feed_handler::Event;
use feed_handler::feed::SetConfig;
use feed_handler::format::{Format, MoldItch50};
use feed_handler::recovery::{Answer, Command, RecoveryPlan, WorkerEnd, start};
use market::event::Status;
use market::framing::mold_udp64::MoldUdp64;
use market::image::{ImageCounts, ImagePolicy, ImageRequest};
use market::{AbChannel, Capacity, OrderBooks, RerequestCounts, RetryPolicy};
use wirepath::counters::Block;

use super::books::FeedBooks;
use crate::helper::Helper;

/// Answers that one turn takes.
const ANSWERS_PER_TURN: usize = 16;
/// The time between two turns. Requests wait for a millisecond, so this is soon enough.
const INTERVAL_NS: u64 = 50_000;

/// The servers of a feed.
pub struct FeedRecovery {
    plan: RecoveryPlan,
    /// Of an image.
    books: Capacity,
    link: WorkerEnd<OrderBooks>,
    events: Receiver<Event>,
    due_ns: u64,
    thread: Option<Helper>,
    /// Books that an image has replaced, and its states, until the thread takes their memory back.
    replaced: Option<(Box<OrderBooks>, Vec<Status>)>,
}

/// The outcome of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryCounts {
    /// Requests for messages.
    pub requests: RerequestCounts,
    /// Images of all books.
    pub images: ImageCounts,
}

impl fmt::Display for RecoveryCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, images } = self;
        write!(
            f,
            "{} requests for messages, {} holes given up; {} images asked for, {} put in place, books whole {} times",
            requests.requested, requests.given_up, images.requested, images.applied, images.completed
        )
    }
}

impl FeedRecovery {
    /// Starts the thread with the servers of `plan`, of which there is one at least; `books` is the
    /// capacity of the feed's books, and that of an image. `None` for a plan without a server.
    ///
    /// # Errors
    ///
    /// A socket or the thread was refused: a sentence.
    pub fn start(plan: &RecoveryPlan, books: Capacity) -> Result<Option<Self>, String> {
        let set = SetConfig {
            name: "feed".to_owned(),
            format: Format::MoldItch50,
            queue: None,
            numbers: Vec::new(),
            lines: Vec::new(),
            recovery: plan.clone(),
        };
        let ((events, told), block) = (channel(), Block::heap());
        let started = start::<MoldItch50>(&[set], books, &block.scope("feed"), events);
        // The thread ends when our end of the rings is dropped.
        let started = started.map_err(|error| error.to_string())?;
        Ok(started.map(|(link, thread)| {
            let thread = Some(Helper::of("recovery", thread.into_handle()));
            Self { thread, ..Self::over(plan.clone(), books, link, told) }
        }))
    }

    /// The same over the rings of a thread that runs already, whose images have `books`.
    pub fn over(plan: RecoveryPlan, books: Capacity, link: WorkerEnd<OrderBooks>, events: Receiver<Event>) -> Self {
        Self { plan, books, link, events, due_ns: 0, thread: None, replaced: None }
    }

    /// Its thread, where it has started one, for who watches it.
    pub const fn take_thread(&mut self) -> Option<Helper> {
        self.thread.take()
    }

    pub(super) const fn books(&self) -> Capacity {
        self.books
    }

    pub(super) fn retry(&self) -> Option<RetryPolicy> {
        self.plan.requests.as_ref().map(|requests| requests.retry)
    }

    pub(super) fn image(&self) -> Option<ImagePolicy> {
        self.plan.image.as_ref().map(|image| image.policy)
    }

    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.due_ns
    }

    pub(super) fn take_notice(&mut self) -> Option<String> {
        match self.events.try_recv() {
            Ok(Event::Notice(sentence)) => Some(sentence),
            _ => None,
        }
    }

    /// Takes the answers that have come, and asks for what is missing: bounded work.
    #[cold]
    pub(super) fn turn(&mut self, channel: &mut AbChannel<MoldUdp64>, books: &mut FeedBooks, now_ns: u64) {
        self.due_ns = now_ns.saturating_add(INTERVAL_NS);
        self.take_answers(channel, books, now_ns);
        if let Some((books, statuses)) = self.replaced.take()
            && let Err(Command::Spare(books, statuses)) = self.link.commands.push(Command::Spare(books, statuses))
        {
            self.replaced = Some((books, statuses));
        }
        // In this order: no image is called whole behind a message that the books lack.
        books.want_what_was_lost(channel.arbiter().next_seq().saturating_sub(1));
        books.catch_up();
        self.ask(channel, books, now_ns);
    }

    fn take_answers(&mut self, channel: &mut AbChannel<MoldUdp64>, books: &mut FeedBooks, now_ns: u64) {
        for _ in 0..ANSWERS_PER_TURN {
            // A second image waits until the books of the first are back with the thread.
            if self.replaced.is_some() {
                return;
            }
            match self.link.answers.pop() {
                Some(Answer::Packet { bytes, .. }) => channel.on_answer(&bytes, now_ns, books),
                Some(Answer::Image { id, first_live, books: mut image, statuses, .. }) => {
                    books.take_image((id, first_live), &mut image, &statuses, now_ns);
                    self.replaced = Some((image, statuses));
                }
                Some(Answer::NoImage { id, .. }) => books.image_failed(id, now_ns),
                // Servers of MoldUDP64 refuse no request, and have no loops.
                Some(Answer::Refused { .. } | Answer::LoopPacket { .. }) => (),
                None => return,
            }
        }
    }

    /// What the ring has no room for is asked for again when its time is over.
    fn ask(&mut self, channel: &mut AbChannel<MoldUdp64>, books: &mut FeedBooks, now_ns: u64) {
        let requests = self.plan.requests.as_ref();
        if let Some(requests) = requests.filter(|_| self.plan.image.is_some()) {
            while channel.give_up_wider(requests.hole_max, now_ns, books) {}
        }
        while let Some((session, range)) = channel.next_request(now_ns, books) {
            let _ = self.link.commands.push(Command::Request { set: 0, channel: 0, number: 0, session, range });
        }
        if let Some(ImageRequest { id, covers_from }) = books.wanted(now_ns) {
            let session = channel.arbiter().session().unwrap_or_default();
            if self.link.commands.push(Command::Image { set: 0, channel: 0, session, id, covers_from }).is_err() {
                books.image_failed(id, now_ns);
            }
        }
    }
}

impl fmt::Debug for FeedRecovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FeedRecovery").field("plan", &self.plan).finish_non_exhaustive()
    }
}
