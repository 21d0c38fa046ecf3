//! Facts of segment arrival: one machine, and a peer that is written by hand.

use super::*;
use crate::wire::tcp::{TcpFlags, Timestamps};

const SYN: TcpFlags = TcpFlags::SYN;
const ACK: TcpFlags = TcpFlags::ACK;
const RST: TcpFlags = TcpFlags::RST;
const FIN: TcpFlags = TcpFlags::FIN;
const ISN: u32 = 1000;

/// A machine, and what a peer by hand knows of it.
struct Script {
    end: End,
    /// The peer's next number, and the machine's next as the peer has heard.
    seq: Seq,
    ack: Seq,
    timestamps: Option<Timestamps>,
    to: Flow,
}

impl Script {
    fn new(end: End) -> Self {
        let to = Flow { local: CLIENT, remote: SERVER };
        Self { end, seq: Seq(ISN), ack: Seq(0), timestamps: None, to }
    }

    /// The peer sends; what the machine answers comes back.
    fn send(&mut self, flags: TcpFlags, seq: Seq, ack: Seq, bytes: &[u8]) -> (Option<TcpDrop>, Vec<Outgoing>) {
        let mut segment = Outgoing::bare(self.to, seq, ack, flags);
        segment.wnd = 10_000;
        segment.timestamps = self.timestamps;
        if flags.contains(SYN) {
            segment.syn = Some(SynOptions { mss: Some(1460), window_scale: None, sack_permitted: true });
        }
        let dropped = self.end.hear((segment, bytes.to_vec()));
        (dropped, self.answers())
    }

    /// As `send`, with the numbers that are next.
    fn next(&mut self, flags: TcpFlags, bytes: &[u8]) -> (Option<TcpDrop>, Vec<Outgoing>) {
        let (seq, ack) = (self.seq, self.ack);
        self.seq += bytes.len() as u32 + u32::from(flags.contains(SYN)) + u32::from(flags.contains(FIN));
        self.send(flags, seq, ack, bytes)
    }

    fn answers(&mut self) -> Vec<Outgoing> {
        self.end.tick();
        let sent: Vec<_> = core::mem::take(&mut self.end.sent.0);
        for (segment, bytes) in sent.iter().filter(|(segment, _)| !segment.flags.contains(RST)) {
            let len = bytes.len() as u32 + u32::from(segment.flags.intersects(SYN | FIN));
            let is_first = segment.flags.contains(SYN);
            self.ack = if is_first { segment.seq + 1 } else { self.ack.max(segment.seq + len) };
        }
        sent.into_iter().map(|(segment, _)| segment).collect()
    }

    fn pass(&mut self, span: Duration) -> Vec<Outgoing> {
        self.end.now += span;
        self.answers()
    }

    fn id(&self) -> ConnectionId {
        self.end.id.unwrap()
    }

    fn state(&self) -> Option<State> {
        self.end.tcp.info(self.id(), self.end.now).map(|info| info.state)
    }

    fn shutdown(&mut self) -> Vec<Outgoing> {
        let (id, now) = (self.id(), self.end.now);
        self.end.tcp.shutdown(id, now, &mut self.end.sent).unwrap();
        self.answers()
    }
}

/// A machine that listens.
fn listening(options: &ListenOptions) -> Script {
    let mut end = End::new(2);
    end.tcp.listen(SERVER, options).unwrap();
    Script::new(end)
}

/// A machine with a connection that a peer opened.
fn accepted_with(timestamps: Option<Timestamps>) -> Script {
    let mut script = listening(&ListenOptions::default());
    script.timestamps = timestamps;
    let (_, answers) = script.next(SYN, b"");
    assert_eq!(answers[0].flags, SYN | ACK);
    script.ack = answers[0].seq + 1;
    script.next(ACK, b"");
    assert_eq!(script.state(), Some(State::Established));
    script
}

fn accepted() -> Script {
    accepted_with(None)
}

/// A machine that calls.
fn calling() -> Script {
    let mut end = End::new(2);
    let flow = Flow { local: SERVER, remote: CLIENT };
    let now = end.now;
    end.id = Some(end.tcp.connect(flow, &ConnectionOptions::default(), ConsumerId(1), now, &mut end.sent).unwrap());
    let mut script = Script::new(end);
    let syn = script.answers();
    assert_eq!(syn[0].flags, SYN);
    script.ack = syn[0].seq + 1;
    script
}

fn closed(script: &Script) -> Option<CloseReason> {
    script.end.events.iter().find_map(|event| match event {
        TcpEvent::Closed(reason) => Some(*reason),
        _ => None,
    })
}

mod without_connection {
    use super::*;

    #[test]
    fn segment_for_nobody_is_answered_by_a_reset_with_its_acknowledgment_as_number() {
        let mut script = Script::new(End::new(1));
        let (dropped, answers) = script.send(ACK, Seq(7), Seq(9), b"x");
        assert_eq!(dropped, Some(TcpDrop::NoConnection));
        assert_eq!((answers[0].flags, answers[0].seq), (RST, Seq(9)));
    }

    #[test]
    fn syn_for_nobody_is_answered_by_a_reset_that_acknowledges_it() {
        let mut script = Script::new(End::new(1));
        let (_, answers) = script.send(SYN, Seq(7), Seq(0), b"");
        assert_eq!((answers[0].flags, answers[0].seq, answers[0].ack), (RST | ACK, Seq(0), Seq(8)));
    }

    #[test]
    fn reset_is_never_answered() {
        let mut script = Script::new(End::new(1));
        assert_eq!(script.send(RST, Seq(7), Seq(0), b""), (Some(TcpDrop::NoConnection), vec![]));
    }

    #[test]
    fn resets_are_answered_at_a_limited_rate() {
        let mut script = Script::new(End::new(1));
        let answers: usize = (0..5000).map(|idx| script.send(ACK, Seq(idx), Seq(9), b"").1.len()).sum();
        assert_eq!(answers, 1000);
        assert_eq!(script.end.tcp.tally().resets_suppressed, 4000);
    }

    #[test]
    fn source_that_is_no_host_gets_nothing() {
        let mut script = listening(&ListenOptions::default());
        script.to.local = SocketAddrV4::new(Ipv4Addr::BROADCAST, 50_000);
        assert_eq!(script.send(SYN, Seq(7), Seq(0), b""), (Some(TcpDrop::BadAddress), vec![]));
        script.to.local = SocketAddrV4::new(*CLIENT.ip(), 0);
        assert_eq!(script.send(SYN, Seq(7), Seq(0), b""), (Some(TcpDrop::BadAddress), vec![]));
    }
}

mod listen {
    use super::*;

    #[test]
    fn acknowledgment_is_answered_by_a_reset() {
        let mut script = listening(&ListenOptions::default());
        let (dropped, answers) = script.send(ACK, Seq(7), Seq(9), b"");
        assert_eq!((dropped, answers[0].flags, answers[0].seq), (Some(TcpDrop::BadAck), RST, Seq(9)));
    }

    #[test]
    fn reset_and_bare_segment_and_syn_with_fin_do_nothing() {
        let mut script = listening(&ListenOptions::default());
        assert_eq!(script.send(RST, Seq(7), Seq(0), b"").1, vec![]);
        assert_eq!(script.send(TcpFlags::NONE, Seq(7), Seq(0), b""), (Some(TcpDrop::BadFlags), vec![]));
        assert_eq!(script.send(SYN | FIN, Seq(7), Seq(0), b""), (Some(TcpDrop::BadFlags), vec![]));
        assert!(script.end.tcp.is_empty());
    }

    #[test]
    fn app_hears_of_a_peer_only_when_the_handshake_is_done() {
        let mut script = listening(&ListenOptions::default());
        let (_, answers) = script.next(SYN, b"");
        assert_eq!((answers[0].flags, answers[0].ack), (SYN | ACK, Seq(ISN + 1)));
        assert!(script.end.events.is_empty());
        script.next(ACK, b"");
        assert!(matches!(script.end.events[..], [TcpEvent::Connected { listener: Some(_) }]));
    }

    #[test]
    fn data_that_completes_the_handshake_comes_after_connected() {
        let mut script = listening(&ListenOptions::default());
        script.next(SYN, b"");
        script.next(ACK, b"first");
        assert!(matches!(script.end.events[..], [TcpEvent::Connected { .. }, ..]));
        assert_eq!(script.end.bytes, b"first");
    }

    #[test]
    fn syns_beyond_the_rate_are_dropped() {
        let mut script = listening(&ListenOptions { syns_per_second: Some(2), ..ListenOptions::default() });
        for port in 1..=4 {
            script.to.local.set_port(port);
            let wanted = if port > 2 { Some(TcpDrop::SynRateExceeded) } else { None };
            assert_eq!(script.end.tcp.refuses_syn(SERVER, script.end.now), port > 2, "{port}");
            assert_eq!(script.send(SYN, Seq(7), Seq(0), b"").0, wanted, "{port}");
        }
        let elsewhere = SocketAddrV4::new(*SERVER.ip(), SERVER.port() + 1);
        assert!(!script.end.tcp.refuses_syn(elsewhere, script.end.now), "nobody listens: that is another matter");
        script.pass(Duration::from_millis(500));
        assert_eq!(script.send(SYN, Seq(7), Seq(0), b"").0, None);
    }

