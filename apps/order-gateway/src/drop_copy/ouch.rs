//! Copies of OUCH 5.0 over SoupBinTCP.

use market::Price;
use order_entry::orders::ExecId;
use order_entry::ouch::v50::Outbound;
use order_entry::session::Output;
use order_entry::soupbin::{Client, ClientConfig, ClientEvent, Credentials, SessionId};

use super::Copied;
use super::reconciler::Trade;

/// Bytes of a login, and of a turn's heartbeats.
const ROOM: usize = 64;

/// The session on which the copies come.
#[derive(Debug)]
pub(super) struct OuchCopies {
    client: Client,
    out: Vec<u8>,
}

impl OuchCopies {
    pub(super) fn new(credentials: Credentials) -> Self {
        Self { client: Client::new(ClientConfig::new(credentials)), out: Vec::new() }
    }

    /// False where the login could not be written: the caller tries again.
    pub(super) fn connected(&mut self, now_ns: u64) -> bool {
        let mut room = [0; ROOM];
        let mut output = Output::new(&mut room);
        let login = match self.client.session() {
            // From the day's first trade.
            session if session.is_blank() => self.client.connect(now_ns, SessionId::BLANK, 1, &mut output),
            _ => self.client.reconnect(now_ns, &mut output),
        };
        self.out.clear();
        self.out.extend_from_slice(output.written());
        login.is_ok()
    }

    pub(super) fn disconnected(&mut self) {
        self.client.disconnected();
    }

    pub(super) fn receive(&mut self, now_ns: u64, input: &mut &[u8]) -> Result<Option<Copied>, String> {
        while let Some(event) = self.client.receive(now_ns, input).map_err(|error| error.to_string())? {
            match event {
                ClientEvent::LoggedIn { .. } => return Ok(Some(Copied::LoggedIn)),
                ClientEvent::LoginRejected(reason) => return Err(format!("the login was refused: {reason:?}")),
                ClientEvent::Sequenced { message, .. } => {
                    match read(message) {
                        // The login has no orders but its own.
                        Ok(Some(trade)) => return Ok(Some(Copied::Trade(trade, None))),
                        Ok(None) => (),
                        Err(why) => return Ok(Some(Copied::Unread(why))),
                    }
                }
                _ => (),
            }
        }
        Ok(None)
    }

    pub(super) fn tick(&mut self, now_ns: u64) -> Result<(), String> {
        let mut room = [0; ROOM];
        let mut output = Output::new(&mut room);
        self.client.tick(now_ns, &mut output).map_err(|error| error.to_string())?;
        self.out.extend_from_slice(output.written());
        Ok(())
    }

    pub(super) fn to_send(&self) -> &[u8] {
        &self.out
    }

    pub(super) fn sent(&mut self, len: usize) {
        self.out.drain(..len);
    }
}

/// The trade in a message; `None` for other messages.
fn read(message: &[u8]) -> Result<Option<Trade>, String> {
    let (message, _) = Outbound::parse(message).map_err(|error| error.to_string())?;
    Ok(match message {
        Outbound::OrderExecuted(executed) => {
            let price = i64::try_from(executed.price.get()).map_err(|_| "a price has more than 63 bits".to_owned())?;
            Some(Trade {
                id: executed.user_ref.get().into(),
                exec: ExecId::from_number(executed.match_number.get()),
                terms: Some((executed.quantity.get(), Price(price))),
                correction: None,
            })
        }
        Outbound::BrokenTrade(broken) => Some(Trade {
            id: broken.user_ref.get().into(),
            exec: ExecId::from_number(broken.match_number.get()),
            terms: None,
            correction: None,
        }),
        _ => None,
    })
}
