//! The thread: commands of its worker to the servers, their answers to the worker.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::Sender;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use market::Capacity;
use market::event::Status;
use wirepath::counters::{Counter, Scope, Unit};
use wirepath::worker::affinity::spawn_helper;

use super::image::{ImageBooks, ImageClient, ImageJob, ImageStep};
use super::link::{Answer, Command, ThreadEnd, WorkerEnd, link};
use super::loop_lines::LoopCounters;
use super::loops::LoopService;
use super::memx::Replays;
use super::plan::ImagePlan;
use super::proxy::Proxy;
use super::udp::{Received, UdpRequests};
use crate::error::Error;
use crate::event::Event;
use crate::feed::SetConfig;
use crate::format::{AllocatedBooks, Protocol};

/// How long the thread sleeps when nothing came: short against a round trip to a server, and some
/// per cent of a core.
const IDLE: Duration = Duration::from_micros(100);
/// Packets that are read from one socket before the next is looked at.
const PACKETS_PER_TURN: usize = 64;

/// The running thread. It ends when the worker's end of the link is dropped.
pub struct RecoveryThread(JoinHandle<()>);

impl RecoveryThread {
    /// The thread, for who watches whether it lives.
    pub fn into_handle(self) -> JoinHandle<()> {
        self.0
    }

    /// Waits for its end. Drop the worker's end first.
    ///
    /// # Errors
    ///
    /// It has panicked.
    pub fn join(self) -> Result<(), Error> {
        self.0
            .join()
            .map_err(|_| Error::Failed("the recovery thread has panicked; this is a bug, please report it".into()))
    }
}

/// The worker's end of the rings, and the thread at the other end.
pub type Started<B> = (WorkerEnd<B>, RecoveryThread);

/// Starts the thread for a worker's sets; `None` where none of them has a server. Sockets are
/// opened before it returns, so that their errors end the start.
///
/// # Errors
///
/// A socket or the thread was refused.
pub fn start<P: Protocol>(
    sets: &[SetConfig],
    capacity: Capacity,
    scope: &Scope,
    events: Sender<Event>,
) -> Result<Option<Started<P::Books>>, Error> {
    if sets.iter().all(|set| set.recovery.is_empty()) {
        return Ok(None);
    }
    let services = sets.iter().map(SetService::open).collect::<Result<Vec<_>, _>>()?;
    let has_images = services.iter().any(|service| service.image.is_some());
    let spare = has_images.then(|| (Box::new(P::Books::allocate(capacity)), Vec::new()));
    let (worker, thread) = link();
    let (jobs, loop_counters) = (VecDeque::new(), LoopCounters::new(scope));
    let answers = scope.scope("answers");
    let other_sender = answers.counter("other_sender", Unit::Datagrams);
    let endless_replays = answers.counter("endless_replays", Unit::Events);
    let service = Service::<P> {
        services,
        link: thread,
        spare,
        jobs,
        current: None,
        other_sender,
        endless_replays,
        loop_counters,
        events,
    };
    // The caller may be pinned, spin and have a real-time policy: on its core this would never run.
    let handle = spawn_helper(thread::Builder::new().name("recovery".into()), move || service.run());
    let handle = handle.map_err(|error| Error::Failed(format!("cannot start the recovery thread: {error}")))?;
    Ok(Some((worker, RecoveryThread(handle))))
}

/// The servers of one set.
struct SetService {
    name: String,
    requests: Option<RequestService>,
    image: Option<ImagePlan>,
    loops: Option<LoopService>,
    /// The last notice, so that a server that stays away is told of once.
    told: String,
}

enum RequestService {
    Udp(UdpRequests),
    Proxy(Box<Proxy>),
    Replays(Box<Replays>),
}