    #[test]
    fn who_listens_anew_or_nearer_takes_syns_where_another_refused() {
        let options = ListenOptions { syns_per_second: Some(1), ..ListenOptions::default() };
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, SERVER.port());
        let mut script = Script::new(End::new(2));
        let first = script.end.tcp.listen(any, &options).unwrap();
        let refuses = |script: &mut Script| script.end.tcp.refuses_syn(SERVER, script.end.now);
        assert_eq!(script.send(SYN, Seq(7), Seq(0), b"").0, None);
        assert!(refuses(&mut script) && refuses(&mut script), "the second asks the memory of the first");
        script.end.tcp.close_listener(first);
        assert!(!refuses(&mut script), "nobody listens");
        script.end.tcp.listen(any, &options).unwrap();
        assert!(!refuses(&mut script));
        script.to.local.set_port(1);
        assert_eq!(script.send(SYN, Seq(7), Seq(0), b"").0, None);
        assert!(refuses(&mut script));
        script.end.tcp.listen(SERVER, &options).unwrap();
        assert!(!refuses(&mut script));
    }

    #[test]
    fn closing_the_listener_forgets_its_handshakes_and_keeps_its_connections() {
        let mut script = accepted();
        script.to.local.set_port(1);
        script.send(SYN, Seq(7), Seq(0), b"");
        assert_eq!(script.end.tcp.len(), 2);
        let Some(TcpEvent::Connected { listener: Some(listener) }) = script.end.events.first().copied() else {
            panic!()
        };
        assert!(script.end.tcp.close_listener(listener));
        assert!(!script.end.tcp.close_listener(listener));
        assert_eq!((script.end.tcp.len(), script.state()), (1, Some(State::Established)));
    }

    #[test]
    fn name_of_a_listener_that_is_closed_is_not_that_of_the_next_in_its_place() {
        let mut end = End::new(2);
        let options = ListenOptions::default();
        let first = end.tcp.listen(SERVER, &options).unwrap();
        assert!(end.tcp.close_listener(first));
        let second = end.tcp.listen(SERVER, &options).unwrap();
        assert_eq!(first.slot(), second.slot(), "the place is used again");
        assert!(first != second && !end.tcp.close_listener(first), "a name that was kept too long closes nothing");
        let mut script = Script::new(end);
        let (_, answers) = script.next(SYN, b"");
        assert_eq!(answers[0].flags, SYN | ACK);
        script.ack = answers[0].seq + 1;
        script.next(ACK, b"");
        assert_eq!(script.end.events, [TcpEvent::Connected { listener: Some(second) }]);
    }

    /// A handshake that outlives its listener is none of the next one's.
    #[test]
    fn next_listener_in_the_place_has_its_whole_backlog() {
        let mut script = listening(&ListenOptions { backlog: 1, ..ListenOptions::default() });
        let first = script.end.tcp.listeners.slots[0].id;
        for round in 0..70_000_u32 {
            assert!(script.end.tcp.close_listener(if round == 0 {
                first
            } else {
                script.end.tcp.listeners.slots[0].id
            }));
            script.end.tcp.listen(SERVER, &ListenOptions::default()).unwrap();
            assert_ne!(script.end.tcp.listeners.slots[0].id.0, u32::MAX, "that is nobody's name");
        }
        script.next(SYN, b"");
        assert_eq!(script.end.tcp.listeners.slots[0].embryonic, 1);
        let id = script.end.tcp.listeners.slots[0].id;
        assert!(script.end.tcp.close_listener(id));
        script.end.tcp.listen(SERVER, &ListenOptions::default()).unwrap();
        assert_eq!((script.end.tcp.listeners.slots[0].embryonic, script.end.tcp.len()), (0, 0));
    }

    #[test]
    fn same_address_is_listened_at_once() {
        let mut script = listening(&ListenOptions::default());
        let again = script.end.tcp.listen(SERVER, &ListenOptions::default());
        assert_eq!(again, Err(ListenError::AddressInUse(SERVER)));
    }

    /// RFC 9293 3.9.1.1 (MUST-42). Who listens at the address itself is asked before who listens at all.
    #[test]
    fn port_is_listened_at_by_several_at_addresses_of_their_own() {
        let mut script = listening(&ListenOptions::default());
        let tcp = &mut script.end.tcp;
        let at = |ip: Ipv4Addr| SocketAddrV4::new(ip, SERVER.port());
        let (second, third) = (at(Ipv4Addr::new(10, 0, 0, 3)), at(Ipv4Addr::new(10, 0, 0, 4)));
        let first = tcp.listeners.find(SERVER);
        assert_eq!(tcp.listeners.find(second), None);
        tcp.listen(second, &ListenOptions::default()).unwrap();
        tcp.listen(at(Ipv4Addr::UNSPECIFIED), &ListenOptions::default()).unwrap();
        assert_eq!(tcp.listeners.find(SERVER), first);
        let found = [SERVER, second, third].map(|local| tcp.listeners.find(local).unwrap());
        assert!(found[0] != found[1] && found[1] != found[2] && found[0] != found[2], "{found:?}");
    }
}

mod cookies {
    use super::*;

    /// A listener with one handshake open, which is all it may have.
    fn full(options: ConnectionOptions) -> Script {
        let mut script = listening(&ListenOptions { backlog: 1, connection: options, ..ListenOptions::default() });
        script.to.local.set_port(1);
        script.send(SYN, Seq(7), Seq(0), b"");
        script.to.local = CLIENT;
        script
    }

    #[test]
    fn full_backlog_is_answered_by_a_cookie_that_makes_the_connection() {
        let mut script = full(ConnectionOptions::default());
        let (_, answers) = script.next(SYN, b"");
        assert_eq!((answers[0].flags, script.end.tcp.len()), (SYN | ACK, 1));
        script.ack = answers[0].seq + 1;
        assert_eq!(script.next(ACK, b"order").0, None);
        assert_eq!(script.end.bytes, b"order");
        assert_eq!(script.state(), Some(State::Established));
        let info = script.end.tcp.info(script.id(), script.end.now).unwrap();
        assert_eq!((info.snd_mss, info.sack, info.timestamps), (1460, false, false));
        let tally = script.end.tcp.tally();
        assert_eq!((tally.syn_cookies_sent, tally.syn_cookies_accepted), (1, 1));
    }

    #[test]
    fn options_survive_in_the_timestamp() {
        let mut script = full(ConnectionOptions::default());
        script.timestamps = Some(Timestamps { value: 5, echo_reply: 0 });
        let (_, answers) = script.next(SYN, b"");
        script.timestamps = Some(Timestamps { value: 6, echo_reply: answers[0].timestamps.unwrap().value });
        script.ack = answers[0].seq + 1;
        script.next(ACK, b"");
        let info = script.end.tcp.info(script.id(), script.end.now).unwrap();
        assert_eq!((info.snd_mss, info.sack, info.timestamps), (1460 - 12, true, true));
    }

    #[test]
    fn data_that_comes_before_its_cookie_ends_nothing() {
        let mut script = full(ConnectionOptions::default());
        let (_, answers) = script.next(SYN, b"");
        let (first, ack) = (script.seq, answers[0].seq + 1);
        let (dropped, answers) = script.send(ACK, first + 5, ack, b" single");
        assert_eq!((dropped, answers.len(), script.end.tcp.len()), (Some(TcpDrop::BadAck), 0, 1));
        script.send(ACK, first, ack, b"order");
        assert_eq!(script.end.bytes, b"order", "the segment that was late");
    }

    #[test]
    fn made_up_cookie_is_refused() {
        let mut script = full(ConnectionOptions::default());
        script.next(SYN, b"");
        script.ack += 1 << 3;
        let (dropped, answers) = script.next(ACK, b"");
        assert_eq!((dropped, answers[0].flags, script.end.tcp.len()), (Some(TcpDrop::BadAck), RST, 1));
    }

    /// What comes of a connection of old has nothing to do with cookies: its peer would ask for minutes.
    #[test]
    fn end_of_a_connection_that_is_forgotten_is_refused_also_while_cookies_are_out() {
        let mut script = full(ConnectionOptions::default());
        script.next(SYN, b"");
        let (dropped, answers) = script.send(FIN | ACK, Seq(77), Seq(0x0100_0000), b"the end");
        assert_eq!((dropped, answers[0].flags), (Some(TcpDrop::BadAck), RST));
    }

