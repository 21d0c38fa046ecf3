//! Two FIX sessions over connections that break anywhere: each message arrives once and in order.
//! And arbitrary bytes never cause a panic.
#![allow(clippy::unwrap_used, reason = "a test may unwrap: a panic is the report")]

use order_entry::fix::session::{End, Event, MemoryStore, Now, Role, Session, SessionConfig, Version};
use proptest::prelude::*;

const SECOND_NS: u64 = 1_000_000_000;

struct Side {
    session: Session<MemoryStore>,
    sent: Vec<Vec<u8>>,
    received: Vec<Vec<u8>>,
}

impl Side {
    fn new(role: Role, (sender, target): (&str, &str), config: &SessionConfig) -> Self {
        let (sender, target) = (sender.into(), target.into());
        let config = SessionConfig { role, sender, target, ..config.clone() };
        let session = Session::new(config, MemoryStore::new(4_000, 1_000_000));
        Self { session, sent: Vec::new(), received: Vec::new() }
    }

    fn send(&mut self, now: Now) {
        let text = format!("text {}", self.sent.len()).into_bytes();
        if self
            .session
            .send(now, "B", |out| {
                out.field(148, &text).number(33, 0);
            })
            .is_ok()
        {
            self.sent.push(text);
        }
    }

    /// Polls, and returns why the connection ends where it does.
    fn turn(&mut self, now: Now) -> Option<End> {
        while let Some(event) = self.session.poll(now) {
            match event {
                Event::Message { message, .. } => self.received.push(message.get(148).unwrap().to_vec()),
                Event::Disconnect(end) => return Some(end),
                _ => {}
            }
        }
        None
    }
}

/// Up to `len` bytes from one side to the other. Returns why the connection ends where it does.
fn carry(from: &mut Side, to: &mut Side, len: usize, now: Now) -> Option<End> {
    let bytes = from.session.output();
    let bytes = bytes[..len.min(bytes.len())].to_vec();
    from.session.consume(bytes.len());
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        let taken = to.session.receive(now, rest);
        rest = &rest[taken..];
        if let Some(end) = to.turn(now) {
            return Some(end);
        }
    }
    from.turn(now).or_else(|| to.turn(now))
}

#[derive(Clone, Debug)]
enum Act {
    SendUp,
    SendDown,
    CarryUp(usize),
    CarryDown(usize),
    Break,
    Wait(u64),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let len = || prop_oneof![1_usize..200, Just(100_000)];
    let act = prop_oneof![
        4 => Just(Act::SendUp),
        4 => Just(Act::SendDown),
        6 => len().prop_map(Act::CarryUp),
        6 => len().prop_map(Act::CarryDown),
        1 => Just(Act::Break),
        1 => (0_u64..40).prop_map(Act::Wait),
    ];
    proptest::collection::vec(act, 0..120)
}

fn config() -> impl Strategy<Value = SessionConfig> {
    let version = prop_oneof![Just(Version::Fix42), Just(Version::Fix44), Just(Version::Fix50Sp2)];
    (version, any::<bool>(), 1_usize..6, 0_u64..4, 1_usize..2_000).prop_map(
        |(version, next_expected, queue_count_max, resend_request_max, resend_output_len)| SessionConfig {
            version,
            next_expected,
            queue_count_max,
            resend_request_max,
            resend_output_len,
            message_len_max: 512,
            queue_len_max: 2_000,
            output_len_max: 100_000,
            // A message that is on its way for minutes is refused by its SendingTime, as it must
            // be.
            latency_ns_max: u64::MAX,
            ..SessionConfig::default()
        },
    )
}

struct Pair {
    up: Side,
    down: Side,
    now: Now,
    is_open: bool,
}

impl Pair {
    fn open(&mut self) {
        if !self.is_open {
            self.down.session.connected(self.now);
            self.up.session.connected(self.now);
            self.is_open = true;
        }
    }

    fn close(&mut self) {
        self.up.session.disconnected();
        self.down.session.disconnected();
        self.is_open = false;
    }