struct Service<P: Protocol> {
    services: Vec<SetService>,
    link: ThreadEnd<P::Books>,
    /// The memory for the next image, when the worker has none of it.
    spare: Option<(Box<P::Books>, Vec<Status>)>,
    jobs: VecDeque<ImageJob>,
    current: Option<Image<P>>,
    /// Packets of a group of answers whose senders are none of its own.
    other_sender: Counter,
    /// Replays that were given up because their server did not go on with them.
    endless_replays: Counter,
    loop_counters: LoopCounters,
    events: Sender<Event>,
}

/// The image that is being received.
struct Image<P: Protocol> {
    job: ImageJob,
    client: ImageClient,
    books: ImageBooks<P>,
    /// When it has taken too long. Time in which it waited for its turn does not count.
    until_ns: u64,
}

/// An image that waits for its turn. A channel asks again only where it has forgotten what it asked
/// for before, as after a restart; so it keeps its turn, and no more wait than there are channels.
fn enqueue(jobs: &mut VecDeque<ImageJob>, job: ImageJob) {
    match jobs.iter_mut().find(|waiting| waiting.channel == job.channel) {
        Some(waiting) => *waiting = job,
        None => jobs.push_back(job),
    }
}

impl SetService {
    fn open(set: &SetConfig) -> Result<Self, Error> {
        let failed = |server, error: io::Error| {
            Error::Failed(format!("channel {}: no socket for the requests to {server}: {error}", set.name))
        };
        let requests = match &set.recovery.requests {
            None => None,
            Some(plan) => Some(match (plan.proxy.clone(), plan.replays.clone()) {
                (None, None) => {
                    let requests = UdpRequests::open(plan, set.format).map_err(|error| failed(plan.server, error))?;
                    RequestService::Udp(requests)
                }
                (Some(proxy), _) => {
                    let proxy = Proxy::open(plan.server, proxy).map_err(|error| failed(plan.server, error))?;
                    RequestService::Proxy(Box::new(proxy))
                }
                (None, Some(token)) => RequestService::Replays(Box::new(Replays::new(plan.server, token, &plan.retry))),
            }),
        };
        let loops = set.recovery.loops.as_ref().map(LoopService::new);
        Ok(Self { name: set.name.clone(), requests, image: set.recovery.image.clone(), loops, told: String::new() })
    }

    /// Tells the user, unless that is what was told last.
    fn tell(&mut self, sentence: String, events: &Sender<Event>) {
        if self.told != sentence {
            let _ = events.send(Event::Notice(format!("channel {}: {sentence}", self.name)));
            self.told = sentence;
        }
    }
}

impl<P: Protocol> Service<P> {
    fn run(mut self) {
        let started = Instant::now();
        while !self.link.commands.is_closed() {
            let now_ns = started.elapsed().as_nanos() as u64;
            let has_worked = self.take_commands(now_ns)
                | self.poll_requests(now_ns)
                | self.poll_image(now_ns)
                | self.poll_loops(now_ns);
            if !has_worked {
                thread::sleep(IDLE);
            }
        }
    }

    fn take_commands(&mut self, now_ns: u64) -> bool {
        let mut has_worked = false;
        while let Some(command) = self.link.commands.pop() {
            has_worked = true;
            match command {
                Command::Request { set, channel, number, session, range } => {
                    let Some(service) = self.services.get_mut(usize::from(set)) else { continue };
                    let sent = match &mut service.requests {
                        Some(RequestService::Udp(udp)) => udp.send(number, session, range),
                        Some(RequestService::Proxy(proxy)) => proxy.send(number, channel, range, now_ns),
                        Some(RequestService::Replays(replays)) => replays.send(channel, session, range),
                        None => Ok(()),
                    };
                    // It is made again after its timeout.
                    if let Err(error) = sent {
                        service.tell(format!("a request for messages was not sent: {error}"), &self.events);
                    }
                }
                Command::Image { set, channel, session, id, covers_from } => {
                    enqueue(&mut self.jobs, ImageJob { set, channel, session, id, covers_from });
                }
                Command::Snapshots { set, are_wanted } => {
                    if let Some(loops) = self.loops_of(set) {
                        loops.want_snapshots(are_wanted);
                    }
                }
                Command::Definitions { set } => {
                    if let Some(loops) = self.loops_of(set) {
                        loops.want_definitions();
                    }
                }
                Command::Spare(books, statuses) => self.spare = Some((books, statuses)),
            }
        }
        has_worked
    }