    /// One SYN was answered by a cookie, as the backlog was full, and the next by a number that is remembered.
    fn answered_twice() -> (Script, Seq, Seq) {
        let mut script = full(ConnectionOptions::default());
        let first = script.send(SYN, Seq(ISN), Seq(0), b"").1[0].seq;
        script.to.local.set_port(1);
        script.send(RST, Seq(8), Seq(0), b"");
        script.to.local = CLIENT;
        let second = script.next(SYN, b"").1[0].seq;
        assert_ne!(first, second);
        assert_eq!((script.end.tcp.len(), script.end.tcp.tally().syn_cookies_sent), (1, 1));
        (script, first, second)
    }

    #[test]
    fn cookie_that_comes_back_while_the_handshake_stands_open_makes_the_connection() {
        let (mut script, first, _) = answered_twice();
        script.ack = first + 1;
        assert_eq!(script.next(ACK, b"order").0, None);
        assert_eq!((script.end.bytes.as_slice(), script.state()), (&b"order"[..], Some(State::Established)));
        let info = script.end.tcp.info(script.id(), script.end.now).unwrap();
        assert!(!info.sack, "the answer that the peer believes did not agree to it");
        assert_eq!((script.end.tcp.len(), script.end.tcp.listeners.slots[0].embryonic), (1, 0));
    }

    #[test]
    fn data_before_such_a_cookie_ends_nothing() {
        let (mut script, first, _) = answered_twice();
        let (dropped, answers) = script.send(ACK, script.seq + 5, first + 1, b" single");
        assert_eq!((dropped, answers.len()), (Some(TcpDrop::BadAck), 0));
        script.send(ACK, script.seq, first + 1, b"order");
        assert_eq!(script.end.bytes, b"order");
    }

    #[test]
    fn number_that_is_remembered_makes_the_connection_as_well() {
        let (mut script, _, second) = answered_twice();
        script.ack = second + 1;
        assert_eq!(script.next(ACK, b"order").0, None);
        assert_eq!((script.end.bytes.as_slice(), script.state()), (&b"order"[..], Some(State::Established)));
    }

    #[test]
    fn cookie_is_void_after_its_time() {
        let mut script = full(ConnectionOptions::default());
        let (_, answers) = script.next(SYN, b"");
        script.ack = answers[0].seq + 1;
        script.end.now += Duration::from_secs(140);
        let (dropped, answers) = script.next(ACK, b"");
        assert_eq!((dropped, answers[0].flags), (Some(TcpDrop::BadAck), RST));
    }

    #[test]
    fn flood_takes_no_more_than_the_backlog() {
        let mut script = listening(&ListenOptions { backlog: 4, ..ListenOptions::default() });
        for port in 1..=1000 {
            script.to.local.set_port(port);
            assert_eq!(script.send(SYN, Seq(7), Seq(0), b"").1.len(), 1);
        }
        assert_eq!((script.end.tcp.len(), script.end.tcp.tally().syn_cookies_sent), (4, 996));
    }
}

mod syn_received {
    use super::*;

    fn half_open() -> Script {
        let mut script = listening(&ListenOptions::default());
        let (_, answers) = script.next(SYN, b"");
        script.ack = answers[0].seq + 1;
        script
    }

    #[test]
    fn wrong_acknowledgment_is_answered_by_a_reset_and_changes_nothing() {
        let mut script = half_open();
        let (seq, ack) = (script.seq, script.ack + 1);
        let (dropped, answers) = script.send(ACK, seq, ack, b"");
        assert_eq!((dropped, answers[0].flags, answers[0].seq), (Some(TcpDrop::BadAck), RST, ack));
        assert_eq!(script.next(ACK, b"").0, None);
        assert_eq!(script.state(), Some(State::Established));
    }

    #[test]
    fn exact_reset_returns_to_listen_without_a_word_to_the_app() {
        let mut script = half_open();
        let (seq, ack) = (script.seq, script.ack);
        assert_eq!(script.send(RST, seq, ack, b"").1, vec![]);
        assert!(script.end.tcp.is_empty() && script.end.events.is_empty());
    }

    #[test]
    fn reset_in_the_window_that_is_not_exact_is_challenged() {
        let mut script = half_open();
        let (seq, ack) = (script.seq + 1, script.ack);
        let (dropped, answers) = script.send(RST, seq, ack, b"");
        assert_eq!((dropped, answers.len()), (Some(TcpDrop::BlindReset), 1));
        assert_eq!(script.end.tcp.len(), 1);
    }

    #[test]
    fn syn_that_comes_again_is_answered_again() {
        let mut script = half_open();
        let (_, answers) = script.send(SYN, Seq(ISN), Seq(0), b"");
        assert_eq!((answers.len(), answers[0].flags), (1, SYN | ACK));
    }

    #[test]
    fn peer_that_only_repeats_its_syn_does_not_keep_its_place() {
        let mut script = half_open();
        for _ in 0..220 {
            script.send(SYN, Seq(ISN), Seq(0), b"");
            script.pass(Duration::from_millis(900));
            if script.end.tcp.is_empty() {
                return;
            }
        }
        assert!(script.end.tcp.is_empty());
    }

    #[test]
    fn new_syn_in_the_window_returns_to_listen() {
        let mut script = half_open();
        script.send(SYN, Seq(ISN + 50), Seq(0), b"");
        assert!(script.end.tcp.is_empty());
    }

    #[test]
    fn handshake_that_ends_makes_room_in_the_backlog() {
        let mut script = listening(&ListenOptions { backlog: 1, ..ListenOptions::default() });
        for port in 1..=3 {
            script.to.local.set_port(port);
            (script.seq, script.ack) = (Seq(ISN), Seq(0));
            let (_, answers) = script.next(SYN, b"");
            script.ack = answers[0].seq + 1;
            if port == 1 {
                script.next(ACK, b"")
            } else {
                script.next(RST, b"")
            };
        }
        assert_eq!(script.end.tcp.tally().syn_cookies_sent, 0);
    }

    #[test]
    fn fin_with_the_acknowledgment_closes_the_peers_side() {
        let mut script = half_open();
        script.next(ACK | FIN, b"bye");
        assert_eq!(script.end.bytes, b"bye");
        assert_eq!(script.state(), Some(State::CloseWait));
        assert!(matches!(script.end.events[..], [TcpEvent::Connected { .. }, .., TcpEvent::PeerClosed]));
    }
}

mod syn_sent {
    use super::*;

    #[test]
    fn answer_connects_and_is_acknowledged() {
        let mut script = calling();
        let (_, answers) = script.next(SYN | ACK, b"");
        assert_eq!((answers[0].flags, answers[0].ack), (ACK, Seq(ISN + 1)));
        assert_eq!(script.end.events, [TcpEvent::Connected { listener: None }]);
    }

    #[test]
    fn wrong_acknowledgment_is_answered_by_a_reset_and_the_call_goes_on() {
        let mut script = calling();
        let ack = script.ack + 5;
        let (dropped, answers) = script.send(SYN | ACK, Seq(ISN), ack, b"");
        assert_eq!((dropped, answers[0].flags, answers[0].seq), (Some(TcpDrop::BadAck), RST, ack));
        assert_eq!(script.state(), Some(State::SynSent));
    }

    #[test]
    fn reset_counts_only_with_our_number() {
        let mut script = calling();
        let ack = script.ack;
        assert_eq!(script.send(RST | ACK, Seq(0), ack + 1, b""), (Some(TcpDrop::BadAck), vec![]));
        assert_eq!(script.send(RST, Seq(0), ack, b""), (Some(TcpDrop::BlindReset), vec![]));
        script.send(RST | ACK, Seq(0), ack, b"");
        assert_eq!(closed(&script), Some(CloseReason::Refused));
        assert!(script.end.tcp.is_empty());
    }

    #[test]
    fn segment_without_syn_is_dropped() {
        let mut script = calling();
        assert_eq!(script.next(ACK, b"x"), (Some(TcpDrop::BadFlags), vec![]));
    }

    #[test]
    fn data_with_the_answer_comes_after_connected() {
        let mut script = calling();
        script.next(SYN | ACK, b"hello");
        assert_eq!(script.end.events[0], TcpEvent::Connected { listener: None });
        assert_eq!(script.end.bytes, b"hello");
    }

    #[test]
    fn calls_that_cross_connect() {
        let (mut a, mut b) = (End::new(1), End::new(2));
        for (end, flow) in
            [(&mut a, Flow { local: CLIENT, remote: SERVER }), (&mut b, Flow { local: SERVER, remote: CLIENT })]
        {
            let now = end.now;
            end.id =
                Some(end.tcp.connect(flow, &ConnectionOptions::default(), ConsumerId(1), now, &mut end.sent).unwrap());
        }
        settle(&mut a, &mut b);
        for end in [&a, &b] {
            assert_eq!(end.events, [TcpEvent::Connected { listener: None }]);
            assert_eq!(end.tcp.info(end.id.unwrap(), end.now).unwrap().state, State::Established);
        }
    }

