use proptest::prelude::*;
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::Text;
use crate::session::{Fate, Output, Recovery, Resend};

fn key() -> Key {
    Key::from_base64url("c2VjcmV0LWtleV8xMjM").unwrap()
}

fn config() -> ClientConfig {
    ClientConfig::new(Identity {
        session: Text::new("ABC").unwrap(),
        firm: Text::zero_padded("FIRM").unwrap(),
        access_key: Text::zero_padded("ACCESS").unwrap(),
        key: key(),
        system: Text::zero_padded("wirepath").unwrap(),
        system_version: Text::zero_padded("1.0").unwrap(),
        system_vendor: Text::zero_padded("wirepath").unwrap(),
    })
}

/// Both ends of a line, and what each has received.
struct Line {
    client: Client,
    server: Server,
    up: Vec<u8>,
    down: Vec<u8>,
}

impl Line {
    /// A session that is established.
    fn established() -> Self {
        let mut line = Self {
            client: Client::new(config()),
            server: Server::new(ServerConfig::default()),
            up: Vec::new(),
            down: Vec::new(),
        };
        line.connect();
        line.up(|client, output| client.negotiate(0, 1_000, 77, output));
        line.down(|server, output| server.accept_negotiation(output));
        line.establish();
        line
    }

    fn connect(&mut self) {
        self.server.connected(0);
        self.up.clear();
        self.down.clear();
    }

    fn establish(&mut self) {
        self.up(|client, output| client.establish(0, 2_000, output));
        self.down(|server, output| server.accept_establishment(0, output));
    }

