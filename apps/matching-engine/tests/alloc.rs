//! No order makes the engine allocate.
#![allow(clippy::unwrap_used, reason = "a panic is the report of a test")]

mod common;

use common::{Flow, Rig, Step};
use market::{Locate, Symbol};
use matching_engine::{Event, ItchView, Sink, reports};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// Makes both views of each event, and keeps their sizes.
struct Views {
    itch: ItchView,
    bytes: usize,
    reports: usize,
}

impl Sink for Views {
    fn take(&mut self, event: &Event) {
        let bytes = &mut self.bytes;
        self.itch.show(event, &mut |message: &[u8]| *bytes += message.len());
        self.reports += reports(event).count();
    }
}

#[test]
fn a_hundred_thousand_steps_and_their_views_allocate_nothing() {
    let (mut flow, mut rig) = (Flow::new(5, 2), Rig::new(2, 1 << 12));
    let names = vec![Symbol::new("ZAAA").unwrap(), Symbol::new("ZBBB").unwrap()];
    let mut views = Views { itch: ItchView::new(names), bytes: 0, reports: 0 };
    rig.ids.reserve(200_000);
    let mut allocated = 0;
    for number in 0..100_000 {
        let (step, now_ns) = (flow.next(), flow.now_ns());
        let before = allocations::count();
        rig.play(&step, now_ns, &mut views);
        // The memory of an auction grows with the largest.
        if !matches!(step, Step::Cross(..)) {
            allocated += allocations::count() - before;
        }
        if number == 0 {
            rig.engine.quote(Locate(1), 0, &mut views).unwrap();
        }
    }
    assert_eq!(allocated, 0);
    assert!(views.bytes > 1_000_000 && views.reports > 100_000, "{} {}", views.bytes, views.reports);
}
