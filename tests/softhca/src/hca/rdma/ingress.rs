//! RoCE packets that came in: to which endpoint, and as what.

use super::endpoint::{Endpoints, Receivers};
use super::frame::{self, Arrived};
use super::packet::{CNP, Form, Headers, Operation};
use super::responder::{Incoming, Outcome};
use crate::hca::Hca;
use crate::hca::control::{Gid, QpState, Service};
use crate::hca::environment::Environment;
use crate::hca::work::Work;

/// The number to which multicast datagrams are sent.
const MULTICAST: u32 = 0xff_ffff;

impl Endpoints {
    /// Whether a frame is theirs: RoCE, to the port's own address or a group that one of them has
    /// joined, while there is any.
    pub(in crate::hca) fn is_for_rdma(&self, frame: &[u8], own: &[u8; 6]) -> bool {
        if !self.is_in_use() {
            return false;
        }
        let Some(arrived) = frame::parse(frame) else { return false };
        frame.starts_with(own) || self.groups.iter().any(|(group, _)| *group == arrived.destination)
    }
}

impl Hca {
    /// Executes a packet. `false` where it must wait for a receive WQE.
    pub(in crate::hca) fn take_packet(&mut self, frame: &[u8], environment: &mut Environment<'_>) -> bool {
        let Some(arrived) = frame::parse(frame) else { return true };
        if !arrived.is_intact {
            self.counters.rdma_icrc_errors += 1;
            return true;
        }
        let Some((headers, payload)) = Headers::parse(arrived.packet) else {
            self.counters.rdma_dropped += 1;
            return true;
        };
        self.counters.rdma_rx_packets += 1;
        if headers.opcode == CNP {
            self.counters.rdma_cnps += 1;
            return true;
        }
        let Some(form) = Form::of(headers.opcode) else { return true };
        let incoming = Incoming { form, headers: &headers, payload, arrived: &arrived };
        if headers.destination != MULTICAST {
            let slot = self.qps.slot_of(headers.destination).and_then(|slot| self.qps.sqs.get(slot)?.endpoint);
            return self.take_for(slot, &incoming, environment);
        }
        let members = self.endpoints.groups.iter().filter(|(gid, _)| *gid == arrived.destination);
        let members: Vec<u32> = members.map(|(_, slot)| *slot).collect();
        // A member without a WQE goes without the datagram, or the others would get it twice.
        for slot in members {
            self.take_for(Some(slot), &incoming, environment);
        }
        true
    }

    fn take_for(&mut self, slot: Option<u32>, incoming: &Incoming<'_>, environment: &mut Environment<'_>) -> bool {
        let mut qp_events = Vec::new();
        let Self { config, memory, cqs, counters, diagnoses, chance, link, qps, rqs, srqs, endpoints, .. } = self;
        let endpoint = slot.and_then(|slot| endpoints.get_mut(slot));
        let Some((endpoint, sq)) = endpoint.and_then(|endpoint| {
            let sq = qps.slot_of(endpoint.number).and_then(|slot| qps.sqs.get_mut(slot))?;
            Some((endpoint, sq))
        }) else {
            counters.rdma_dropped += 1;
            return true;
        };
        let gids = config.gids();
        let is_ready =
            matches!(endpoint.state, QpState::ReadyToReceive | QpState::ReadyToSend | QpState::SendQueueError);
        let is_of_service = service_of(incoming.headers.opcode) == Some(endpoint.service);
        let address = endpoint.attributes.address;
        let is_of_peer =
            endpoint.service == Service::Ud || is_from(incoming.arrived, &address.gid, &gids, address.source_index);
        if !is_ready || !is_of_service || !is_of_peer {
            counters.rdma_dropped += 1;
            return true;
        }
        let mut work = Work {
            config,
            memory,
            cqs,
            counters,
            diagnoses,
            chance,
            link: *link,
            environment,
            qp_events: &mut qp_events,
        };
        let mut receivers = Receivers { rqs, srqs };
        let is_answer = matches!(
            incoming.form.operation,
            Operation::ReadResponse | Operation::Acknowledge | Operation::AtomicAcknowledge
        );
        let mut outcome = Outcome::Done;
        if is_answer {
            let Incoming { form, headers, payload, .. } = *incoming;
            if !endpoint.requester().take_answer(form, headers, payload, sq, &mut work) {
                work.counters.rdma_duplicates += 1;
            }
            endpoint.follow(sq, &mut receivers, &mut work);
        } else {
            let terms = endpoint.terms(work.config);
            outcome = {
                let mut source = endpoint.source(&mut receivers);
                endpoint.responder.take(incoming, &terms, &mut source, &mut work)
            };
            match outcome {
                Outcome::Done => endpoint.establish(&mut work),
                Outcome::Waits => {}
                Outcome::Failed(event) => {
                    work.qp_events.push((endpoint.qp, event));
                    endpoint.enter_error(sq, &mut receivers, &mut work);
                }
            }
        }
        self.srqs.look_at_limits();
        for (qp, event) in qp_events {
            self.qps.raise(qp, event);
        }
        outcome != Outcome::Waits
    }
}

/// The service of an opcode.
fn service_of(opcode: u8) -> Option<Service> {
    match opcode & 0xe0 {
        0x00 => Some(Service::Rc),
        0x20 => Some(Service::Uc),
        0x60 => Some(Service::Ud),
        _ => None,
    }
}

/// Whether a packet goes between the two addresses of a connection.
fn is_from(arrived: &Arrived<'_>, peer: &Gid, gids: &[Gid], source_index: u8) -> bool {
    arrived.source == *peer && gids.get(usize::from(source_index)) == Some(&arrived.destination)
}
