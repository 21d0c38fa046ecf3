//! The lines of the table: what the project promises of the trading loop's libraries.

use super::depth_feed::DepthFeed;
use super::itch_day::{DaySize, ExposedDay, ItchDay};
use super::order_feed;
use crate::measure::sampling::interleave;
use crate::measure::table::{DemuxMatch, Line};

/// All lines, each as soon as it is measured, without times for zero samples; `instructions` counts
/// those of a path. The last ones are those of benches in other packages.
pub fn lines(samples: usize, instructions: impl Fn(&str) -> DemuxMatch, mut add: impl FnMut(Line)) {
    let (mut channel, mut venue) = (ItchDay::draw(DaySize::CHANNEL), ItchDay::draw(DaySize::VENUE));
    let (mut depth, mut exposed) = (DepthFeed::draw(), ExposedDay::expose(DaySize::CHANNEL));
    let (mut b3, mut eobi) = (order_feed::b3(), order_feed::eobi());
    let [channel, exposed, venue, depth, b3, eobi] = interleave(
        samples,
        [
            &mut || channel.time(),
            &mut || exposed.time(),
            &mut || venue.time(),
            &mut || depth.time(),
            &mut || b3.time(),
            &mut || eobi.time(),
        ],
    );
    let what = "ITCH 5.0 in MoldUDP64 to books of each order, a day's mix";
    add(Line::new(what, "M/s", channel.rate()).at_least(15.0).hoping(25.0));
    add(Line::new("  instructions a message", "instr", instructions("itch-books")));
    add(Line::new(
        "  with the books exposed to READs, up to 8 a packet: added to a message",
        "ns",
        exposed.minus(&channel),
    ));
    add(Line::new("  instructions a message, with the books exposed", "instr", instructions("itch-books-exposed")));
    add(Line::new("  of 9,000 instruments, in books of the default size", "M/s", venue.rate()));
    let what = "MDP 3.0 incremental to books by position, changes for the most part";
    add(Line::new(what, "M/s", depth.rate()).at_least(10.0).hoping(20.0));
    add(Line::new("  instructions a message", "instr", instructions("mdp3-books")));
    add(Line::new("B3 UMDF incremental to books of each order, numbered by instrument", "M/s", b3.rate()));
    add(Line::new("T7 EOBI incremental to books of each order, numbered by product", "M/s", eobi.rate()));
    if samples > 0 {
        super::elsewhere::lines(add);
    }
}
