use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const POLICY: ImagePolicy =
    ImagePolicy { queue_len_max: 64, messages_max: 8, interval_ns: 100, timeout_ns: 1_000, distance_max: 50 };

/// Books that are the list of the applied numbers.
struct Play {
    recovery: ImageRecovery,
    books: Vec<u64>,
    next: u64,
}

impl Play {
    fn new() -> Self {
        Self { recovery: ImageRecovery::new(POLICY), books: Vec::new(), next: 1 }
    }

    fn live(&mut self, count: u64) -> &mut Self {
        for seq in self.next..self.next + count {
            if self.recovery.live(seq, &seq.to_be_bytes()) == LiveMessage::Apply {
                self.books.push(seq);
            }
        }
        self.next += count;
        self
    }

    fn lose(&mut self, count: u64) -> &mut Self {
        self.recovery.gap(Gap { from: self.next, to: self.next + count - 1 });
        self.next += count;
        self
    }

    fn image(&mut self, id: u64, first_live: u64, now_ns: u64) -> ImageVerdict {
        let verdict = self.recovery.offer(id, first_live, now_ns);
        if verdict == ImageVerdict::Take {
            self.books = (1..first_live).collect();
        }
        verdict
    }

    fn catch_up(&mut self, max: usize) -> bool {
        let books = &mut self.books;
        self.recovery.catch_up(max, |seq, message| {
            assert_eq!(message, seq.to_be_bytes());
            books.push(seq);
        })
    }

    #[track_caller]
    fn is_whole(&self) {
        assert!(!self.recovery.is_active());
        assert_eq!(self.books, (1..self.next).collect::<Vec<_>>());
    }
}

#[test]
fn nothing_is_asked_for_while_nothing_is_missing() {
    let mut play = Play::new();
    assert_eq!(play.live(20).recovery.poll(0), None);
    play.is_whole();
}

#[test]
fn image_and_the_messages_queued_behind_it_are_the_books() {
    let mut play = Play::new();
    play.live(3).lose(2).live(2);
    assert_eq!(play.recovery.poll(5), Some(ImageRequest { id: 1, covers_from: 6 }));
    assert_eq!(play.image(1, 7, 6), ImageVerdict::Take);
    play.live(2);
    assert!(!play.catch_up(2) && play.catch_up(9));
    play.live(3).is_whole();
    assert_eq!(play.recovery.counts().completed, 1);
}

#[test]
fn image_that_ends_right_before_the_queue_is_taken_and_one_number_less_is_too_old() {
    for (first_live, verdict) in [(6, ImageVerdict::Take), (5, ImageVerdict::Discard)] {
        let mut play = Play::new();
        play.live(3).lose(2).live(2).recovery.poll(0).unwrap();
        assert_eq!(play.image(1, first_live, 1), verdict);
    }
}

#[test]
fn image_that_is_ahead_of_the_live_feed_waits_for_it() {
    let mut play = Play::new();
    play.lose(2).recovery.poll(0).unwrap();
    assert_eq!(play.image(1, 6, 1), ImageVerdict::Take);
    assert!(!play.catch_up(9) && play.recovery.is_active(), "3 to 5 are not here");
    assert!(!play.live(2).catch_up(9), "5 is not here");
    assert!(play.live(3).catch_up(9));
    play.live(1).is_whole();
}

#[test]
fn image_from_far_ahead_is_doubtful() {
    let mut play = Play::new();
    play.lose(2).recovery.poll(0).unwrap();
    assert_eq!(play.image(1, 3 + POLICY.distance_max + 1, 1), ImageVerdict::Discard);
    assert_eq!(play.recovery.counts().doubtful, 1);
    assert_eq!(play.recovery.poll(50), None, "and the next request waits");
    assert!(play.recovery.poll(101).is_some());
}

#[test]
fn image_that_nobody_asked_for_changes_nothing() {
    let mut play = Play::new();
    play.live(2);
    assert_eq!(play.image(1, 2, 0), ImageVerdict::Discard);
    play.lose(1);
    assert_eq!(play.image(1, 4, 0), ImageVerdict::Discard, "not asked for yet");
    assert_eq!(play.recovery.counts().unwanted, 2);
}

#[test]
fn hole_behind_an_image_needs_another_one() {
    let mut play = Play::new();
    play.live(1).lose(1).live(3).recovery.poll(0).unwrap();
    assert_eq!(play.image(1, 3, 1), ImageVerdict::Take);
    play.catch_up(1);
    play.lose(2).live(1);
    let request = play.recovery.poll(200).unwrap();
    assert_eq!(request.covers_from, 8);
    assert_eq!(play.image(request.id, 8, 201), ImageVerdict::Take);
    assert!(play.catch_up(9));
    play.is_whole();
}

