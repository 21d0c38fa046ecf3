//! CUBIC's curve (RFC 9438), and algorithms that are exchanged.

use crate::proto::tcp::state::connection::{Micros, Recovery};
use crate::proto::tcp::tests::sender::{MSS, Sender};
use crate::proto::tcp::tests::*;

/// A sender with CUBIC whose round trip takes `rtt_ms`, and how many of its segments were
/// acknowledged.
struct Flow {
    sender: Sender,
    acked: u32,
    rtt_ms: u64,
}

impl Flow {
    fn new(rtt_ms: u64) -> Self {
        let mut sender = Sender::new(&ConnectionOptions::default());
        sender.context(|cx| cx.connection.take_rtt(Micros::of(Duration::from_millis(rtt_ms)), true, cx.now));
        Self { sender, acked: 0, rtt_ms }
    }

    /// With a window of `segments`, of which the first is lost: seven tenths of it are left.
    fn after_loss(rtt_ms: u64, segments: u32) -> Self {
        let mut flow = Self::new(rtt_ms);
        flow.lose(segments);
        flow
    }

    fn lose(&mut self, segments: u32) {
        self.sender.connection_mut().congestion.cwnd = segments * MSS;
        self.sender.send(segments);
        self.sender.wait_ms(self.rtt_ms);
        self.sender.ack(self.acked, &[(self.acked + 1, self.acked + segments)]);
        assert_eq!(self.sender.resend(), [self.acked]);
        self.sender.wait_ms(self.rtt_ms);
        self.acked += segments;
        self.sender.ack(self.acked, &[]);
        assert_eq!((self.sender.recovery(), self.cwnd()), (Recovery::Open, f64::from(segments) * 0.7));
    }

    /// In segments.
    fn cwnd(&self) -> f64 {
        f64::from(self.sender.connection().congestion.cwnd) / f64::from(MSS)
    }

    /// So many segments are sent, and acknowledged a round trip later.
    fn round(&mut self, segments: u32) {
        self.sender.send(segments);
        self.sender.wait_ms(self.rtt_ms);
        self.acked += segments;
        self.sender.ack(self.acked, &[]);
    }

    fn full_round(&mut self) {
        self.round(self.cwnd() as u32);
    }
}

#[test]
fn window_follows_the_curve_back_to_where_the_loss_was() {
    let mut flow = Flow::after_loss(100, 100);
    // RFC 9438 4.2: K = cbrt((W_max - cwnd_epoch) / C) = 4.217 s.
    let k = (30.0f64 / 0.4).cbrt();
    for round in 0..50 {
        flow.full_round();
        // The target is the curve's value a round trip later; in the first one the window of Reno
        // is ahead.
        let at = 0.1 * f64::from(round + 1);
        let wanted = 0.4 * (at - k).powi(3) + 100.0;
        assert!((flow.cwnd() - wanted).abs() < 2.0, "after {at:.1} s {:.2}, not {wanted:.2}", flow.cwnd());
    }
}

#[test]
fn short_round_trips_have_the_window_grow_as_renos() {
    let mut flow = Flow::after_loss(10, 20);
    // RFC 9438 4.3: alpha = 3 (1 - 0.7) / (1 + 0.7) segments a round trip, while the curve has
    // hardly moved.
    for round in 1..=10 {
        flow.full_round();
        let wanted = 14.0 + f64::from(round) * 9.0 / 17.0;
        assert!((flow.cwnd() - wanted).abs() < 0.5, "after {round} round trips {:.2}, not {wanted:.2}", flow.cwnd());
    }
}

#[test]
fn window_that_has_reached_its_maximum_grows_by_a_segment_each_round_trip() {
    let mut flow = Flow::after_loss(10, 20);
    while flow.cwnd() < 20.0 {
        flow.full_round();
    }
    let reached = flow.cwnd();
    (0..10).for_each(|_| flow.full_round());
    let grown = flow.cwnd() - reached;
    assert!((9.0..10.5).contains(&grown), "RFC 9438 4.3: alpha is 1 from W_max on: {grown:.2}");
}

#[test]
fn flow_that_loses_below_its_maximum_leaves_room() {
    let mut flow = Flow::after_loss(10, 100);
    assert_eq!(flow.sender.connection().congestion.w_max, 100 * MSS);
    flow.lose(80);
    assert_eq!(flow.sender.connection().congestion.w_max, 68 * MSS, "RFC 9438 4.7: 80 (1 + 0.7) / 2");
}

