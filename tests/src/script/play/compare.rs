//! `>`: whether the segment that left is the one that the script wants, and how a script would
//! write it.

use core::fmt::Write;

use wirepath::testing::tcp::Outgoing;
use wirepath::wire::tcp::TcpFlags;

use super::{Player, SentSegment, Wanted};
use crate::script::expression::Expression;
use crate::script::segment::{Expected, OptionLine};
use crate::script::stage::Peer;

/// Sequence numbers are on a ring.
fn on_ring(number: i64) -> i64 {
    i64::from(number as u32)
}

fn as_it_is(number: i64) -> i64 {
    number
}

impl Player {
    /// The differences of a segment, each in words.
    pub(super) fn compare(&self, expected: &Expected, sent: &SentSegment) -> Result<Vec<String>, String> {
        let segment = &sent.segment;
        let peer = self.peer();
        if segment.flow != peer.flow {
            return Ok(vec![format!("it is not of flow {}", peer.name)]);
        }
        let mut wrong = Vec::new();
        let wants_push = expected.flags.contains(TcpFlags::PSH);
        let came = if wants_push { segment.flags } else { TcpFlags(segment.flags.0 & !TcpFlags::PSH.0) };
        if came != expected.flags {
            wrong.push(format!("its flags should be {}", letters(expected.flags)));
        }
        let seq = seq(peer, segment);
        let mut check = |name: &str, wanted: &Wanted, came: i64, place: fn(i64) -> i64| {
            wrong.extend(
                wanted.check(came, &self.variables, place).err().map(|wanted| format!("its {name} should be {wanted}")),
            );
        };
        check("seq", &expected.seq, seq, on_ring);
        check("ack", &expected.ack, segment.ack.0.into(), on_ring);
        check("win", &expected.win, segment.wnd.into(), as_it_is);
        check("ttl", &expected.ttl, segment.ttl.into(), as_it_is);
        check("tos", &expected.tos, segment.tos.into(), as_it_is);
        check("cut", &expected.cut, segment.segment_len.into(), as_it_is);
        let len = expected.len.value(seq, &self.variables)?;
        if sent.payload.len() as i64 != len {
            wrong.push(format!("it should have {len} bytes, not {}", sent.payload.len()));
        }
        if expected.ect.is_some_and(|ect| ect != segment.ect) {
            wrong.push(format!("it should {}be marked ECT", if segment.ect { "not " } else { "" }));
        }
        if let Some(options) = &expected.options {
            self.compare_options(options, segment, &mut wrong)?;
        }
        Ok(wrong)
    }

    /// Options are compared all, in any order.
    fn compare_options(
        &self,
        wanted: &[OptionLine],
        segment: &Outgoing,
        wrong: &mut Vec<String>,
    ) -> Result<(), String> {
        let peer = self.peer();
        let value = |expression: &Expression| expression.value(&self.variables);
        let (mut list, stamps) = (Vec::new(), stamps(peer, segment));
        for option in wanted {
            list.push(match option {
                OptionLine::Mss(mss) => format!("mss {}", value(mss)?),
                OptionLine::WindowScale(shift) => format!("ws {}", value(shift)?),
                OptionLine::SackPermitted => "sackOK".to_owned(),
                OptionLine::Timestamps(stamp, echo) => {
                    let number = |wanted: &Option<Expression>, came: Option<i64>| match wanted {
                        Some(wanted) => value(wanted).map(on_ring),
                        None => Ok(came.unwrap_or(0)),
                    };
                    let (stamp, echo) =
                        (number(stamp, stamps.map(|stamps| stamps.0))?, number(echo, stamps.map(|stamps| stamps.1))?);
                    format!("ts {stamp} {echo}")
                }
                OptionLine::Sack(blocks) => {
                    let mut text = "sack".to_owned();
                    for (left, right) in blocks {
                        _ = write!(text, " {}:{}", on_ring(value(left)?), on_ring(value(right)?));
                    }
                    text
                }
                OptionLine::Raw(_) => return Err("no bytes as they are can be expected".to_owned()),
            });
        }
        list.sort();
        let mut came = options(peer, segment);
        came.sort();
        if list != came {
            wrong.push(format!("its options should be <{}>", list.join(",")));
        }
        Ok(())
    }

    /// A segment as a script would have it.
    pub(super) fn describe(&self, sent: &SentSegment) -> String {
        let segment = &sent.segment;
        let Some(peer) = self.stage.flows.iter().find(|peer| peer.flow == segment.flow) else {
            return format!("{segment:?}");
        };
        let seq = seq(peer, segment);
        let mut text = format!("{}: > {} seq {seq}", peer.name, letters(segment.flags));
        if !sent.payload.is_empty() {
            _ = write!(text, ":{}", seq + sent.payload.len() as i64);
        }
        if segment.flags.contains(TcpFlags::ACK) {
            _ = write!(text, " ack {}", segment.ack.0);
        }
        _ = write!(text, " win {} <{}>", segment.wnd, options(peer, segment).join(","));
        if segment.ect {
            text.push_str(" ect");
        }
        text
    }
}

/// Our numbers, counted from our SYN; small ones before it are negative.
fn seq(peer: &Peer, segment: &Outgoing) -> i64 {
    let seq = segment.seq - peer.iss.unwrap_or_default();
    if seq > u32::MAX - 100_000 { i64::from(seq as i32) } else { seq.into() }
}

fn stamps(peer: &Peer, segment: &Outgoing) -> Option<(i64, i64)> {
    let stamps = segment.timestamps?;
    let value = stamps.value.wrapping_sub(peer.clock.unwrap_or(0));
    Some((value.into(), stamps.echo_reply.into()))
}

fn options(peer: &Peer, segment: &Outgoing) -> Vec<String> {
    let mut list = Vec::new();
    if let Some(syn) = &segment.syn {
        list.extend(syn.mss.map(|mss| format!("mss {mss}")));
        list.extend(syn.sack_permitted.then(|| "sackOK".to_owned()));
        list.extend(syn.window_scale.map(|shift| format!("ws {shift}")));
    }
    list.extend(stamps(peer, segment).map(|(value, echo)| format!("ts {value} {echo}")));
    if !segment.sacks().is_empty() {
        let blocks = segment.sacks().iter().map(|range| format!("{}:{}", range.left.0, range.right.0));
        list.push(format!("sack {}", blocks.collect::<Vec<_>>().join(" ")));
    }
    list
}

fn letters(flags: TcpFlags) -> String {
    let letters: String =
        "FSRPAUEW".chars().enumerate().filter(|(bit, _)| flags.0 & 1 << bit != 0).map(|(_, letter)| letter).collect();
    if letters.is_empty() { "-".to_owned() } else { letters }
}