#[test]
fn hole_that_an_image_covers_needs_no_other_one() {
    let mut play = Play::new();
    play.live(3).lose(2).live(2).recovery.poll(0).unwrap();
    assert_eq!(play.image(1, 20, 1), ImageVerdict::Take);
    play.lose(4).live(10);
    assert!(play.catch_up(99));
    play.is_whole();
}

#[test]
fn full_queue_drops_the_oldest_and_a_later_image_will_do() {
    let mut play = Play::new();
    play.lose(1).live(20);
    assert_eq!(play.recovery.counts().overflowed, 12);
    assert_eq!(play.recovery.poll(0), Some(ImageRequest { id: 1, covers_from: 14 }));
    assert_eq!(play.image(1, 15, 1), ImageVerdict::Take);
    assert!(play.catch_up(9));
    play.is_whole();
}

#[test]
fn queue_that_overflows_while_it_is_applied_needs_another_image() {
    let mut play = Play::new();
    play.lose(1).live(4).recovery.poll(0).unwrap();
    assert_eq!(play.image(1, 2, 1), ImageVerdict::Take);
    play.live(9);
    assert!(!play.catch_up(9), "the books would lack a message");
    let request = play.recovery.poll(200).unwrap();
    assert_eq!(play.image(request.id, 15, 201), ImageVerdict::Take);
    assert!(play.catch_up(9));
    play.is_whole();
}

#[test]
fn failed_requests_are_repeated_ever_more_slowly() {
    let mut play = Play::new();
    play.lose(1);
    let mut times = Vec::new();
    for now_ns in 0..1_600 {
        if let Some(request) = play.recovery.poll(now_ns) {
            times.push(now_ns);
            play.recovery.failed(request.id, now_ns);
        }
    }
    assert_eq!(times, [0, 100, 300, 700, 1_500]);
}

#[test]
fn request_waits_for_its_image_as_long_as_others_come_first() {
    // One thread asks for one image after the other, each of which takes nearly its whole time.
    const IMAGE_NS: u64 = POLICY.timeout_ns * 7 / 10;
    let mut channels = [Play::new(), Play::new(), Play::new()];
    channels.iter_mut().for_each(|play| _ = play.live(1).lose(1));
    let (mut waiting, mut current) = (VecDeque::new(), None);
    for now_ns in (0..10 * POLICY.timeout_ns).step_by(50) {
        for (idx, play) in channels.iter_mut().enumerate() {
            waiting.extend(play.recovery.poll(now_ns).map(|request| (idx, request)));
            play.catch_up(9);
        }
        if let Some((idx, ImageRequest { id, covers_from }, _)) = current.take_if(|(_, _, end_ns)| now_ns >= *end_ns) {
            let play: &mut Play = &mut channels[idx];
            assert_eq!(play.image(id, covers_from, now_ns), ImageVerdict::Take, "channel {idx} at {now_ns}");
        }
        if current.is_none() {
            current = waiting.pop_front().map(|(idx, request)| (idx, request, now_ns + IMAGE_NS));
        }
    }
    channels.iter().for_each(Play::is_whole);
}

#[test]
fn restart_ends_the_recovery() {
    let mut play = Play::new();
    play.lose(5).live(2).recovery.poll(0).unwrap();
    play.recovery.restart();
    (play.next, play.books) = (1, Vec::new());
    assert_eq!(play.image(1, 6, 1), ImageVerdict::Discard);
    play.live(3).is_whole();
}

proptest! {
    #[test]
    fn books_are_whole_or_said_to_be_stale(
        steps in prop::collection::vec((0_u8..6, 1_u64..6, 0_u64..12), 1..200),
    ) {
        let (mut play, mut now_ns, mut asked) = (Play::new(), 0, None);
        for (kind, count, offset) in steps {
            now_ns += 37;
            match kind {
                0 => { play.lose(count); }
                1 => asked = play.recovery.poll(now_ns).or(asked),
                2 if let Some(ImageRequest { id, .. }) = asked => {
                    // The server's image is of about now.
                    let _ = play.image(id, (play.next + 2).saturating_sub(offset).max(1), now_ns);
                }
                3 => { play.catch_up(count as usize); }
                _ => { play.live(count); }
            }
            if !play.recovery.is_active() {
                play.is_whole();
            }
        }
    }
}
