//! The day onto the network, through two ordinary kernel UDP sockets, each departure at its time.
//!
//! ```text
//!   start ── heartbeats while receivers join ── the day, paced ── end of session, three times
//!                                                  └─ packets as made ──> re-request server, GLIMPSE server
//! ```
//!
//! A stop cuts the day: messages that were made are still sent, then the session ends as always.

use std::thread;
use std::time::{Duration, Instant};

use market::framing::PacketWriter;
use market::framing::mold_udp64::{MoldHeader, MoldUdp64};
use order_entry::soupbin::SessionId;
use wirepath::worker::StopFlag;

use crate::error::Error;
use crate::feed::Feed;
use crate::glimpse::{GlimpseCounts, GlimpseServer, GlimpseSettings};
use crate::line::Delivery;
use crate::mdp3::{LINES_OF_ITCH, Mdp3Counts};
use crate::rerequest::{RerequestCounts, RerequestSettings, Server};
use crate::send_sockets::{SendSockets, Sockets};
use crate::session::START_NS;
use crate::settings::Settings;
use crate::truth::Truth;

/// A sleep ends up to some 100 us late (timer slack and scheduling), so the last part of a wait is
/// spun.
const SPIN: Duration = Duration::from_micros(200);
/// A stop is noticed within this time.
const SLEEP_MAX: Duration = Duration::from_millis(50);
/// The interval between heartbeats while no other packet is sent (MoldUDP64 1.00: "once a second").
const HEARTBEAT: Duration = Duration::from_secs(1);

/// How a day is published.
#[derive(Clone, Debug)]
pub struct Publication {
    /// The sockets of the lines.
    pub send_sockets: SendSockets,
    /// Delay before the day begins; heartbeats until then.
    pub start_after: Duration,
    /// The re-request server, if any.
    pub rerequest: Option<RerequestSettings>,
    /// The GLIMPSE server, if any.
    pub glimpse: Option<GlimpseSettings>,
}

/// The packets sent, and the accuracy of their timing.
#[derive(Clone, Debug)]
pub struct Published {
    /// The account of the day, as far as it went.
    pub truth: Truth,
    /// From the first packet of the day to the last.
    pub elapsed: Duration,
    /// The largest delay of a packet after its time.
    pub late_max: Duration,
    /// Messages a second while the market was open; `None` where it was open for too short a time.
    pub rate: Option<f64>,
    /// The counts of re-requests.
    pub rerequests: Option<RerequestCounts>,
    /// The counts of snapshots.
    pub snapshots: Option<GlimpseCounts>,
    /// The counts of MDP 3.0.
    pub mdp3: Option<Mdp3Counts>,
}

/// Sends the day. Takes `messages / rate` seconds and some ten for the quiet ones around the open
/// market. A stop ends it in some two seconds, and five where the market is just closing.
pub fn publish(settings: &Settings, publication: &Publication, stop: &StopFlag) -> Result<Published, Error> {
    settings.check()?;
    let sockets = Sockets::open(settings, &publication.send_sockets)?;
    let has_servers = publication.rerequest.is_some() || publication.glimpse.is_some();
    let mut feed = if has_servers { Feed::with_archive(settings)? } else { Feed::new(settings)? };
    let mut server = publication.rerequest.as_ref().map(|own| Server::start(settings, own)).transpose()?;
    let session = SessionId::from_wire(settings.session.bytes());
    let mut glimpse = publication.glimpse.as_ref().map(|own| GlimpseServer::start(session, own)).transpose()?;
    let heartbeats_before = wait_for_receivers(settings, publication.start_after, &sockets, stop)?;

    let mut pace = Pace::new(Instant::now());
    while let Some(delivery) = feed.next() {
        if pace.wait(&delivery, stop) == Waited::Stopped {
            feed.stop();
        }
        while let Some(packet) = feed.take_made(delivery.packet.time_ns) {
            if let Some(glimpse) = &mut glimpse {
                glimpse.keep(packet.clone());
            }
            if let Some(server) = &mut server {
                server.keep(packet);
            }
        }
        sockets.send(delivery.line_idx, &delivery.packet.payload)?;
        if delivery.line_idx < LINES_OF_ITCH && feed.is_open(delivery.packet.time_ns) {
            pace.count(&delivery);
        }
    }
    let elapsed = pace.started.elapsed();
    let rerequests = server.map(Server::stop);
    let snapshots = glimpse.map(GlimpseServer::stop);
    let mdp3 = feed.mdp3_counts();
    let truth = Truth { heartbeats_before, ..feed.finish() };
    Ok(Published { truth, elapsed, late_max: pace.late_max, rate: pace.rate(), rerequests, snapshots, mdp3 })
}

