//! One end of a session: the actions of its app, and the events that it must see. An end does not
//! know the stack: the driver of a stack requests the next action from it and reports events to it.

use wirepath::pipeline::tcp::ConnectionOptions;

use crate::mutate::{STEP, finish};

/// The app's behavior on a connection.
#[derive(Clone, Debug, PartialEq)]
pub struct EndPlan {
    /// The data that the app sends.
    pub role: Role,
    /// Bytes of one write, 1 to this many.
    pub write_max: usize,
    /// Nanoseconds between two writes; 0 is without a pause.
    pub write_gap: u64,
    /// When the app closes its side.
    pub close: Close,
    /// When the app aborts, if it does.
    pub abort: Option<Abort>,
    /// The positions, in bytes received, at which the app stops reading, and for how many
    /// nanoseconds; in rising order.
    pub pauses: Vec<(u64, u64)>,
    /// The number of received segments whose buffers the app keeps for a while.
    pub hold: usize,
    /// How the app writes.
    pub writes: WriteMethod,
    /// While its stack accepts no more of its data, the app reads nothing, and does nothing at all
    /// until an event reports room.
    pub holds_back: bool,
    /// The app closes both directions at once (`close` instead of `shutdown`), so it accepts no
    /// further data.
    pub hangs_up: bool,
    /// The positions, in bytes sent and received, at which the app changes its options; in rising
    /// order.
    pub changes: Vec<(u64, ConnectionOptions)>,
}

impl EndPlan {
    /// Whether the app may end the connection before the peer has closed.
    pub fn may_break(&self) -> bool {
        self.abort.is_some() || self.hangs_up
    }

    /// Whether the app may leave received data unread for a time.
    pub fn may_stop_reading(&self) -> bool {
        !self.pauses.is_empty() || self.holds_back
    }
}

/// How an app writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMethod {
    /// It passes bytes, which the stack copies.
    Copies,
    /// It passes whole mbufs.
    HandsOver,
    /// It fires prepared orders.
    Fires,
}

/// The data that an app sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// This many bytes of its own stream.
    Source(u64),
    /// All data that it receives.
    Echo,
}

/// When an app closes its side.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Close {
    /// When all is sent.
    WhenSent,
    /// When all is sent and the peer has closed.
    AfterPeer,
}

/// When an app aborts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Abort {
    /// The stack has accepted this many bytes.
    Sent(u64),
    /// This many bytes were received.
    Received(u64),
}

/// How a connection ended, as its stack reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Both sides closed.
    Finished,
    /// We aborted.
    Aborted,
    /// The peer aborted.
    Reset,
    /// No socket listened.
    Refused,
    /// The peer did not answer.
    TimedOut,
    /// The peer's MAC address was not resolved.
    NoNeighbor,
}

/// The next action of an app.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// Nothing until the next event.
    Nothing,
    /// Nothing until this time.
    At(u64),
    /// Write this many bytes.
    Write(usize),
    /// Close its own direction.
    Shutdown,
    /// Close both directions.
    HangUp,
    /// Reset the connection.
    Abort,
}

/// An end, and its progress.
#[derive(Clone, Debug)]
pub struct End {
    /// Its behavior.
    pub plan: EndPlan,
    /// The stream that it sends, where it is a source, and the stream that it receives.
    streams: [u64; 2],
    /// Bytes that its stack has accepted.
    pub sent: u64,
    /// Bytes that it has received.
    pub bytes_received: u64,
    /// The handshake is done.
    pub is_connected: bool,
    /// It has closed its side.
    pub is_shut: bool,
    /// An event has reported that the peer closed.
    pub saw_close: bool,
    /// How it ended.
    pub outcome: Option<Outcome>,
    /// When the connection ended, if both sides had closed.
    pub finished_at: Option<u64>,
    /// The times from which the app writes again, and reads again.
    write_at: u64,
    read_at: u64,
    pauses_done: usize,
    changes_done: usize,
    draws: u64,
}

impl End {
    /// An end that sends the stream `own` and receives the stream `theirs`.
    pub fn new(plan: EndPlan, own: u64, theirs: u64) -> Self {
        Self {
            plan,
            streams: [own, theirs],
            sent: 0,
            bytes_received: 0,
            is_connected: false,
            is_shut: false,
            saw_close: false,
            outcome: None,
            finished_at: None,
            write_at: 0,
            read_at: 0,
            pauses_done: 0,
            changes_done: 0,
            draws: own,
        }
    }

