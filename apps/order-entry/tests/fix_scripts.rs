//! The scripts of `tests/scripts/fix`: what a FIX session does, a rule a file, on a virtual clock.
//!
//! ```text
//! session ROLE VERSION KEY=VALUE …   the session, its first line; we are US, the peer is THEM
//! connect                            the connection opens
//! drop                               the connection breaks
//! at 36                              the clock moves there, in seconds, past each deadline
//! wall 3600                          the wall clock is so many seconds ahead of it from now on
//! in 35=A|34=1|98=0|108=30           the peer's message; 8, 9, 49, 52, 56, 10 are added
//! raw 8=FIX.4.4|9=5|                 bytes as they are, | is SOH
//! send B|148=text                    the application sends a message
//! reject B 2 148 3                   it refuses message 2, of type B: field 148, reason (373) 3
//! business B 2 8                     it refuses message 2, of type B, by reason (380) 8
//! hold                               the line takes nothing from now on
//! waits 2                            so many messages wait for it
//! flow                               the line takes all again
//! logout                             the application logs out
//! out 35=A|34=1|98=0|108=30          the next message that was written, without those six
//! event TEXT                         the next event
//! error TEXT                         a call failed
//! ```
//!
//! A time is `<30>`, in seconds since the start. At the end, and before each line that does
//! something, all that was written and happened must have been expected. Each script is played with
//! the peer's bytes whole and one by one.
#![allow(clippy::unwrap_used, reason = "a test may unwrap: a panic is the report")]

use std::fmt::Write as _;
use std::path::Path;

use order_entry::fix::codec::{FieldIndex, Frame, Precision, UtcText, Writer, checksum, frame, parse_utc};
use order_entry::fix::orders::{BusinessReason, Defect, Reason};
use order_entry::fix::session::{Event, MemoryStore, Now, Role, Schedule, Session, SessionConfig, Version};

/// 26 November 2026, 12:00:00 UTC, a Thursday.
const START_NS: u64 = 1_795_694_400_000_000_000;
const SECOND_NS: u64 = 1_000_000_000;

#[test]
fn fix_scripts_hold() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts/fix");
    let mut paths: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no scripts in {}", folder.display());
    let mut failures = String::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        for cut in [usize::MAX, 1] {
            if let Err(failure) = play(&text, cut) {
                writeln!(failures, "{} (cut {cut}): {failure}", path.display()).unwrap();
                break;
            }
        }
    }
    assert!(failures.is_empty(), "\n{failures}");
}

fn play(text: &str, cut: usize) -> Result<(), String> {
    let mut player = None;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        let result = match (&mut player, verb) {
            (player @ None, "session") => {
                *player = Some(Player::new(rest, cut));
                Ok(())
            }
            (None, _) => Err("a script begins with session".into()),
            (Some(player), _) => player.play(verb, rest),
        };
        result.map_err(|failure| format!("line {}: {line}: {failure}", number + 1))?;
    }
    player.ok_or("an empty script")?.expect_nothing()
}

struct Player {
    session: Session<MemoryStore>,
    version: Version,
    now_ns: u64,
    ahead_ns: u64,
    cut: usize,
    is_held: bool,
    written: Vec<u8>,
    events: Vec<String>,
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text} is no number"))
}

fn configure(config: &mut SessionConfig, key: &str, value: &str) {
    match key {
        "heartbeat" => config.heartbeat_s = number(value),
        "reset" => config.reset_on_logon = value == "Y",
        "expected" => config.next_expected = value == "Y",
        "queue" => config.queue_count_max = number(value),
        "request" => config.resend_request_max = number(value),
        "burst" => config.resend_output_len = number(value),
        "fresh" => config.fresh_ns = number::<u64>(value) * SECOND_NS,
        "supported" => config.supported_types = value.split(',').map(str::to_owned).collect(),
        "open" => {
            let (start, end) = value.split_once('-').unwrap();
            config.schedule = Some(Schedule::daily(number::<u32>(start) * 3600, number::<u32>(end) * 3600));
        }
        _ => panic!("{key} is no key"),
    }
}

impl Player {
    fn new(words: &str, cut: usize) -> Self {
        let mut words = words.split_whitespace();
        let role = match words.next() {
            Some("acceptor") => Role::Acceptor,
            Some("initiator") => Role::Initiator,
            other => panic!("{other:?} is no role"),
        };
        let version = match words.next() {
            Some("FIX.4.2") => Version::Fix42,
            Some("FIX.4.4") => Version::Fix44,
            Some("FIXT.1.1") => Version::Fix50Sp2,
            other => panic!("{other:?} is no version"),
        };
        let mut config =
            SessionConfig { role, version, sender: "US".into(), target: "THEM".into(), ..SessionConfig::default() };
        for word in words {
            let (key, value) = word.split_once('=').unwrap();
            configure(&mut config, key, value);
        }
        let session = Session::new(config, MemoryStore::new(1_000, 100_000));
        let (written, events) = (Vec::new(), Vec::new());
        Self { session, version, now_ns: 0, ahead_ns: 0, cut, is_held: false, written, events }
    }