    fn loops_of(&mut self, set: u16) -> Option<&mut LoopService> {
        self.services.get_mut(usize::from(set))?.loops.as_mut()
    }

    fn poll_loops(&mut self, now_ns: u64) -> bool {
        let Self { services, link, loop_counters, events, .. } = self;
        let mut has_worked = false;
        for (set, service) in (0_u16..).zip(services) {
            let Some(loops) = &mut service.loops else { continue };
            let joined = loops.join(now_ns, loop_counters);
            for _ in 0..PACKETS_PER_TURN {
                if link.answers.is_full() {
                    break;
                }
                let Some(bytes) = loops.next::<P>(now_ns, loop_counters) else { break };
                has_worked = true;
                let _ = link.answers.push(Answer::LoopPacket { set, bytes });
            }
            if let Err(error) = joined {
                service.tell(format!("its loops cannot be joined: {error}"), events);
            }
        }
        has_worked
    }

    fn poll_requests(&mut self, now_ns: u64) -> bool {
        let Self { services, link, events, other_sender, endless_replays, .. } = self;
        let mut has_worked = false;
        for (set, service) in (0_u16..).zip(services) {
            // Where the ring is full, the request's timeout has the same effect.
            let refused = |channel, seq| drop(link.answers.push(Answer::Refused { channel, seq }));
            let outcome = match &mut service.requests {
                None => continue,
                Some(RequestService::Udp(_)) => Ok(()),
                Some(RequestService::Proxy(proxy)) => {
                    proxy.poll(now_ns, refused).map_err(|error| format!("the gap request proxy: {error}"))
                }
                Some(RequestService::Replays(replays)) => {
                    let polled = replays.poll(now_ns, endless_replays, refused);
                    polled.map_err(|error| format!("the server of replays: {error}"))
                }
            };
            if let Err(sentence) = outcome {
                service.tell(sentence, events);
            }
            for _ in 0..PACKETS_PER_TURN {
                if link.answers.is_full() {
                    break;
                }
                let received = match &mut service.requests {
                    Some(RequestService::Udp(udp)) => udp.receive(),
                    Some(RequestService::Proxy(proxy)) => proxy.receive(),
                    Some(RequestService::Replays(replays)) => {
                        replays.next().map_or(Received::Nothing, Received::Packet)
                    }
                    None => Received::Nothing,
                };
                match received {
                    Received::Packet(bytes) => {
                        has_worked = true;
                        let _ = link.answers.push(Answer::Packet { set, bytes });
                    }
                    Received::TooLong => {
                        service.tell("an answer is longer than any packet of the feed, and is dropped".into(), events);
                    }
                    Received::Foreign => other_sender.inc(),
                    Received::Nothing => break,
                }
            }
        }
        has_worked
    }

    fn poll_image(&mut self, now_ns: u64) -> bool {
        let Some(mut image) = self.current.take().or_else(|| self.begin_image(now_ns)) else { return false };
        if self.link.answers.is_full() {
            self.current = Some(image);
            return false;
        }
        let ImageJob { set, channel, id, .. } = image.job;
        match image.client.poll(&mut image.books, now_ns) {
            Ok(ImageStep::More) if now_ns >= image.until_ns => {
                self.spare = Some(image.books.into_memory());
                self.fail(set, channel, id, &io::ErrorKind::TimedOut.into());
                true
            }
            Ok(ImageStep::More) => {
                self.current = Some(image);
                // Whatever came in one look, another may have come; the sleep is short.
                false
            }
            Ok(ImageStep::Done { first_live }) => {
                let (books, statuses) = image.books.into_memory();
                let _ = self.link.answers.push(Answer::Image { channel, id, first_live, books, statuses });
                true
            }
            Err(error) => {
                self.spare = Some(image.books.into_memory());
                self.fail(set, channel, id, &error);
                true
            }
        }
    }