#[test]
fn window_grows_by_half_in_a_round_trip_at_most() {
    let mut flow = Flow::after_loss(10, 100);
    flow.full_round();
    let before = flow.cwnd();
    flow.rtt_ms = 20_000;
    flow.full_round();
    assert!(flow.cwnd() <= 1.5 * before, "RFC 9438 4.2: {:.1} after {before:.1}", flow.cwnd());
}

#[test]
fn time_in_which_the_app_has_little_to_say_does_not_count() {
    let mut flow = Flow::after_loss(100, 100);
    (0..3).for_each(|_| flow.full_round());
    (0..100).for_each(|_| flow.round(1));
    let before = flow.cwnd();
    flow.full_round();
    flow.full_round();
    // As steep as where it stopped: 3 C K^2 is 21 segments a second.
    assert!(flow.cwnd() < before + 5.0, "RFC 9438 4.2: {:.1} after {before:.1}", flow.cwnd());
}

#[test]
fn algorithm_that_takes_over_knows_of_no_loss_before() {
    let mut flow = Flow::after_loss(10, 100);
    set_congestion(&mut flow.sender, Congestion::Reno);
    let connection = flow.sender.connection();
    assert_eq!((connection.congestion.kind, connection.congestion.w_max), (Congestion::Reno, 0));
    assert_eq!(flow.cwnd(), 70.0, "the window stays");
}

#[test]
fn congestion_control_that_is_turned_on_begins_with_what_is_on_its_way() {
    let mut sender = without_control();
    sender.send(100);
    set_congestion(&mut sender, Congestion::Cubic);
    assert_eq!(sender.connection().congestion.cwnd, 100 * MSS);
    assert!(sender.context(|cx| cx.cwnd_room()) == 0);
}

#[test]
fn congestion_control_that_is_turned_on_within_a_recovery_has_a_window_after_it() {
    let mut sender = without_control();
    sender.send(20);
    sender.wait_ms(10);
    sender.ack(0, &[(1, 5)]);
    assert_eq!((sender.recovery(), sender.resend()), (Recovery::Fast, vec![0]));
    set_congestion(&mut sender, Congestion::Cubic);
    sender.wait_ms(10);
    sender.ack(20, &[]);
    assert_eq!((sender.recovery(), sender.connection().congestion.cwnd), (Recovery::Open, 14 * MSS));
}

fn without_control() -> Sender {
    Sender::measured(&ConnectionOptions { congestion: Congestion::None, ..ConnectionOptions::default() })
}

fn set_congestion(sender: &mut Sender, congestion: Congestion) {
    let id = ConnectionId { slot: sender.slot, generation: sender.connection().generation };
    let options = ConnectionOptions { congestion, ..ConnectionOptions::default() };
    sender.tcp.set_options(id, &options, sender.now, &mut sender.sent).unwrap();
}

/// A chunk that the device cuts is one here, and many segments at the peer, which acknowledges them
/// as they arrive.
#[test]
fn acknowledgments_within_what_the_device_cut_grow_the_window_and_measure() {
    let mut sender = Sender::with_sack();
    sender.send_len(10 * MSS);
    sender.wait_ms(20);
    sender.ack(2, &[]);
    assert!(sender.connection().rtt.srtt > Micros(10_000), "what was sent 20 ms ago has arrived");
    (2..=5).for_each(|pair| _ = sender.ack(2 * pair, &[]));
    assert_eq!(sender.connection().congestion.cwnd, 20 * MSS);
}

/// RFC 5681 3.1, RFC 3465: acknowledged bytes count, including those that SACK had reported before.
#[test]
fn segments_that_came_before_their_turn_grow_the_window_as_others_do() {
    let mut sender = Sender::with_sack();
    sender.send(10);
    sender.wait_ms(10);
    for pair in 0..5 {
        let first = 2 * pair;
        sender.ack(first, &[(first + 1, first + 2)]);
        sender.ack(first + 2, &[]);
    }
    assert_eq!((sender.recovery(), sender.connection().congestion.cwnd), (Recovery::Open, 20 * MSS));
}
