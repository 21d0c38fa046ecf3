//! Frames come in: from the wire, past the flow rules, into receiving rings.
//!
//! One frame is processed at a time. It is parsed once; each queue that gets it gets a copy, with
//! the queue's own flow tag, hash and stripped VLAN tag. If a queue has no posted WQE, the frame
//! waits, and so do all frames after it, as with priority flow control: nothing is lost, but a
//! queue that is not served stops all queues. So it does that for a while alone, as hardware
//! prevents that a port stalls (`pfc-prevention-tout` of ethtool): then its frames are lost and
//! counted, until it is served again. A lossy NIC counts each such frame and goes on.

use super::fcs;
use super::rq::{Received, Rq, RqFault};
use super::verdict::{VLAN_STRIPPED, Verdict};
use crate::hca::control::{EventKind, WqState};
use crate::hca::diagnosis::Diagnoses;
use crate::hca::environment::{Environment, LinkState};
use crate::hca::qp::Receiver;
use crate::hca::steering::{Delivery, Headers, Rest, Spread};
use crate::hca::{Hca, RxHeaders};

/// The frame at hand.
#[derive(Default)]
pub(in crate::hca) struct Receive {
    frame: Vec<u8>,
    /// A frame that the current one has overtaken: it comes next.
    overtaken: Vec<u8>,
    has_overtaken: bool,
    headers: Headers,
    verdict: Verdict,
    deliveries: Vec<Delivery>,
    /// How many of them are done.
    done: usize,
    /// The next delivery found no WQE.
    waits: bool,
    /// Since when, in cycles.
    waits_since: u64,
    /// The frame is RDMA's.
    is_packet: bool,
    /// The frame as a queue wants it that strips tags or wants the frame check sequence.
    changed: Vec<u8>,
}

/// Whether there was a frame.
enum Taken {
    Frame,
    /// There was a frame, and it is not for this side of the port.
    Gone,
    Nothing,
}

/// How long frames wait for a queue that is not served: longer than a program that polls is kept
/// from its processor on a busy machine, and shorter than the patience of who waits for an answer
/// of another queue.
const STALL_NS_MAX: u64 = 3_000_000_000;

/// Where a VLAN tag lies, EtherType included.
const TAG: std::ops::Range<usize> = 12..16;

impl Hca {
    /// Receives up to `budget` frames, and gives up to as many WQEs of rings in error back. Returns
    /// how many of both.
    pub(in crate::hca) fn receive_some(&mut self, budget: usize, environment: &mut Environment<'_>) -> usize {
        let mut count = self.flush_rings(budget, environment);
        if self.link == LinkState::Down {
            return count;
        }
        for _ in 0..budget {
            if !self.receive.waits {
                match self.take_frame(environment) {
                    Taken::Frame => {}
                    Taken::Gone => {
                        count += 1;
                        continue;
                    }
                    Taken::Nothing => break,
                }
            }
            if self.receive.is_packet {
                self.deliver_packet(environment);
            } else {
                self.deliver(environment);
            }
            if self.receive.waits {
                break;
            }
            count += 1;
        }
        count
    }

    fn deliver_packet(&mut self, environment: &mut Environment<'_>) {
        let frame = std::mem::take(&mut self.receive.frame);
        self.receive.waits = !self.take_packet(&frame, environment);
        self.receive.frame = frame;
    }

    #[inline]
    fn flush_rings(&mut self, budget: usize, environment: &Environment<'_>) -> usize {
        let mut count = 0;
        for rq in self.rqs.iter_mut() {
            count += rq.flush(budget - count, &mut self.cqs, environment);
        }
        self.counters.rx_flushed += count as u64;
        count
    }

    /// Takes the next frame, parses it, and finds the queues that get it.
    #[inline]
    fn take_frame(&mut self, environment: &mut Environment<'_>) -> Taken {
        let Self { receive, counters, chance, steering, endpoints, config, .. } = self;
        if receive.has_overtaken {
            std::mem::swap(&mut receive.frame, &mut receive.overtaken);
            receive.has_overtaken = false;
        } else if !environment.wire.receive(&mut receive.frame) {
            return Taken::Nothing;
        } else if chance.frame_is_lost() {
            counters.rx_lost += 1;
            return Taken::Gone;
        } else if chance.frame_is_overtaken() && environment.wire.receive(&mut receive.overtaken) {
            counters.rx_reordered += 1;
            std::mem::swap(&mut receive.frame, &mut receive.overtaken);
            receive.has_overtaken = true;
        }
        receive.is_packet = endpoints.is_for_rdma(&receive.frame, &config.mac);
        if receive.is_packet {
            return Taken::Frame;
        }
        let Some(headers) = Headers::parse(&receive.frame) else {
            counters.rx_runts += 1;
            return Taken::Gone;
        };
        let Receive { frame, deliveries, .. } = receive;
        let rest = steering.decide(&headers, frame, || environment.wire.kernel_wants(frame), deliveries);
        match rest {
            Rest::Taken => {}
            Rest::Dropped => counters.rx_dropped += 1,
            Rest::Kernel => {
                counters.rx_to_kernel += 1;
                environment.wire.to_kernel(frame);
            }
        }
        if deliveries.is_empty() {
            return Taken::Gone;
        }
        counters.rx_frames += 1;
        counters.rx_bytes += frame.len() as u64;
        receive.verdict = Verdict::of(&headers, frame);
        receive.headers = headers;
        receive.done = 0;
        Taken::Frame
    }

