//! A broker that passes frames on: it keeps the queues of its interface, and each client has a
//! queue in shared memory instead ([`ForwardedQueue`]). One thread moves all frames:
//!
//! ```text
//!                        ┌ packet     both ends of the frame
//!  interface ──▶ burst ──┤ conntrack  whose connection it is of
//!                        └ dispatch   or whose flow       ──▶ copied to a client's queue
//!  interface ◀── doorbell ◀── copied from each client's queue, so many a turn
//! ```
//!
//! A frame is copied once more in each direction than with a lent queue, and passes through another
//! thread. That thread polls for [`SPIN`] after the last frame, and then sleeps until the interface
//! or a client wakes it. No client can block it: a full queue loses only its own frames, and
//! clients that send at the same time take the room of the interface by turns.

mod conntrack;
mod dispatch;
mod packet;
mod parked;
#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use self::dispatch::{Dispatch, Recipients};
use self::packet::{Ends, Packet};
use self::parked::{Parked, ParkedFrames};
use crate::counters::{Counter, Drops, Scope, Unit};
use crate::device::af_xdp::broker::forwarded::{ForwardedQueue, Taken, Undelivered};
use crate::device::broker::message::Flow;
use crate::device::broker::sys;
use crate::device::{Offload, Queue, RxQueue, TxQueue};
use crate::mem::{BURST_MAX, Burst, Mbuf, Pool, Region};
use crate::time::{Clock, MonotonicClock};
use crate::wire::handover::{self, Handover};

pub(super) use dispatch::ClientIdx;

/// How long the thread polls after the last frame before it sleeps: longer than a client takes to
/// answer, too short to show in a CPU meter.
const SPIN: Duration = Duration::from_micros(50);
/// The longest sleep. The link is checked between two sleeps.
const POLL_TIMEOUT: Duration = Duration::from_millis(100);
/// The same while the interface has frames that it has not sent: the kernel may have refused the
/// wake-up for them, which is then repeated.
const POLL_TIMEOUT_IN_FLIGHT: Duration = Duration::from_micros(50);
/// The most frames of one client in a turn, and between two looks at the others that send.
const SENT_A_TURN: usize = 64;
const SENT_AT_ONCE: usize = 8;
/// The time until connections are passed on for which a client had no room. It takes a ring of them
/// in less; a client that takes none costs the others a search in each such time.
const PASS_PARKED_INTERVAL: Duration = Duration::from_millis(2);
/// Bytes of an Ethernet header.
const ETHERNET_LEN: usize = 14;
/// The most turns in which the last frames of a client are taken, and the most of them that are
/// dropped afterwards: as many as the longest ring has.
const LAST_TURNS: usize = 64;
const LAST_FRAMES: usize = 65_536;
/// Turns between two readings of the kernel's counters.
const COUNTED_EVERY: u32 = 1 << 16;

crate::drop_reasons! {
    /// Why a frame is not passed on.
    pub(crate) enum ForwardDrop {
        /// No client has its flow, or its client does not receive yet.
        NoClient => "no_client",
        /// The client's rings are full, because it does not run.
        ClientFull => "client_full",
        /// The client's rings have invalid addresses or lengths.
        ClientInvalid => "client_invalid",
        /// The client sends less than an Ethernet header.
        ClientShort => "client_short",
        /// The interface's ring is full, or its buffers are used up, when a client sends.
        InterfaceFull => "interface_full",
    }
}

/// The broker's message to the thread, and where the thread says that it has executed it.
type PendingCommand = (Command, Sender<()>);

enum Command {
    Add { place: ClientIdx, user: u32, queue: Box<ForwardedQueue> },
    Remove { place: ClientIdx },
    SetReceiving { place: ClientIdx, receiving: bool },
    AddFlow { place: ClientIdx, flow: Flow },
    RemoveFlows { place: ClientIdx, flows: Vec<Flow> },
    SetListening { place: ClientIdx, flow: Flow, listening: bool },
}

