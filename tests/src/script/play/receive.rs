//! `<`: a segment of the peer, written as bytes and parsed again, so that its errors appear as on a
//! wire.

use wirepath::pipeline::tcp::Seq;
use wirepath::testing::tcp::Segment;
use wirepath::wire::tcp::{
    SackBlock, TcpFields, TcpFlags, TcpHeader, TcpOption, TcpOptionList, TcpSegment, Timestamps,
};

use super::Player;
use crate::script::expression::Expression;
use crate::script::segment::{Incoming, OptionLine};
use crate::script::stage::pattern;

impl Player {
    pub(super) fn receive(&mut self, incoming: &Incoming) -> Result<(), String> {
        let seq = match &incoming.seq {
            Some(seq) => seq.value(&self.variables)?,
            None => self.peer().next.0.into(),
        };
        let len = incoming.len.value(seq, &self.variables)? as u32;
        let seq = Seq(seq as u32);
        let is_syn = incoming.flags.contains(TcpFlags::SYN);
        let behind = seq + len + u32::from(is_syn) + u32::from(incoming.flags.contains(TcpFlags::FIN));
        if let Some(win) = &incoming.win {
            self.peer_mut().win = u16::try_from(win.value(&self.variables)?).map_err(|_| "a window has 16 bits")?;
        }
        let ack = match &incoming.ack {
            Some(ack) => self.peer().iss.unwrap_or_default() + ack.value(&self.variables)? as u32,
            None => Seq(0),
        };
        let urgent = incoming.urgent.as_ref().map_or(Ok(0), |urgent| urgent.value(&self.variables))?;
        let options = self.option_bytes(&incoming.options)?;
        let peer = self.peer_mut();
        if is_syn && peer.irs.is_none() {
            (peer.irs, peer.next) = (Some(seq), behind);
        }
        let fields = TcpFields {
            source_port: peer.flow.remote.port(),
            destination_port: peer.flow.local.port(),
            seq: seq.0,
            ack: ack.0,
            flags: incoming.flags,
            window: peer.win,
            urgent_pointer: urgent as u16,
        };
        // A RST has the number that the script gives; segments after it do not continue from it.
        let next = if incoming.flags.contains(TcpFlags::RST) { peer.next } else { peer.next.max(behind) };
        peer.next = next;
        let first = seq - peer.irs.unwrap_or_default() + u32::from(is_syn);
        let payload: Vec<u8> = (0..len).map(|at| pattern(first.wrapping_sub(1).wrapping_add(at))).collect();
        let segment = parse(&fields, &options, &payload, incoming.ce)?;
        self.stage.receive(self.flow, segment, payload);
        Ok(())
    }

    fn option_bytes(&self, options: &[OptionLine]) -> Result<Vec<u8>, String> {
        let value = |expression: &Expression| expression.value(&self.variables).map(|value| value as u32);
        let mut bytes = Vec::new();
        for option in options {
            let mut list = TcpOptionList::EMPTY;
            let pushed = match option {
                OptionLine::Mss(mss) => list.push(TcpOption::MaximumSegmentSize(value(mss)? as u16)),
                OptionLine::WindowScale(shift) => list.push(TcpOption::WindowScale(value(shift)? as u8)),
                OptionLine::SackPermitted => list.push(TcpOption::SackPermitted),
                OptionLine::Timestamps(Some(stamp), Some(echo)) => list.push(TcpOption::Timestamps(Timestamps {
                    value: value(stamp)?,
                    // Ours are counted from our first.
                    echo_reply: self.peer().clock.unwrap_or(0).wrapping_add(value(echo)?),
                })),
                OptionLine::Timestamps(..) => return Err("the peer's timestamps are numbers".to_owned()),
                OptionLine::Sack(blocks) => {
                    let iss = self.peer().iss.unwrap_or_default();
                    let block = |(left, right): &(Expression, Expression)| {
                        Ok::<_, String>(SackBlock::new([(iss + value(left)?).0, (iss + value(right)?).0]))
                    };
                    list.push(TcpOption::Sack(&blocks.iter().map(block).collect::<Result<Vec<_>, _>>()?))
                }
                OptionLine::Raw(raw) => {
                    bytes.extend_from_slice(raw);
                    continue;
                }
            };
            pushed.map_err(|_| "more options than a header holds")?;
            bytes.extend_from_slice(list.as_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        Ok(bytes)
    }
}

fn parse(fields: &TcpFields, options: &[u8], payload: &[u8], ce: bool) -> Result<Segment, String> {
    let header = TcpHeader::new(fields, options).map_err(|_| "more options than a header holds")?;
    let mut bytes = vec![0; TcpHeader::LEN + options.len()];
    header.emit(options, &mut bytes).map_err(|_| "the header does not fit")?;
    bytes.extend_from_slice(payload);
    let parsed = TcpSegment::parse(&bytes).map_err(|error| format!("that is no segment: {error:?}"))?;
    Ok(Segment::new(&parsed, ce))
}