    /// Gives the frame to all queues that are to have it, or waits for one without a WQE.
    #[inline]
    fn deliver(&mut self, environment: &Environment<'_>) {
        let has_waited = core::mem::take(&mut self.receive.waits);
        if !has_waited {
            self.receive.waits_since = environment.clock.cycles();
        }
        while let Some(&delivery) = self.receive.deliveries.get(self.receive.done) {
            let (rq, received) = self.deliver_to(delivery, environment);
            match received {
                Received::Stored => {}
                Received::NoWqe if !self.config.lossy && !self.has_stalled(rq, environment) => {
                    self.receive.waits = true;
                    return;
                }
                Received::NoWqe => self.counters.rx_out_of_buffer += 1,
                Received::NotReady => self.counters.rx_not_ready += 1,
                Received::Failed(fault) => self.tell_failure(rq, fault),
                Received::Fatal(fault) => self.tell_fatal(rq, delivery.qp, fault),
            }
            self.receive.done += 1;
            if has_waited {
                // For the next one it has not waited yet.
                self.receive.waits_since = environment.clock.cycles();
            }
        }
    }

    /// Whether a ring without a WQE stops the others no longer: the frame at hand has waited for it
    /// for long, or one before.
    fn has_stalled(&mut self, rq: u32, environment: &Environment<'_>) -> bool {
        let waited = environment.clock.cycles().saturating_sub(self.receive.waits_since);
        let Some(rq) = self.rqs.get_mut(rq) else { return true };
        rq.has_stalled |= waited >= STALL_NS_MAX;
        rq.has_stalled
    }

    /// Gives the frame to the ring of one QP. Returns the ring's number and the outcome.
    #[inline]
    fn deliver_to(&mut self, delivery: Delivery, environment: &Environment<'_>) -> (u32, Received) {
        let Self { receive, tirs, wqs, rqs, memory, cqs, chance, .. } = self;
        let Receive { frame, headers, verdict, changed, .. } = receive;
        let spread = match delivery.receiver {
            Receiver::Rq(rq) => Some(Spread { rq, hash: 0, hash_type: 0 }),
            Receiver::Tir(tir) => tirs.spread(tir, wqs, headers, frame),
        };
        // The queue for which a frame waits may be destroyed meanwhile.
        let Some(Spread { rq: number, hash, hash_type }) = spread else { return (0, Received::NotReady) };
        let Some(rq) = rqs.get_mut(number) else { return (number, Received::NotReady) };
        if rq.state == WqState::Ready && chance.receive_fails() {
            return (number, rq.fail(RqFault::BadLuck, cqs, environment));
        }
        let mut found = RxHeaders {
            hash,
            hash_type,
            checksum: verdict.checksum,
            verdicts: verdict.verdicts,
            types: verdict.types,
            flow_tag: delivery.tag,
            ..RxHeaders::default()
        };
        let bytes = if rq.takes_frames_as_they_are() {
            frame.as_slice()
        } else {
            change(rq, frame, headers.vlan, changed, &mut found);
            changed.as_slice()
        };
        (number, rq.receive(bytes, found, memory, cqs, environment))
    }

    #[cold]
    fn tell_failure(&mut self, rq: u32, fault: RqFault) {
        self.counters.rx_errors += 1;
        match fault {
            RqFault::BadLuck => self.counters.rx_hostile_errors += 1,
            _ => diagnose(&mut self.diagnoses, rq, fault),
        }
    }

    /// Reports by an event that a ring cannot even complete in error.
    #[cold]
    fn tell_fatal(&mut self, rq: u32, qp: u32, fault: RqFault) {
        self.counters.rx_errors += 1;
        diagnose(&mut self.diagnoses, rq, fault);
        match self.wqs.fatal_event(rq) {
            Some(event) => self.events.push_back(event),
            None => self.qps.raise(qp, EventKind::QpFatal),
        }
    }
}

impl Rq {
    #[inline]
    fn takes_frames_as_they_are(&self) -> bool {
        !self.strips_vlan && !self.delivers_fcs
    }
}

/// Takes the tag out and puts the frame check sequence behind, which is that of the frame as it
/// came.
fn change(rq: &Rq, frame: &[u8], vlan: Option<u16>, changed: &mut Vec<u8>, found: &mut RxHeaders) {
    changed.clear();
    changed.extend_from_slice(frame);
    if let Some(tag) = vlan.filter(|_| rq.strips_vlan) {
        changed.drain(TAG);
        found.vlan = tag;
        found.types |= VLAN_STRIPPED;
    }
    if rq.delivers_fcs {
        changed.extend_from_slice(&fcs::crc32(frame));
    }
}

fn diagnose(diagnoses: &mut Diagnoses, rq: u32, fault: RqFault) {
    diagnoses.add(|| format!("receiving ring {rq:#x}: {fault}"));
}

#[cfg(test)]
mod tests;