    /// Its next action.
    pub fn next_action(&mut self, now: u64) -> Action {
        if self.outcome.is_some() || !self.is_connected {
            return Action::Nothing;
        }
        let aborts = match self.plan.abort {
            None => false,
            Some(Abort::Sent(count)) => self.sent >= count,
            Some(Abort::Received(count)) => self.bytes_received >= count,
        };
        if aborts {
            return Action::Abort;
        }
        if self.is_shut {
            return Action::Nothing;
        }
        let ready = match self.plan.role {
            Role::Source(len) => len - self.sent,
            Role::Echo => self.bytes_received - self.sent,
        };
        if ready == 0 {
            let has_all = matches!(self.plan.role, Role::Source(_)) || self.saw_close;
            let closes = has_all && (self.plan.close == Close::WhenSent || self.saw_close);
            return match closes {
                true if self.plan.hangs_up => Action::HangUp,
                true => Action::Shutdown,
                false => Action::Nothing,
            };
        }
        if now < self.write_at {
            return Action::At(self.write_at);
        }
        self.draws = mix(self.draws, self.sent);
        let most = ready.min(self.plan.write_max as u64);
        if self.plan.writes == WriteMethod::Fires {
            // Orders have one length, so that their template is used again.
            return Action::Write(most as usize);
        }
        Action::Write((1 + self.draws % most) as usize)
    }

    /// The options to set now, if the connection has reached the next position at which they
    /// change.
    pub fn change(&mut self) -> Option<ConnectionOptions> {
        let place = self.sent + self.bytes_received;
        let &(_, options) = self.plan.changes.get(self.changes_done).filter(|(at, _)| *at <= place)?;
        self.changes_done += 1;
        Some(options)
    }

    /// Fills in the next bytes of its stream.
    pub fn fill(&self, bytes: &mut [u8]) {
        let stream = match self.plan.role {
            Role::Source(_) => self.streams[0],
            Role::Echo => self.streams[1],
        };
        fill(stream, self.sent, bytes);
    }

    /// Records that the stack has accepted `count` bytes.
    pub fn wrote(&mut self, count: usize, now: u64) {
        self.sent += count as u64;
        self.write_at = now + self.plan.write_gap;
    }

    /// Checks received bytes against the stream of the peer.
    pub fn receive(&mut self, bytes: &[u8], now: u64) -> Result<(), String> {
        if let Some(outcome) = self.outcome {
            return Err(format!("{} bytes after the end ({outcome:?})", bytes.len()));
        }
        if self.is_shut && self.plan.hangs_up {
            return Err(format!("{} bytes for an app that has closed", bytes.len()));
        }
        if self.saw_close {
            return Err(format!("{} bytes after the peer's close", bytes.len()));
        }
        if !self.is_connected {
            return Err("bytes before the connection".into());
        }
        if let Some(place) = first_difference(self.streams[1], self.bytes_received, bytes) {
            let at = self.bytes_received + place as u64;
            return Err(format!("byte {at} of the stream is wrong, {place} in the {} that came", bytes.len()));
        }
        self.bytes_received += bytes.len() as u64;
        while let Some(&(_, span)) = self.plan.pauses.get(self.pauses_done).filter(|(at, _)| *at <= self.bytes_received)
        {
            self.pauses_done += 1;
            self.read_at = self.read_at.max(now) + span;
        }
        Ok(())
    }

    /// The time until which it does not read, if it pauses.
    pub fn pauses_until(&self, now: u64) -> Option<u64> {
        (now < self.read_at).then_some(self.read_at)
    }
}

/// Number `at` of the pseudo-random sequence of `seed` (the finalizer of SplitMix64).
pub fn mix(seed: u64, at: u64) -> u64 {
    finish(seed.wrapping_add(at.wrapping_mul(STEP)).wrapping_add(0x2545_f491_4f6c_dd1d))
}

/// Writes the bytes of a stream from `at` on.
pub fn fill(stream: u64, at: u64, bytes: &mut [u8]) {
    let mut at = at;
    let mut rest = bytes;
    while !rest.is_empty() {
        let word = mix(stream, at / 8).to_le_bytes();
        let from = (at % 8) as usize;
        let count = (8 - from).min(rest.len());
        let (here, behind) = rest.split_at_mut(count);
        here.copy_from_slice(&word[from..from + count]);
        (rest, at) = (behind, at + count as u64);
    }
}

/// The first position at which bytes differ from those of a stream from `at` on.
pub fn first_difference(stream: u64, at: u64, bytes: &[u8]) -> Option<usize> {
    let mut expected = vec![0; bytes.len()];
    fill(stream, at, &mut expected);
    if expected == bytes { None } else { expected.iter().zip(bytes).position(|(a, b)| a != b) }
}