    /// Begins with the oldest image that waits, where there is memory for it.
    fn begin_image(&mut self, now_ns: u64) -> Option<Image<P>> {
        if self.jobs.is_empty() || self.spare.is_none() || self.link.answers.is_full() {
            return None;
        }
        let job = self.jobs.pop_front()?;
        let plan = self.services.get(usize::from(job.set)).and_then(|service| service.image.as_ref())?;
        match ImageClient::connect(plan, &job, now_ns) {
            Ok(client) => {
                let until_ns = now_ns.saturating_add(plan.policy.timeout_ns);
                Some(Image { job, client, books: ImageBooks::new(self.spare.take()?), until_ns })
            }
            Err(error) => {
                self.fail(job.set, job.channel, job.id, &error);
                None
            }
        }
    }

    fn fail(&mut self, set: u16, channel: u32, id: u64, error: &io::Error) {
        let _ = self.link.answers.push(Answer::NoImage { channel, id });
        if let Some(service) = self.services.get_mut(usize::from(set)) {
            let server = service.image.as_ref().map(|image| image.server.to_string()).unwrap_or_default();
            service.tell(format!("no image of the books from {server}, which stay stale: {error}"), &self.events);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, SocketAddrV4, UdpSocket};

    use market::framing::Session;
    use market::framing::iex_tp::{GapRequest, IexHeader};
    use market::{RerequestRange, RetryPolicy};
    use wirepath::counters::Block;

    use super::super::plan::{RecoveryPlan, RequestPlan};
    use super::*;
    use crate::format::{Format, IexDeep};

    /// The queues of a port may each have channels of another format.
    #[test]
    fn request_has_the_form_of_its_channels_format() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let SocketAddr::V4(address) = server.local_addr().unwrap() else { panic!("an IPv4 address") };
        let requests = RequestPlan {
            server: address,
            bind: SocketAddrV4::new([127, 0, 0, 1].into(), 0),
            retry: RetryPolicy::default(),
            hole_max: RequestPlan::HOLE_MAX,
            proxy: None,
            replays: None,
        };
        let set = SetConfig {
            name: "d".into(),
            format: Format::IexDeep,
            queue: Some(1),
            numbers: Vec::new(),
            lines: Vec::new(),
            recovery: RecoveryPlan { requests: Some(requests), ..RecoveryPlan::default() },
        };
        let (scope, (events, _told)) = (Block::heap().scope("feed"), std::sync::mpsc::channel());
        let started = start::<IexDeep>(&[set], Capacity::default(), &scope, events).unwrap();
        let (mut worker, thread) = started.expect("there is a server");
        let (session, range) = (Session(77), RerequestRange { seq: 9, count: 2 });
        let _ = worker.commands.push(Command::Request { set: 0, channel: 0, number: 4, session, range });
        let mut bytes = [0; 64];
        let len = server.recv(&mut bytes).unwrap();
        let expected = GapRequest { protocol: IexHeader::DEEP_1_0, channel: 4, session: 77, first: 9, last: 10 };
        assert_eq!(GapRequest::parse(&bytes[..len]), Ok(expected));
        drop(worker);
        thread.join().unwrap();
    }

    #[test]
    fn channel_that_asks_for_another_image_keeps_its_turn() {
        let mut jobs = VecDeque::new();
        for (channel, id) in [(0, 1), (1, 1), (0, 2)] {
            enqueue(&mut jobs, ImageJob { set: 0, channel, session: Session::default(), id, covers_from: id });
        }
        let waiting: Vec<_> = jobs.iter().map(|job| (job.channel, job.id, job.covers_from)).collect();
        assert_eq!(waiting, [(0, 2, 2), (1, 1, 1)]);
    }
}