    /// A call of the client, and the server's events about it.
    fn up(&mut self, call: impl FnOnce(&mut Client, &mut Output<'_>) -> Result<(), IlinkError>) -> Vec<String> {
        let mut buffer = [0; 2_000];
        let mut output = Output::new(&mut buffer);
        call(&mut self.client, &mut output).unwrap();
        self.up.extend(output.written());
        let mut events = Vec::new();
        let mut input = output.written();
        while let Some(event) = self.server.receive(0, &mut input).unwrap() {
            events.push(format!("{event:?}"));
        }
        events
    }

    /// A call of the server, and the client's events about it.
    fn down(&mut self, call: impl FnOnce(&mut Server, &mut Output<'_>) -> Result<(), IlinkError>) -> Vec<String> {
        let mut buffer = [0; 2_000];
        let mut output = Output::new(&mut buffer);
        call(&mut self.server, &mut output).unwrap();
        self.down.extend(output.written());
        let mut events = Vec::new();
        let mut input = output.written();
        while let Some(event) = self.client.receive(0, &mut input).unwrap() {
            events.push(format!("{event:?}"));
        }
        events
    }
}

fn cancel() -> CancelOrder {
    CancelOrder::read_from_bytes(&[b' '; CancelOrder::LEN]).unwrap()
}

fn report() -> OrderAccepted {
    OrderAccepted::read_from_bytes(&[b' '; OrderAccepted::LEN]).unwrap()
}

#[test]
fn key_is_base64url() {
    let text = |text| Key::from_base64url(text).map(|key| format!("{key:?}"));
    assert!(text("c2VjcmV0LWtleV8xMjM=").is_some() && text("-_-_").is_some());
    assert!(text("a+b/").is_none() && text("a").is_none());
}

/// The values are those of `printf '…' | openssl dgst -sha256 -mac HMAC -macopt
/// key:secret-key_123`.
#[test]
fn signatures_are_hmac_sha256_of_the_lines() {
    let negotiate = Negotiate {
        signature: [0; 32],
        access_key: Text::zero_padded("ACCESS").unwrap(),
        uuid: 77.into(),
        at_ns: 1_000.into(),
        session: Text(*b"ABC"),
        firm: Text::zero_padded("FIRM").unwrap(),
    };
    let hex = |signature: Option<[u8; 32]>| signature.unwrap().map(|byte| format!("{byte:02x}")).concat();
    assert_eq!(
        hex(negotiate_signature(&key(), &negotiate)),
        "d88bb521e94f5022b1cf9b731a15864245df053b191e071c3783188c58ec707d"
    );
    let establish = Establish {
        signature: [0; 32],
        access_key: negotiate.access_key,
        system: Text::zero_padded("wirepath").unwrap(),
        system_version: Text::zero_padded("1.0").unwrap(),
        system_vendor: Text::zero_padded("wirepath").unwrap(),
        uuid: 77.into(),
        at_ns: 2_000.into(),
        next_seq: 1.into(),
        session: Text(*b"ABC"),
        firm: negotiate.firm,
        keep_alive_ms: 10_000.into(),
    };
    assert_eq!(
        hex(establish_signature(&key(), &establish)),
        "3530784664127d94dc587456a4264ae7cde41a711981dbea517d0592d66de05c"
    );
}

#[test]
fn session_is_negotiated_and_established_with_signatures() {
    let mut line = Line::established();
    assert!(line.client.is_established());
    let negotiate = Frame::parse(&line.up[..90]).unwrap();
    assert_eq!((negotiate.template, negotiate.tail), (500, &[0, 0][..]));
    let message: &Negotiate = negotiate.view().unwrap();
    assert_eq!(Some(message.signature), negotiate_signature(&key(), message));
    let message: &Establish = Frame::parse(&line.up[90..]).unwrap().view().unwrap();
    assert_eq!(Some(message.signature), establish_signature(&key(), message));
    assert_eq!(
        line.client.negotiate(0, 0, 77, &mut Output::new(&mut [0; 90])),
        Err(IlinkError::UuidNotRising { last: 77, found: 77 })
    );
}

#[test]
fn numbers_are_written_into_the_blocks() {
    let mut line = Line::established();
    let events =
        line.up(|client, output| client.send(0, CancelOrder::KIND, cancel().as_bytes(), &[], output).map(drop));
    assert!(events[0].starts_with("Message { number: 1"), "{events:?}");
    let events = line.down(|server, output| {
        server.send(0, OrderAccepted::KIND, report().as_bytes(), &[], output)?;
        server.send(0, OrderAccepted::KIND, report().as_bytes(), &[], output).map(drop)
    });
    assert!(events[0].starts_with("Message { number: 1") && events[1].starts_with("Message { number: 2"), "{events:?}");
    assert_eq!((line.client.numbers(), line.server.numbers()), ((77, 2, 3), (77, 3, 2)));
}

#[test]
fn missed_fills_are_told_at_login_and_asked_for() {
    let mut line = Line::established();
    assert_eq!(line.server.number_unsent(), Ok(1));
    assert_eq!(line.server.number_unsent(), Ok(2));
    line.connect();
    line.up(|client, output| client.establish(0, 3_000, output));
    let events = line.down(|server, output| server.accept_establishment(0, output));
    assert_eq!(
        events,
        ["Established { missed: Some(Missing { from: 1, count: 2 }), missed_before: None, previous: (77, 2) }"]
    );
    let missing = Missing { from: 1, count: 2 };
    line.up(|client, output| client.request_retransmit(0, 4_000, missing, None, output));
    let again = line.client.request_retransmit(0, 0, missing, None, &mut Output::new(&mut [0; 90]));
    assert_eq!(again, Err(IlinkError::Retransmit));
    let request = RetransmitRequest {
        uuid: 77.into(),
        last_uuid: NO_UUID.into(),
        at_ns: 4_000.into(),
        from_seq: 1.into(),
        count: 2.into(),
    };
    let events = line.down(|server, output| {
        server.begin_retransmission(0, &request, output)?;
        server.send_again(0, 1, OrderAccepted::KIND, report().as_bytes(), &[], output)?;
        server.send(0, OrderAccepted::KIND, report().as_bytes(), &[], output)?;
        server.send_again(0, 2, OrderAccepted::KIND, report().as_bytes(), &[], output)
    });
    let flags: Vec<_> = events[1..]
        .iter()
        .map(|event| (event.contains("is_retransmitted: true"), event.contains("missing: None")))
        .collect();
    assert_eq!(flags, [(true, true), (false, true), (true, true)]);
    // The request is done.
    line.up(|client, output| client.request_retransmit(0, 5_000, missing, None, output));
}

#[test]
fn what_the_venue_did_not_see_is_sent_again_or_skipped() {
    let mut line = Line::established();
    let mut lost = [0; 500];
    let mut lost = Output::new(&mut lost);
    for _ in 0..3 {
        line.client.send(0, CancelOrder::KIND, cancel().as_bytes(), &[], &mut lost).unwrap();
    }
    line.client.disconnected();
    assert_eq!(line.client.fate(2), Fate::Unknown { resend: None });
    line.connect();
    line.up(|client, output| client.establish(0, 3_000, output));
    let events = line.down(|server, output| server.accept_establishment(0, output));
    assert_eq!(events[1], "NotApplied(Missing { from: 1, count: 3 })");
    assert_eq!(line.client.fate(2), Fate::NotProcessed { resend: Resend::SameNumber });
    let events = line.up(|client, output| client.send_again(0, 2, CancelOrder::KIND, cancel().as_bytes(), &[], output));
    assert!(events[0].starts_with("Message { number: 2") && events[0].contains("is_sent_again: true"), "{events:?}");
    let number = 4;
    let refused = line.client.send_again(0, number, 516, cancel().as_bytes(), &[], &mut Output::new(&mut [0; 200]));
    assert_eq!(refused, Err(IlinkError::NotMissing { number }));
    assert_eq!(line.up(|client, output| client.skip(0, output)), ["KeepAlive { is_lapsed: false }"]);
}

impl Line {
    fn send_again(&mut self, number: u32) -> Vec<String> {
        self.up(|client, output| client.send_again(0, number, CancelOrder::KIND, cancel().as_bytes(), &[], output))
    }

    fn is_refused_again(&mut self, number: u32) -> bool {
        let mut buffer = [0; 200];
        let mut output = Output::new(&mut buffer);
        let again = self.client.send_again(0, number, CancelOrder::KIND, cancel().as_bytes(), &[], &mut output);
        again == Err(IlinkError::NotMissing { number })
    }

    /// A session of which `count` messages of the client were lost with their line, which is made
    /// again.
    fn behind_lost_messages(count: u32) -> (Self, Vec<String>) {
        let mut line = Self::established();
        let events = line.lose(count);
        (line, events)
    }

    fn lose(&mut self, count: u32) -> Vec<String> {
        for _ in 0..count {
            let mut lost = [0; 200];
            let mut lost = Output::new(&mut lost);
            self.client.send(0, CancelOrder::KIND, cancel().as_bytes(), &[], &mut lost).unwrap();
        }
        self.again()
    }

    /// The line breaks, and is made again.
    fn again(&mut self) -> Vec<String> {
        self.client.disconnected();
        self.connect();
        self.up(|client, output| client.establish(0, 3_000, output));
        self.down(|server, output| server.accept_establishment(0, output))
    }

    /// The venue says something, so that it is known to have told its holes.
    fn speak(&mut self) {
        self.down(|server, output| server.send(0, OrderAccepted::KIND, report().as_bytes(), &[], output).map(drop));
    }
}

#[test]
fn message_is_sent_again_and_taken_once() {
    let (mut line, _) = Line::behind_lost_messages(3);
    for number in 1..4 {
        assert!(line.send_again(number)[0].contains("is_sent_again: true"));
        assert!(line.is_refused_again(number));
    }
    // The venue has taken all three, and the line breaks before it answers.
    assert_eq!(line.again().len(), 1, "nothing is missing");
    line.speak();
    assert_eq!(line.client.fate(2), Fate::Unknown { resend: None });
    assert!(line.is_refused_again(2));
    let mut buffer = [0; 200];
    let mut output = Output::new(&mut buffer);
    let block = emit(CancelOrder::KIND, cancel().as_bytes(), &[], &mut output).unwrap();
    block[17..21].copy_from_slice(&2u32.to_le_bytes());
    let twice = line.server.receive(0, &mut output.written());
    assert_eq!(twice, Err(IlinkError::LowNumber { expected: 4, found: 2 }));
}

#[test]
fn message_that_was_sent_again_in_vain_is_missing_once_more() {
    let (mut line, _) = Line::behind_lost_messages(2);
    let mut lost = [0; 200];
    let mut lost = Output::new(&mut lost);
    line.client.send_again(0, 1, CancelOrder::KIND, cancel().as_bytes(), &[], &mut lost).unwrap();
    assert_eq!(line.again()[1], "NotApplied(Missing { from: 1, count: 2 })");
    assert_eq!(line.client.fate(1), Fate::NotProcessed { resend: Resend::SameNumber });
    assert!(line.send_again(1)[0].contains("is_sent_again: true"));
}

#[test]
fn hole_that_is_still_open_is_told_with_the_new_one() {
    let (mut line, events) = Line::behind_lost_messages(3);
    assert_eq!(events[1], "NotApplied(Missing { from: 1, count: 3 })");
    line.send_again(1);
    let events = line.lose(2);
    assert_eq!(events[1..], ["NotApplied(Missing { from: 2, count: 4 })"]);
    line.speak();
    assert_eq!(line.client.fate(2), Fate::NotProcessed { resend: Resend::SameNumber });
    assert_eq!(line.client.fate(1), Fate::Unknown { resend: None });
    // Two holes that do not touch are two messages.
    line.send_again(3);
    assert_eq!(
        line.again()[1..],
        ["NotApplied(Missing { from: 2, count: 1 })", "NotApplied(Missing { from: 4, count: 2 })"]
    );
}

#[test]
fn what_is_skipped_gets_a_new_number() {
    let (mut line, _) = Line::behind_lost_messages(2);
    line.up(|client, output| client.skip(0, output));
    line.speak();
    assert_eq!(line.client.fate(2), Fate::NotProcessed { resend: Resend::NewNumber });
    assert!(line.is_refused_again(2));
}

#[test]
fn keep_alive_skips_what_was_not_sent_again() {
    let (mut line, _) = Line::behind_lost_messages(2);
    let events = line.up(|client, output| client.tick(10_000_000_000, 0, output));
    assert_eq!(events, ["KeepAlive { is_lapsed: true }"]);
    assert_eq!(line.client.fate(2), Fate::NotProcessed { resend: Resend::NewNumber });
    assert!(line.is_refused_again(2));
}

/// A client that has asked to negotiate session 78 behind 77, in which 100 messages had come.
fn negotiating() -> Client {
    let mut client = Client::new(config());
    client.resume(77, 50, 101);
    client.negotiate(0, 1_000, 78, &mut Output::new(&mut [0; 200])).unwrap();
    client
}

fn answered(client: &mut Client, template: u16, block: &[u8]) -> String {
    let mut buffer = [0; 300];
    let mut output = Output::new(&mut buffer);
    emit(template, block, &[0, 0], &mut output).unwrap();
    format!("{:?}", client.receive(0, &mut output.written()).unwrap().unwrap())
}

#[test]
fn session_that_is_refused_leaves_the_one_before() {
    let mut client = negotiating();
    assert_eq!(client.numbers(), (77, 50, 101));
    let refusal = NegotiationReject {
        reason: Text([0; 48]),
        uuid: 78.into(),
        at_ns: 1_000.into(),
        error: 1.into(),
        fault_tolerance: 255,
        split: 255,
        environment: 255,
    };
    assert!(answered(&mut client, NegotiationReject::KIND, refusal.as_bytes()).starts_with("Refused"));
    assert_eq!(client.numbers(), (77, 50, 101));
    client.establish(0, 2_000, &mut Output::new(&mut [0; 200])).unwrap();
}

/// The client of a session 78 whose acknowledgment tells 120 messages of 77.
fn behind_a_new_session() -> (Client, String) {
    let mut client = negotiating();
    let accepted = NegotiationResponse {
        uuid: 78.into(),
        at_ns: 1_000.into(),
        key_expires_days: 0.into(),
        fault_tolerance: 1,
        split: 255,
        previous_seq: 120.into(),
        previous_uuid: 77.into(),
        environment: 255,
    };
    answered(&mut client, NegotiationResponse::KIND, accepted.as_bytes());
    assert_eq!(client.numbers(), (78, 1, 1));
    client.establish(0, 2_000, &mut Output::new(&mut [0; 200])).unwrap();
    let established = EstablishmentAck {
        uuid: 78.into(),
        at_ns: 2_000.into(),
        next_seq: 1.into(),
        previous_seq: 120.into(),
        previous_uuid: 77.into(),
        keep_alive_ms: 10_000.into(),
        key_expires_days: 0.into(),
        fault_tolerance: 1,
        split: 255,
        environment: 255,
    };
    let event = answered(&mut client, EstablishmentAck::KIND, established.as_bytes());
    (client, event)
}

#[test]
fn fills_of_the_session_before_are_missed() {
    let (_, event) = behind_a_new_session();
    let missed = "missed: None, missed_before: Some((77, Missing { from: 101, count: 20 })), previous: (77, 120)";
    assert_eq!(event, format!("Established {{ {missed} }}"));
}

fn numbered_report(uuid: u64, number: u32) -> Vec<u8> {
    let mut block = report().as_bytes().to_vec();
    block[..4].copy_from_slice(&number.to_le_bytes());
    block[4..12].copy_from_slice(&uuid.to_le_bytes());
    block
}

#[test]
fn live_message_is_no_answer_to_a_request_for_another_session() {
    let (mut client, _) = behind_a_new_session();
    let missing = Missing { from: 1, count: 3 };
    client.request_retransmit(0, 3_000, missing, Some(77), &mut Output::new(&mut [0; 90])).unwrap();
    let live = answered(&mut client, OrderAccepted::KIND, &numbered_report(78, 1));
    assert!(live.contains("missing: None, is_retransmitted: false"), "{live}");
    assert_eq!(client.numbers(), (78, 1, 2));
    for number in 1..4 {
        let again = answered(&mut client, OrderAccepted::KIND, &numbered_report(77, number));
        assert!(again.contains("is_retransmitted: true"), "{again}");
    }
}

#[test]
fn messages_of_the_session_before_are_sent_again_under_its_identifier() {
    let mut line = Line::established();
    let request = RetransmitRequest {
        uuid: 77.into(),
        last_uuid: 70.into(),
        at_ns: 4_000.into(),
        from_seq: 1.into(),
        count: 1.into(),
    };
    let missing = Missing { from: 1, count: 1 };
    line.up(|client, output| client.request_retransmit(0, 4_000, missing, Some(70), output));
    let events = line.down(|server, output| {
        server.begin_retransmission(0, &request, output)?;
        server.send_again(0, 1, OrderAccepted::KIND, report().as_bytes(), &[], output)
    });
    assert!(events[1].contains("is_retransmitted: true"), "{events:?}");
}

#[test]
fn messages_that_do_not_come_again_are_asked_for_once_more_and_then_end_the_session() {
    let mut line = Line::established();
    let (second, missing) = (1_000_000_000, Missing { from: 5, count: 3 });
    line.up(|client, output| client.request_retransmit(0, 4_000, missing, None, output));
    let mut asked = 0;
    for now in 1..100 {
        // The venue lives, and says other things.
        let mut buffer = [0; 300];
        let mut output = Output::new(&mut buffer);
        line.server.send(0, OrderAccepted::KIND, report().as_bytes(), &[], &mut output).unwrap();
        line.client.receive(now * second, &mut output.written()).unwrap().unwrap();
        let mut output = Output::new(&mut buffer);
        match line.client.tick(now * second, 0, &mut output) {
            Ok(()) => asked += usize::from(output.len() == 42),
            Err(error) => {
                assert_eq!(error, IlinkError::RetransmitTimeout { waited_ns: 10 * second });
                assert_eq!((asked, now), (1, 20));
                return;
            }
        }
    }
    panic!("the request has no end");
}

#[test]
fn termination_without_an_answer_ends_in_seconds() {
    let (second, mut buffer) = (1_000_000_000, [0; 200]);
    let mut line = Line::established();
    line.up(|client, output| client.terminate(0, 0, 0, output));
    assert_eq!(line.client.deadline_ns(), Some(2 * second));
    let end = line.client.tick(2 * second, 0, &mut Output::new(&mut buffer));
    assert_eq!(end, Err(IlinkError::TerminateTimeout { waited_ns: 2 * second }));

    let mut line = Line::established();
    line.down(|server, output| server.terminate(0, 0, output));
    assert_eq!(line.server.deadline_ns(), Some(2 * second));
    let end = line.server.tick(2 * second, &mut Output::new(&mut buffer));
    assert_eq!(end, Err(IlinkError::TerminateTimeout { waited_ns: 2 * second }));
}

#[test]
fn message_before_the_break_was_processed_where_the_venue_told_of_no_hole() {
    let mut line = Line::established();
    line.up(|client, output| client.send(0, CancelOrder::KIND, cancel().as_bytes(), &[], output).map(drop));
    line.client.disconnected();
    line.connect();
    line.up(|client, output| client.establish(0, 3_000, output));
    line.down(|server, output| server.accept_establishment(0, output));
    assert_eq!(line.client.fate(1), Fate::Unknown { resend: None });
    line.down(|server, output| server.send(0, OrderAccepted::KIND, report().as_bytes(), &[], output).map(drop));
    assert_eq!(line.client.fate(1), Fate::Processed);
}

#[test]
fn hole_in_live_messages_is_told_with_the_message_behind_it() {
    let mut line = Line::established();
    line.server.number_unsent().unwrap();
    let events =
        line.down(|server, output| server.send(0, OrderAccepted::KIND, report().as_bytes(), &[], output).map(drop));
    assert!(events[0].contains("missing: Some(Missing { from: 1, count: 1 })"), "{events:?}");
}

#[test]
fn low_numbers_end_the_session_with_their_rule() {
    let mut line = Line::established();
    line.up(|client, output| client.send(0, CancelOrder::KIND, cancel().as_bytes(), &[], output).map(drop));
    let first = line.up[90 + 146..].to_vec();
    assert_eq!(line.server.receive(0, &mut &first[..]), Err(IlinkError::LowNumber { expected: 2, found: 1 }));
    assert_eq!(IlinkError::LowNumber { expected: 2, found: 1 }.to_string(), "numbers go up: 2 should come, not 1");
}

#[test]
fn broken_rule_has_its_code_in_the_termination() {
    let code = |error: IlinkError| error.terminate_reason().name().unwrap();
    assert_eq!(code(IlinkError::LowNumber { expected: 2, found: 1 }), "invalid MsgSeqNum");
    assert_eq!(code(IlinkError::LowNextNumber { expected: 2, found: 1 }), "invalid NextSeqNo");
    assert_eq!(code(IlinkError::Uuid { expected: 2, found: 1 }), "invalid UUID");
    assert_eq!(code(IlinkError::Echo { template: 509 }), "invalid timestamp");
    assert_eq!(code(IlinkError::Encoding { found: 0 }), "invalid framing header");
    assert_eq!(code(IlinkError::Schema { found: 9 }), "message could not be decoded");
    assert_eq!(code(IlinkError::Unexpected { template: 500, state: "established" }), "already negotiated");
    assert_eq!(code(IlinkError::Unexpected { template: 503, state: "established" }), "already established");
    assert_eq!(code(IlinkError::NumbersUsedUp), "other");
}

#[test]
fn silence_is_told_after_one_interval_and_ends_after_two() {
    let mut line = Line::established();
    let second = 1_000_000_000;
    let mut buffer = [0; 200];
    assert_eq!(line.client.deadline_ns(), Some(10 * second));
    let mut output = Output::new(&mut buffer);
    line.client.tick(10 * second, 0, &mut output).unwrap();
    let sequence: &Sequence = Frame::parse(output.written()).unwrap().view().unwrap();
    assert_eq!(sequence.lapsed, 1);
    output.clear();
    assert_eq!(line.client.tick(20 * second, 0, &mut output), Err(IlinkError::Silence { silence_ns: 20 * second }));
    let terminate: &Terminate = Frame::parse(output.written()).unwrap().view().unwrap();
    assert_eq!(terminate.error, KEEP_ALIVE_LAPSED);
    assert_eq!(line.client.deadline_ns(), None);
}

#[test]
fn termination_is_answered() {
    let mut line = Line::established();
    let events = line.down(|server, output| server.terminate(0, 5, output));
    assert!(events[0].starts_with("Terminated { error: 5"), "{events:?}");
    assert_eq!(line.client.deadline_ns(), Some(0));
    let events = line.up(|client, output| client.tick(0, 0, output));
    assert_eq!(events, ["Terminated { error: 0 }"]);
    assert_eq!((line.client.deadline_ns(), line.server.deadline_ns()), (None, None));
}

#[test]
fn answer_that_does_not_echo_its_request_ends_the_session() {
    let mut client = Client::new(config());
    let mut buffer = [0; 200];
    client.negotiate(0, 1_000, 77, &mut Output::new(&mut buffer)).unwrap();
    let answer = NegotiationResponse {
        uuid: 77.into(),
        at_ns: 999.into(),
        key_expires_days: 0.into(),
        fault_tolerance: 1,
        split: 255,
        previous_seq: 0.into(),
        previous_uuid: 0.into(),
        environment: 255,
    };
    let mut output = Output::new(&mut buffer);
    emit(NegotiationResponse::KIND, answer.as_bytes(), &[0, 0], &mut output).unwrap();
    assert_eq!(client.receive(0, &mut output.written()), Err(IlinkError::Echo { template: 501 }));
}

#[test]
fn frames_of_another_encoding_or_schema_are_refused() {
    assert_eq!(Frame::len(&[12, 0, 0xfe, 0xca]), Ok(Some(12)));
    assert_eq!(Frame::len(&[12, 0, 0, 0x50]), Err(IlinkError::Encoding { found: 0x5000 }));
    assert_eq!(Frame::len(&[11, 0, 0xfe, 0xca]), Err(IlinkError::TooShort { len: 11 }));
    let other_schema = [12, 0, 0xfe, 0xca, 0, 0, 1, 0, 7, 0, 9, 0];
    assert_eq!(Frame::parse(&other_schema), Err(IlinkError::Schema { found: 7 }));
}

/// Frames of any template with any block, and the answers of a session with the right echo.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let template = prop_oneof![500u16..538, any::<u16>()];
    let block = (prop::collection::vec(any::<u8>(), 0..300), any::<bool>()).prop_map(|(mut block, is_ours)| {
        // Identifier and time where many messages have them.
        if is_ours && block.len() > 16 {
            block[..8].copy_from_slice(&77u64.to_le_bytes());
            block[8..16].copy_from_slice(&2_000u64.to_le_bytes());
        }
        block
    });
    let frame = (template, block).prop_map(|(template, block)| {
        let mut buffer = [0; 400];
        let mut output = Output::new(&mut buffer);
        emit(template, &block, &[], &mut output).unwrap();
        output.written().to_vec()
    });
    let piece = prop_oneof![9 => frame, 1 => prop::collection::vec(any::<u8>(), 0..9)];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn logs(stream: &[u8], cut: usize) -> [Vec<String>; 2] {
    let Line { mut client, mut server, .. } = Line::established();
    let mut logs = [Vec::new(), Vec::new()];
    for mut input in stream.chunks(cut) {
        let mut again = input;
        loop {
            match client.receive(0, &mut input) {
                Ok(None) => break,
                Ok(Some(event)) => logs[0].push(format!("{event:?}")),
                Err(error) => logs[0].push(error.to_string()),
            }
        }
        loop {
            match server.receive(0, &mut again) {
                Ok(None) => break,
                Ok(Some(event)) => logs[1].push(format!("{event:?}")),
                Err(error) => logs[1].push(error.to_string()),
            }
        }
    }
    logs
}

proptest! {
    #[test]
    fn any_bytes_mean_the_same_however_they_are_cut(stream in stream(), cut in 1usize..60) {
        prop_assert_eq!(logs(&stream, usize::MAX), logs(&stream, cut));
    }

    #[test]
    fn emitted_frames_are_parsed_as_they_were(
        template in any::<u16>(),
        block in prop::collection::vec(any::<u8>(), 0..200),
        tail in prop::collection::vec(any::<u8>(), 0..50),
    ) {
        let mut buffer = [0; 300];
        let mut output = Output::new(&mut buffer);
        emit(template, &block, &tail, &mut output).unwrap();
        prop_assert_eq!(Frame::len(output.written()), Ok(Some(output.len())));
        let frame = Frame::parse(output.written()).unwrap();
        prop_assert_eq!(frame, Frame { template, version: 9, block: &block, tail: &tail });
    }
}