    #[test]
    fn router_that_knows_no_way_ends_a_call_and_no_connection() {
        let mut script = calling();
        let (flow, seq, now) = (Flow { local: SERVER, remote: CLIENT }, script.ack - 1, script.end.now);
        let wrong = script.end.tcp.unreachable(flow, seq + 1, now, &mut script.end.sent);
        assert_eq!(wrong, Err(IcmpRefusal::NotOnItsWay));
        script.end.tcp.unreachable(flow, seq, now, &mut script.end.sent).unwrap();
        script.answers();
        assert_eq!(closed(&script), Some(CloseReason::Unreachable));
    }
}

mod sequence {
    use super::*;

    #[test]
    fn old_data_is_acknowledged_and_not_delivered_again() {
        let mut script = accepted();
        let seq = script.seq;
        script.next(ACK, b"abc");
        let ack = script.ack;
        let (dropped, answers) = script.send(ACK, seq, ack, b"abc");
        assert_eq!((dropped, answers[0].ack), (Some(TcpDrop::NotAcceptable), seq + 3));
        assert_eq!(script.end.bytes, b"abc");
    }

    #[test]
    fn data_beyond_the_window_is_acknowledged_and_not_kept() {
        let mut script = accepted();
        let (seq, ack) = (script.seq + (1 << 20), script.ack);
        let (dropped, answers) = script.send(ACK, seq, ack, b"abc");
        assert_eq!((dropped, answers[0].ack), (Some(TcpDrop::NotAcceptable), script.seq));
        assert_eq!(script.end.tcp.chunks(), 0);
    }

    #[test]
    fn keepalive_probes_are_answered_ten_a_second() {
        let mut script = accepted();
        let (seq, ack) = (script.seq - 1, script.ack);
        for second in 0..3 {
            script.end.now = Instant::ZERO + Duration::from_nanos((100 + 2 * second) << 30);
            let answers: usize = (0..3_000).map(|_| script.send(ACK, seq, ack, b"").1.len()).sum();
            assert_eq!(answers, 10);
        }
    }

    #[test]
    fn segments_without_data_outside_the_window_are_answered_at_a_limited_rate() {
        let mut script = accepted();
        let (seq, ack) = (script.seq - 100, script.ack);
        let answers: usize = (0..5000).map(|_| script.send(ACK, seq, ack, b"").1.len()).sum();
        assert_eq!(answers, 10);
    }

    #[test]
    fn segment_without_acknowledgment_is_dropped() {
        let mut script = accepted();
        assert_eq!(script.next(TcpFlags::PSH, b"x"), (Some(TcpDrop::BadFlags), vec![]));
    }

    #[test]
    fn urgent_data_stays_in_line() {
        let mut script = accepted();
        script.next(ACK | TcpFlags::URG, b"abc");
        assert_eq!(script.end.bytes, b"abc");
    }
}

mod paws {
    use super::*;

    const AT: u32 = 1000;

    fn stamped(value: u32) -> Option<Timestamps> {
        Some(Timestamps { value, echo_reply: 0 })
    }

    #[test]
    fn older_timestamp_is_refused_and_acknowledged() {
        let mut script = accepted_with(stamped(AT));
        script.timestamps = stamped(AT - 1);
        let (dropped, answers) = script.next(ACK, b"abc");
        assert_eq!((dropped, answers.len()), (Some(TcpDrop::PawsReject), 1));
        assert!(script.end.bytes.is_empty());
    }

    #[test]
    fn segment_without_timestamp_is_dropped_in_silence_but_a_reset_counts() {
        let mut script = accepted_with(stamped(AT));
        script.timestamps = None;
        let (seq, ack) = (script.seq, script.ack);
        assert_eq!(script.send(ACK, seq, ack, b"abc"), (Some(TcpDrop::PawsReject), vec![]));
        script.send(RST, seq, ack, b"");
        assert_eq!(closed(&script), Some(CloseReason::Reset));
    }

    #[test]
    fn reset_is_not_asked_for_its_age() {
        let mut script = accepted_with(stamped(AT));
        script.timestamps = stamped(AT - 500);
        script.next(RST, b"");
        assert_eq!(closed(&script), Some(CloseReason::Reset));
    }

    #[test]
    fn after_24_days_of_silence_an_older_timestamp_is_believed() {
        let mut script = accepted_with(stamped(AT));
        script.end.now += Duration::from_secs(24 * 86_400 + 2);
        script.timestamps = stamped(AT - 1);
        script.next(ACK, b"abc");
        assert_eq!(script.end.bytes, b"abc");
    }

    #[test]
    fn clock_that_goes_around_is_no_reason() {
        let mut script = accepted_with(stamped(u32::MAX));
        script.timestamps = stamped(3);
        script.next(ACK, b"abc");
        assert_eq!(script.end.bytes, b"abc");
    }

    #[test]
    fn segment_out_of_order_does_not_move_ts_recent() {
        let mut script = accepted_with(stamped(AT));
        script.timestamps = stamped(AT + 10);
        let (seq, ack) = (script.seq + 3, script.ack);
        script.send(ACK, seq, ack, b"def");
        script.timestamps = stamped(AT + 5);
        assert_eq!(script.next(ACK, b"abc").0, None);
    }
}

mod blind {
    use super::*;

    #[test]
    fn exact_reset_closes() {
        let mut script = accepted();
        assert_eq!(script.next(RST, b""), (Some(TcpDrop::AfterClose), vec![]));
        assert_eq!(closed(&script), Some(CloseReason::Reset));
        assert!(script.end.tcp.is_empty());
    }

    #[test]
    fn reset_in_the_window_is_challenged_and_the_connection_stays() {
        let mut script = accepted();
        let (seq, ack) = (script.seq + 1, script.ack);
        let (dropped, answers) = script.send(RST, seq, ack, b"");
        assert_eq!((dropped, answers[0].flags, answers[0].ack), (Some(TcpDrop::BlindReset), ACK, script.seq));
        assert_eq!(script.state(), Some(State::Established));
    }

    #[test]
    fn reset_outside_the_window_is_dropped_in_silence() {
        let mut script = accepted();
        for distance in [1 << 20, u32::MAX] {
            let (seq, ack) = (script.seq + distance, script.ack);
            assert_eq!(script.send(RST, seq, ack, b""), (Some(TcpDrop::NotAcceptable), vec![]));
        }
    }

    #[test]
    fn syn_anywhere_is_challenged() {
        let mut script = accepted();
        for distance in [0, 1, 1 << 20, u32::MAX] {
            let seq = script.seq + distance;
            let (_, answers) = script.send(SYN, seq, Seq(0), b"");
            assert_eq!((answers.len(), answers[0].flags), (1, ACK), "{distance}");
        }
        assert_eq!((script.state(), script.end.tcp.tally().challenge_acks), (Some(State::Established), 4));
    }

    #[test]
    fn challenges_are_limited() {
        let mut script = accepted();
        let seq = script.seq;
        let answers: usize = (0..5000).map(|_| script.send(SYN, seq, Seq(0), b"").1.len()).sum();
        assert_eq!((answers, script.end.tcp.tally().challenge_acks_suppressed), (10, 4990));
        assert_eq!(script.pass(Duration::from_millis(1_100)), []);
        assert_eq!(script.send(SYN, seq, Seq(0), b"").1.len(), 1);
    }

    #[test]
    fn peer_that_restarted_gets_through_by_the_challenge() {
        let mut script = accepted();
        let (_, answers) = script.send(SYN, Seq(77), Seq(0), b"");
        // What a host without the connection does with our acknowledgment.
        script.send(RST, answers[0].ack, Seq(0), b"");
        assert_eq!(closed(&script), Some(CloseReason::Reset));
        let (_, answers) = script.send(SYN, Seq(77), Seq(0), b"");
        assert_eq!((answers[0].flags, answers[0].ack), (SYN | ACK, Seq(78)));
    }
}

mod closing {
    use super::*;

    #[test]
    fn peer_closes_first() {
        let mut script = accepted();
        let (_, answers) = script.next(ACK | FIN, b"");
        assert_eq!(answers[0].ack, script.seq);
        assert_eq!(script.state(), Some(State::CloseWait));
        let fin = script.shutdown();
        assert!(fin[0].flags.contains(FIN));
        assert_eq!(script.state(), Some(State::LastAck));
        script.next(ACK, b"");
        assert_eq!(closed(&script), Some(CloseReason::Finished));
        assert!(script.end.tcp.is_empty(), "who closes last does not wait");
    }

    #[test]
    fn we_close_first_and_wait() {
        let mut script = accepted();
        script.shutdown();
        assert_eq!(script.state(), Some(State::FinWait1));
        script.next(ACK, b"");
        assert_eq!(script.state(), Some(State::FinWait2));
        script.next(ACK, b"late news");
        assert_eq!(script.end.bytes, b"late news", "the peer may still send");
        let (_, answers) = script.next(ACK | FIN, b"");
        assert_eq!(answers[0].ack, script.seq);
        assert_eq!(script.state(), Some(State::TimeWait));
        assert_eq!(closed(&script), Some(CloseReason::Finished));
        script.pass(Duration::from_secs(61));
        script.pass(Duration::from_secs(1));
        assert!(script.end.tcp.is_empty());
    }

