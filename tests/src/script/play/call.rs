//! `call`: the app makes a call, and the machine's result is compared at once.

use wirepath::pipeline::tcp::{ConnectionId, ListenOptions};
use wirepath::proto::ConsumerId;
use wirepath::testing::tcp::{Numbers, Outgoing, Output};

use super::{Bytes, Call, Player};
use crate::script::expression::Expression;
use crate::script::stage::pattern;

/// The machine's result: an error in words.
type Answer = Result<(), String>;

impl Player {
    pub(super) fn call(&mut self, call: &Call, expected: Option<&str>) -> Result<(), String> {
        self.stage.begin();
        let answer = self.ask(call)?;
        self.stage.after(self.flow);
        match (answer, expected) {
            (Ok(()), None) => Ok(()),
            (Ok(()), Some(_)) => Err("the call succeeded".to_owned()),
            (Err(error), None) => Err(format!("the call failed: {error}")),
            (Err(error), Some(expected)) if error.starts_with(expected) => Ok(()),
            (Err(error), Some(_)) => Err(format!("the call failed with {error}")),
        }
    }

    /// Outside: the script is wrong. Inside: the machine says no.
    fn ask(&mut self, call: &Call) -> Result<Answer, String> {
        match call {
            Call::Connect(_) | Call::Listen | Call::Unlisten => self.ask_to_open(call),
            Call::PathMtu(..) | Call::Unreachable(_) => self.claim(call),
            Call::Fire(_) | Call::Warm(_) => self.send_fast(call),
            Call::Send(_) | Call::Copy(_) | Call::Delegate(_) | Call::Delegated(_) => self.hand_over(call),
            _ => self.ask_connection(call),
        }
    }

    /// Calls before there is a connection.
    fn ask_to_open(&mut self, call: &Call) -> Result<Answer, String> {
        let stage = &mut self.stage;
        let (now, options, flow) = (stage.now, stage.options, &mut stage.flows[self.flow]);
        Ok(match call {
            Call::Connect(port) => {
                if let Some(port) = port {
                    flow.flow.local.set_port(port.value(&self.variables)? as u16);
                }
                let answer = stage.tcp.connect(flow.flow, &options.connection, ConsumerId(1), now, &mut stage.wire);
                flow.id = answer.as_ref().ok().copied().or(flow.id);
                said(answer)
            }
            Call::Listen => {
                let answer = stage.tcp.listen(flow.flow.local, &options);
                stage.listener = answer.as_ref().ok().copied().or(stage.listener);
                said(answer)
            }
            _ => {
                let listener = stage.listener.ok_or("nobody listens")?;
                if stage.tcp.close_listener(listener) { Ok(()) } else { Err("NotFound".to_owned()) }
            }
        })
    }

    /// A router's report.
    fn claim(&mut self, call: &Call) -> Result<Answer, String> {
        let stage = &mut self.stage;
        let (now, peer) = (stage.now, &stage.flows[self.flow]);
        let quoted =
            |seq: &Expression| Ok::<_, String>(peer.iss.unwrap_or_default() + seq.value(&self.variables)? as u32);
        Ok(match call {
            Call::PathMtu(mtu, seq) => {
                let mtu = mtu.value(&self.variables)? as u16;
                said(stage.tcp.path_mtu(peer.flow, mtu, quoted(seq)?, now, &mut stage.wire))
            }
            Call::Unreachable(seq) => said(stage.tcp.unreachable(peer.flow, quoted(seq)?, now, &mut stage.wire)),
            _ => unreachable!("a router says no more"),
        })
    }

