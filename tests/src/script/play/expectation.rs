//! `expect`: the app's events, and the values that the machine reports.

use wirepath::pipeline::tcp::{TcpInfo, TcpTally};
use wirepath::time::Duration;

use super::{Expectation, Instant, LATE, Player, Secret, TcpEvent, When, step};
use crate::script::stage::Peer;

impl Player {
    pub(super) fn expect(&mut self, when: When, expectation: &Expectation) -> Result<(), String> {
        match expectation {
            Expectation::Event(name) => return self.expect_event(when, name),
            _ => self.wait(when)?,
        }
        match expectation {
            Expectation::Event(_) => Ok(()),
            Expectation::NoEvent => match self.stage.events.front() {
                Some((_, event)) => Err(format!("the app heard {}", event_name(*event))),
                None => Ok(()),
            },
            Expectation::Data(len) => {
                let len = len.value(&self.variables)?;
                let peer = self.peer_mut();
                let came = i64::from(peer.delivered - peer.expected);
                peer.expected = peer.delivered;
                if came == len { Ok(()) } else { Err(format!("the app got {came} bytes")) }
            }
            Expectation::Drop(name) => {
                let came = self.stage.dropped.map_or("none".to_owned(), |reason| format!("{reason:?}"));
                if came == *name { Ok(()) } else { Err(format!("the last segment was dropped for {came}")) }
            }
            Expectation::State(name) => {
                let came = self.state();
                if came == *name { Ok(()) } else { Err(format!("the state is {came}")) }
            }
            Expectation::Number(name, comparison, value) => {
                let (came, value) = (self.number(name)?, value.value(&self.variables)?);
                if comparison.holds(came, value) { Ok(()) } else { Err(format!("{name} is {came}")) }
            }
            Expectation::Differs(secret, other) => {
                let (ours, theirs) = (self.secret(*secret)?, self.secret_of(*secret, other)?);
                if ours == theirs { Err("they are the same".to_owned()) } else { Ok(()) }
            }
            Expectation::IsnAfterLast => {
                let (ours, last) = (self.peer().iss, self.peer().iss_before);
                let (ours, last) = ours.zip(last).ok_or("there is no connection before, or no SYN yet")?;
                if ours.is_after(last) { Ok(()) } else { Err(format!("{ours:?} is not after {last:?}")) }
            }
            Expectation::IsnAfter(other) => {
                let (ours, theirs) = (self.secret(Secret::Isn)?, self.secret_of(Secret::Isn, other)?);
                if (ours.wrapping_sub(theirs) as i32) > 0 {
                    Ok(())
                } else {
                    Err(format!("{ours} is not after {theirs}"))
                }
            }
        }
    }

    fn expect_event(&mut self, when: When, name: &str) -> Result<(), String> {
        if let When::After(from, to) = when {
            self.stage.end_burst();
            let base: Instant = self.stage.now;
            let late = LATE.max(step(to) + step(to));
            self.stage.advance(base + to + late, |stage| !stage.events.is_empty());
            if !self.stage.events.is_empty() && self.stage.now + super::EARLY < base + from {
                return Err(format!("it came {} early", (base + from).since(self.stage.now)));
            }
        }
        let Some((flow, event)) = self.stage.events.pop_front() else { return Err("the app heard nothing".to_owned()) };
        if event_name(event) != name {
            return Err(format!("the app heard {}", event_name(event)));
        }
        if flow != self.flow {
            return Err(format!("the app heard it of flow {}", self.stage.flows[flow].name));
        }
        Ok(())
    }

    fn state(&self) -> String {
        self.info().map_or("none".to_owned(), |info| format!("{:?}", info.state))
    }

    fn info(&self) -> Option<TcpInfo> {
        self.peer().id.and_then(|id| self.stage.tcp.info(id, self.stage.now))
    }

    fn secret(&self, secret: Secret) -> Result<u32, String> {
        of(self.peer(), secret)
    }

    fn secret_of(&self, secret: Secret, name: &str) -> Result<u32, String> {
        let peer = self.stage.flows.iter().find(|peer| peer.name == name);
        of(peer.ok_or_else(|| format!("there is no flow {name}"))?, secret)
    }

    /// A number that the machine reports about itself or the connection.
    fn number(&self, name: &str) -> Result<i64, String> {
        match name {
            "connections" => return Ok(self.stage.tcp.len() as i64),
            "isn" => return self.secret(Secret::Isn).map(i64::from),
            "chunks" => return Ok(self.stage.tcp.chunks() as i64),
            _ => (),
        }
        match name.strip_prefix("tally.") {
            Some(name) => tally(self.stage.tcp.tally(), name),
            None => info(&self.info().ok_or("the connection is gone")?, name),
        }
    }
}