    #[test]
    fn fin_that_acknowledges_ours_goes_straight_to_time_wait() {
        let mut script = accepted();
        script.shutdown();
        script.next(ACK | FIN, b"");
        assert_eq!(script.state(), Some(State::TimeWait));
    }

    #[test]
    fn fins_that_cross_wait_on_both_sides() {
        let mut script = accepted();
        let ack = script.ack;
        script.shutdown();
        let seq = script.seq;
        script.send(ACK | FIN, seq, ack, b"");
        assert_eq!(script.state(), Some(State::Closing));
        script.send(ACK, seq + 1, ack + 1, b"");
        assert_eq!(script.state(), Some(State::TimeWait));
    }

    #[test]
    fn fin_before_data_that_is_missing_waits_for_it() {
        let mut script = accepted();
        let (seq, ack) = (script.seq, script.ack);
        script.send(ACK | FIN, seq + 3, ack, b"");
        assert_eq!(script.state(), Some(State::Established));
        let (_, answers) = script.send(ACK, seq, ack, b"abc");
        assert_eq!(answers.last().unwrap().ack, seq + 4);
        assert_eq!((script.state(), &script.end.bytes[..]), (Some(State::CloseWait), &b"abc"[..]));
    }

    #[test]
    fn fin_that_comes_again_is_acknowledged_and_told_once() {
        let mut script = accepted();
        let (seq, ack) = (script.seq, script.ack);
        for _ in 0..3 {
            assert_eq!(script.send(ACK | FIN, seq, ack, b"").1.last().unwrap().ack, seq + 1);
        }
        let told = script.end.events.iter().filter(|event| **event == TcpEvent::PeerClosed).count();
        assert_eq!(told, 1);
    }

    #[test]
    fn fin_beyond_the_window_is_none() {
        let mut script = accepted();
        let (seq, ack) = (script.seq + (1 << 20), script.ack);
        script.send(ACK | FIN, seq, ack, b"");
        assert_eq!(script.state(), Some(State::Established));
    }

    #[test]
    fn data_after_the_peers_fin_is_not_delivered() {
        let mut script = accepted();
        script.next(ACK | FIN, b"");
        script.next(ACK, b"more");
        assert!(script.end.bytes.is_empty());
    }

    #[test]
    fn data_for_an_app_that_is_gone_is_answered_by_a_reset() {
        let mut script = accepted();
        let (id, now) = (script.id(), script.end.now);
        script.end.tcp.close(id, now, &mut script.end.sent).unwrap();
        script.answers();
        let (_, answers) = script.next(ACK, b"more");
        assert!(answers.iter().any(|answer| answer.flags.contains(RST)));
        assert_eq!(closed(&script), Some(CloseReason::Aborted));
    }

    #[test]
    fn reset_in_last_ack_tells_of_no_error() {
        let mut script = accepted();
        script.next(ACK | FIN, b"");
        let ack = script.ack;
        script.shutdown();
        let seq = script.seq;
        script.send(RST, seq, ack, b"");
        assert_eq!(closed(&script), Some(CloseReason::Finished));
    }
}

mod time_wait {
    use super::*;

    fn waiting(timestamps: Option<Timestamps>) -> Script {
        let mut script = accepted_with(timestamps);
        script.shutdown();
        script.next(ACK | FIN, b"");
        assert_eq!(script.state(), Some(State::TimeWait));
        script
    }

    #[test]
    fn fin_that_comes_again_begins_the_wait_anew() {
        let mut script = waiting(None);
        script.pass(Duration::from_secs(50));
        let (seq, ack) = (script.seq - 1, script.ack);
        let (_, answers) = script.send(ACK | FIN, seq, ack, b"");
        assert_eq!(answers[0].ack, seq + 1);
        script.pass(Duration::from_secs(50));
        assert_eq!(script.end.tcp.len(), 1);
        script.pass(Duration::from_secs(11));
        script.pass(Duration::from_secs(1));
        assert!(script.end.tcp.is_empty());
    }

    #[test]
    fn reset_does_not_end_it() {
        let mut script = waiting(None);
        script.next(RST, b"");
        assert_eq!(script.state(), Some(State::TimeWait));
    }

    #[test]
    fn syn_with_a_later_number_opens_again_with_later_numbers_of_ours() {
        let mut script = waiting(None);
        let (seq, ours) = (script.seq + 1, script.ack);
        let (_, answers) = script.send(SYN, seq, Seq(0), b"");
        assert_eq!((answers[0].flags, answers[0].ack), (SYN | ACK, seq + 1));
        assert!(answers[0].seq.is_after(ours));
    }

    #[test]
    fn syn_with_an_older_number_is_answered_with_where_we_are() {
        let mut script = waiting(None);
        let (seq, wanted) = (script.seq - 10, script.seq);
        let (_, answers) = script.send(SYN, seq, Seq(0), b"");
        assert_eq!((answers[0].flags, answers[0].ack), (ACK, wanted));
    }

    #[test]
    fn syn_with_a_later_timestamp_opens_again_whatever_its_number() {
        let mut script = waiting(Some(Timestamps { value: 10, echo_reply: 0 }));
        let seq = script.seq - 10_000;
        script.timestamps = Some(Timestamps { value: 9, echo_reply: 0 });
        assert_eq!(script.send(SYN, seq, Seq(0), b"").1[0].flags, ACK);
        script.timestamps = Some(Timestamps { value: 11, echo_reply: 0 });
        assert_eq!(script.send(SYN, seq, Seq(0), b"").1[0].flags, SYN | ACK);
    }

    /// A SYN that is newer is of anybody's who knows the ends.
    #[test]
    fn syn_that_nobody_takes_does_not_end_it() {
        let newer = Some(Timestamps { value: 11, echo_reply: 0 });
        let begun = || {
            let mut script = waiting(Some(Timestamps { value: 10, echo_reply: 0 }));
            script.timestamps = newer;
            script
        };
        // Nobody listens any more.
        let mut script = begun();
        let listener = ListenerId::new(0, 1);
        assert!(script.end.tcp.close_listener(listener));
        let (seq, wanted) = (script.seq + 7, script.seq);
        let (dropped, answers) = script.send(SYN, seq, Seq(0), b"");
        assert_eq!((dropped, answers[0].flags, answers[0].ack), (Some(TcpDrop::TimeWait), ACK, wanted));
        assert_eq!(script.state(), Some(State::TimeWait));
        // The backlog is full: a cookie would forget where our numbers have to begin.
        let mut script = begun();
        script.end.tcp.listeners.slots[0].embryonic = 128;
        let (dropped, answers) = script.send(SYN, seq, Seq(0), b"");
        assert_eq!((dropped, answers[0].flags), (Some(TcpDrop::TimeWait), ACK));
        assert_eq!(script.state(), Some(State::TimeWait));
        // The app does not want the peer, or the listener has had enough.
        for accept in [Accept::Ignore, Accept::Refuse] {
            let mut script = begun();
            let mut syn = Outgoing::bare(script.to, script.seq + 7, Seq(0), SYN);
            (syn.syn, syn.timestamps) = (Some(SynOptions::default()), newer);
            assert_eq!(script.end.hear_if((syn, Vec::new()), accept), Some(TcpDrop::Refused));
            assert_eq!(script.state(), Some(State::TimeWait), "{accept:?}");
        }
    }

    #[test]
    fn call_from_the_same_port_is_told_how_long_it_has_to_wait() {
        for (stamps, seconds) in [(None, 60), (Some(Timestamps { value: 10, echo_reply: 0 }), 1)] {
            let mut script = waiting(stamps);
            let last = script.ack;
            let (flow, options) = (Flow { local: SERVER, remote: CLIENT }, ConnectionOptions::default());
            let call = |script: &mut Script| {
                let now = script.end.now;
                script.end.tcp.connect(flow, &options, ConsumerId(1), now, &mut script.end.sent)
            };
            let refused = call(&mut script).unwrap_err();
            let wait = Duration::from_secs(seconds);
            assert_eq!(refused, ConnectError::InTimeWait { local: SERVER, remote: CLIENT, wait });
            assert!(refused.to_string().contains("TcpConfig::time_wait"), "{refused}");
            script.end.now += wait;
            script.end.id = Some(call(&mut script).unwrap());
            let answers = script.answers();
            assert_eq!(answers[0].flags, SYN);
            assert!(answers[0].seq.is_after(last), "behind those of the last");
            assert_eq!(script.state(), Some(State::SynSent));
        }
    }

    /// Its app is paused: it has still to take data, and to hear of the end.
    fn waiting_untold() -> Script {
        let mut script = accepted_with(Some(Timestamps { value: 10, echo_reply: 0 }));
        script.end.tcp.pause(script.id()).unwrap();
        script.next(ACK, b"unread");
        script.shutdown();
        script.next(ACK | FIN, b"");
        assert_eq!((script.state(), closed(&script)), (Some(State::TimeWait), None));
        script
    }