    fn now(&self) -> Now {
        Now { steady_ns: 77 * SECOND_NS + self.now_ns, utc_ns: START_NS + self.now_ns + self.ahead_ns }
    }

    fn play(&mut self, verb: &str, rest: &str) -> Result<(), String> {
        match verb {
            "out" => return self.expect_out(rest),
            "waits" => return self.expect_waiting(number(rest)),
            "event" | "error" => return self.expect_event(verb, rest),
            _ => self.expect_nothing()?,
        }
        match verb {
            "connect" => self.session.connected(self.now()),
            "drop" => self.session.disconnected(),
            "at" => self.move_to((number::<f64>(rest) * SECOND_NS as f64) as u64),
            "wall" => self.ahead_ns = number::<u64>(rest) * SECOND_NS,
            "in" => {
                let message = self.message(rest);
                self.offer(&message);
            }
            "raw" => self.offer(&rest.replace('|', "\x01").into_bytes()),
            "send" => self.send(rest),
            "reject" | "business" => self.refuse(rest),
            "hold" => self.is_held = true,
            "flow" => self.is_held = false,
            "logout" => self.session.logout(self.now(), rest),
            _ => return Err("no such verb".into()),
        }
        self.turn();
        Ok(())
    }

    fn send(&mut self, rest: &str) {
        let (msg_type, fields) = rest.split_once('|').unwrap_or((rest, ""));
        let sent = self.session.send(self.now(), msg_type, |out| {
            for (tag, value) in fields.split('|').filter_map(|field| field.split_once('=')) {
                out.field(number(tag), value.as_bytes());
            }
        });
        if let Err(error) = sent {
            self.events.push(format!("error {error}"));
        }
    }

    /// The application refuses a message: by a field and a reason of the session, or a reason of
    /// its own.
    fn refuse(&mut self, rest: &str) {
        let words: Vec<_> = rest.split_whitespace().collect();
        let (now, msg_type, seq) = (self.now(), words[0].as_bytes(), number(words[1]));
        let refused = match words[2..] {
            [tag, reason] => {
                let defect = Defect { tag: number(tag), reason: Reason::from_wire(number(reason)).unwrap() };
                self.session.reject(now, msg_type, seq, defect)
            }
            [reason] => {
                let reason = BusinessReason::from_wire(number(reason)).unwrap();
                self.session.business_reject(now, msg_type, seq, reason)
            }
            _ => panic!("{rest} is no refusal"),
        };
        if let Err(error) = refused {
            self.events.push(format!("error {error}"));
        }
    }

    fn move_to(&mut self, to_ns: u64) {
        while let Some(deadline_ns) = self.session.deadline_ns() {
            let deadline_ns = deadline_ns.saturating_sub(77 * SECOND_NS);
            if deadline_ns > to_ns {
                break;
            }
            self.now_ns = self.now_ns.max(deadline_ns);
            let before = self.progress();
            self.turn();
            if before == self.progress() {
                break;
            }
        }
        self.now_ns = to_ns;
    }

    /// What grows where something was written or happened.
    fn progress(&self) -> (usize, usize) {
        (self.written.len() + self.session.output().len(), self.events.len())
    }

    fn offer(&mut self, bytes: &[u8]) {
        for piece in bytes.chunks(self.cut.min(bytes.len()).max(1)) {
            let mut rest = piece;
            while !rest.is_empty() {
                let taken = self.session.receive(self.now(), rest);
                rest = &rest[taken..];
                self.turn();
            }
        }
    }

    fn turn(&mut self) {
        loop {
            let now = self.now();
            let event = self.session.poll(now).map(|event| show(&event));
            let is_over = event.is_none() && (self.is_held || self.session.output().is_empty());
            self.events.extend(event);
            if self.is_held {
                if is_over {
                    return;
                }
                continue;
            }
            let len = self.session.output().len();
            self.written.extend_from_slice(self.session.output());
            self.session.consume(len);
            if is_over {
                return;
            }
        }
    }

    /// The peer's message, with what the script leaves out.
    fn message(&self, fields: &str) -> Vec<u8> {
        let fields: Vec<(u32, String)> = fields
            .split('|')
            .map(|field| field.split_once('=').unwrap_or_else(|| panic!("{field} is no field")))
            .map(|(tag, value)| (number(tag), self.value(value)))
            .collect();
        let given = |tag: u32| fields.iter().find(|field| field.0 == tag).map(|field| field.1.clone());
        let mut out = vec![0; 4_096];
        let mut writer = Writer::new(&mut out);
        let defaults = [(49, "THEM".to_owned()), (52, self.value("<>")), (56, "US".to_owned())];
        let mut body = fields.iter().filter(|field| field.0 != 8 && !(field.1 == "-" && field.0 >= 49));
        let kind = body.next().unwrap();
        writer.field(kind.0, kind.1.as_bytes());
        let mut rest: Vec<_> = body.cloned().collect();
        // The header is in front of the body; MsgSeqNum is written first.
        let at = usize::from(rest.first().is_some_and(|field| field.0 == 34));
        for (tag, value) in defaults.into_iter().rev().filter(|(tag, _)| given(*tag).is_none()) {
            rest.insert(at, (tag, value));
        }
        for (tag, value) in rest {
            writer.field(tag, value.as_bytes());
        }
        let begin = given(8).unwrap_or_else(|| self.version.begin_string().to_owned());
        writer.finish(begin.as_bytes()).unwrap().to_vec()
    }

