//! Drop copies by FIX: a session for each account, on which the venue alone speaks.

use super::fix::FixLine;
use super::order_port::{Clock, Cx, End, Identified, LoginRefusal, OrderSession};
use crate::venue::{CopiesOf, Effect, Venue};

/// An account's session, for the copies of `CopiesOf::ALL[OF]`.
pub(super) struct CopySession<const OF: usize> {
    line: FixLine,
    /// Copies of the account that have a number.
    position: usize,
}

impl<const OF: usize> CopySession<OF> {
    const OF: CopiesOf = CopiesOf::ALL[OF].1;
}

impl<const OF: usize> OrderSession for CopySession<OF> {
    const IS_FOR_ORDERS: bool = false;

    fn identify(input: &[u8], venue: &Venue) -> Identified {
        FixLine::identify(input, venue)
    }

    fn refuse(_: &[u8], _: LoginRefusal) -> Vec<u8> {
        Vec::new()
    }

    fn new(input: &[u8]) -> Self {
        // A message of the application is refused: this is for reading alone.
        let mut line = FixLine::new(input, &["8"]);
        line.forgives_low = true;
        Self { line, position: 0 }
    }

    fn connected(&mut self, cx: &mut Cx<'_>) {
        self.line.connected(cx.clock);
    }

    fn take(&mut self, input: &mut Vec<u8>, output: &mut Vec<u8>, cx: &mut Cx<'_>) -> Result<Effect, End> {
        self.line.take(input, output, cx.clock, |_| Ok(Effect::None))
    }

    fn send(&mut self, output: &mut Vec<u8>, cx: &mut Cx<'_>) -> Result<bool, End> {
        let before = self.position;
        let copies = cx.venue.accounts()[cx.account].trade_copies(Self::OF);
        while let Some(copy) = copies.get(self.position) {
            let (version, epoch_ns) = (self.line.version, cx.clock.epoch_ns);
            if !self.line.send(cx.clock, "8", |out| copy.write(version, epoch_ns, out))? {
                break;
            }
            self.position += 1;
        }
        Ok(self.line.flush(output) || self.position > before)
    }

    fn disconnected(&mut self) {
        self.line.disconnected();
    }

    fn end(&mut self, output: &mut Vec<u8>, clock: Clock) {
        self.line.end(output, clock);
    }
}