    fn call_from(port: u16, script: &mut Script) -> Result<ConnectionId, ConnectError> {
        let flow = Flow { local: SocketAddrV4::new(*SERVER.ip(), port), remote: CLIENT };
        let (options, now) = (ConnectionOptions::default(), script.end.now);
        script.end.tcp.connect(flow, &options, ConsumerId(1), now, &mut script.end.sent)
    }

    fn fill_by_calls(script: &mut Script) {
        for port in script.end.tcp.len() as u16..8 {
            call_from(1000 + port, script).unwrap();
        }
    }

    #[test]
    fn call_that_finds_no_room_does_not_end_it() {
        let mut script = waiting_untold();
        fill_by_calls(&mut script);
        script.end.now += Duration::from_secs(1);
        assert_eq!(call_from(SERVER.port(), &mut script), Err(ConnectError::TooMany { limit: 8 }));
        assert_eq!(script.state(), Some(State::TimeWait));
    }

    #[test]
    fn call_between_the_same_ends_takes_its_place_where_the_table_is_full() {
        let mut script = waiting(Some(Timestamps { value: 10, echo_reply: 0 }));
        fill_by_calls(&mut script);
        script.end.now += Duration::from_secs(1);
        assert!(call_from(SERVER.port(), &mut script).is_ok());
        assert_eq!((script.end.tcp.len(), script.end.tcp.tally().time_waits_recycled), (8, 0));
    }

    #[test]
    fn syn_that_nobody_takes_ends_no_other_wait() {
        let mut script = waiting_untold();
        let mut syn = Outgoing::bare(script.to, script.seq + 7, Seq(0), SYN);
        (syn.syn, syn.timestamps) = (Some(SynOptions::default()), Some(Timestamps { value: 11, echo_reply: 0 }));
        // Another waits, and has but its place.
        script.to.local.set_port(1);
        finish_one(&mut script);
        fill_by_calls(&mut script);
        for (accept, dropped, recycled) in [
            (Accept::Ignore, Some(TcpDrop::Refused), 0),
            (Accept::Refuse, Some(TcpDrop::Refused), 0),
            (Accept::Yes, None, 1),
        ] {
            assert_eq!(script.end.hear_if((syn, Vec::new()), accept), dropped, "{accept:?}");
            let tcp = &script.end.tcp;
            assert_eq!((tcp.len(), tcp.tally().time_waits_recycled), (8, recycled), "{accept:?}");
        }
    }

    /// A peer connects, and both sides close.
    fn finish_one(script: &mut Script) {
        (script.seq, script.ack) = (Seq(ISN), Seq(0));
        let (_, answers) = script.next(SYN, b"");
        script.ack = answers[0].seq + 1;
        script.next(ACK, b"");
        script.shutdown();
        script.next(ACK | FIN, b"");
    }

    #[test]
    fn oldest_makes_way_where_the_table_is_full() {
        let mut script = listening(&ListenOptions::default());
        for port in 1..=9 {
            script.to.local.set_port(port);
            finish_one(&mut script);
        }
        assert_eq!((script.end.tcp.len(), script.end.tcp.tally().time_waits_recycled), (8, 1));
    }
}

mod negotiation {
    use super::*;

    fn syn_ack(options: ConnectionOptions, syn: SynOptions, flags: TcpFlags) -> Outgoing {
        let mut script = listening(&ListenOptions { connection: options, ..ListenOptions::default() });
        let mut segment = Outgoing::bare(script.to, Seq(ISN), Seq(0), flags);
        segment.syn = Some(syn);
        segment.timestamps = Some(Timestamps { value: 5, echo_reply: 0 });
        script.end.hear((segment, Vec::new()));
        script.answers().remove(0)
    }

    const ALL: SynOptions = SynOptions { mss: Some(1000), window_scale: Some(9), sack_permitted: true };

    #[test]
    fn option_is_answered_where_both_have_it() {
        let answer = syn_ack(ConnectionOptions::default(), ALL, SYN);
        let said = answer.syn.unwrap();
        assert_eq!((said.mss, said.window_scale, said.sack_permitted), (Some(1460), Some(3), true));
        assert_eq!(answer.timestamps.unwrap().echo_reply, 5);
    }

    #[test]
    fn option_that_the_peer_lacks_is_not_answered() {
        let answer = syn_ack(ConnectionOptions::default(), SynOptions::default(), SYN);
        let said = answer.syn.unwrap();
        assert_eq!((said.window_scale, said.sack_permitted), (None, false));
    }

    #[test]
    fn option_that_is_off_is_not_answered() {
        let options = ConnectionOptions { sack: false, timestamps: false, ..ConnectionOptions::default() };
        let answer = syn_ack(options, ALL, SYN);
        assert_eq!((answer.syn.unwrap().sack_permitted, answer.timestamps), (false, None));
    }

    #[test]
    fn ecn_is_agreed_by_both_bits_and_by_us_wanting_it() {
        let both = SYN | TcpFlags::ECE | TcpFlags::CWR;
        let on = ConnectionOptions { ecn: true, ..ConnectionOptions::default() };
        assert_eq!(syn_ack(on, ALL, both).flags, SYN | ACK | TcpFlags::ECE);
        assert_eq!(syn_ack(on, ALL, SYN | TcpFlags::ECE).flags, SYN | ACK);
        assert_eq!(syn_ack(ConnectionOptions::default(), ALL, both).flags, SYN | ACK);
    }

    #[test]
    fn segments_carry_the_smaller_mss_less_the_timestamps() {
        for (mss, timestamps, wanted) in
            [(Some(1000), None, 1000), (None, None, 536), (Some(9000), None, 1460), (Some(1), None, 64)]
        {
            let mut script = listening(&ListenOptions::default());
            let mut segment = Outgoing::bare(script.to, Seq(ISN), Seq(0), SYN);
            segment.syn = Some(SynOptions { mss, ..SynOptions::default() });
            segment.timestamps = timestamps;
            script.end.hear((segment, Vec::new()));
            script.ack = script.answers()[0].seq + 1;
            script.seq += 1;
            script.next(ACK, b"");
            assert_eq!(script.end.tcp.info(script.id(), script.end.now).unwrap().snd_mss, wanted);
        }
        let script = accepted_with(Some(Timestamps { value: 1, echo_reply: 0 }));
        assert_eq!(script.end.tcp.info(script.id(), script.end.now).unwrap().snd_mss, 1448);
    }
}

mod calls {
    use super::*;

    #[test]
    fn name_of_a_dead_connection_finds_nothing() {
        let mut script = accepted();
        script.next(RST, b"");
        let (id, now, sent) = (script.id(), script.end.now, &mut script.end.sent);
        let tcp = &mut script.end.tcp;
        assert_eq!(tcp.send(id, b"x".to_vec(), now, sent), Err((SendError::NotFound, b"x".to_vec())));
        assert_eq!(tcp.send_copy(id, b"x", |_| None, now, sent), Err(SendError::NotFound));
        assert_eq!(tcp.shutdown(id, now, sent), Err(CallError::NotFound));
        assert_eq!(tcp.close(id, now, sent), Err(CallError::NotFound));
        assert_eq!(tcp.abort(id, now, sent), Err(CallError::NotFound));
        assert_eq!(tcp.pause(id), Err(CallError::NotFound));
        assert_eq!(tcp.resume(id), Err(CallError::NotFound));
        assert_eq!(tcp.set_options(id, &ConnectionOptions::default(), now, sent), Err(CallError::NotFound));
        assert!(tcp.options(id).is_none() && tcp.info(id, now).is_none() && tcp.next_data(id).is_none());
        assert!(sent.0.is_empty());
    }

    #[test]
    fn send_before_the_handshake_and_after_the_close_gives_the_data_back() {
        let mut script = calling();
        let (id, now) = (script.id(), script.end.now);
        let refused = script.end.tcp.send(id, b"x".to_vec(), now, &mut script.end.sent);
        assert_eq!(refused, Err((SendError::NotConnected, b"x".to_vec())));
        assert_eq!(script.end.tcp.shutdown(id, now, &mut script.end.sent), Err(CallError::NotConnected));
        script.next(SYN | ACK, b"");
        script.shutdown();
        let refused = script.end.tcp.send(id, b"x".to_vec(), now, &mut script.end.sent);
        assert_eq!(refused, Err((SendError::Closed, b"x".to_vec())));
        assert_eq!(script.end.tcp.shutdown(id, now, &mut script.end.sent), Ok(()), "again is no error");
    }