/// Sends heartbeats with the session and its first number on both lines until the day begins.
/// Returns their number.
fn wait_for_receivers(
    settings: &Settings,
    start_after: Duration,
    sockets: &Sockets,
    stop: &StopFlag,
) -> Result<u64, Error> {
    let mut header = [0; 20];
    let writer = PacketWriter::<MoldUdp64>::new(MoldHeader::new(settings.session.bytes(), 1), &mut header);
    let heartbeat = writer.expect("a heartbeat is a header").finish();
    let started = Instant::now();
    let mut heartbeats = 0;
    let mut passed = Duration::ZERO;
    while passed < start_after && !stop.is_stopping() {
        sockets.send(0, heartbeat)?;
        sockets.send(1, heartbeat)?;
        heartbeats += 1;
        passed = (passed + HEARTBEAT).min(start_after);
        wait_until(started + passed, stop);
    }
    Ok(heartbeats)
}

/// Sends departures at their times, and records the accuracy.
struct Pace {
    started: Instant,
    /// The start of the day's clock; moved once, by a stop.
    anchor: Instant,
    stopped: bool,
    late_max: Duration,
    /// First and last departure of the open market: time and sequence number.
    open: Option<[(Instant, u64); 2]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Waited {
    Due,
    /// The day was not published to its end, because a stop was requested. Reported once.
    Stopped,
}

impl Pace {
    fn new(started: Instant) -> Self {
        Self { started, anchor: started, stopped: false, late_max: Duration::ZERO, open: None }
    }

    /// Waits until a departure is due. After a stop, the remaining ones leave from then on, at the
    /// same intervals.
    fn wait(&mut self, delivery: &Delivery, stop: &StopFlag) -> Waited {
        let offset = Duration::from_nanos(delivery.time_ns - START_NS);
        if self.stopped {
            wait_until(self.anchor + offset, &StopFlag::new());
            return Waited::Due;
        }
        wait_until(self.anchor + offset, stop);
        let now = Instant::now();
        if stop.is_stopping() {
            self.stopped = true;
            self.anchor = now.checked_sub(offset).unwrap_or(now);
            return Waited::Stopped;
        }
        self.late_max = self.late_max.max(now.saturating_duration_since(self.anchor + offset));
        Waited::Due
    }

    /// Counts a departure of the open market.
    fn count(&mut self, delivery: &Delivery) {
        let end = delivery.packet.sequence + u64::from(delivery.packet.count);
        let now = (Instant::now(), end);
        let [first, last] = self.open.get_or_insert([now, now]);
        debug_assert!(first.0 <= now.0);
        // A packet that was held back arrives after later ones.
        if end > last.1 {
            *last = now;
        }
    }

    /// Messages a second between the two.
    fn rate(&self) -> Option<f64> {
        let [(from, first), (to, last)] = self.open?;
        let seconds = to.duration_since(from).as_secs_f64();
        // Some hundred messages or a few milliseconds are too few to measure a rate.
        (seconds >= 0.01).then(|| (last - first) as f64 / seconds)
    }
}

/// Waits until `due` has come, or a stop.
fn wait_until(due: Instant, stop: &StopFlag) {
    while !stop.is_stopping() {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        match left.checked_sub(SPIN) {
            Some(sleep) => thread::sleep(sleep.min(SLEEP_MAX)),
            None => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_ends_at_its_time() {
        let due = Instant::now() + Duration::from_millis(2);
        wait_until(due, &StopFlag::new());
        assert!(Instant::now() >= due);
    }

    #[test]
    fn wait_ends_with_a_stop() {
        let stop = StopFlag::new();
        stop.stop();
        wait_until(Instant::now() + Duration::from_secs(3600), &stop);
    }
}
