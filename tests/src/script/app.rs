//! `call`: the app's calls to the machine.

use super::expression::Expression;
use super::options::Setting;

/// A call of the app's.
#[derive(Clone, Debug)]
pub(super) enum Call {
    /// `connect`, `connect port N`: port 0 lets the machine choose.
    Connect(Option<Expression>),
    /// `listen`
    Listen,
    /// `unlisten`
    Unlisten,
    /// `send N`: so many bytes in one payload.
    Send(Expression),
    /// `copy N`: N bytes, copied after the waiting data.
    Copy(Expression),
    /// `fire N`: N bytes that are prepared; `NotOpen` where they would have to wait.
    Fire(Expression),
    /// `warm N`: the same, but that they leave.
    Warm(Expression),
    /// `delegate N`: another sender may send the next N bytes. The headers must begin at the next
    /// number.
    Delegate(Expression),
    /// `delegated N`: and has sent so many.
    Delegated(Expression),
    /// `withdraw`: and sends no more.
    Withdraw,
    /// `shutdown`: no more from us.
    Shutdown,
    /// `close`: we send nothing more, and discard received data.
    Close,
    /// `abort`
    Abort,
    /// `pause`, `resume`
    Pause,
    Resume,
    /// `read`: one payload that waits, where the app does not read by itself.
    Read,
    /// `options NAME VALUE`: changes them on an open connection.
    Options(Setting),
    /// `mtu N seq N`: a router reports that packets may have N bytes, and quotes a segment.
    PathMtu(Expression, Expression),
    /// `unreachable seq N`: a router reports that there is no path.
    Unreachable(Expression),
}

impl Call {
    /// Parses the words after `call`.
    pub(super) fn parse(words: &[&str]) -> Result<Self, String> {
        Ok(match *words {
            ["connect"] => Self::Connect(None),
            ["connect", "port", port] => Self::Connect(Some(Expression::parse(port)?)),
            ["listen"] => Self::Listen,
            ["unlisten"] => Self::Unlisten,
            ["send", len] => Self::Send(Expression::parse(len)?),
            ["copy", len] => Self::Copy(Expression::parse(len)?),
            ["fire", len] => Self::Fire(Expression::parse(len)?),
            ["warm", len] => Self::Warm(Expression::parse(len)?),
            ["delegate", len] => Self::Delegate(Expression::parse(len)?),
            ["delegated", len] => Self::Delegated(Expression::parse(len)?),
            ["withdraw"] => Self::Withdraw,
            ["shutdown"] => Self::Shutdown,
            ["close"] => Self::Close,
            ["abort"] => Self::Abort,
            ["pause"] => Self::Pause,
            ["resume"] => Self::Resume,
            ["read"] => Self::Read,
            ["options", ref setting @ ..] => Self::Options(Setting::parse(setting)?),
            ["mtu", mtu, "seq", seq] => Self::PathMtu(Expression::parse(mtu)?, Expression::parse(seq)?),
            ["unreachable", "seq", seq] => Self::Unreachable(Expression::parse(seq)?),
            _ => return Err(format!("there is no call {:?}", words.join(" "))),
        })
    }
}
