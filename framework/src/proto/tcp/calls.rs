//! What an app may ask of the machine (RFC 9293 3.10.1 to 3.10.6).

use core::net::SocketAddrV4;

use super::connection::{Connection, State};
use super::event::{ConnectError, ConnectionId, ListenError, ListenerId, SendError};
use super::listener::ListenOptions;
use super::machine::Tcp;
use super::options::ConnectionOptions;
use super::payload::{Output, Payload};
use super::queue::{Chunk, PUSH};
use crate::proto::slab::NIL;
use crate::proto::{ConsumerId, Flow};
use crate::time::Instant;

impl<P: Payload> Tcp<P> {
    /// Listens at `local`; the unspecified address stands for all of ours.
    pub fn listen(&mut self, local: SocketAddrV4, options: &ListenOptions) -> Result<ListenerId, ListenError> {
        self.listeners.open(local, options)
    }

    /// Begins a connection; `Connected` or `Closed` tells what became of it.
    pub fn connect<O: Output<P>>(
        &mut self,
        flow: Flow,
        options: &ConnectionOptions,
        consumer: ConsumerId,
        now: Instant,
        output: &mut O,
    ) -> Result<ConnectionId, ConnectError> {
        options.check().map_err(ConnectError::Option)?;
        let connection = Connection::new(flow, State::SynSent, options, consumer, now);
        let taken = ConnectError::AddressInUse { local: flow.local, remote: flow.remote };
        let slot = self.insert(connection).ok_or(taken)?;
        self.shared.tally.active_opens += 1;
        let mut turn = self.turn(slot, output, now);
        turn.choose_secrets();
        turn.send_syn();
        Ok(ConnectionId { slot, generation: turn.connection.generation })
    }

    /// Sends data; it comes back where it is not taken.
    pub fn send<O: Output<P>>(
        &mut self,
        id: ConnectionId,
        payload: P,
        now: Instant,
        output: &mut O,
    ) -> Result<(), (SendError, P)> {
        let Some(slot) = self.find(id) else { return Err((SendError::NotFound, payload)) };
        let turn = self.turn(slot, output, now);
        if !turn.connection.state.may_send() {
            return Err((SendError::Closed, payload));
        }
        let behind = turn.shared.chunks.get(turn.connection.send.tail).map(Chunk::end);
        let (seq, len) = (behind.unwrap_or(turn.connection.snd_nxt), payload.len() as u32);
        let mut chunk = Chunk::new(seq, len, Some(payload));
        chunk.flags = PUSH;
        match turn.connection.send.push_back(&mut turn.shared.chunks, chunk) {
            Ok(idx) if turn.connection.next_unsent == NIL => turn.connection.next_unsent = idx,
            Ok(_) => (),
            Err(chunk) => return Err((SendError::Full, chunk.payload.expect("it was put in above"))),
        }
        turn.connection.send_len += len;
        self.turn(slot, output, now).transmit();
        Ok(())
    }
}