    fn act(&mut self, act: &Act) -> Result<(), TestCaseError> {
        self.open();
        let now = self.now;
        let end = match act {
            Act::SendUp => {
                self.up.send(now);
                None
            }
            Act::SendDown => {
                self.down.send(now);
                None
            }
            Act::CarryUp(len) => carry(&mut self.down, &mut self.up, *len, now),
            Act::CarryDown(len) => carry(&mut self.up, &mut self.down, *len, now),
            Act::Break => {
                self.close();
                None
            }
            Act::Wait(seconds) => {
                self.now.steady_ns += seconds * SECOND_NS;
                self.now.utc_ns += seconds * SECOND_NS;
                let now = self.now;
                self.up.turn(now).or_else(|| self.down.turn(now))
            }
        };
        if let Some(end) = end {
            // Bytes that wait too long are late, and a connection that is not served is silent.
            prop_assert!(matches!(end, End::Silent | End::LogonTimeout), "{}", end);
            self.close();
        }
        Ok(())
    }

    /// A connection that does not break, until nothing is on its way.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        self.close();
        self.open();
        for _ in 0..200 {
            for _ in 0..50 {
                let (up, down, now) = (&mut self.up, &mut self.down, self.now);
                let end = carry(up, down, usize::MAX, now).or_else(|| carry(down, up, usize::MAX, now));
                prop_assert_eq!(end, None);
            }
            if self.up.received == self.down.sent && self.down.received == self.up.sent {
                break;
            }
            self.now.steady_ns += SECOND_NS;
            self.now.utc_ns += SECOND_NS;
        }
        Ok(())
    }
}

proptest! {
    #[test]
    fn each_message_arrives_once_and_in_order(config in config(), acts in acts()) {
        let now = Now { steady_ns: 0, utc_ns: 1_795_694_400 * SECOND_NS };
        let up = Side::new(Role::Initiator, ("UP", "DOWN"), &config);
        let down = Side::new(Role::Acceptor, ("DOWN", "UP"), &config);
        let mut pair = Pair { up, down, now, is_open: false };
        for act in &acts {
            pair.act(act)?;
        }
        pair.settle()?;
        prop_assert_eq!(&pair.up.received, &pair.down.sent);
        prop_assert_eq!(&pair.down.received, &pair.up.sent);
    }

    #[test]
    fn no_bytes_panic(
        is_acceptor in any::<bool>(),
        pieces in proptest::collection::vec(
            prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..40),
                (0_u32..12, proptest::collection::vec((0_u32..160, "[0-9YN]{0,3}"), 0..8)).prop_map(|(kind, fields)| body(kind, &fields)),
            ],
            0..30,
        ),
    ) {
        let role = if is_acceptor { Role::Acceptor } else { Role::Initiator };
        let mut side = Side::new(role, ("US", "THEM"), &SessionConfig { message_len_max: 256, ..SessionConfig::default() });
        let now = Now { steady_ns: 0, utc_ns: 1_795_694_400 * SECOND_NS };
        side.session.connected(now);
        for piece in pieces.iter().chain([&body(10, &[(98, "0".into()), (108, "30".into())])]) {
            let mut rest = &piece[..];
            while !rest.is_empty() {
                let taken = side.session.receive(now, rest);
                prop_assert!(taken > 0);
                rest = &rest[taken..];
                while let Some(event) = side.session.poll(now) {
                    drop(format!("{event:?}"));
                }
            }
            if side.session.deadline_ns().is_none() {
                side.session.connected(now);
            }
            let len = side.session.output().len();
            side.session.consume(len);
        }
    }
}

/// A message of the session's peer: of a type of the session, or of the application, with these
/// fields.
fn body(kind: u32, fields: &[(u32, String)]) -> Vec<u8> {
    let kinds: [&[u8]; 12] = [b"0", b"1", b"2", b"3", b"4", b"5", b"A", b"A", b"B", b"D", b"A", b"ZZ"];
    let mut out = [0; 1_024];
    let mut writer = order_entry::fix::codec::Writer::new(&mut out);
    writer.field(35, kinds[kind as usize]).number(34, u64::from(kind % 4 + 1));
    writer.field(49, b"THEM").field(52, b"20261126-12:00:00.000").field(56, b"US");
    for (tag, value) in fields {
        writer.field(*tag, value.as_bytes());
    }
    writer.finish(b"FIX.4.4").unwrap().to_vec()
}
