//! An image that is being received: its messages become books, off the hot core.

use std::io;

use market::event::{Event, Status};
use market::framing::Session;
use market::{Books, Decoder, MessageCounts};

use super::glimpse::Glimpse;
use super::plan::{ImagePlan, ImageSource};
use super::spin::Spin;
use crate::format::Protocol;

/// States of instruments that an image may have: those of each stock twice, and more.
const STATUSES_MAX: usize = 1 << 16;

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImageJob {
    pub(super) set: u16,
    pub(super) channel: u32,
    /// That of the live feed.
    pub(super) session: Session,
    pub(super) id: u64,
    pub(super) covers_from: u64,
}

/// The books of an image as far as it has come.
pub(super) struct ImageBooks<P: Protocol> {
    pub(super) books: Box<P::Books>,
    /// The states of instruments that it has, in its order.
    pub(super) statuses: Vec<Status>,
    has_too_many_statuses: bool,
    codec: P::Codec,
    counts: MessageCounts,
}

/// How far a request for an image has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ImageStep {
    /// It goes on.
    More,
    /// It is whole, and the live feed continues with this number.
    Done { first_live: u64 },
}

/// A request for an image, over whichever protocol.
pub(super) enum ImageClient {
    Glimpse(Glimpse),
    Spin(Spin),
}

impl<P: Protocol> ImageBooks<P> {
    /// Empty ones, in the memory of others.
    pub(super) fn new((mut books, mut statuses): (Box<P::Books>, Vec<Status>)) -> Self {
        books.clear();
        statuses.clear();
        let has_too_many_statuses = false;
        Self { books, statuses, has_too_many_statuses, codec: P::Codec::default(), counts: MessageCounts::new() }
    }

    /// The memory, for the next image.
    pub(super) fn into_memory(self) -> (Box<P::Books>, Vec<Status>) {
        (self.books, self.statuses)
    }

    /// Applies a message of the image.
    pub(super) fn apply(&mut self, message: &[u8]) {
        let Self { books, statuses, has_too_many_statuses, .. } = self;
        self.codec.decode_all(message, &mut self.counts, &mut |event| {
            books.apply(event);
            match event {
                Event::Status(status) if statuses.len() < STATUSES_MAX => statuses.push(*status),
                Event::Status(_) => *has_too_many_statuses = true,
                _ => (),
            }
        });
    }

    /// Whether it has more states than there is room for.
    pub(super) const fn is_endless(&self) -> bool {
        self.has_too_many_statuses
    }

    /// Whether a message was broken. One of an unknown type is left out, as in the live feed.
    pub(super) fn is_broken(&self) -> bool {
        self.counts.wrong_length + self.counts.empty > 0
    }

    /// Messages of these types.
    pub(super) fn count_of(&self, kinds: &[u8]) -> u64 {
        kinds.iter().map(|&kind| self.counts.by_type[usize::from(kind)]).sum()
    }
}

impl ImageClient {
    /// Begins to connect to the server of the plan.
    pub(super) fn connect(plan: &ImagePlan, job: &ImageJob, now_ns: u64) -> io::Result<Self> {
        Ok(match plan.source {
            ImageSource::Glimpse { credentials, any_session } => {
                let session = (!any_session).then_some(job.session);
                Self::Glimpse(Glimpse::connect(plan.server, credentials, session)?)
            }
            ImageSource::Spin(login) => Self::Spin(Spin::connect(plan.server, login, job.covers_from, now_ns)?),
        })
    }

    /// Takes what has come.
    pub(super) fn poll<P: Protocol>(&mut self, books: &mut ImageBooks<P>, now_ns: u64) -> io::Result<ImageStep> {
        let step = match self {
            Self::Glimpse(glimpse) => glimpse.poll(books, now_ns),
            Self::Spin(spin) => spin.poll(books, now_ns),
        }?;
        if books.is_broken() {
            return Err(io::Error::other("a message of the image has not the length of its type"));
        }
        if books.is_endless() {
            return Err(io::Error::other("the image has more states of instruments than a market has instruments"));
        }
        Ok(step)
    }
}