    /// Data, and numbers for it.
    fn hand_over(&mut self, call: &Call) -> Result<Answer, String> {
        let (Call::Send(len) | Call::Copy(len) | Call::Delegate(len) | Call::Delegated(len)) = call else {
            unreachable!("all of these have a length")
        };
        let (id, len) = (self.id()?, len.value(&self.variables)? as u32);
        let stage = &mut self.stage;
        let (now, flow) = (stage.now, &mut stage.flows[self.flow]);
        let bytes = bytes_from(flow.written, len);
        let (taken, answer) = match call {
            Call::Send(_) => {
                let answer = stage.tcp.send(id, Bytes(bytes), now, &mut stage.wire);
                (len, said(answer.map_err(|(error, _)| error)))
            }
            Call::Copy(_) => {
                let make = |bytes: &[u8]| Some(Bytes(bytes.to_vec()));
                let answer = stage.tcp.send_copy(id, &bytes, make, now, &mut stage.wire);
                (answer.as_ref().map_or(0, |count| *count as u32), said(answer))
            }
            Call::Delegate(_) => {
                let next = flow.iss.unwrap_or_default() + 1 + flow.written;
                let answer = stage.tcp.delegate(id, len as usize, now, &mut stage.wire);
                if let Ok((outgoing, _)) = &answer
                    && outgoing.seq != next
                {
                    return Err(format!("the headers begin at {:?}, and {next:?} is next", outgoing.seq));
                }
                (0, said(answer))
            }
            _ => {
                let answer = stage.tcp.report(id, Bytes(bytes), now, &mut stage.wire);
                (len, said(answer.map_err(|(error, _)| error)))
            }
        };
        flow.written += if answer.is_ok() { taken } else { 0 };
        Ok(answer)
    }

    /// A prepared segment: it leaves, or is tried without leaving.
    fn send_fast(&mut self, call: &Call) -> Result<Answer, String> {
        let (Call::Fire(len) | Call::Warm(len)) = call else { unreachable!("both have a length") };
        let (id, len) = (self.id()?, len.value(&self.variables)? as u32);
        let stage = &mut self.stage;
        let (now, flow) = (stage.now, &mut stage.flows[self.flow]);
        let template = stage.tcp.header_template(id);
        let Some(permit) = stage.tcp.send_permit(id, len as usize, now) else { return Ok(Err("NotOpen".to_owned())) };
        if let Call::Warm(_) = call {
            permit.dry_run(Bytes(vec![0; len as usize]));
            return Ok(Ok(()));
        }
        let template = template.map_err(|error| format!("what may leave has no headers: {error:?}"))?;
        let mut payload = Bytes(bytes_from(flow.written, len));
        let Numbers { seq, ack, wnd, timestamps } = permit.numbers();
        let outgoing = Outgoing { seq, ack, wnd, timestamps, ..template.outgoing };
        if stage.wire.send(None, &outgoing, Some(&mut payload)).is_err() {
            return Err("NotOpen".to_owned());
        }
        permit.commit(payload);
        flow.written += len;
        Ok(Ok(()))
    }

    /// Calls without data.
    fn ask_connection(&mut self, call: &Call) -> Result<Answer, String> {
        let id = self.id()?;
        let stage = &mut self.stage;
        let now = stage.now;
        Ok(match call {
            Call::Withdraw => said(stage.tcp.withdraw(id, now, &mut stage.wire)),
            Call::Shutdown => said(stage.tcp.shutdown(id, now, &mut stage.wire)),
            Call::Close => said(stage.tcp.close(id, now, &mut stage.wire)),
            Call::Abort => said(stage.tcp.abort(id, now, &mut stage.wire)),
            Call::Pause => said(stage.tcp.pause(id)),
            Call::Resume => said(stage.tcp.resume(id)),
            Call::Read if stage.read(self.flow) => Ok(()),
            Call::Read => Err("Nothing".to_owned()),
            Call::Options(setting) => {
                let mut options = ListenOptions::default();
                options.connection = stage.tcp.options(id).ok_or("the connection is gone")?;
                setting.apply(&mut options);
                said(stage.tcp.set_options(id, &options.connection, now, &mut stage.wire))
            }
            _ => unreachable!("the others are asked elsewhere"),
        })
    }

    fn id(&self) -> Result<ConnectionId, String> {
        self.stage.flows[self.flow].id.ok_or_else(|| "this flow has no connection yet".to_owned())
    }
}

/// `len` bytes of our stream from position `at` on.
fn bytes_from(at: u32, len: u32) -> Vec<u8> {
    (at..at + len).map(pattern).collect()
}

/// An answer in words.
fn said<T, E: core::fmt::Debug>(answer: Result<T, E>) -> Answer {
    answer.map(drop).map_err(|error| format!("{error:?}"))
}