    /// `<30>` is that time, `<>` is now, `<-5>` five seconds ago.
    fn value(&self, text: &str) -> String {
        let Some(inner) = text.strip_prefix('<').and_then(|text| text.strip_suffix('>')) else { return text.into() };
        let offset_s: i64 = inner.parse().unwrap_or(0);
        let is_relative = inner.is_empty() || inner.starts_with(['+', '-']);
        let base_ns = if is_relative { self.now().utc_ns } else { START_NS };
        let utc_ns = base_ns.checked_add_signed(offset_s * SECOND_NS as i64).unwrap();
        String::from_utf8(UtcText::new(Precision::Millis).write(utc_ns).to_vec()).unwrap()
    }

    fn expect_out(&mut self, expected: &str) -> Result<(), String> {
        let Frame::Message { len } = frame(&self.written, 65_535) else { return Err("nothing was written".into()) };
        let bytes: Vec<u8> = self.written.drain(..len).collect();
        let found = self.read(&bytes);
        if found == expected { Ok(()) } else { Err(format!("written was {found}")) }
    }

    fn expect_waiting(&self, expected: usize) -> Result<(), String> {
        let (mut rest, mut found) = (self.session.output(), 0);
        while let Frame::Message { len } = frame(rest, 65_535) {
            (rest, found) = (&rest[len..], found + 1);
        }
        if found == expected { Ok(()) } else { Err(format!("{found} wait")) }
    }

    fn read(&self, bytes: &[u8]) -> String {
        let mut index = FieldIndex::new(512);
        let message = index.parse(bytes).unwrap();
        assert_eq!(checksum(&bytes[..bytes.len() - 7]).to_string().parse(), message_sum(bytes));
        assert_eq!(message.begin_string(), self.version.begin_string().as_bytes());
        assert_eq!((message.get(49), message.get(56)), (Some(&b"US"[..]), Some(&b"THEM"[..])));
        assert!(message.utc(52).unwrap() <= self.now().utc_ns);
        let fields = message.fields().iter().filter(|field| ![8, 9, 49, 52, 56].contains(&field.tag()));
        let fields = fields.map(|field| {
            let value = message.value(*field);
            match parse_utc(value) {
                Some(utc_ns) => format!("{}=<{}>", field.tag(), (utc_ns - START_NS) / SECOND_NS),
                None => format!("{}={}", field.tag(), value.escape_ascii()),
            }
        });
        fields.collect::<Vec<_>>().join("|")
    }

    fn expect_event(&mut self, verb: &str, expected: &str) -> Result<(), String> {
        if self.events.is_empty() {
            return Err("nothing happened".into());
        }
        let found = self.events.remove(0);
        let expected = if verb == "error" { format!("error {expected}") } else { expected.to_owned() };
        if found == expected { Ok(()) } else { Err(format!("it happened: {found}")) }
    }

    fn expect_nothing(&mut self) -> Result<(), String> {
        if let Frame::Message { len } = frame(&self.written, 65_535) {
            return Err(format!("before it was written {}", self.written[..len].escape_ascii()));
        }
        if let Some(event) = self.events.first() {
            return Err(format!("before it happened: {event}"));
        }
        Ok(())
    }
}

fn message_sum(bytes: &[u8]) -> Result<u8, std::num::ParseIntError> {
    String::from_utf8_lossy(&bytes[bytes.len() - 4..bytes.len() - 1]).parse()
}

fn show(event: &Event<'_>) -> String {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    match event {
        Event::LoggedOn => "logged on".into(),
        Event::Reset => "reset".into(),
        Event::Message { message, seq, poss_dup } => {
            let again = if *poss_dup { " again" } else { "" };
            format!("message {} {seq}{again}", text(message.msg_type()))
        }
        Event::Rejected(message) => format!("rejected {}", message.number(45).unwrap()),
        Event::Refused { seq, .. } => format!("refused {seq}"),
        Event::Skipped { from } => format!("skipped from {from}"),
        Event::NotResent { seq } => format!("not resent {seq}"),
        Event::ResendRequested { begin } => format!("resend requested from {begin}"),
        Event::Disconnect(end) => format!("end {end}"),
        _ => "unknown".into(),
    }
}