    #[test]
    fn send_buffer_holds_what_it_says() {
        let mut script = accepted();
        let (id, now) = (script.id(), script.end.now);
        let options = ConnectionOptions { send_buffer: 10, ..ConnectionOptions::default() };
        script.end.tcp.set_options(id, &options, now, &mut script.end.sent).unwrap();
        let tcp = &mut script.end.tcp;
        let too_long = tcp.send(id, vec![0; 11], now, &mut script.end.sent).unwrap_err().0;
        assert_eq!(too_long, SendError::TooLong { limit: 10 });
        tcp.send(id, vec![0; 6], now, &mut script.end.sent).unwrap();
        assert_eq!(tcp.send(id, vec![0; 6], now, &mut script.end.sent).unwrap_err().0, SendError::Full);
        assert_eq!(tcp.send_copy(id, &[0; 6], |bytes| Some(bytes.to_vec()), now, &mut script.end.sent), Ok(4));
        assert_eq!(tcp.send_copy(id, &[0; 6], |_| None, now, &mut script.end.sent), Err(SendError::Full));
    }

    #[test]
    fn copies_need_a_buffer() {
        let mut script = accepted();
        let (id, now) = (script.id(), script.end.now);
        let refused = script.end.tcp.send_copy(id, b"x", |_| None, now, &mut script.end.sent);
        assert_eq!(refused, Err(SendError::PoolEmpty));
    }

    #[test]
    fn connect_to_what_is_no_host_or_taken_or_out_of_range_is_refused() {
        let mut end = End::new(1);
        let now = end.now;
        let options = ConnectionOptions::default();
        let mut connect = |local: SocketAddrV4, remote: SocketAddrV4, options: &ConnectionOptions| {
            end.tcp.connect(Flow { local, remote }, options, ConsumerId(1), now, &mut end.sent).map(|_| ())
        };
        let nowhere = SocketAddrV4::new(*SERVER.ip(), 0);
        assert_eq!(connect(CLIENT, nowhere, &options), Err(ConnectError::BadAddress(nowhere)));
        let group = SocketAddrV4::new(Ipv4Addr::new(224, 0, 0, 1), 80);
        assert_eq!(connect(CLIENT, group, &options), Err(ConnectError::BadAddress(group)));
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 7);
        assert_eq!(connect(any, SERVER, &options), Err(ConnectError::BadAddress(any)));
        let zero = ConnectionOptions { ttl: 0, ..options };
        assert!(matches!(connect(CLIENT, SERVER, &zero), Err(ConnectError::Option(_))));
        assert_eq!(connect(CLIENT, SERVER, &options), Ok(()));
        assert_eq!(
            connect(CLIENT, SERVER, &options),
            Err(ConnectError::AddressInUse { local: CLIENT, remote: SERVER })
        );
    }

    #[test]
    fn port_zero_takes_free_ports_until_there_is_none() {
        let config = TcpConfig {
            ports: crate::proto::PortRange::new(100, 103).unwrap(),
            connections_max: 8,
            ..TcpConfig::default()
        };
        let mut end = End { tcp: Tcp::new(config, HashSeed::new(5, 6)).unwrap(), ..End::new(1) };
        end.tcp.listen(SocketAddrV4::new(*CLIENT.ip(), 102), &ListenOptions::default()).unwrap();
        let flow = Flow { local: SocketAddrV4::new(*CLIENT.ip(), 0), remote: SERVER };
        let now = end.now;
        let mut connect = || {
            let id = end.tcp.connect(flow, &ConnectionOptions::default(), ConsumerId(1), now, &mut end.sent)?;
            Ok(end.tcp.info(id, now).unwrap().local.port())
        };
        let mut ports = [connect().unwrap(), connect().unwrap(), connect().unwrap()];
        ports.sort_unstable();
        assert_eq!(ports, [100, 101, 103]);
        assert_eq!(connect(), Err(ConnectError::NoPort { remote: SERVER }));
    }

    #[test]
    fn full_table_refuses_a_call() {
        let mut end = End::new(1);
        let now = end.now;
        for port in 0..=8 {
            let flow = Flow { local: SocketAddrV4::new(*CLIENT.ip(), 1000 + port), remote: SERVER };
            let result = end.tcp.connect(flow, &ConnectionOptions::default(), ConsumerId(1), now, &mut end.sent);
            assert_eq!(result.err(), (port == 8).then_some(ConnectError::TooMany { limit: 8 }));
        }
    }

    #[test]
    fn abort_resets_the_peer_and_tells_the_app() {
        let mut script = accepted();
        let (id, now, seq) = (script.id(), script.end.now, script.ack);
        script.end.tcp.abort(id, now, &mut script.end.sent).unwrap();
        let answers = script.answers();
        assert!(answers[0].flags.contains(RST) && answers[0].seq == seq);
        assert_eq!(closed(&script), Some(CloseReason::Aborted));
    }

    #[test]
    fn abort_of_a_call_sends_nothing() {
        let mut script = calling();
        let (id, now) = (script.id(), script.end.now);
        script.end.tcp.abort(id, now, &mut script.end.sent).unwrap();
        assert!(script.answers().is_empty());
        assert_eq!(closed(&script), Some(CloseReason::Aborted));
    }

    #[test]
    fn close_with_no_time_to_linger_resets() {
        let mut script = accepted();
        let (id, now) = (script.id(), script.end.now);
        let options = ConnectionOptions { linger: Linger::For(Duration::ZERO), ..ConnectionOptions::default() };
        script.end.tcp.set_options(id, &options, now, &mut script.end.sent).unwrap();
        assert_eq!(script.end.tcp.options(id), Some(options));
        script.end.tcp.close(id, now, &mut script.end.sent).unwrap();
        assert!(script.answers().iter().any(|answer| answer.flags.contains(RST)));
    }

    #[test]
    fn close_with_unread_data_resets() {
        let mut script = accepted();
        let (id, now) = (script.id(), script.end.now);
        script.end.tcp.pause(id).unwrap();
        script.next(ACK, b"unread");
        script.end.tcp.close(id, now, &mut script.end.sent).unwrap();
        assert!(script.answers().iter().any(|answer| answer.flags.contains(RST)));
        assert_eq!(closed(&script), Some(CloseReason::Aborted));
    }

    #[test]
    fn paused_app_gets_its_data_when_it_resumes_and_the_end_after_it() {
        let mut script = accepted();
        let id = script.id();
        script.end.tcp.pause(id).unwrap();
        script.next(ACK, b"wait ");
        script.next(ACK | FIN, b"for me");
        assert!(script.end.bytes.is_empty() && !script.end.events.contains(&TcpEvent::PeerClosed));
        script.end.tcp.resume(id).unwrap();
        script.answers();
        assert_eq!(script.end.bytes, b"wait for me");
        assert_eq!(script.end.events[1..], [TcpEvent::Readable, TcpEvent::PeerClosed]);
    }

    #[test]
    fn options_come_back_as_they_were_set() {
        let options = ConnectionOptions {
            nodelay: false,
            quickack: true,
            keepalive: Some(Keepalive::default()),
            user_timeout: Some(Duration::from_secs(9)),
            linger: Linger::For(Duration::from_secs(2)),
            congestion: Congestion::Reno,
            rto_min: Duration::from_millis(5),
            pacing_rate: Some(1_000_000),
            mss_max: Some(900),
            ttl: 3,
            tos: 0x10,
            ..ConnectionOptions::default()
        };
        let mut script = accepted();
        let (id, now) = (script.id(), script.end.now);
        script.end.tcp.set_options(id, &options, now, &mut script.end.sent).unwrap();
        assert_eq!(script.end.tcp.options(id), Some(options));
        let wrong = ConnectionOptions { receive_buffer: 0, ..options };
        assert!(matches!(script.end.tcp.set_options(id, &wrong, now, &mut script.end.sent), Err(CallError::Option(_))));
        assert_eq!(script.end.tcp.options(id), Some(options));
    }
}

mod icmp {
    use super::super::line::Line;
    use super::*;

    #[test]
    fn claim_about_a_number_that_is_not_on_its_way_is_ignored() {
        let mut script = accepted();
        let (flow, now, ack) = (Flow { local: SERVER, remote: CLIENT }, script.end.now, script.ack);
        for seq in [ack - 1, ack, ack + 1] {
            let claim = script.end.tcp.path_mtu(flow, 600, seq, now, &mut script.end.sent);
            assert_eq!(claim, Err(IcmpRefusal::NotOnItsWay));
        }
    }

    #[test]
    fn claim_makes_segments_smaller_and_not_smaller_than_any_link() {
        let mut script = accepted();
        let (id, flow, now, seq) = (script.id(), Flow { local: SERVER, remote: CLIENT }, script.end.now, script.ack);
        script.end.tcp.send(id, vec![7; 1000], now, &mut script.end.sent).unwrap();
        let tcp = &mut script.end.tcp;
        assert_eq!(tcp.path_mtu(flow, 1500, seq, now, &mut script.end.sent), Err(IcmpRefusal::NotSmaller));
        tcp.path_mtu(flow, 68, seq, now, &mut script.end.sent).unwrap();
        assert_eq!(tcp.info(id, now).unwrap().snd_mss, 552 - 40);
        script.end.sent.0.clear();
        script.end.tick();
        let again: Vec<_> = script.end.sent.0.iter().map(|(segment, bytes)| (segment.seq, bytes.len())).collect();
        assert_eq!(again, [(seq, 512), (seq + 512, 488)], "what was too large goes again in parts");
    }