/// The broker's handle of the thread. The thread ends when it is dropped.
pub(super) struct Forwarder {
    commands: Option<Sender<PendingCommand>>,
    wake: UnixDatagram,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Starts the thread on the queues of an interface.
    pub(super) fn start<Q: Queue + 'static>(
        queues: Vec<Q>,
        frame_len_max: usize,
        scope: Scope,
    ) -> Result<Self, String> {
        let (wake, woken) = UnixDatagram::pair().map_err(|error| error.to_string())?;
        for socket in [&wake, &woken] {
            socket.set_nonblocking(true).map_err(|error| error.to_string())?;
        }
        let (commands, requests) = channel();
        let (started, is_started) = channel();
        let work = move || match Work::open(queues, frame_len_max, &scope, requests, woken) {
            Ok(work) => {
                let _ = started.send(Ok(()));
                work.run();
            }
            Err(why) => _ = started.send(Err(why)),
        };
        let thread = thread::Builder::new().name("forward".into()).spawn(work).map_err(|error| error.to_string())?;
        is_started.recv().unwrap_or_else(|_| Err("its thread has failed".into()))?;
        Ok(Self { commands: Some(commands), wake, thread: Some(thread) })
    }

    /// Whether the thread has ended with an error.
    pub(super) fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Gives this queue to a client of a user.
    pub(super) fn add(&self, place: ClientIdx, user: u32, queue: ForwardedQueue) {
        self.ask(Command::Add { place, user, queue: Box::new(queue) });
    }

    /// Removes a client. None of its memory is used after this returns.
    pub(super) fn remove(&self, place: ClientIdx) {
        self.ask(Command::Remove { place });
    }

    /// Sets whether frames go to a client. If not, its memory is not written after this returns.
    pub(super) fn set_receiving(&self, place: ClientIdx, receiving: bool) {
        self.ask(Command::SetReceiving { place, receiving });
    }

    /// Gives a flow to a client.
    pub(super) fn add_flow(&self, place: ClientIdx, flow: Flow) {
        self.ask(Command::AddFlow { place, flow });
    }

    /// Takes flows from a client.
    pub(super) fn remove_flows(&self, place: ClientIdx, flows: Vec<Flow>) {
        self.ask(Command::RemoveFlows { place, flows });
    }

    /// Sets whether new connections may go to a client by a flow.
    pub(super) fn set_listening(&self, place: ClientIdx, flow: Flow, listening: bool) {
        self.ask(Command::SetListening { place, flow, listening });
    }

    /// Returns once the thread has executed it: what it delivers to the client later follows the
    /// command.
    fn ask(&self, command: Command) {
        let (done, is_done) = channel();
        // If the thread has ended, the broker ends too.
        let _ = self.commands.as_ref().map(|commands| commands.send((command, done)));
        let _ = self.wake.send(&[0]);
        let _ = is_done.recv();
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.commands = None;
        let _ = self.wake.send(&[0]);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// A queue of the interface, with the memory of its frames.
struct Own<Q: Queue> {
    rx: Q::Rx,
    tx: Q::Tx,
    pool: Pool,
}

struct Client {
    queue: ForwardedQueue,
    user: u32,
    is_receiving: bool,
}

struct Counters {
    delivered: Counter,
    sent: Counter,
    sleeps: Counter,
    /// Connections that gave way to others while they waited.
    parked_displaced: Counter,
    drops: Drops<ForwardDrop>,
}

/// The state of the thread.
struct Work<Q: Queue> {
    own: Vec<Own<Q>>,
    clients: Vec<Option<Client>>,
    /// The client that may send first in the next turn.
    first: ClientIdx,
    /// Clients that may have more to send in this turn; kept for its memory.
    senders: Vec<ClientIdx>,
    dispatch: Dispatch,
    /// Connections that wait for a client that listens.
    parked: ParkedFrames,
    /// When those are passed on for which a client that listens had no room.
    pass_parked_at: Option<Instant>,
    commands: Receiver<PendingCommand>,
    woken: UnixDatagram,
    clock: MonotonicClock,
    /// The bytes of a frame that lies in several buffers.
    scratch: Vec<u8>,
    frame_len_max: usize,
    counters: Counters,
}

impl<Q: Queue> Work<Q> {
    fn open(
        queues: Vec<Q>,
        frame_len_max: usize,
        scope: &Scope,
        commands: Receiver<PendingCommand>,
        woken: UnixDatagram,
    ) -> Result<Self, String> {
        let own = queues.into_iter().enumerate().map(|(idx, queue)| {
            let layout = queue.layout(frame_len_max);
            let buffers = queue.buffers().part("a turn", 2 * BURST_MAX, "received, or to be sent").total();
            let region = Region::heap(layout.region_len(buffers)).map_err(|error| error.to_string())?;
            let pool = Pool::new(Arc::new(region), layout).map_err(|error| error.to_string())?;
            let scope = scope.scope(&format!("queue{idx}"));
            let (rx, tx) = queue.open(&pool, &scope).map_err(|error| error.to_string())?;
            Ok(Own { rx, tx, pool })
        });
        let counters = Counters {
            delivered: scope.counter("delivered", Unit::Frames),
            sent: scope.counter("sent", Unit::Frames),
            sleeps: scope.counter("sleeps", Unit::Events),
            parked_displaced: scope.counter("parked_displaced", Unit::Number),
            drops: scope.drops(),
        };
        Ok(Self {
            own: own.collect::<Result<_, String>>()?,
            clients: Vec::new(),
            first: 0,
            senders: Vec::new(),
            dispatch: Dispatch::new(Instant::now()),
            parked: ParkedFrames::default(),
            pass_parked_at: None,
            commands,
            woken,
            clock: MonotonicClock::start(),
            scratch: vec![0; frame_len_max],
            frame_len_max,
            counters,
        })
    }

    fn run(mut self) {
        let (mut last, mut turns) = (Instant::now(), 0_u32);
        loop {
            let now = Instant::now();
            let Some(was_told) = self.handle_commands() else { return };
            if self.turn(now) || was_told {
                last = now;
            } else if now.duration_since(last) >= SPIN {
                self.sleep();
                last = Instant::now();
            }
            self.dispatch.sweep(now);
            self.pass_parked_again(now);
            self.end_parked(now);
            turns = turns.wrapping_add(1);
            if turns.is_multiple_of(COUNTED_EVERY) {
                self.own.iter_mut().for_each(Own::refresh_counters);
            }
        }
    }

    /// Executes the broker's messages; `None` once the broker has ended.
    fn handle_commands(&mut self) -> Option<bool> {
        let mut was_told = false;
        loop {
            match self.commands.try_recv() {
                Ok((command, done)) => {
                    self.execute(command);
                    let _ = done.send(());
                }
                Err(std::sync::mpsc::TryRecvError::Empty) => return Some(was_told),
                Err(std::sync::mpsc::TryRecvError::Disconnected) => return None,
            }
            was_told = true;
        }
    }

    fn execute(&mut self, command: Command) {
        match command {
            Command::Add { place, user, queue } => {
                if self.clients.len() <= place {
                    self.clients.resize_with(place + 1, || None);
                }
                self.clients[place] = Some(Client { queue: *queue, user, is_receiving: false });
            }
            Command::Remove { place } => {
                self.take_last_frames(place);
                self.dispatch.forget(place, Instant::now());
                self.parked.forget(place);
                if let Some(client) = self.clients.get_mut(place) {
                    *client = None;
                }
            }
            Command::SetReceiving { place, receiving } => {
                if let Some(Some(client)) = self.clients.get_mut(place) {
                    client.is_receiving = receiving;
                }
            }
            Command::AddFlow { place, flow } => {
                self.dispatch.add(place, &flow);
                self.pass_parked(Instant::now());
            }
            Command::RemoveFlows { place, flows } => {
                self.take_last_frames(place);
                self.dispatch.remove(place, &flows, Instant::now());
            }
            Command::SetListening { place, flow, listening } => {
                self.dispatch.set_listening(place, &flow, listening, Instant::now());
                self.pass_parked(Instant::now());
            }
        }
    }

    /// Takes the frames that a client has sent before it gave a flow up, connections that it hands
    /// over among them.
    fn take_last_frames(&mut self, place: ClientIdx) {
        let now = Instant::now();
        for _ in 0..LAST_TURNS {
            let Passed { count, had_room } = self.pass_out(place, SENT_A_TURN, now);
            if count == 0 && had_room {
                return;
            }
            for own in &mut self.own {
                own.tx.ring_doorbell(self.clock.now());
                own.tx.reap();
            }
        }
        self.drop_frames(place);
    }

    /// Drops the frames of a client for which the interface has no room.
    #[cold]
    fn drop_frames(&mut self, place: ClientIdx) {
        let Some(Some(client)) = self.clients.get_mut(place) else { return };
        for _ in 0..LAST_FRAMES {
            match client.queue.take(self.frame_len_max) {
                Taken::Nothing => return,
                Taken::Frame(_) => self.counters.drops.count(ForwardDrop::InterfaceFull),
                Taken::Invalid => self.counters.drops.count(ForwardDrop::ClientInvalid),
                Taken::RestOfInvalid => (),
            }
        }
    }

    /// Receives a connection that a client hands over, or one of its later segments.
    #[cold]
    fn hand_over(&mut self, place: ClientIdx, frame: &[u8], now: Instant) {
        let packet = Handover::of_frame(frame).and_then(|(handover, bytes)| Some((handover, Packet::of_ipv4(bytes)?)));
        let Some((handover, packet)) = packet else { return self.counters.drops.count(ForwardDrop::ClientInvalid) };
        let ends = packet.ends;
        let next = match handover.begins {
            true => self.dispatch.hand_over(place, &ends, now),
            false => self.dispatch.has_handed_over(place, &ends),
        };
        let next = next.filter(|next| self.user_of(*next) == self.user_of(place));
        let displaced = match (next, handover.begins) {
            (Some(next), _) => return self.deliver_own(next, frame),
            (None, true) => self.park(place, ends, frame, now),
            (None, false) => self.parked.add(place, &ends, frame),
        };
        match displaced {
            Some(displaced) => displaced.into_iter().for_each(|parked| {
                self.counters.parked_displaced.inc();
                self.return_parked(parked);
            }),
            None => self.counters.drops.count(ForwardDrop::NoClient),
        }
    }

    /// Makes a connection wait for a client that listens; returns those that give way to it. `None`
    /// if it is not the client's.
    fn park(&mut self, from: ClientIdx, ends: Ends, frame: &[u8], since: Instant) -> Option<Vec<Parked>> {
        let user = self.user_of(from).filter(|_| self.dispatch.may_hand_over(from, &ends))?;
        Some(self.parked.begin(Parked { from, user, ends, since, frames: vec![frame.to_vec()] }))
    }

    /// Passes on the connections that waited for a client that listens, as many as its rings have
    /// room for, and the others later. If another user has the port by now, the connection is lost.
    fn pass_parked(&mut self, now: Instant) {
        self.pass_parked_at = None;
        let Self { parked, dispatch, clients, counters, pass_parked_at, .. } = self;
        let is_over = |parked: &Parked| {
            let Some(next) = dispatch.next_of(parked.from, &parked.ends) else { return false };
            let client = clients.get_mut(next).and_then(Option::as_mut).filter(|client| client.user == parked.user);
            let Some(client) = client else {
                counters.drops.count(ForwardDrop::NoClient);
                return true;
            };
            if !client.is_receiving || !client.queue.has_room_for(&parked.frames) {
                *pass_parked_at = Some(now + PASS_PARKED_INTERVAL);
                return false;
            }
            dispatch.give(parked.from, next, &parked.ends, now);
            for frame in &parked.frames {
                match client.queue.deliver_own(frame) {
                    Ok(()) => counters.delivered.inc(),
                    Err(_) => counters.drops.count(ForwardDrop::NoClient),
                }
            }
            true
        };
        drop(parked.take_if(is_over));
    }

    /// Passes on those for which a client had no room, if it is time.
    fn pass_parked_again(&mut self, now: Instant) {
        if self.pass_parked_at.is_some_and(|at| at <= now) {
            self.pass_parked(now);
        }
    }

    /// Returns connections that no client has accepted to their last client, which no longer
    /// listens and resets them.
    fn end_parked(&mut self, now: Instant) {
        self.parked.take_if(|parked| parked.is_late(now)).into_iter().for_each(|parked| self.return_parked(parked));
    }

    fn return_parked(&mut self, mut parked: Parked) {
        for frame in &mut parked.frames {
            handover::mark_last(frame);
            self.deliver_own(parked.from, frame);
        }
    }

    fn user_of(&self, place: ClientIdx) -> Option<u32> {
        Some(self.clients.get(place)?.as_ref()?.user)
    }

    fn deliver_own(&mut self, place: ClientIdx, frame: &[u8]) {
        let client = self.clients.get_mut(place).and_then(Option::as_mut).filter(|client| client.is_receiving);
        match client.map(|client| client.queue.deliver_own(frame)) {
            Some(Ok(())) => self.counters.delivered.inc(),
            Some(Err(_)) | None => self.counters.drops.count(ForwardDrop::NoClient),
        }
    }

    /// Passes on the waiting frames of both directions; returns whether there were any.
    fn turn(&mut self, now: Instant) -> bool {
        let mut moved = 0;
        let mut burst = Burst::new();
        for idx in 0..self.own.len() {
            let time = self.clock.now();
            let own = &mut self.own[idx];
            own.tx.reap();
            moved += own.rx.receive(&mut burst, BURST_MAX, &own.pool, time);
            for mbuf in burst.drain(..) {
                self.pass_in(&mbuf, now);
                mbuf.free();
            }
        }
        moved += self.pass_all_out(now);
        // One wake-up for each client, for all its frames of the turn.
        self.clients.iter_mut().flatten().for_each(|client| client.queue.publish());
        for own in &mut self.own {
            own.tx.ring_doorbell(self.clock.now());
        }
        moved > 0
    }

    /// Passes a received frame to its clients.
    fn pass_in(&mut self, mbuf: &Mbuf, now: Instant) {
        let Self { clients, dispatch, scratch, counters, .. } = self;
        let frame = if mbuf.is_linear() { mbuf.bytes() } else { gather(mbuf, scratch) };
        let mut deliver = |place: ClientIdx| match clients.get_mut(place) {
            Some(Some(client)) if client.is_receiving => match client.queue.deliver(frame) {
                Ok(()) => counters.delivered.inc(),
                Err(Undelivered::Full) => counters.drops.count(ForwardDrop::ClientFull),
                Err(Undelivered::Address) => counters.drops.count(ForwardDrop::ClientInvalid),
            },
            _ => counters.drops.count(ForwardDrop::NoClient),
        };
        let Some(packet) = Packet::received(frame) else { return counters.drops.count(ForwardDrop::NoClient) };
        match dispatch.of(&packet, now) {
            Recipients::One(place) => deliver(place),
            Recipients::All => dispatch.members(&packet.ends).for_each(deliver),
            Recipients::None => counters.drops.count(ForwardDrop::NoClient),
        }
    }

    /// Sends frames of all clients, a few of each by turns, because the interface may have room for
    /// some of them alone; another one begins in each turn. Returns how many.
    fn pass_all_out(&mut self, now: Instant) -> usize {
        let count = self.clients.len();
        self.first = if self.first + 1 < count { self.first + 1 } else { 0 };
        let mut senders = core::mem::take(&mut self.senders);
        senders.extend((self.first..count).chain(0..self.first));
        let mut moved = 0;
        for _ in 0..SENT_A_TURN / SENT_AT_ONCE {
            senders.retain(|place| {
                let passed = self.pass_out(*place, SENT_AT_ONCE, now).count;
                moved += passed;
                passed == SENT_AT_ONCE
            });
        }
        senders.clear();
        self.senders = senders;
        moved
    }

    /// Sends at most `limit` frames of a client.
    fn pass_out(&mut self, place: ClientIdx, limit: usize, now: Instant) -> Passed {
        let Some(Some(client)) = self.clients.get_mut(place) else { return Passed { count: 0, had_room: true } };
        let queues = self.own.len();
        let own = &mut self.own[place % queues];
        let room = own.tx.room().min(own.pool.available());
        let (mut count, mut handed) = (0, Vec::new());
        while count < room.min(limit) {
            let frame = match client.queue.take(self.frame_len_max) {
                Taken::Nothing => break,
                Taken::Frame(frame) => frame,
                Taken::Invalid => {
                    count += 1;
                    self.counters.drops.count(ForwardDrop::ClientInvalid);
                    continue;
                }
                Taken::RestOfInvalid => {
                    count += 1;
                    continue;
                }
            };
            count += 1;
            if frame.len < ETHERNET_LEN {
                self.counters.drops.count(ForwardDrop::ClientShort);
                continue;
            }
            let bytes = &mut self.scratch[..frame.len];
            client.queue.copy(&frame, bytes);
            match Packet::sent(bytes) {
                Some(packet) => self.dispatch.sent(place, &packet, now),
                None if Handover::of_frame(bytes).is_some() => {
                    let frame = bytes.to_vec();
                    handed.push(frame);
                    continue;
                }
                None => (),
            }
            let posted = copied(&own.pool, bytes)
                .is_some_and(|mbuf| own.tx.post(mbuf, Offload::NONE).map_err(Mbuf::free).is_ok());
            match posted {
                true => self.counters.sent.inc(),
                false => self.counters.drops.count(ForwardDrop::InterfaceFull),
            }
        }
        for frame in handed {
            self.hand_over(place, &frame, now);
        }
        Passed { count, had_room: room > 0 }
    }

    /// The longest sleep now.
    fn poll_timeout(&self) -> Duration {
        match self.own.iter().any(|own| own.tx.in_flight() > 0) {
            true => POLL_TIMEOUT_IN_FLIGHT,
            false if self.pass_parked_at.is_some() => PASS_PARKED_INTERVAL,
            false => POLL_TIMEOUT,
        }
    }

    /// Sleeps until the interface, a client or the broker wakes the thread.
    fn sleep(&mut self) {
        let mut has_frames = false;
        for client in self.clients.iter_mut().flatten() {
            has_frames |= client.queue.arm_wakeup();
        }
        if !has_frames {
            self.counters.sleeps.inc();
            let own = self.own.iter().map(|own| own.rx.wait_fd().unwrap_or(-1));
            let clients = self.clients.iter().flatten().map(|client| client.queue.fd());
            let fds: Vec<RawFd> = [self.woken.as_raw_fd()].into_iter().chain(own).chain(clients).collect();
            // A failed poll only means a turn too early.
            let _: io::Result<_> = sys::wait(&fds, self.poll_timeout());
            while self.woken.recv(&mut [0]).is_ok() {}
        }
        self.clients.iter_mut().flatten().for_each(|client| client.queue.disarm_wakeup(!has_frames));
    }
}

/// What a client has sent.
struct Passed {
    count: usize,
    /// Whether the interface had room for any.
    had_room: bool,
}

impl<Q: Queue> Own<Q> {
    fn refresh_counters(&mut self) {
        self.rx.refresh_counters();
        self.tx.refresh_counters();
    }
}

/// A chain as one slice.
fn gather<'a>(mbuf: &Mbuf, scratch: &'a mut [u8]) -> &'a [u8] {
    let mut len = 0;
    for segment in mbuf.segments() {
        let count = segment.len().min(scratch.len() - len);
        scratch[len..len + count].copy_from_slice(&segment[..count]);
        len += count;
    }
    &scratch[..len]
}

/// A frame in as many buffers as it needs; `None` if the pool has too few.
fn copied(pool: &Pool, frame: &[u8]) -> Option<Mbuf> {
    let room = pool.layout().data_room();
    if frame.len() <= room {
        return pool.alloc_copy(frame);
    }
    let mut chain: Option<Mbuf> = None;
    for part in frame.rchunks(room) {
        let Some(mut mbuf) = pool.alloc_copy(part) else {
            if let Some(rest) = chain {
                rest.free();
            }
            return None;
        };
        if let Some(rest) = chain {
            mbuf.attach(rest);
        }
        chain = Some(mbuf);
    }
    chain
}
