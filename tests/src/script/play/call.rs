//! `call`: the app asks, and hears at once what the machine says.

use wirepath::proto::ConsumerId;
use wirepath::proto::tcp::{ListenOptions, Numbers, Outgoing, Output};

use super::{Bytes, Call, Player};
use crate::script::stage::pattern;

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
    fn ask(&mut self, call: &Call) -> Result<Result<(), String>, String> {
        let flow = self.flow;
        let stage = &mut self.stage;
        let (now, options) = (stage.now, stage.options);
        match call {
            Call::Connect(port) => {
                if let Some(port) = port {
                    let port = port.value(&self.variables)? as u16;
                    stage.flows[flow].flow.local.set_port(port);
                }
                let flow_asked = stage.flows[flow].flow;
                let answer = stage.tcp.connect(flow_asked, &options.connection, ConsumerId(1), now, &mut stage.wire);
                stage.flows[flow].id = answer.as_ref().ok().copied().or(stage.flows[flow].id);
                return Ok(answer.map(drop).map_err(|error| format!("{error:?}")));
            }
            Call::Listen => {
                let answer = stage.tcp.listen(stage.flows[flow].flow.local, &options);
                stage.listener = answer.as_ref().ok().copied().or(stage.listener);
                return Ok(answer.map(drop).map_err(|error| format!("{error:?}")));
            }
            Call::Unlisten => {
                let listener = stage.listener.ok_or("nobody listens")?;
                return Ok(if stage.tcp.close_listener(listener) { Ok(()) } else { Err("NotFound".to_owned()) });
            }
            Call::PathMtu(mtu, seq) => {
                let (mtu, seq) = (mtu.value(&self.variables)? as u16, seq.value(&self.variables)? as u32);
                let peer = &stage.flows[flow];
                let seq = peer.iss.unwrap_or_default() + seq;
                return Ok(said(stage.tcp.path_mtu(peer.flow, mtu, seq, now, &mut stage.wire)));
            }
            Call::Unreachable(seq) => {
                let peer = &stage.flows[flow];
                let seq = peer.iss.unwrap_or_default() + seq.value(&self.variables)? as u32;
                return Ok(said(stage.tcp.unreachable(peer.flow, seq, now, &mut stage.wire)));
            }
            _ => (),
        }
        let id = stage.flows[flow].id.ok_or("this flow has no connection yet")?;
        Ok(match call {
            Call::Send(len) => {
                let (len, at) = (len.value(&self.variables)? as u32, stage.flows[flow].written);
                let payload = Bytes((0..len).map(|idx| pattern(at + idx)).collect());
                let answer = stage.tcp.send(id, payload, now, &mut stage.wire);
                if answer.is_ok() {
                    stage.flows[flow].written += len;
                }
                answer.map_err(|(error, _)| format!("{error:?}"))
            }
            Call::Copy(len) => {
                let (len, at) = (len.value(&self.variables)? as u32, stage.flows[flow].written);
                let bytes: Vec<u8> = (0..len).map(|idx| pattern(at + idx)).collect();
                let make = |bytes: &[u8]| Some(Bytes(bytes.to_vec()));
                let answer = stage.tcp.send_copy(id, &bytes, make, now, &mut stage.wire);
                stage.flows[flow].written += answer.as_ref().map_or(0, |count| *count as u32);
                answer.map(drop).map_err(|error| format!("{error:?}"))
            }
            Call::Fire(len) => {
                let (len, at) = (len.value(&self.variables)? as u32, stage.flows[flow].written);
                let prospect = stage.tcp.prospect(id);
                match (stage.tcp.aim(id, len as usize, now), prospect) {
                    (Ok(Some(aim)), Ok(prospect)) => {
                        let mut payload = Bytes((0..len).map(|idx| pattern(at + idx)).collect());
                        let Numbers { seq, ack, wnd, timestamps } = *aim.numbers();
                        let outgoing = Outgoing { seq, ack, wnd, timestamps, ..prospect.outgoing };
                        if stage.wire.send(None, &outgoing, Some(&mut payload)).is_err() {
                            return Err("NotOpen".to_owned());
                        }
                        aim.fired(payload);
                        stage.flows[flow].written += len;
                        Ok(())
                    }
                    (Ok(_), _) => Err("NotOpen".to_owned()),
                    (Err(error), _) => Err(format!("{error:?}")),
                }
            }
            Call::Warm(len) => {
                let len = len.value(&self.variables)? as usize;
                match stage.tcp.aim(id, len, now) {
                    Ok(Some(aim)) => {
                        aim.rehearse(Bytes(vec![0; len]));
                        Ok(())
                    }
                    Ok(None) => Err("NotOpen".to_owned()),
                    Err(error) => Err(format!("{error:?}")),
                }
            }
            Call::Delegate(len) => {
                let len = len.value(&self.variables)? as usize;
                let next = stage.flows[flow].iss.unwrap_or_default() + 1 + stage.flows[flow].written;
                match stage.tcp.delegate(id, len, now, &mut stage.wire) {
                    Ok((outgoing, _)) if outgoing.seq != next => {
                        return Err(format!("the headers begin at {:?}, and {next:?} is next", outgoing.seq));
                    }
                    answer => answer.map(drop).map_err(|error| format!("{error:?}")),
                }
            }
            Call::Delegated(len) => {
                let (len, at) = (len.value(&self.variables)? as u32, stage.flows[flow].written);
                let payload = Bytes((0..len).map(|idx| pattern(at + idx)).collect());
                let answer = stage.tcp.report(id, payload, now, &mut stage.wire);
                stage.flows[flow].written += if answer.is_ok() { len } else { 0 };
                answer.map_err(|(error, _)| format!("{error:?}"))
            }
            Call::Withdraw => said(stage.tcp.withdraw(id, now, &mut stage.wire)),
            Call::Shutdown => said(stage.tcp.shutdown(id, now, &mut stage.wire)),
            Call::Close => said(stage.tcp.close(id, now, &mut stage.wire)),
            Call::Abort => said(stage.tcp.abort(id, now, &mut stage.wire)),
            Call::Pause => said(stage.tcp.pause(id)),
            Call::Resume => said(stage.tcp.resume(id)),
            Call::Read => {
                if stage.read(flow) {
                    Ok(())
                } else {
                    Err("Nothing".to_owned())
                }
            }
            Call::Options(setting) => {
                let mut options = ListenOptions::default();
                options.connection = stage.tcp.options(id).ok_or("the connection is gone")?;
                setting.apply(&mut options);
                said(stage.tcp.set_options(id, &options.connection, now, &mut stage.wire))
            }
            Call::Connect(_) | Call::Listen | Call::Unlisten | Call::PathMtu(..) | Call::Unreachable(_) => {
                unreachable!("they are asked above")
            }
        })
    }
}

/// An answer in words.
fn said<E: core::fmt::Debug>(answer: Result<(), E>) -> Result<(), String> {
    answer.map_err(|error| format!("{error:?}"))
}