fn of(peer: &Peer, secret: Secret) -> Result<u32, String> {
    let number = match secret {
        Secret::Isn => peer.iss.map(|iss| iss.0),
        Secret::Port => Some(peer.flow.local.port().into()),
        Secret::Clock => peer.clock,
    };
    number.ok_or_else(|| format!("flow {} has shown none yet", peer.name))
}

/// The name of an event in scripts.
pub(super) fn event_name(event: TcpEvent) -> String {
    match event {
        TcpEvent::Connected { .. } => "Connected".to_owned(),
        event => format!("{event:?}"),
    }
}

fn tally(tally: &TcpTally, name: &str) -> Result<i64, String> {
    let value = match name {
        "segments_in" => tally.segments_in,
        "segments_out" => tally.segments_out,
        "segments_resent" => tally.segments_resent,
        "active_opens" => tally.active_opens,
        "passive_opens" => tally.passive_opens,
        "established" => tally.established,
        "resets_in" => tally.resets_in,
        "resets_out" => tally.resets_out,
        "resets_suppressed" => tally.resets_suppressed,
        "resets_lost" => tally.resets_lost,
        "challenge_acks" => tally.challenge_acks,
        "challenge_acks_suppressed" => tally.challenge_acks_suppressed,
        "syn_cookies_sent" => tally.syn_cookies_sent,
        "syn_cookies_accepted" => tally.syn_cookies_accepted,
        "timeouts" => tally.timeouts,
        "tail_loss_probes" => tally.tail_loss_probes,
        "fast_recoveries" => tally.fast_recoveries,
        "undone_recoveries" => tally.undone_recoveries,
        "dsacks_in" => tally.dsacks_in,
        "dsacks_out" => tally.dsacks_out,
        "out_of_order" => tally.out_of_order,
        "duplicates" => tally.duplicates,
        "zero_window_probes" => tally.zero_window_probes,
        "keepalive_probes" => tally.keepalive_probes,
        "output_busy" => tally.output_busy,
        "negative_advice" => tally.negative_advice,
        _ => return Err(format!("there is no tally.{name}")),
    };
    Ok(value as i64)
}

/// Durations are in microseconds, booleans 0 and 1.
fn info(info: &TcpInfo, name: &str) -> Result<i64, String> {
    let us = |span: Duration| (span.as_nanos() / 1_000) as i64;
    Ok(match name {
        "recovering" => info.recovering.into(),
        "backoff" => info.backoff.into(),
        "probes" => info.probes.into(),
        "timestamps" => info.timestamps.into(),
        "sack" => info.sack.into(),
        "ecn" => info.ecn.into(),
        "snd_wscale" => info.snd_wscale.into(),
        "rcv_wscale" => info.rcv_wscale.into(),
        "snd_mss" => info.snd_mss.into(),
        "rcv_mss" => info.rcv_mss.into(),
        "rto" => us(info.rto),
        "srtt" => us(info.srtt),
        "rttvar" => us(info.rttvar),
        "rtt_min" => us(info.rtt_min),
        "cwnd" => info.cwnd.into(),
        "ssthresh" => info.ssthresh.into(),
        "snd_wnd" => info.snd_wnd.into(),
        "rcv_wnd" => info.rcv_wnd.into(),
        "unacked_len" => info.unacked_len.into(),
        "sacked_len" => info.sacked_len.into(),
        "lost_len" => info.lost_len.into(),
        "resent_len" => info.resent_len.into(),
        "unsent_len" => info.unsent_len.into(),
        "unread_len" => info.unread_len.into(),
        "silence" => us(info.silence),
        "since_sent" => us(info.since_sent.unwrap_or_default()),
        "bytes_sent" => info.bytes_sent as i64,
        "bytes_acked" => info.bytes_acked as i64,
        "bytes_received" => info.bytes_received as i64,
        "segments_out" => info.segments_out as i64,
        "segments_in" => info.segments_in as i64,
        "resent_segments" => info.resent_segments.into(),
        "dsacks" => info.dsacks.into(),
        "timeouts" => info.timeouts.into(),
        "reordering_seen" => info.reordering_seen.into(),
        "soft_errors" => info.soft_errors.into(),
        _ => return Err(format!("nobody tells {name:?}")),
    })
}