    #[test]
    fn segments_are_counted_and_routers_believed_beyond_four_billion() {
        let mut line = Line::new();
        let tally = &mut line.connection().tally;
        (tally.segments_out, tally.segments_in, tally.bytes_acked) = (u32::MAX.into(), u32::MAX.into(), 10 << 32);
        line.send(10);
        line.ack(10);
        line.send(1_000);
        let (id, now) = (line.id(), line.now);
        let info = line.tcp.info(id, now).unwrap();
        let beyond = 1 << 32;
        assert_eq!((info.segments_out, info.segments_in), (beyond + 1, beyond));
        assert_eq!((info.bytes_sent, info.bytes_acked), ((10 << 32) + 1_010, (10 << 32) + 10));
        let seq = line.connection().snd_una;
        let flow = Flow { local: CLIENT, remote: SERVER };
        let claim = line.tcp.path_mtu(flow, 600, seq, now, &mut line.wire);
        assert_eq!(claim, Ok(()), "ten bytes a segment have shown nothing");
    }

    #[test]
    fn end_of_the_stream_is_no_byte_that_was_acknowledged() {
        let mut line = Line::new();
        line.send(10);
        line.finish();
        line.ack(11);
        let (id, now) = (line.id(), line.now);
        let info = line.tcp.info(id, now).unwrap();
        assert_eq!((info.bytes_sent, info.bytes_acked), (10, 10));
    }

    #[test]
    fn established_connection_outlives_a_router_that_knows_no_way() {
        let mut script = accepted();
        let (id, flow, now, seq) = (script.id(), Flow { local: SERVER, remote: CLIENT }, script.end.now, script.ack);
        script.end.tcp.send(id, vec![7; 10], now, &mut script.end.sent).unwrap();
        let claim = script.end.tcp.unreachable(flow, seq, now, &mut script.end.sent);
        assert_eq!((claim, script.state()), (Err(IcmpRefusal::Soft), Some(State::Established)));
    }
}

mod config {
    use super::*;

    #[test]
    fn limits_that_do_not_add_up_are_refused() {
        let good = TcpConfig::default();
        let wrong = [
            TcpConfig { connections_max: 0, ..good },
            TcpConfig { chunks_max: 0, ..good },
            TcpConfig { challenge_acks_per_second: 0, ..good },
            TcpConfig { resets_per_second: 0, ..good },
            TcpConfig { time_wait: Duration::ZERO, ..good },
            TcpConfig { reassembly_max: 0, ..good },
        ];
        assert_eq!(good.check(), Ok(()));
        for config in wrong {
            let error = config.check().unwrap_err();
            assert!(error.to_string().contains("TcpConfig::"), "{error}");
        }
    }

    #[test]
    fn each_option_out_of_range_is_named_with_its_range() {
        let good = ConnectionOptions::default();
        let (zero, keepalive) = (Duration::ZERO, Keepalive::default());
        let wrong = [
            ("send_buffer", ConnectionOptions { send_buffer: 0, ..good }),
            ("send_buffer", ConnectionOptions { send_buffer: (1 << 30) + 1, ..good }),
            ("receive_buffer", ConnectionOptions { receive_buffer: 0, ..good }),
            ("receive_buffer", ConnectionOptions { receive_buffer: u32::MAX, ..good }),
            ("mss_max", ConnectionOptions { mss_max: Some(63), ..good }),
            ("rto_min", ConnectionOptions { rto_min: zero, ..good }),
            ("rto_min", ConnectionOptions { rto_min: Duration::from_secs(61), ..good }),
            ("ack_delay", ConnectionOptions { ack_delay: Duration::from_millis(500), ..good }),
            ("pacing_rate", ConnectionOptions { pacing_rate: Some(0), ..good }),
            ("ttl", ConnectionOptions { ttl: 0, ..good }),
            ("keepalive.count", ConnectionOptions { keepalive: Some(Keepalive { count: 0, ..keepalive }), ..good }),
            ("keepalive.idle", ConnectionOptions { keepalive: Some(Keepalive { idle: zero, ..keepalive }), ..good }),
            (
                "keepalive.interval",
                ConnectionOptions { keepalive: Some(Keepalive { interval: zero, ..keepalive }), ..good },
            ),
            ("user_timeout", ConnectionOptions { user_timeout: Some(zero), ..good }),
        ];
        assert_eq!(good.check(), Ok(()));
        let mut end = End::new(1);
        for (name, options) in wrong {
            let error = options.check().unwrap_err();
            assert_eq!(error.option, name);
            assert!(error.to_string().starts_with(name), "{error}");
            let listen = ListenOptions { connection: options, ..ListenOptions::default() };
            assert_eq!(end.tcp.listen(SERVER, &listen), Err(ListenError::Option(error)));
        }
    }

    #[test]
    fn listener_out_of_range_is_refused_and_one_too_many_as_well() {
        let config = TcpConfig { listeners_max: 1, ..TcpConfig::default() };
        let mut tcp: Tcp<Vec<u8>> = Tcp::new(config, HashSeed::new(1, 2)).unwrap();
        let good = ListenOptions::default();
        let at = |ip: [u8; 4], port| SocketAddrV4::new(ip.into(), port);
        let wrong = [
            ("port", at([10, 0, 0, 2], 0), good),
            ("backlog", SERVER, ListenOptions { backlog: 0, ..good }),
            ("address", at([224, 0, 0, 1], 80), good),
            ("address", at([255; 4], 80), good),
            ("syns_per_second", SERVER, ListenOptions { syns_per_second: Some(0), ..good }),
        ];
        for (name, local, options) in wrong {
            let Err(ListenError::Option(error)) = tcp.listen(local, &options) else { panic!("{name} is in range") };
            assert_eq!(error.option, name);
        }
        tcp.listen(SERVER, &good).unwrap();
        assert_eq!(tcp.listen(at([10, 0, 0, 2], 81), &good), Err(ListenError::TooMany { limit: 1 }));
    }

    #[test]
    fn pool_that_is_too_small_for_the_chunks_is_told_with_what_is_needed() {
        let config = TcpConfig { chunks_max: 1000, ..TcpConfig::default() };
        assert_eq!(config.check_pool(1500, 500), Ok(()));
        let error = config.check_pool(1499, 500).unwrap_err();
        assert_eq!(error, TcpConfigError::PoolTooSmall { buffers: 1499, needed: 1500 });
        assert!(error.to_string().contains("lower TcpConfig::chunks_max"), "{error}");
    }
}

mod random {
    use proptest::prelude::*;

    use super::*;

    /// A segment near what would be right.
    fn any_segment() -> impl Strategy<Value = (u8, i32, i32, usize, Option<i32>, u64)> {
        let near = prop_oneof![Just(0), -3..4i32, -70_000..70_000i32, any::<i32>()];
        (any::<u8>(), near.clone(), near.clone(), 0usize..40, prop::option::of(near), 0u64..5_000)
    }

    proptest! {
        /// Whatever comes, nothing panics, nothing is held without bound, and what was taken comes home.
        #[test]
        fn segments_at_random_break_nothing(
            steps in prop::collection::vec((any_segment(), 0u8..12), 1..80),
            with_timestamps in any::<bool>(),
        ) {
            let mut script = accepted_with(with_timestamps.then_some(Timestamps { value: 1, echo_reply: 0 }));
            for ((flags, seq, ack, len, timestamp, ms), call) in steps {
                let base = script.end.tcp.info(script.id(), script.end.now);
                let (rcv, snd) = base.map_or((script.seq, script.ack), |_| (script.seq, script.ack));
                script.timestamps = timestamp.map(|value| Timestamps { value: value as u32, echo_reply: ack as u32 });
                script.send(TcpFlags(flags), rcv + seq as u32, snd + ack as u32, &vec![1; len]);
                script.end.now += Duration::from_millis(ms);
                let (id, now) = (script.id(), script.end.now);
                let (tcp, sent) = (&mut script.end.tcp, &mut script.end.sent);
                match call {
                    0 => _ = tcp.send(id, vec![2; 3000], now, sent),
                    1 => _ = tcp.shutdown(id, now, sent),
                    2 => _ = tcp.pause(id),
                    3 => _ = tcp.resume(id),
                    4 if ms % 16 == 0 => _ = tcp.abort(id, now, sent),
                    5 if ms % 16 == 0 => _ = tcp.close(id, now, sent),
                    6 => _ = tcp.path_mtu(Flow { local: SERVER, remote: CLIENT }, ms as u16, snd, now, sent),
                    _ => (),
                }
                script.answers();
                prop_assert!(script.end.tcp.len() <= 8);
            }
            let (id, now) = (script.id(), script.end.now);
            _ = script.end.tcp.abort(id, now, &mut script.end.sent);
            for _ in 0..200 {
                script.pass(Duration::from_secs(2));
            }
            prop_assert_eq!((script.end.tcp.len(), script.end.tcp.chunks()), (0, 0));
        }
    }
}
